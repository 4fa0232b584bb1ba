"""Which corridors of power a set of jobs can keep, and with which sizes."""

from math import isfinite
from typing import Any

import traitlets

from dask_hpc import plan_corridor
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer


class CorridorExplorer(Explorer):
    """Move the bounds; see the sizes that keep power between them, what can be reached at all, and what would
    help if nothing does."""

    _esm = module("corridor_explorer")
    _css = style()

    nodes = traitlets.Int(16).tag(sync=True, asks=True)
    #: watts; 0 does not bind
    lower = traitlets.Float(0.0, min=0).tag(sync=True, asks=True)
    upper = traitlets.Float(3000.0, min=0).tag(sync=True, asks=True)
    #: of an idle node
    idle = traitlets.Float(60.0, min=0).tag(sync=True, asks=True)
    #: jobs as ``plan_corridor`` takes them; nodes 0: it waits
    jobs: Any = traitlets.List(
        [
            {"id": "climate", "nodes": 8, "min_nodes": 2, "max_nodes": 12, "power": ["240 W", "260 W"]},
            {"id": "training", "nodes": 4, "min_nodes": 1, "max_nodes": 8, "power": ["320 W", "350 W"]},
            {"id": "plots", "nodes": 1, "power": "120 W"},
            {"id": "genomics", "nodes": 0, "min_nodes": 2, "max_nodes": 4, "power": ["180 W", "200 W"]},
        ]
    ).tag(sync=True, asks=True)

    def plan(self) -> dict[str, Any]:
        upper = f"{self.upper} W" if self.upper > 0 else "inf"
        plan = plan_corridor(
            self.nodes, self.jobs, f"{self.lower} W", upper, idle=f"{self.idle} W", time_limit="1 s"
        )
        return {
            "before": list(plan.before),
            "after": list(plan.after),
            "lowest": plan.lowest,
            "highest": plan.highest if isfinite(plan.highest) else None,
            "jobs": [
                {"id": job.id, "before": job.nodes, "after": plan.sizes[job.id], "most": job.max_nodes}
                for job in plan.jobs
            ],
            "idle": plan.idle_after,
            "is_feasible": plan.is_feasible,
            "reason": plan.reason,
        }
