"""One value that all workers are to have, now and later: it travels as a worker plugin."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.service import Context

_PATIENCE = 5.0  # seconds that workers have to hear of it


class WorkerSetting:
    """``make`` gives the plugin for a value; with the ``normal`` one workers have none. Workers hear of a
    change a moment later, and of the last one if several come at once.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        normal: Any,
        make: Callable[[Any], Any],
    ) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._name = name
        self._normal = self._told = normal
        self._make = make
        #: what is in force
        self.value = normal
        self._telling: asyncio.Task[None] | None = None

    def set(self, value: Any) -> None:
        """From now on this."""
        self.value = value
        if self._telling is None and value != self._told:
            self._telling = asyncio.ensure_future(self._tell_workers())

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
            while self._told != self.value:
                self._told = self.value
                with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
                    async with asyncio.timeout(_PATIENCE):
                        await self._tell(self._told)
        except Exception as error:
            self._context.count_error(f"telling workers ({self._name})", error)
        finally:
            self._telling = None

    async def _tell(self, value: Any) -> None:
        if value != self._normal:
            plugin = compat.pickled(self._make(value))
            await compat.replace_worker_plugin(self._scheduler, self._name, plugin)
        else:
            await compat.remove_worker_plugin(self._scheduler, self._name)
