"""ElastiSim's application models as our applications.

| ElastiSim | ours |
|---|---|
| ``cpu``: flops | compute, as much as the busiest node has |
| ``cpu``: bytes | communicate, over the busiest link; what fits under the flops of the same task is hidden |
| ``gpu`` | the same, on the node's GPUs; traffic inside a node costs nothing |
| ``pfs_read``, ``pfs_write`` | read, write |
| ``bb_read``, ``bb_write`` | idle for bytes over the burst buffer's bandwidth; without one, read and write |
| ``busy_wait``, ``idle`` | idle |
| ``sequence`` | its tasks, as often as it says |

Iterations of one task are one longer task. What cannot be said in our terms is told to ``notes``. Arguments
are values, not text that is pasted into formulas: with ``x`` = ``"a+b"``, ``2*x`` is twice the sum. Formulas
may use ``phase_iteration``, which counts the iterations of a phase from 0. ElastiSim has it in evolving
requests only, where it also has ``num_nodes_min`` and ``num_nodes_max``; here they are known everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.application import Fixed, TaskKind
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.readers.elastisim_form import (
    ApplicationForm,
    Form,
    Formula,
    KnownAmount,
    PhaseForm,
    Repeated,
    Rule,
    TaskForm,
)
from dask_hpc.simulator.readers.elastisim_platform import ElastisimPlatform
from dask_hpc.simulator.values import Notes, Readers, as_it_is, flag, read_values

VECTOR_PATTERNS = ("all_ranks", "total", "uniform", "root_only", "even_ranks", "odd_ranks", "vector")
_RINGS = ("ring", "ring_clockwise", "ring_counter_clockwise")
MATRIX_PATTERNS = ("all_to_all", "gather", "scatter", "master_worker", *_RINGS, "matrix")
#: patterns under which some nodes have nothing to do
_UNEVEN = ("root_only", "even_ranks", "odd_ranks", "vector")


def known_pattern(value: Any, known: tuple[str, ...], where: str) -> str:
    """Its name in small letters."""
    name = value.lower() if isinstance(value, str) else value
    if name not in known:
        raise InputError(where, f"found {shown(value)}{nearest(name, known)}", ", ".join(known))
    return str(name)


def explicit(value: Any, length: int | None, where: str) -> list[float]:
    """The payloads of a ``vector`` or a ``matrix``, which only jobs of one size can have."""
    if length is None:
        raise InputError(where, "a vector or a matrix fits one size only", "a rigid job, or another pattern")
    if not isinstance(value, list) or len(value) != length:
        found = f"{len(value)} numbers" if isinstance(value, list) else shown(value)
        raise InputError(where, f"found {found}", f"a list of {length} numbers")
    for at, one in enumerate(value):
        fits = isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= 1e300
        insist(fits, f"{where}[{at}]", one, "a number, 0 or more")
    return [float(one) for one in value]


def largest_stream(value: Any, nodes: int | None, where: str) -> Fixed:
    """Of an explicit matrix: the most that any node sends to another one."""
    cells = explicit(value, nodes * nodes if nodes else None, where)
    assert nodes is not None
    return Fixed(max((cell for at, cell in enumerate(cells) if at // nodes != at % nodes), default=0.0))


def busiest_link(value: Any, nodes: int | None, where: str) -> Fixed:
    """Of an explicit matrix: the most that any node sends, or receives."""
    cells = explicit(value, nodes * nodes if nodes else None, where)
    assert nodes is not None
    off = [0.0 if at // nodes == at % nodes else cell for at, cell in enumerate(cells)]
    sent = max(sum(off[row * nodes : (row + 1) * nodes]) for row in range(nodes))
    received = max(sum(off[column::nodes]) for column in range(nodes))
    return Fixed(max(sent, received))


def _keys(*keys: str) -> Readers:
    flags = ("scheduling_point", "final_scheduling_point", "barrier", "synchronized", "coupled", "async")
    return {key: flag if key in flags else as_it_is for key in keys}


_DEEPEST = 40
_ONCE = {"on_init": "on_start", "on_reconfiguration": "on_resize", "on_expansion": "on_expansion"}
_MODEL = _keys(*_ONCE, "phases")
_PHASE = _keys(
    "iterations", "scheduling_point", "final_scheduling_point", "barrier", "evolving_request", "tasks"
)
_ANY = ("type", "name", "iterations", "synchronized")
_PROCESSOR = _keys(*_ANY, "flops", "computation_pattern", "bytes", "communication_pattern", "coupled")
_STORAGE = _keys(*_ANY, "bytes", "pattern", "async")
_DELAY = _keys(*_ANY, "delay", "pattern")
#: type -> its keys, and those that it needs
_TASKS: Mapping[str, tuple[Readers, tuple[str, ...]]] = {
    "cpu": (_PROCESSOR, ()),
    "gpu": (_PROCESSOR, ()),
    **dict.fromkeys(("pfs_read", "pfs_write", "bb_read", "bb_write"), (_STORAGE, ("bytes", "pattern"))),
    "busy_wait": (_DELAY, ("delay", "pattern")),
    "idle": (_DELAY, ("delay", "pattern")),
    "sequence": (_keys(*_ANY, "tasks"), ("tasks",)),
}


@dataclass(frozen=True, slots=True)
class ModelReader:
    """Reads an application model for jobs that are alike but for their arguments and sizes."""

    #: the size of a rigid job
    nodes: int | None
    #: GPUs it uses on each node
    gpus: int
    evolving: bool
    machine: ElastisimPlatform | None
    #: lines about what was left out, in order
    notes: Notes
    #: names that formulas use
    names: set[str] = field(default_factory=set)

    def form(self, found: Any) -> ApplicationForm:
        """Of one application model; complaints name the key path."""
        values = read_values(found, _MODEL, needed=("phases",))
        once = {
            name: self._one_time(values[key], key) if key in values else () for key, name in _ONCE.items()
        }
        insist(isinstance(values["phases"], list), "phases", values["phases"], "a list of phases")
        phases = [self._phase(one, f"phases[{at}]") for at, one in enumerate(values["phases"])]
        return ApplicationForm(tuple(phases), **once, names=frozenset(self.names))

    def _one_time(self, found: Any, where: str) -> tuple[PhaseForm, ...]:
        if isinstance(found, list):  # as in older versions
            return (PhaseForm(self._tasks(found, where), self._formula(1, where)),)
        return (self._phase(found, where),)

    def _phase(self, found: Any, where: str) -> PhaseForm:
        values = read_values(found, _PHASE, where, needed=("tasks",))
        steps = self._tasks(values["tasks"], f"{where}.tasks")
        times = self._formula(values.get("iterations", 1), f"{where}.iterations")
        if not values.get("final_scheduling_point", True):
            self.notes.add("final_scheduling_point is not read: points are before each iteration")
        request = None
        if "evolving_request" in values:
            request = self._formula(values["evolving_request"], f"{where}.evolving_request")
            if not self.evolving:
                self.notes.add("an evolving_request of a job that is not evolving is left out")
                request = None
        return PhaseForm(steps, times, values.get("scheduling_point", True), request)

    def _formula(self, value: Any, where: str) -> Formula:
        with within(where):
            expression = Expression.parse(value)
        self.names.update(expression.names)
        return Formula(expression, where, value)

    def _amount(self, values: Mapping[str, Any], key: str, where: str) -> Formula:
        return self._formula(values[key], f"{where}.{key}")

    def _tasks(self, found: Any, where: str) -> tuple[TaskForm | Repeated, ...]:
        insist(isinstance(found, list), where, found, "a list of tasks")
        if where.count("tasks[") > _DEEPEST:
            raise InputError(where[:60] + "...", "nested too deeply", f"{_DEEPEST} sequences in each other")
        return tuple(step for at, one in enumerate(found) for step in self._task(one, f"{where}[{at}]"))

    def _task(self, found: Any, where: str) -> tuple[TaskForm | Repeated, ...]:
        insist(isinstance(found, dict), where, found, "a task")
        kind = str(found.get("type")).lower()
        if kind not in _TASKS:
            hint = nearest(kind, _TASKS) if "type" in found else ""
            raise InputError(f"{where}.type", f"found {shown(found.get('type'))}{hint}", ", ".join(_TASKS))
        keys, needed = _TASKS[kind]
        values = read_values(found, keys, where, needed=needed)
        steps: tuple[TaskForm | Repeated, ...]
        if kind == "sequence":
            steps = self._tasks(values["tasks"], f"{where}.tasks")
        elif kind in ("cpu", "gpu"):
            steps = self._processor(values, kind == "gpu", where)
        elif "delay" in values:
            steps = (TaskForm("idle", self._busiest(values, "delay", "pattern", where)),)
        else:
            steps = (self._storage(values, kind, where),)
        patterns = {str(values.get(key)).lower() for key in ("pattern", "computation_pattern")}
        if not values.get("synchronized") and not patterns.isdisjoint(_UNEVEN):
            self.notes.add("nodes without work in a task wait for those with work before their next one")
        if "iterations" not in values:
            return steps
        return (Repeated(steps, self._amount(values, "iterations", where)),)

    def _busiest(self, values: Mapping[str, Any], key: str, pattern_key: str, where: str) -> Form:
        """What the busiest node has to do."""
        pattern = known_pattern(values.get(pattern_key), VECTOR_PATTERNS, f"{where}.{pattern_key}")
        if pattern == "vector":
            return KnownAmount(Fixed(max(explicit(values[key], self.nodes, f"{where}.{key}"))))
        return Rule(pattern, (self._amount(values, key, where),))

    def _processor(self, values: Mapping[str, Any], on_gpus: bool, where: str) -> tuple[TaskForm, ...]:
        """What is computed and sent, the slower of the two, coupled or not."""
        if "flops" not in values and "bytes" not in values:
            raise InputError(f"{where}.flops", "is missing", "flops, bytes, or both")
        flops_per_gpu = self._flops_per_gpu(where) if on_gpus else 0.0
        machine = self.machine
        steps = []
        if "flops" in values:
            flops = self._busiest(values, "flops", "computation_pattern", where)
            if machine and on_gpus:
                flops = Rule("scaled", (flops,), (machine.platform.speed / (self.gpus * flops_per_gpu),))
            steps.append(TaskForm("compute", flops))
        if "bytes" in values:
            sent = self._sent(values, on_gpus, where)
            latency = machine.latency if machine else 0.0
            before = Rule("a latency", (sent,), (latency,)) if latency else None
            if "flops" not in values:
                steps.append(TaskForm("communicate", sent, before=before))
            elif machine is None:
                self.notes.add("without a platform, a task's communication follows its computation instead "
                               "of overlapping it")  # fmt: skip
                steps.append(TaskForm("communicate", sent))
            elif machine.platform.link < inf:  # over links without end it takes no time anyway
                ratio = machine.platform.link / machine.platform.speed
                if latency and not values.get("coupled"):  # it computes meanwhile; else that waits as well
                    sent, before = Rule("delayed", (sent,), (latency * machine.platform.link,)), None
                rest = Rule("not hidden", (sent, flops), (ratio,))
                steps.append(TaskForm("communicate", rest, before=before))
        return tuple(steps)

    def _sent(self, values: Mapping[str, Any], on_gpus: bool, where: str) -> Form:
        path = f"{where}.communication_pattern"
        pattern = known_pattern(values.get("communication_pattern"), MATRIX_PATTERNS, path)
        if on_gpus and pattern not in ("all_to_all", *_RINGS):
            raise InputError(path, f"found {shown(pattern)} for GPUs", "all_to_all, or a ring")
        if pattern == "matrix":
            link = busiest_link(values["bytes"], self.nodes, f"{where}.bytes")
            stream = largest_stream(values["bytes"], self.nodes, f"{where}.bytes")
            return self._over_latency(KnownAmount(link), KnownAmount(stream))
        payload: Form = self._amount(values, "bytes", where)
        if on_gpus:
            if self.gpus > 1:
                self.notes.add("traffic between the GPUs of one node takes no time")
            rule = "all GPUs" if pattern == "all_to_all" else "a ring of GPUs"
            payload = Rule(rule, (payload,), (self.gpus,))
        return self._over_latency(Rule(pattern, (payload,)), Rule(f"a stream of {pattern}", (payload,)))

    def _over_latency(self, carried: Form, stream: Form) -> Form:
        """What the busiest link carries, or, if it takes longer, what one node sends to another one: then
        the link carries nothing for a part of the time."""
        machine = self.machine
        if machine is None or machine.stream >= machine.platform.link:
            return carried
        return Rule("the slower", (carried, stream), (machine.platform.link / machine.stream,))

    def _flops_per_gpu(self, where: str) -> float:
        machine = self.machine
        if machine is None:
            raise InputError(where, "is for GPUs, and without a platform their speed is unknown",
                             "a configuration with a platform_file")  # fmt: skip
        if not machine.gpus:
            raise InputError(where, "is for GPUs, and the platform's nodes have none",
                             "num_gpus and flops_per_gpu in the platform")  # fmt: skip
        if not 1 <= self.gpus <= machine.gpus:
            raise InputError(where, f"is for GPUs, and its job uses {self.gpus} on each node",
                             f"num_gpus_per_node from 1 to {machine.gpus}")  # fmt: skip
        return machine.flops_per_gpu

    def _storage(self, values: Mapping[str, Any], kind: str, where: str) -> TaskForm:
        if values.get("async"):
            self.notes.add("asynchronous reading and writing is waited for")
        reads = kind.endswith("read")
        if kind.startswith("bb_"):
            machine = self.machine
            rate = machine and (machine.burst_read if reads else machine.burst_write)
            if rate:
                busiest = self._busiest(values, "bytes", "pattern", where)
                return TaskForm("idle", Rule("scaled", (busiest,), (1.0 / rate,)))
            self.notes.add("the platform has no burst buffers: the file system is used instead")
        pattern = known_pattern(values["pattern"], VECTOR_PATTERNS, f"{where}.pattern")
        root_only = pattern == "root_only"
        if pattern == "vector":
            payloads = explicit(values["bytes"], self.nodes, f"{where}.bytes")
            root_only = not any(payloads[1:])
            each = payloads[0] if root_only else sum(payloads) / len(payloads)
            form: Form = KnownAmount(Fixed(each))
        else:
            form = Rule(pattern, (self._amount(values, "bytes", where),))
        if pattern == "vector" and not root_only:
            self.notes.add("what nodes read or write unevenly is shared evenly by all of them")
        latency = self.machine.file_latency if self.machine else 0.0
        before = KnownAmount(Fixed(latency)) if latency else None
        every = 2 if pattern in ("even_ranks", "odd_ranks") else 1
        way: TaskKind = "read" if reads else "write"
        return TaskForm(way, form, root_only, before, every, others=pattern == "odd_ranks")
