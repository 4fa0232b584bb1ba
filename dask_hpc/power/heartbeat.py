"""What a worker tells of power with each of its heartbeats, under ``worker.metrics["hpc_power"]``.

A dict of plain values; on the scheduler ``WorkerState.metrics["hpc_power"]`` has the last one. It is None
until the worker has taken its first sample (some 0.1 s after the plugin is there), and missing when nobody
meters.

============= ======= ==================================================================================
key           type    meaning
============= ======= ==================================================================================
host          str     which machine: workers that say the same read the same meters, so they count once
pid           int     the worker's process; several workers can be in one
sequence      int     how many samples were taken; if it stands still, nobody samples any more
age           float   seconds since the last sample was taken, when the heartbeat left
watts         float   of the whole host
uncertainty   float   half-width of a 95 % interval of ``watts``
source        str     measured, estimated or modelled
idle          float   watts of the host when nothing runs on it
use           float   0 to 1: how busy the processors of the host were since the sample before
share         float   0 to 1: the part of that work that was done by this worker and its child processes
meters        list    names of the sensors that ``watts`` comes from; empty if modelled
problem       str     why nothing better is used, in words; empty if all is well
cap           list    the least and the most watts the host can be capped to now; None if it cannot be
capped        float   the watts it is capped to by this worker; None if it is not
============= ======= ==================================================================================

Where each worker is a node of its own (a local cluster), ``of_each`` divides a host's power among them.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from dask_hpc.model.errors import InputError, is_number, one_line, shown
from dask_hpc.model.power import SOURCES, Source

KEY = "hpc_power"  # among a worker's metrics
MOST = 1e7  # watts of one host that are believed


class Heartbeat(NamedTuple):
    """What a worker told, checked."""

    host: str
    pid: int
    sequence: int
    age: float
    watts: float
    uncertainty: float
    source: Source
    idle: float
    use: float
    share: float
    meters: list[str]
    problem: str
    cap: list[float] | None = None
    capped: float | None = None

    @classmethod
    def read(cls, value: Any) -> "Heartbeat":
        """From what came over the wire."""
        if not isinstance(value, Mapping):
            raise InputError(KEY, f"found {shown(value)}", "a dict")
        for name, (allowed, is_fine) in _FIELDS.items():
            if not is_fine(value.get(name)):
                raise InputError(f"{KEY}: {name}", f"found {shown(value.get(name))}", allowed)
        found: dict[str, Any] = {name: value.get(name) for name in _FIELDS}
        # On the way a list may become a tuple.
        found["meters"] = list(found["meters"])
        found["cap"] = None if found["cap"] is None else list(found["cap"])
        return cls(**found)


def of_each(told: Mapping[str, Heartbeat]) -> dict[str, tuple[float, float]]:
    """Watts and uncertainty of each of the workers of *one* host, where each of them is a node.

    They share the idle power equally, and each has that part of the rest that it has of the processors'
    work. What other programs of the host use is nobody's.
    """
    found = {}
    for worker, one in told.items():
        idle = min(one.idle, one.watts)
        part = idle / len(told) + (one.watts - idle) * one.share
        found[worker] = (part, one.uncertainty * (part / one.watts if one.watts else 1 / len(told)))
    return found


def _watts(value: Any) -> bool:
    return is_number(value, 0, MOST) and not isinstance(value, bool)


def _pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_watts, value))


def _text(value: Any) -> bool:
    return isinstance(value, str) and value == one_line(value)


def _share(value: Any) -> bool:
    return is_number(value, 0, 1)


#: in the order of ``Heartbeat``
_FIELDS = {
    "host": ("a name", lambda value: _text(value) and value != ""),
    "pid": ("a whole number", lambda value: type(value) is int),
    "sequence": ("a whole number >= 1", lambda value: type(value) is int and value >= 1),
    "age": ("seconds", lambda value: is_number(value, 0, inf)),
    "watts": ("watts", _watts),
    "uncertainty": ("watts", _watts),
    "source": (", ".join(SOURCES), lambda value: isinstance(value, str) and value in SOURCES),
    "idle": ("watts", _watts),
    "use": ("0 to 1", _share),
    "share": ("0 to 1", _share),
    "meters": ("a list of names", lambda value: isinstance(value, list | tuple) and all(map(_text, value))),
    "problem": ("one line of text", _text),
    "cap": ("two watts, or None", lambda value: value is None or _pair(value)),
    "capped": ("watts, or None", lambda value: value is None or _watts(value)),
}  # fmt: skip
