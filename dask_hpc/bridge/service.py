"""Bridges as a service of a managed cluster: their tasks belong to no job."""

from collections.abc import Hashable

from dask_hpc.bridge.grid import is_external
from dask_hpc.bridge.worker import NAME
from dask_hpc.cluster.scheduler.service import Service


class BridgeService(Service):
    """Keeps the tasks of bridges out of jobs."""

    def for_jobs(self, tasks: list[Hashable]) -> list[Hashable]:
        """Not those of bridges: they go where blocks are, whoever asks for them."""
        is_used = NAME in self.context.scheduler.plugins
        return [key for key in tasks if not is_external(key)] if is_used else tasks


SERVICE = BridgeService
