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
are values, not text that is pasted into formulas: with ``x`` = ``"a+b"``, ``2*x`` is twice the sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.amount import Arguments, Expression, Fixed
from dask_hpc.simulator.application import Amount, Application, Phase, Task
from dask_hpc.simulator.readers.elastisim_platform import ElastisimPlatform
from dask_hpc.simulator.readers.values import Notes, json_flag, need
from dask_hpc.simulator.readers.yaml_application import MOST_ITERATIONS

VECTOR_PATTERNS = ("all_ranks", "total", "uniform", "root_only", "even_ranks", "odd_ranks", "vector")
MATRIX_PATTERNS = (
    "all_to_all", "gather", "scatter", "master_worker", "ring", "ring_clockwise",
    "ring_counter_clockwise", "matrix",
)  # fmt: skip
#: patterns under which some nodes have nothing to do
UNEVEN = ("root_only", "even_ranks", "odd_ranks", "vector")


@dataclass(frozen=True, slots=True)
class Busiest:
    """What the node with the most work does, or the link with the most traffic carries."""

    payload: Amount
    pattern: str

    def __call__(self, nodes: int) -> float:
        payload = self.payload(nodes)
        match self.pattern:
            case "all_ranks" | "total":
                return payload / nodes
            case "uniform" | "root_only":
                return payload
            case "even_ranks":
                return payload / ((nodes + 1) // 2)
            case "odd_ranks":
                return payload / (nodes // 2) if nodes > 1 else 0.0
        if nodes == 1:  # nobody to talk to
            return 0.0
        match self.pattern:
            case "gather" | "scatter":  # the root's link; its own share stays at home
                return payload * (nodes - 1) / nodes
            case "master_worker":  # half of it goes out over the root's link, half comes in
                return payload / 2
            case _:  # all_to_all and the rings: every link carries the same
                return payload / nodes


@dataclass(frozen=True, slots=True)
class SharedByAll:
    """A payload shared by some of the nodes, as the same total shared by all of them."""

    payload: Amount
    pattern: str

    def __call__(self, nodes: int) -> float:
        if self.pattern == "odd_ranks" and nodes == 1:
            return 0.0
        return self.payload(nodes) / nodes


@dataclass(frozen=True, slots=True)
class Scaled:
    """An amount in another unit, or done several times."""

    amount: Amount
    factor: float

    def __call__(self, nodes: int) -> float:
        return self.amount(nodes) * self.factor


@dataclass(frozen=True, slots=True)
class Repeated:
    """An amount as often as a formula says; parts of a time do not count."""

    amount: Amount
    times: Amount

    def __call__(self, nodes: int) -> float:
        return self.amount(nodes) * max(0, int(self.times(nodes)))


@dataclass(frozen=True, slots=True)
class NotHidden:
    """Bytes that are still under way when the computation that overlaps them is over."""

    sent: Amount
    computed: Amount
    bytes_per_operation: float

    def __call__(self, nodes: int) -> float:
        return max(0.0, self.sent(nodes) - self.computed(nodes) * self.bytes_per_operation)


@dataclass(frozen=True, slots=True)
class BetweenNodes:
    """The part of a payload among all GPUs that goes from node to node."""

    payload: Amount
    pattern: str
    gpus: int

    def __call__(self, nodes: int) -> float:
        payload, gpus = self.payload(nodes), nodes * self.gpus
        if nodes == 1:
            return 0.0
        if self.gpus == 1:
            return payload
        if self.pattern == "all_to_all":
            return payload * (gpus - self.gpus) / (gpus - 1)
        return payload / self.gpus  # a ring: one GPU of each node has its neighbour elsewhere


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
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 1e300:
            raise InputError(f"{where}[{at}]", f"found {shown(one)}", "a number, 0 or more")
    return [float(one) for one in value]


def busiest_link(value: Any, nodes: int | None, where: str) -> Fixed:
    """Of an explicit matrix: the most that any node sends, or receives."""
    cells = explicit(value, nodes * nodes if nodes else None, where)
    assert nodes is not None
    off = [0.0 if at // nodes == at % nodes else cell for at, cell in enumerate(cells)]
    sent = max(sum(off[row * nodes : (row + 1) * nodes]) for row in range(nodes))
    received = max(sum(off[column::nodes]) for column in range(nodes))
    return Fixed(max(sent, received))


#: a sequence repeated more often than this makes one long task of each of its tasks
_MOST_TASKS = 1000
_DEEPEST = 40
_ONCE = {"on_init": "on_start", "on_reconfiguration": "on_resize", "on_expansion": "on_expansion"}
_PHASE_KEYS = ("iterations", "scheduling_point", "final_scheduling_point", "barrier", "evolving_request",
               "tasks")  # fmt: skip
_ANY = ("type", "name", "iterations", "synchronized")
_PROCESSOR = ("flops", "computation_pattern", "bytes", "communication_pattern", "coupled")
_STORAGE = ("bytes", "pattern", "async")
_TASK_KEYS: Mapping[str, tuple[str, ...]] = {
    "cpu": _PROCESSOR,
    "gpu": _PROCESSOR,
    "pfs_read": _STORAGE,
    "pfs_write": _STORAGE,
    "bb_read": _STORAGE,
    "bb_write": _STORAGE,
    "busy_wait": ("delay", "pattern"),
    "idle": ("delay", "pattern"),
    "sequence": ("tasks",),
}


@dataclass(frozen=True, slots=True)
class ElastisimJob:
    """What the model of one job is read with."""

    arguments: Arguments
    #: sizes on which every amount is tried
    sizes: tuple[int, ...]
    #: the size of a rigid job
    nodes: int | None
    #: GPUs it uses on each node
    gpus: int
    evolving: bool
    machine: ElastisimPlatform | None
    #: lines about what was left out, in order
    notes: Notes


def read_model(found: Any, context: ElastisimJob) -> Application:
    """One application model; complaints name the key path."""
    need(found, (*_ONCE, "phases"), ("phases",), "")
    once = {}
    for key, name in _ONCE.items():
        if found.get(key) is not None:
            once[name] = _one_time(found[key], context, key)
    if once.get("on_expansion"):
        context.notes.add("on_expansion runs on all nodes of a job, not only on its new ones")
    if not isinstance(found["phases"], list):
        raise InputError("phases", f"found {shown(found['phases'])}", "a list of phases")
    read = [_phase(one, context, f"phases[{at}]") for at, one in enumerate(found["phases"])]
    return Application(tuple(phase for phase in read if phase.iterations), **once)


def _one_time(found: Any, context: ElastisimJob, where: str) -> tuple[Task, ...]:
    if isinstance(found, list):  # as in older versions
        return _tasks(found, context, where)
    need(found, _PHASE_KEYS, ("tasks",), where)
    tasks = _tasks(found["tasks"], context, f"{where}.tasks")
    count = _count(found.get("iterations"), context, f"{where}.iterations")
    return _again(tasks, Fixed(count), context)


def _phase(found: Any, context: ElastisimJob, where: str) -> Phase:
    need(found, _PHASE_KEYS, ("tasks",), where)
    tasks = _tasks(found["tasks"], context, f"{where}.tasks")
    count = _count(found.get("iterations"), context, f"{where}.iterations")
    point = json_flag(found.get("scheduling_point"), f"{where}.scheduling_point", True)
    json_flag(found.get("barrier"), f"{where}.barrier", True)
    if not json_flag(found.get("final_scheduling_point"), f"{where}.final_scheduling_point", True):
        context.notes.add("final_scheduling_point is not read: points are before each iteration")
    request = None
    if found.get("evolving_request") is not None:
        request = _amount(found["evolving_request"], context, f"{where}.evolving_request", least=1.0)
        if not context.evolving:
            context.notes.add("an evolving_request of a job that is not evolving is left out")
            request = None
    return Phase(tasks, count, point, request)


def _count(value: Any, context: ElastisimJob, where: str) -> int:
    """Iterations of a phase, which may use the job's arguments, not its size."""
    if value is None:
        return 1
    with within(where):
        count = context.arguments.bind(Expression.parse(value), sizes=False)(1)
    if not 0 <= count <= MOST_ITERATIONS:
        raise InputError(where, f"found {shown(value)}, that is {count:g}", f"0 to {MOST_ITERATIONS:,}")
    return int(count)


def _amount(value: Any, context: ElastisimJob, where: str, least: float = 0.0) -> Amount:
    with within(where):
        amount = context.arguments.bind(Expression.parse(value))
        for size in context.sizes:
            if amount(size) < least:
                raise InputError("", f"found {amount(size):g} on {size} nodes", f"{least:g} or more")
    return amount


def _tasks(found: Any, context: ElastisimJob, where: str) -> tuple[Task, ...]:
    if not isinstance(found, list):
        raise InputError(where, f"found {shown(found)}", "a list of tasks")
    if where.count("tasks[") > _DEEPEST:
        raise InputError(where[:60] + "...", "nested too deeply", f"{_DEEPEST} sequences in each other")
    tasks: list[Task] = []
    for at, one in enumerate(found):
        tasks += _task(one, context, f"{where}[{at}]")
    return tuple(tasks)


def _task(found: Any, context: ElastisimJob, where: str) -> tuple[Task, ...]:
    if not isinstance(found, dict):
        raise InputError(where, f"found {shown(found)}", "a task")
    kind = str(found.get("type")).lower()
    if kind not in _TASK_KEYS:
        hint = nearest(kind, _TASK_KEYS) if "type" in found else ""
        raise InputError(f"{where}.type", f"found {shown(found.get('type'))}{hint}", ", ".join(_TASK_KEYS))
    need(found, (*_ANY, *_TASK_KEYS[kind]), (), where)
    in_step = json_flag(found.get("synchronized"), f"{where}.synchronized", False)
    if kind == "sequence":
        need(found, (*_ANY, "tasks"), ("tasks",), where)
        tasks = _tasks(found["tasks"], context, f"{where}.tasks")
    elif kind in ("cpu", "gpu"):
        tasks = _processor(found, kind, context, where)
    elif kind in ("busy_wait", "idle"):
        need(found, (*_ANY, *_TASK_KEYS[kind]), ("delay", "pattern"), where)
        tasks = (Task("idle", _busiest(found, "delay", "pattern", context, where)),)
    else:
        tasks = (_storage(found, kind, context, where),)
    if not in_step and any(
        str(found.get(key)).lower() in UNEVEN for key in ("pattern", "computation_pattern")
    ):
        context.notes.add("nodes without work in a task wait for those with work before their next one")
    if found.get("iterations") is None:
        return tasks
    return _again(tasks, _amount(found["iterations"], context, f"{where}.iterations"), context)


def _again(tasks: tuple[Task, ...], times: Amount, context: ElastisimJob) -> tuple[Task, ...]:
    """The tasks repeated: one after the other where that is short, else each of them longer."""
    if times == Fixed(1):
        return tasks
    if isinstance(times, Fixed) and len(tasks) > 1 and times.value * len(tasks) <= _MOST_TASKS:
        return tasks * int(times.value)
    if len(tasks) > 1:
        context.notes.add(
            "a sequence repeated often, or as often as the size says, does each of its tasks in one go"
        )
    return tuple(Task(task.kind, Repeated(task.amount, times), task.root_only) for task in tasks)


def _busiest(
    found: Mapping[str, Any], key: str, pattern_key: str, context: ElastisimJob, where: str
) -> Amount:
    """What the busiest node has to do."""
    pattern = known_pattern(found.get(pattern_key), VECTOR_PATTERNS, f"{where}.{pattern_key}")
    if pattern == "vector":
        return Fixed(max(explicit(found[key], context.nodes, f"{where}.{key}")))
    return Busiest(_amount(found[key], context, f"{where}.{key}"), pattern)


def _processor(found: Mapping[str, Any], kind: str, context: ElastisimJob, where: str) -> tuple[Task, ...]:
    has = {key: found.get(key) is not None for key in ("flops", "bytes")}
    if not any(has.values()):
        raise InputError(f"{where}.flops", "is missing", "flops, bytes, or both")
    json_flag(found.get("coupled"), f"{where}.coupled", False)  # the slower of the two, coupled or not
    if kind == "gpu":
        _check_gpus(context, where)
    machine = context.machine
    tasks = []
    if has["flops"]:
        flops = _busiest(found, "flops", "computation_pattern", context, where)
        if kind == "gpu":
            assert machine is not None
            flops = Scaled(flops, machine.platform.speed / (context.gpus * machine.flops_per_gpu))
        tasks.append(Task("compute", flops))
    if has["bytes"]:
        sent = _sent(found, kind, context, where)
        if not has["flops"]:
            tasks.append(Task("communicate", sent))
        elif machine is None:
            context.notes.add(
                "without a platform, a task's communication follows its computation instead of overlapping it"
            )
            tasks.append(Task("communicate", sent))
        elif machine.platform.link < inf:  # over links without end it takes no time anyway
            ratio = machine.platform.link / machine.platform.speed
            tasks.append(Task("communicate", NotHidden(sent, flops, ratio)))
    return tuple(tasks)


def _sent(found: Mapping[str, Any], kind: str, context: ElastisimJob, where: str) -> Amount:
    path = f"{where}.communication_pattern"
    pattern = known_pattern(found.get("communication_pattern"), MATRIX_PATTERNS, path)
    if pattern == "matrix":
        if kind == "gpu":
            raise InputError(path, "found 'matrix' for GPUs", "all_to_all, or a ring")
        return busiest_link(found["bytes"], context.nodes, f"{where}.bytes")
    payload = _amount(found["bytes"], context, f"{where}.bytes")
    if kind == "gpu":
        if pattern not in ("all_to_all", "ring", "ring_clockwise", "ring_counter_clockwise"):
            raise InputError(path, f"found {shown(pattern)} for GPUs", "all_to_all, or a ring")
        if context.gpus > 1:
            context.notes.add("traffic between the GPUs of one node takes no time")
        payload = BetweenNodes(payload, pattern, context.gpus)
    return Busiest(payload, pattern)


def _check_gpus(context: ElastisimJob, where: str) -> None:
    if context.machine is None:
        raise InputError(where, "is for GPUs, and without a platform their speed is unknown",
                         "a configuration with a platform_file")  # fmt: skip
    if not context.machine.gpus:
        raise InputError(where, "is for GPUs, and the platform's nodes have none",
                         "num_gpus and flops_per_gpu in the platform")  # fmt: skip
    if not 1 <= context.gpus <= context.machine.gpus:
        raise InputError(where, f"is for GPUs, and its job uses {context.gpus} on each node",
                         f"num_gpus_per_node from 1 to {context.machine.gpus}")  # fmt: skip


def _storage(found: Mapping[str, Any], kind: str, context: ElastisimJob, where: str) -> Task:
    need(found, (*_ANY, *_STORAGE), ("bytes", "pattern"), where)
    if json_flag(found.get("async"), f"{where}.async", False):
        context.notes.add("asynchronous reading and writing is waited for")
    reads = kind.endswith("read")
    if kind.startswith("bb_"):
        machine = context.machine
        rate = machine and (machine.burst_read if reads else machine.burst_write)
        if rate:
            return Task("idle", Scaled(_busiest(found, "bytes", "pattern", context, where), 1.0 / rate))
        context.notes.add("the platform has no burst buffers: the file system is used instead")
    pattern = known_pattern(found["pattern"], VECTOR_PATTERNS, f"{where}.pattern")
    if pattern == "vector":
        payloads = explicit(found["bytes"], context.nodes, f"{where}.bytes")
        amount: Amount = Fixed(sum(payloads) / len(payloads))
        if not any(payloads[1:]):
            return Task("read" if reads else "write", Fixed(payloads[0]), root_only=True)
    else:
        payload = _amount(found["bytes"], context, f"{where}.bytes")
        shared = pattern in ("even_ranks", "odd_ranks")
        amount = SharedByAll(payload, pattern) if shared else Busiest(payload, pattern)
    if pattern in ("even_ranks", "odd_ranks", "vector"):
        context.notes.add("reading and writing by some of the nodes, or unevenly, is shared evenly by all")
    return Task("read" if reads else "write", amount, root_only=pattern == "root_only")
