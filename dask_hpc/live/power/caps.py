"""Fewer threads: every worker, now and later, runs fewer tasks at once than it came for.

The scheduler's side changes at once, so nothing more is sent than may run; the workers hear of it through a
worker plugin a moment later. What runs is not interrupted, and no worker is left without a thread. A worker
that comes back is a new one to Dask: it comes with all its threads and is capped as it joins.
"""

from collections.abc import Callable
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.worker_setting import WorkerSetting


class Caps:
    """The share of their threads that workers use."""

    def __init__(self, scheduler: Any, count_error: Callable[[str, Exception], None]) -> None:
        self._scheduler = scheduler
        self._setting = WorkerSetting(
            scheduler, compat.ThreadsPlugin.name, 1.0, compat.ThreadsPlugin, count_error
        )
        #: the threads that workers came with
        self._own: dict[str, int] = {}

    @property
    def threads(self) -> float:
        """The share that is in force."""
        share: float = self._setting.value
        return share

    @property
    def has_effect(self) -> bool:
        """Whether anybody has a thread to spare."""
        return any(self.own_threads(one) > 1 for one in compat.workers_by_name(self._scheduler))

    def set(self, threads: float) -> None:
        """From now on this share."""
        if threads == self.threads:
            return
        self._setting.set(threads)
        for address in compat.workers_by_name(self._scheduler):
            self.worker_joins(address)

    def worker_joins(self, address: str) -> None:
        """It gets its share."""
        own = self.own_threads(address)
        if self.threads < 1 or address in self._own:
            self._own[address] = own
            compat.set_worker_threads(self._scheduler, address, compat.share_of(own, self.threads))
        if self.threads >= 1:
            self._own.pop(address, None)

    def worker_leaves(self, address: str) -> None:
        """It is gone."""
        self._own.pop(address, None)

    def own_threads(self, address: str) -> int:
        """Those that a connected worker came with."""
        return self._own.get(address) or compat.worker_threads(self._scheduler, address)

    async def settle(self) -> None:
        """The workers have heard of it, or had time to."""
        await self._setting.settle()

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        self._setting.cancel()
