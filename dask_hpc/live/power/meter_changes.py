"""Workers get meters and lose them again, one change after the other however quickly they are asked for."""

import asyncio
from collections.abc import Callable

from dask_hpc.live.power.metering import Metering


class MeterChanges:
    """Which meter the workers of one cluster have, if any."""

    def __init__(self) -> None:
        self._wanted: Metering | None = None
        self._last: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether all is as it was last asked for."""
        return self._last is None

    def want(self, metering: Metering | None, count_error: Callable[[str, Exception], None]) -> None:
        """Workers are to have this one from now on, or none."""
        before, self._wanted = self._wanted, metering
        if before is not None or metering is not None:
            change = self._change(self._last, before, metering, count_error)
            self._last = asyncio.ensure_future(change)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        if self._wanted is not None:
            self._wanted.cancel()
        if self._last is not None:
            self._last.cancel()

    async def settle(self) -> None:
        """Until all is as it was asked for."""
        while self._last is not None:
            await asyncio.wait([self._last])

    async def _change(
        self,
        earlier: asyncio.Task[None] | None,
        before: Metering | None,
        after: Metering | None,
        count_error: Callable[[str, Exception], None],
    ) -> None:
        try:
            if earlier is not None:
                await asyncio.wait([earlier])
            if before is not None:
                await before.stop()
            if after is not None and after is self._wanted:
                after.start()
        except Exception as error:
            count_error("the power meter", error)
        finally:
            if self._last is asyncio.current_task():
                self._last = None
