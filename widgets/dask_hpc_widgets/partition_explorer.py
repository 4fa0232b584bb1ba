"""Which analyses run beside the simulation, and on how many nodes and cores."""

from math import isfinite
from typing import Any

import traitlets

from dask_hpc import plan_partition
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer


class PartitionExplorer(Explorer):
    """Nodes and cores divided between a simulation and its analyses, with the times of the three phases.

    Move the machine's bandwidth and memory, its nodes and cores, and see analyses change sides.
    """

    _esm = module("partition_explorer")
    _css = style()

    nodes = traitlets.Int(16).tag(sync=True, asks=True)
    cores = traitlets.Int(32).tag(sync=True, asks=True)
    #: bytes, and bytes per second, of a node
    memory = traitlets.Float(64e9).tag(sync=True, asks=True)
    bandwidth = traitlets.Float(5e9).tag(sync=True, asks=True)
    mode = traitlets.Enum(("async", "sync"), "async").tag(sync=True, asks=True)
    #: seconds of one iteration on a core, and bytes over all nodes
    simulation: Any = traitlets.Dict({"time": 4000.0, "memory": 400e9}).tag(sync=True, asks=True)
    #: the same of each, with a name, and what it moves if it runs in transit
    analyses: Any = traitlets.List(
        [
            {"name": "statistics", "time": 120.0, "memory": 20e9},
            {"name": "isosurface", "time": 600.0, "memory": 60e9},
            {"name": "spectrum", "time": 900.0, "memory": 120e9},
            {"name": "picture", "time": 300.0, "memory": 10e9},
        ]
    ).tag(sync=True, asks=True)

    def plan(self) -> dict[str, Any]:
        plan = plan_partition(
            self.nodes,
            self.cores,
            self.memory,
            self.bandwidth,
            simulation=self.simulation,
            analyses=self.analyses,
            mode=self.mode,
        )
        found = plan.partition
        others = {"all in situ": plan.all_in_situ, "all in transit": plan.all_in_transit}
        return {
            "nodes": found.nodes,
            "helper_cores": found.helper_cores,
            "in_situ": list(found.in_situ),
            "in_transit": list(found.in_transit),
            "phases": found.phases._asdict(),
            "iteration": found.iteration,
            "bound": plan.bound if isfinite(plan.bound) else None,
            "reason": plan.reason,
            "warning": found.warning,
            "others": {name: None if one is None else one.iteration for name, one in others.items()},
        }
