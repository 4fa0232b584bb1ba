"""The scheduler's half of the power meter: every worker gets the plugin, and loses it again.

What the workers then tell, ``dask_hpc.power.heartbeat`` says.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import dask_hpc.model
import dask_hpc.power
from dask_hpc.live import compat
from dask_hpc.live.power.plugin import NAME, PowerPlugin

_PATIENCE = 5.0  # seconds that workers have to take or give back our plugin when control ends


class Metering:
    """Has all workers, now and later, sample their power every ``interval`` seconds. ``measured`` calibrates
    the model: pairs of use (0 to 1) and watts of a node, or nothing. Without ``sensors`` there is only that.
    """

    def __init__(
        self,
        scheduler: Any,
        interval: float,
        measured: Sequence[tuple[float, float]],
        count_error: Callable[[str, Exception], None],
        sensors: bool = True,
    ) -> None:
        self._scheduler = scheduler
        self._count_error = count_error
        plugin = PowerPlugin(interval, measured, sensors)
        self._plugin = compat.by_value(plugin, dask_hpc.power, dask_hpc.model)
        self._giving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Give the plugin to all workers."""
        giving = compat.add_worker_plugin(self._scheduler, NAME, self._plugin)
        self._giving = asyncio.ensure_future(giving)
        self._giving.add_done_callback(self._given)

    async def stop(self) -> None:
        """Take it from them."""
        if self._giving is not None:
            await asyncio.wait([self._giving], timeout=_PATIENCE)  # or they would learn of us after this
        self.cancel()
        with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
            async with asyncio.timeout(_PATIENCE):
                await compat.remove_worker_plugin(self._scheduler, NAME)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        if self._giving is not None:
            self._giving.cancel()

    def _given(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):  # a worker that has gone
            self._count_error("the power meter", error)
