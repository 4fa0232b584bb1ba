"""dask-hpc: a malleable, power-aware, fault-tolerant Dask cluster, and the simulator of one."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded on first use: a worker that only unpickles one of our objects need not import pandas.
_WHERE = {
    "InputError": "dask_hpc.model.errors",
    "Policy": "dask_hpc.policy",
    "simulate": "dask_hpc.simulator",
    "side_by_side": "dask_hpc.simulator.side_by_side",
    "manage": "dask_hpc.cluster.client.manager",
    "job": "dask_hpc.cluster.client.job",
    "AllocationCluster": "dask_hpc.cluster.client.allocation",
    "malleable": "dask_hpc.cluster.client.malleable",
    "HPCAdaptive": "dask_hpc.cluster.client.adaptive",
    "InSituPipeline": "dask_hpc.in_situ.client.pipeline",
    "Bridge": "dask_hpc.bridge.producer",
    "MemoryFiles": "dask_hpc.memory_files.client.memory_files",
    "Checkpoint": "dask_hpc.checkpoint.client.program",
    "protect": "dask_hpc.checkpoint.client.protect",
    "restore": "dask_hpc.checkpoint.client.restore",
    "protected": "dask_hpc.checkpoint.client.protect",
    "unprotect": "dask_hpc.checkpoint.client.protect",
    "plan_colocation": "dask_hpc.planning.plan_colocation",
    "ColocationPlan": "dask_hpc.planning.colocation.plan",
    "plan_corridor": "dask_hpc.planning.corridor.plan",
    "plan_interval": "dask_hpc.planning.interval",
    "fit_failures": "dask_hpc.planning.interval",
    "plan_network": "dask_hpc.planning.plan_network",
    "NetworkPlan": "dask_hpc.planning.plan_network",
    "plan_partition": "dask_hpc.planning.in_situ.plan",
    "plan_reservation": "dask_hpc.planning.plan_reservation",
    "plan_resilience": "dask_hpc.planning.plan_resilience",
    "ResiliencePlan": "dask_hpc.planning.resilience.choose",
    "ReservationPlan": "dask_hpc.planning.reservation.plan",
    "plan_redistribution": "dask_hpc.redistribution.client",
    "redistribute": "dask_hpc.redistribution.client",
}
__all__ = [*_WHERE, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dask_hpc' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
