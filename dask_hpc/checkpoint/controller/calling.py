"""Calls to workers that end as soon as the worker is known to be gone: Dask tries for half a minute to reach
one that is."""

import asyncio
from typing import Any

from dask_hpc.live import compat


class Calling:
    """What is asked of workers now."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._calls: dict[str, set[asyncio.Future[Any]]] = {}

    async def call(self, address: str, name: str, **what: Any) -> Any:
        """The worker's answer. Raises ``OSError`` if it cannot be had."""
        if compat.worker_status(self._scheduler, address) is None:
            raise ConnectionError(f"{address} has gone")
        call = asyncio.ensure_future(getattr(self._scheduler.rpc(address), name)(**what))
        self._calls.setdefault(address, set()).add(call)
        try:
            await asyncio.wait([call])
            if call.cancelled():
                raise ConnectionError(f"{address} has gone")
            return call.result()
        finally:
            call.cancel()
            theirs = self._calls.get(address, set())
            theirs.discard(call)
            if not theirs:
                self._calls.pop(address, None)

    def worker_is_gone(self, address: str) -> None:
        """Nobody waits for its answers any longer."""
        for call in self._calls.pop(address, ()):
            call.cancel()
