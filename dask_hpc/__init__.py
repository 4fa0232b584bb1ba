"""dask-hpc: a malleable, power-aware, fault-tolerant Dask cluster, and the simulator of one."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Loaded on first use: a worker that only unpickles one of our objects need not import pandas.
_WHERE = {
    "InputError": "dask_hpc.model.errors",
    "Policy": "dask_hpc.policy",
    "simulate": "dask_hpc.simulator",
    "manage": "dask_hpc.live",
    "job": "dask_hpc.live",
    "malleable": "dask_hpc.live",
    "HPCAdaptive": "dask_hpc.live",
    "InSituPipeline": "dask_hpc.live.in_situ.pipeline",
    "Bridge": "dask_hpc.live.bridge.producer",
    "Checkpoint": "dask_hpc.checkpoint.program",
    "protect": "dask_hpc.checkpoint.protect",
    "restore": "dask_hpc.checkpoint.store.restoring",
    "protected": "dask_hpc.checkpoint.protect",
    "unprotect": "dask_hpc.checkpoint.protect",
    "plan_corridor": "dask_hpc.planning.plan_corridor",
    "plan_interval": "dask_hpc.planning.plan_interval",
    "plan_partition": "dask_hpc.planning.plan_partition",
    "plan_redistribution": "dask_hpc.redistribution.redistribute",
    "redistribute": "dask_hpc.redistribution.redistribute",
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
