"""How often to commit, weighed against how often things fail."""

from math import isfinite
from typing import Any

import traitlets

from dask_hpc import plan_interval
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer


class IntervalExplorer(Explorer):
    """Move what commits cost and how often each level is needed; see how often to commit, at what price."""

    _esm = module("interval_explorer")
    _css = style()

    #: each a mapping with name, commit, restart and mtbf, in seconds
    levels: Any = traitlets.List(
        [
            {"name": "partner", "commit": 2.0, "restart": 2.0, "mtbf": 4 * 3600.0},
            {"name": "store", "commit": 60.0, "restart": 90.0, "mtbf": 5 * 86400.0},
        ]
    ).tag(sync=True, asks=True)
    #: hours of work; 0: it is not known
    hours = traitlets.Float(24.0, min=0).tag(sync=True, asks=True)

    def plan(self) -> dict[str, Any]:
        run = f"{self.hours} h" if self.hours > 0 else "inf"
        plan = plan_interval(self.levels, run)
        return {
            "every": {name: _plain(seconds) for name, seconds in plan.every.items()},
            "efficiency": plan.efficiency,
            "reason": plan.reason,
            "work": None if plan.pattern is None else _plain(plan.pattern.work),
            "curve": [[way.work, way.efficiency] for way in plan.curve],
            "others": [[way.name, _plain(way.work), way.efficiency] for way in plan.others],
        }


def _plain(value: float) -> float | None:
    return float(value) if isfinite(value) else None
