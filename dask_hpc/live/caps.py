"""Fewer threads: every worker, now and later, runs fewer tasks at once than it came for.

The scheduler's side changes at once, so nothing more is sent than may run; the workers hear of it through a
worker plugin a moment later. What runs is not interrupted, and no worker is left without a thread. A worker
that comes back is a new one to Dask: it comes with all its threads and is capped as it joins.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dask_hpc.live import compat

_PATIENCE = 5.0  # seconds that workers have to hear of a cap


class Caps:
    """The share of their threads that workers use."""

    def __init__(self, scheduler: Any, count_error: Callable[[str, Exception], None]) -> None:
        self._scheduler = scheduler
        self._count_error = count_error
        #: the share that is in force
        self.threads = 1.0
        #: the threads that workers came with
        self._own: dict[str, int] = {}
        self._told = 1.0
        self._telling: asyncio.Task[None] | None = None

    @property
    def has_effect(self) -> bool:
        """Whether anybody has a thread to spare."""
        return any(self.own_threads(one) > 1 for one in compat.workers_by_name(self._scheduler))

    def set(self, threads: float) -> None:
        """From now on this share."""
        if threads == self.threads:
            return
        self.threads = threads
        for address in compat.workers_by_name(self._scheduler):
            self.worker_joins(address)
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell_workers())

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
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=_PATIENCE)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell_workers(self) -> None:
        try:
            while self._told != self.threads:
                self._told = self.threads
                with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
                    async with asyncio.timeout(_PATIENCE):
                        await self._tell(self._told)
        except Exception as error:
            self._count_error("a cap of threads", error)
        finally:
            self._telling = None

    async def _tell(self, threads: float) -> None:
        name = compat.ThreadsPlugin.name
        if threads < 1:
            plugin = compat.by_value(compat.ThreadsPlugin(threads))
            await compat.replace_worker_plugin(self._scheduler, name, plugin)
        else:
            await compat.remove_worker_plugin(self._scheduler, name)
