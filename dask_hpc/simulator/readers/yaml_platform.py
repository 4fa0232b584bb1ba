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
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.job import ResizeCost
from dask_hpc.model.power import Corridor
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.platform import Failures, Metering, NodeType, Platform, known_machine
from dask_hpc.simulator.readers.values import Readers, flag, number, read_list, read_values, share, whole

OPERATIONS: Mapping[str, float] = {
    prefix + word: scale
    for word in ("flop", "op")
    for prefix, scale in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12), ("p", 1e15))
}
_RATE = re.compile(r"(.*?[0-9.])\s*([A-Za-z]+)\s*(?:/\s*s|ps)", re.ASCII)
_MOST_FAILURES = 1_000_000
_MOST_TYPES = 1_000


def _bytes_per_second(value: Any) -> float:
    return read_rate(value, "B")


def _operations_per_second(value: Any) -> float:
    return read_rate(value, "op")


def _watts(value: Any) -> float:
    return parse_quantity(value, "W")


def _node_type(found: Any) -> NodeType:
    return NodeType(**read_values(found, _TYPE, needed=_TYPE))


def _types(found: Any) -> tuple[NodeType, ...]:
    allowed = f"1 to {_MOST_TYPES:,} types of {{count, idle, active}}"
    return read_list(found, _node_type, allowed=allowed, least=1, most=_MOST_TYPES)


def _failure(found: Any) -> tuple[float, int]:
    if not isinstance(found, list) or len(found) != 2:
        raise InputError("", f"found {shown(found)}", "[time, node]")
    time, node = parse_duration(found[0]), _count(found[1])
    if not 0 <= time < inf:
        raise InputError("", f"found {shown(found[0])}", "0 s or more")
    return time, node


def _trace(found: Any) -> tuple[tuple[float, int], ...]:
    """``[[1 h, 3], ...]``: when which node (counted from 0) fails."""
    return read_list(found, _failure, allowed="a list of [time, node]", most=_MOST_FAILURES)


_count = whole(0, 2**63 - 1)
_PLATFORM: Readers = {
    "nodes": _count,
    "speed": _operations_per_second,
    "link": _bytes_per_second,
    "file_system": _bytes_per_second,
    "idle_power": _watts,
    "active_power": _watts,
    "tick": parse_duration,
    "only_ticks": flag,
    "launch": parse_duration,
    "cleanup": parse_duration,
}
_TYPE: Readers = {"count": _count, "idle": _watts, "active": _watts}
_RESIZE: Readers = {"fixed": parse_duration, "per_process": parse_duration, "bandwidth": _bytes_per_second}
_FAILURES: Readers = {
    "mtbf": parse_duration,
    "shape": number,
    "repair": parse_duration,
    "checkpoint": parse_duration,
    "trace": _trace,
    "seed": _count,
}
_POWER: Readers = {
    "ramp": parse_duration,
    "noise": share,
    "seed": _count,
    "types": _types,
    "corridor": Corridor.read,
}


def read_platform(found: Any) -> Platform:
    """From a mapping; complaints name the key."""
    values = read_values(found, _PLATFORM, also=("resize", "failures", "power", "machine"))
    if found.get("machine") is not None:
        known = known_machine(found["machine"])
        values = {"nodes": known.nodes, "idle_power": known.idle, "active_power": known.active, **values}
    if "nodes" not in values:
        raise InputError("nodes", "is missing")
    if found.get("resize") is not None:
        resize = read_values(found["resize"], _RESIZE, "resize")
        with within("resize"):
            values["resize"] = ResizeCost(**resize)
    if found.get("failures") is not None:
        values["failures"] = Failures(**read_values(found["failures"], _FAILURES, "failures"))
    if found.get("power") is not None:
        values["metering"] = Metering(**read_values(found["power"], _POWER, "power"))
    platform = Platform(**values)
    for time, node in platform.failures.trace if platform.failures else ():
        if node >= platform.nodes:
            allowed = f"0 to {platform.nodes - 1}"
            raise InputError("failures.trace", f"node {node} fails at {time:g} s", allowed)
    return platform


def read_rate(value: Any, unit: str) -> float:
    """Bytes (``unit`` "B") or operations ("op") per second: ``"12.5 GB/s"``, ``"100 Gbit/s"``, a number."""
    if not isinstance(value, str) or value.strip().lower() in ("inf", "infinity", "unlimited"):
        return parse_quantity(value, "B")
    match = _RATE.fullmatch(value.strip())
    if match:
        word = match[2].lower()
        with suppress(InputError, ValueError):
            if unit == "op" and word in OPERATIONS:
                return float(match[1]) * OPERATIONS[word]
            if unit == "B" and word.endswith("bit"):
                return parse_quantity(f"{match[1]} {word[:-3]}B", "B") / 8.0
            if unit == "B":
                return parse_quantity(f"{match[1]} {word}", "B")
    example = '"100 Gflop/s"' if unit == "op" else '"12.5 GB/s" or "100 Gbit/s"'
    raise InputError("", f"found {shown(value)}", f"a number per second such as {example}")
