"""The live body: jobs on allotments of a real Dask cluster."""

from dask_hpc.live.adaptive import HPCAdaptive
from dask_hpc.live.job_context import job
from dask_hpc.live.malleable import malleable
from dask_hpc.live.manager import Manager, manage

__all__ = ["HPCAdaptive", "Manager", "job", "malleable", "manage"]
