"""Phases and tasks of our own workload form.

arguments: {flops: 200 Tflop, alpha: 0.9}
on_start: [{read: 64 GiB / nodes}]
phases:
- {iterations: 20, compute: flops / nodes^alpha, communicate: 100 MiB, write: 10 GiB / nodes}
- iterations: 5
  request: 2 * nodes            # what an evolving job asks for
  tasks: [{compute: 2 Tflop}, {write: 1 GiB, root_only: true}, {idle: 30 s}]

An amount is what each node does; ``nodes`` in it is how many the job has just then.
"""

from collections.abc import Mapping
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import UNITS
from dask_hpc.simulator.amount import Arguments
from dask_hpc.simulator.application import TASK_KINDS, Amount, Application, Phase, Task
from dask_hpc.simulator.expression import Expression

#: how often a phase may be repeated
MOST_ITERATIONS = 10**7
OPERATIONS: Mapping[str, float] = {
    prefix + word: scale
    for word in ("flop", "op")
    for prefix, scale in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12), ("p", 1e15))
}
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
    arguments = read_arguments(found.get("arguments", {}))
    phases = found.get("phases")
    if not isinstance(phases, list) or not phases:
        raise InputError("phases", f"found {shown(phases)}", "a list of phases")
    once = {key: _tasks(found[key], arguments, sizes, key) for key in _ONCE if key in found}
    read = [_phase(one, arguments, sizes, machine, f"phases[{at}]") for at, one in enumerate(phases)]
    return Application(tuple(read), **once)


def read_arguments(found: Any) -> Arguments:
    """Named numbers and formulas; units of any kind may be used in them."""
    if not isinstance(found, dict):
        raise InputError("arguments", f"found {shown(found)}", "a mapping of names to numbers or formulas")
    expressions = {}
    for name, value in found.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise InputError("arguments", f"found the name {shown(name)}", "letters, digits and _")
        expressions[name] = _expression(value, _ANY_UNIT, f"arguments.{name}")
    try:
        return Arguments(expressions, "nodes")
    except InputError as error:
        raise error.at("arguments") from None


def _expression(value: Any, units: Mapping[str, float], where: str) -> Expression:
    try:
        return Expression.parse(value, units)
    except InputError as error:
        raise error.at(where) from None


def _phase(
    found: Any, arguments: Arguments, sizes: tuple[int, ...], machine: int | None, where: str
) -> Phase:
    check_keys(found, _PHASE_KEYS, where)
    short = [key for key in found if key in TASK_KINDS]
    if ("tasks" in found) == bool(short):
        raise InputError(where, "found " + ", ".join(found), f"tasks, or else {', '.join(TASK_KINDS)}")
    if short:
        listed: Any = [{key: found[key]} for key in short]
        tasks = _tasks(listed, arguments, sizes, where, short=True)
    else:
        tasks = _tasks(found["tasks"], arguments, sizes, f"{where}.tasks")
    iterations = _iterations(found.get("iterations", 1), arguments, f"{where}.iterations")
    point = found.get("scheduling_point", True)
    if not isinstance(point, bool):
        raise InputError(f"{where}.scheduling_point", f"found {shown(point)}", "true, false")
    request = None
    if "request" in found:
        request = amount(found["request"], {}, arguments, f"{where}.request", sizes)
        check_request(request, sizes, machine, f"{where}.request")
    return Phase(tasks, iterations, point, request)


def check_request(request: Amount, sizes: tuple[int, ...], machine: int | None, where: str) -> None:
    """A job that asks on its start size for more than the machine has asks in vain. When it has grown, its
    wish is cut to its range."""
    for size in sizes:
        wanted = request(size)
        most = machine if machine and size == sizes[0] else 2**31
        if not 1 <= wanted <= most:
            allowed = f"1 to {machine}, the nodes of the machine" if machine else "1 or more"
            raise InputError(where, f"found {wanted:g} nodes (asked for on {size})", allowed)


def _iterations(value: Any, arguments: Arguments, where: str) -> int:
    expression = _expression(value, {}, where)
    try:
        count = arguments.bind(expression, sizes=False)(1)
    except InputError as error:
        raise error.at(where) from None
    if not (1 <= count <= MOST_ITERATIONS and count == int(count)):
        raise InputError(where, f"found {shown(value)}", f"a whole number, 1 to {MOST_ITERATIONS:,}")
    return int(count)


def _tasks(
    found: Any, arguments: Arguments, sizes: tuple[int, ...], where: str, *, short: bool = False
) -> tuple[Task, ...]:
    if not isinstance(found, list) or (not found and not short):
        raise InputError(where, f"found {shown(found)}", "a list of tasks")
    tasks = []
    for at, one in enumerate(found):
        path = where if short else f"{where}[{at}]"
        check_keys(one, (*TASK_KINDS, "root_only"), path)
        kinds = [kind for kind in TASK_KINDS if kind in one]
        if len(kinds) != 1:
            raise InputError(path, f"found {shown(list(one))}", f"one of {', '.join(TASK_KINDS)}")
        root = one.get("root_only", False)
        if not isinstance(root, bool):
            raise InputError(f"{path}.root_only", f"found {shown(root)}", "true, false")
        kind = kinds[0]
        quantity = amount(one[kind], _UNITS[kind], arguments, f"{path}.{kind}", sizes)
        tasks.append(Task(kind, quantity, root))
    return tuple(tasks)


def amount(
    value: Any, units: Mapping[str, float], arguments: Arguments, where: str, sizes: tuple[int, ...]
) -> Amount:
    """A number, a quantity or a formula as an amount, tried on every one of ``sizes``."""
    expression = _expression(value, units, where)
    try:
        bound = arguments.bind(expression)
        for size in sizes:
            if bound(size) < 0:
                raise InputError("", f"found {bound(size):g} on {size} nodes", "0 or more")
    except InputError as error:
        raise error.at(where) from None
    return bound
