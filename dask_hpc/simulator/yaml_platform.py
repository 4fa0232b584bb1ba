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

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.resize_cost import ResizeCost
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.machines import known_machine
from dask_hpc.simulator.metering import Metering, NodeType
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.yaml_application import OPERATIONS

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
