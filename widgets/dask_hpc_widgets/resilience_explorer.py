"""Protections against failures side by side, and how often to commit."""

from functools import lru_cache
from math import isfinite
from typing import Any

import traitlets

from dask_hpc import ResiliencePlan, plan_interval, plan_resilience
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer

_POINTS = 13  # of a curve
#: how far the curves go
_RANGES = {"nodes": (100, 1_000_000), "mtbf": (30 * 86400.0, 20 * 31557600.0), "memory": (1e9, 256e9)}
_PORTS = 12
#: hours of work where it is not known
_LONG = 2000.0


class ResilienceExplorer(Explorer):
    """Two readings. *protocols*: move a machine and what runs on it; see what each protection against
    failures costs there, and on larger and smaller machines. *commits*: move what commits cost and how often
    each level is needed; see how often to commit, at what price."""

    _esm = module("resilience_explorer")
    _css = style()

    reading = traitlets.Enum(("protocols", "commits"), "protocols").tag(sync=True, asks=True)
    #: hours of work; 0: it is not known
    hours = traitlets.Float(24.0, min=0).tag(sync=True, asks=True)

    # of protocols
    nodes = traitlets.Int(60_000, min=1).tag(sync=True, asks=True)
    #: seconds between two failures of a node; bytes that each has to keep; bytes per second into the store
    mtbf = traitlets.Float(2.5 * 31557600.0).tag(sync=True, asks=True)
    memory = traitlets.Float(32e9).tag(sync=True, asks=True)
    store = traitlets.Float(7.2e12).tag(sync=True, asks=True)
    #: share of the time that goes into messages
    messages = traitlets.Float(0.0, min=0).tag(sync=True, asks=True)
    objective = traitlets.Enum(("time", "energy", "steady"), "time").tag(sync=True, asks=True)
    #: compare redundancy, too: it takes up to twice the nodes
    redundancy = traitlets.Bool(False).tag(sync=True, asks=True)
    #: over what the curves go
    axis = traitlets.Enum(tuple(_RANGES), "nodes").tag(sync=True, asks=True)

    # of commits: each a mapping with name, commit, restart and mtbf, in seconds
    levels: Any = traitlets.List(
        [
            {"name": "partner", "commit": 2.0, "restart": 2.0, "mtbf": 4 * 3600.0},
            {"name": "store", "commit": 60.0, "restart": 90.0, "mtbf": 5 * 86400.0},
        ]
    ).tag(sync=True, asks=True)

    def plan(self) -> dict[str, Any]:
        asked = {name: getattr(self, name) for name in ("memory", "store", "messages", "objective", "mtbf")}
        asked |= {"nodes": self.nodes, "run": f"{self.hours or _LONG} h"}
        asked["redundancy"] = (1.5, 2.0) if self.redundancy else ()
        found = self._protocols(asked) if self.reading == "protocols" else self._commits()
        levels = [level for level in _plan(**asked).case.levels if level.failures]
        return found | {
            "levels": [
                {"name": one.name, "commit": one.commit, "restart": one.restart, "mtbf": 1 / one.failures}
                for one in levels
            ]
        }

    def _protocols(self, asked: dict[str, Any]) -> dict[str, Any]:
        plan = _plan(**asked)
        # a steady plan takes its time, and is nearly as efficient
        quick = {"objective": "time"} if self.objective == "steady" else {}
        return {
            "reason": plan.reason,
            "notes": plan.notes,
            "best": plan.best.protocol,
            "ways": [
                {
                    "name": way.protocol,
                    "efficiency": way.efficiency,
                    "time": _plain(way.time),
                    "energy": _plain(way.energy),
                    "every": {place: _plain(seconds) for place, seconds in way.every.items()},
                    "parts": way.parts.as_plain() if isfinite(way.time) else {},
                }
                for way in plan.ranking
            ],
            "curve": _curve(self.axis, **asked | quick | {self.axis: _RANGES[self.axis][0]}),
        }

    def _commits(self) -> dict[str, Any]:
        plan = plan_interval(self.levels, f"{self.hours} h" if self.hours > 0 else "inf")
        return {
            "every": {name: _plain(seconds) for name, seconds in plan.every.items()},
            "efficiency": plan.efficiency,
            "reason": plan.reason,
            "work": None if plan.pattern is None else _plain(plan.pattern.work),
            "curve": [[way.work, way.efficiency] for way in plan.curve],
            "others": [[way.name, _plain(way.work), way.efficiency] for way in plan.others],
        }


@lru_cache(64)
def _plan(**asked: Any) -> ResiliencePlan:
    machine = max(2 * asked["nodes"], _RANGES["nodes"][1] * 2)
    store = asked.pop("store") / _PORTS
    return plan_resilience(**asked, store=store, ports=_PORTS, machine=machine)


@lru_cache(64)
def _curve(axis: Any, **asked: Any) -> list[list[Any]]:
    """The efficiency of each protocol by what is on the axis, which of the rest does not depend."""
    least, most = _RANGES[axis]
    values = [least * (most / least) ** (point / (_POINTS - 1)) for point in range(_POINTS)]
    return [[value, found] for value, found in _plan(**asked).sweep(axis, values)]


def _plain(value: float) -> float | None:
    return float(value) if isfinite(value) else None
