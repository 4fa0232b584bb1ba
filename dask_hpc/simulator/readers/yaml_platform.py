"""The machine, as our own workload form describes it.

platform:
  nodes: 500
  speed: 100 Gflop/s           # per node
  link: 100 Gbit/s             # per node
  file_system: 48 GB/s         # for all together
  resize: {fixed: 2 s, per_process: 0.1 s, bandwidth: 10 GB/s}
  failures: {mtbf: 1 week, repair: 1 h, checkpoint: 30 min, seed: 3}
  idle_power: 71 W
  active_power: 250 W
  power: {ramp: 10 s, noise: 3 %, seed: 1, corridor: {lower: 30 kW, upper: 90 kW}}    # {}: only record it

Instead of nodes and their powers, ``machine: frontier`` (or another of ``machines``) takes those of a real
one; where nodes differ, ``power: {types: [{count: 8, idle: 71 W, active: 250 W}, ...]}``.
"""

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import ResizeCost
from dask_hpc.model.power import Corridor
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import UNITS, parse_duration, parse_quantity
from dask_hpc.simulator.amount import Arguments, Expression
from dask_hpc.simulator.application import TASK_KINDS, Amount, Application, Phase, Task
from dask_hpc.simulator.platform import Failures, Metering, NodeType, Platform, known_machine

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


_RATE = re.compile(r"(.*?[0-9.])\s*([A-Za-z]+)\s*(?:/\s*s|ps)", re.ASCII)
_MOST_FAILURES = 1_000_000
_MOST_TYPES = 1_000


def read_platform(found: Any) -> Platform:
    """From a mapping; complaints name the key."""
    values = _read(found, _PLATFORM, "")
    if found.get("machine") is not None:
        known = known_machine(found["machine"])
        values = {"nodes": known.nodes, "idle_power": known.idle, "active_power": known.active, **values}
    if "nodes" not in values:
        raise InputError("nodes", "is missing")
    if found.get("resize") is not None:
        values["resize"] = _build(ResizeCost, _read(found["resize"], _RESIZE, "resize"), "resize")
    if found.get("failures") is not None:
        failures = found["failures"]
        values["failures"] = _build(Failures, _read(failures, _FAILURES, "failures"), "")
    if found.get("power") is not None:
        values["metering"] = _build(Metering, _read(found["power"], _POWER, "power"), "")
    platform = Platform(**values)
    for time, node in platform.failures.trace if platform.failures else ():
        if node >= platform.nodes:
            raise InputError(
                "failures.trace", f"node {node} fails at {time:g} s", f"0 to {platform.nodes - 1}"
            )
    return platform


def _build(kind: Callable[..., Any], values: Mapping[str, Any], where: str) -> Any:
    try:
        return kind(**values)
    except InputError as error:
        raise (error.at(where) if where else error) from None


def _read(found: Any, readers: Mapping[str, Callable[[Any], Any]], where: str) -> dict[str, Any]:
    check_keys(found, (*readers, *(_PARTS if readers is _PLATFORM else ())), where)
    values = {}
    for key, read in readers.items():
        if found.get(key) is not None:
            try:
                values[key] = read(found[key])
            except InputError as error:
                raise error.at(f"{where}.{key}" if where else key) from None
    return values


def read_rate(value: Any, unit: str) -> float:
    """Bytes (``unit`` "B") or operations ("op") per second: ``"12.5 GB/s"``, ``"100 Gbit/s"``, a number."""
    if not isinstance(value, str) or value.strip().lower() in ("inf", "infinity", "unlimited"):
        return parse_quantity(value, "B")
    match = _RATE.fullmatch(value.strip())
    example = '"100 Gflop/s"' if unit == "op" else '"12.5 GB/s" or "100 Gbit/s"'
    if match:
        word = match[2].lower()
        try:
            if unit == "op" and word in OPERATIONS:
                return float(match[1]) * OPERATIONS[word]
            if unit == "B" and word.endswith("bit"):
                return parse_quantity(f"{match[1]} {word[:-3]}B", "B") / 8.0
            if unit == "B":
                return parse_quantity(f"{match[1]} {word}", "B")
        except (InputError, ValueError):
            pass
    raise InputError("", f"found {shown(value)}", f"a number per second such as {example}")


def _watts(value: Any) -> float:
    return parse_quantity(value, "W")


def _share(value: Any) -> float:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100.0
        except ValueError:
            raise InputError("", f"found {shown(value)}", '"3 %" or 0.03') from None
    return _number(value)


def _types(value: Any) -> tuple[NodeType, ...]:
    """``[{count: 8, idle: 71 W, active: 250 W}, ...]``."""
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_TYPES:
        allowed = f"1 to {_MOST_TYPES:,} types of {{count, idle, active}}"
        raise InputError("", f"found {shown(value)}", allowed)
    types = []
    for at, one in enumerate(value):
        try:
            check_keys(one, tuple(_TYPE), "")
            if missing := [key for key in _TYPE if one.get(key) is None]:
                raise InputError(missing[0], "is missing")
            types.append(NodeType(**_read(one, _TYPE, "")))
        except InputError as error:
            raise error.at(f"[{at}]") from None
    return tuple(types)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise InputError("", f"found {shown(value)}", "a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError("", f"found {shown(value)}", "true, false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError("", f"found {shown(value)}", "a finite number") from None


def _trace(value: Any) -> tuple[tuple[float, int], ...]:
    """``[[1 h, 3], ...]``: when which node (counted from 0) fails."""
    if not isinstance(value, list) or len(value) > _MOST_FAILURES:
        raise InputError("", f"found {shown(value)}", "a list of [time, node]")
    trace = []
    for at, one in enumerate(value):
        if not isinstance(one, list) or len(one) != 2:
            raise InputError(f"[{at}]", f"found {shown(one)}", "[time, node]")
        try:
            time, node = parse_duration(one[0]), _whole(one[1])
        except InputError as error:
            raise error.at(f"[{at}]") from None
        if not 0 <= time < inf:
            raise InputError(f"[{at}]", f"found {shown(one[0])}", "0 s or more")
        trace.append((time, node))
    return tuple(trace)


_PLATFORM: Mapping[str, Callable[[Any], Any]] = {
    "nodes": _whole,
    "speed": lambda value: read_rate(value, "op"),
    "link": lambda value: read_rate(value, "B"),
    "file_system": lambda value: read_rate(value, "B"),
    "idle_power": _watts,
    "active_power": _watts,
    "tick": parse_duration,
    "only_ticks": _flag,
    "launch": parse_duration,
    "cleanup": parse_duration,
}
_PARTS = ("resize", "failures", "power", "machine")
_TYPE: Mapping[str, Callable[[Any], Any]] = {"count": _whole, "idle": _watts, "active": _watts}
_POWER: Mapping[str, Callable[[Any], Any]] = {
    "ramp": parse_duration,
    "noise": _share,
    "seed": _whole,
    "types": _types,
    "corridor": Corridor.read,
}
_RESIZE: Mapping[str, Callable[[Any], Any]] = {
    "fixed": parse_duration,
    "per_process": parse_duration,
    "bandwidth": lambda value: read_rate(value, "B"),
}
_FAILURES: Mapping[str, Callable[[Any], Any]] = {
    "mtbf": parse_duration,
    "shape": _number,
    "repair": parse_duration,
    "checkpoint": parse_duration,
    "trace": _trace,
    "seed": _whole,
}
