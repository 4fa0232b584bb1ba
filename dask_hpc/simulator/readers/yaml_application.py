"""A job's phases in our own workload form: amounts are numbers, quantities or formulas in its arguments.

arguments: {size: 40 GB}
on_start: [{read: size / nodes}]
phases:
  - {iterations: 100, compute: 20 Tflop / nodes, write: size / nodes}        # one task of each kind, in order
  - {request: 8, tasks: [{compute: 1 Tflop}, {write: 1 GB, root_only: true}, {compute: 1 Tflop}]}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import UNITS
from dask_hpc.simulator.amount import Arguments, Expression
from dask_hpc.simulator.application import TASK_KINDS, Amount, Application, Phase, Task
from dask_hpc.simulator.readers.values import flag
from dask_hpc.simulator.readers.yaml_platform import OPERATIONS

#: how often a phase may be repeated
MOST_ITERATIONS = 10**7
_UNITS: Mapping[str, Mapping[str, float]] = {
    "compute": OPERATIONS,
    "communicate": UNITS["B"],
    "read": UNITS["B"],
    "write": UNITS["B"],
    "idle": UNITS["s"],
}
_ANY_UNIT: Mapping[str, float] = {**UNITS["s"], **UNITS["B"], **OPERATIONS}
_ONCE = ("on_start", "on_resize", "on_expansion")
#: keys of a job that together make an application
APPLICATION_KEYS = ("arguments", "phases", *_ONCE)
_PHASE_KEYS = ("iterations", "scheduling_point", "request", "tasks", *TASK_KINDS)


def read_application(found: Mapping[str, Any], sizes: tuple[int, ...], machine: int | None) -> Application:
    """From a job's keys. Amounts are tried on ``sizes``, the start size first; requests must fit the
    ``machine``."""
    job = _Job(_arguments(found.get("arguments", {})), sizes, machine)
    phases = found.get("phases")
    if not isinstance(phases, list) or not phases:
        raise InputError("phases", f"found {shown(phases)}", "a list of phases")
    once = {key: job.tasks(found[key], key) for key in _ONCE if key in found}
    return Application(tuple(job.phase(one, f"phases[{at}]") for at, one in enumerate(phases)), **once)


def check_request(request: Amount, sizes: tuple[int, ...], machine: int | None, where: str) -> None:
    """A job that asks on its start size for more than the machine has asks in vain. When it has grown, its
    wish is cut to its range."""
    for size in sizes:
        wanted = request(size)
        most = machine if machine and size == sizes[0] else 2**31
        if not 1 <= wanted <= most:
            allowed = f"1 to {machine}, the nodes of the machine" if machine else "1 or more"
            raise InputError(where, f"found {wanted:g} nodes (asked for on {size})", allowed)


def _arguments(found: Any) -> Arguments:
    """Named numbers and formulas; units of any kind may be used in them."""
    if not isinstance(found, dict):
        raise InputError("arguments", f"found {shown(found)}", "a mapping of names to numbers or formulas")
    expressions = {}
    for name, value in found.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise InputError("arguments", f"found the name {shown(name)}", "letters, digits and _")
        with within(f"arguments.{name}"):
            expressions[name] = Expression.parse(value, _ANY_UNIT)
    with within("arguments"):
        return Arguments(expressions, "nodes")


@dataclass(frozen=True, slots=True)
class _Job:
    """What the phases of one job are read with."""

    arguments: Arguments
    sizes: tuple[int, ...]
    machine: int | None

    def phase(self, found: Any, where: str) -> Phase:
        check_keys(found, _PHASE_KEYS, where)
        short = [key for key in found if key in TASK_KINDS]
        if ("tasks" in found) == bool(short):
            raise InputError(where, "found " + ", ".join(found), f"tasks, or else {', '.join(TASK_KINDS)}")
        if short:
            tasks = tuple(self._task({key: found[key]}, where) for key in short)
        else:
            tasks = self.tasks(found["tasks"], f"{where}.tasks")
        with within(f"{where}.iterations"):
            iterations = self._iterations(found.get("iterations", 1))
        with within(f"{where}.scheduling_point"):
            point = flag(found.get("scheduling_point", True))
        request = None
        if "request" in found:
            request = self._amount(found["request"], {}, f"{where}.request")
            check_request(request, self.sizes, self.machine, f"{where}.request")
        return Phase(tasks, iterations, point, request)

    def tasks(self, found: Any, where: str) -> tuple[Task, ...]:
        if not isinstance(found, list) or not found:
            raise InputError(where, f"found {shown(found)}", "a list of tasks")
        return tuple(self._task(one, f"{where}[{at}]") for at, one in enumerate(found))

    def _task(self, found: Any, where: str) -> Task:
        check_keys(found, (*TASK_KINDS, "root_only"), where)
        kinds = [kind for kind in TASK_KINDS if kind in found]
        if len(kinds) != 1:
            raise InputError(where, f"found {shown(list(found))}", f"one of {', '.join(TASK_KINDS)}")
        with within(f"{where}.root_only"):
            root = flag(found.get("root_only", False))
        kind = kinds[0]
        return Task(kind, self._amount(found[kind], _UNITS[kind], f"{where}.{kind}"), root)

    def _iterations(self, value: Any) -> int:
        count = self.arguments.bind(Expression.parse(value, {}), sizes=False)(1)
        if not (1 <= count <= MOST_ITERATIONS and count == int(count)):
            raise InputError("", f"found {shown(value)}", f"a whole number, 1 to {MOST_ITERATIONS:,}")
        return int(count)

    def _amount(self, value: Any, units: Mapping[str, float], where: str) -> Amount:
        """A number, a quantity or a formula, tried on every size."""
        with within(where):
            bound = self.arguments.bind(Expression.parse(value, units))
            for size in self.sizes:
                if bound(size) < 0:
                    raise InputError("", f"found {bound(size):g} on {size} nodes", "0 or more")
        return bound
