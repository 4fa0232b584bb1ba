"""The live body: jobs on allotments of a real Dask cluster."""

from dask_hpc.cluster.client.adaptive import HPCAdaptive
from dask_hpc.cluster.client.job import job
from dask_hpc.cluster.client.malleable import malleable
from dask_hpc.cluster.client.manager import Manager, manage

__all__ = ["HPCAdaptive", "Manager", "job", "malleable", "manage"]
