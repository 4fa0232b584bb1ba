"""What all parts of the controller share: the scheduler, the books, the story, and work beside all else."""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Protocol

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.diary import Diary
from dask_hpc.model.node import Nodes


class Context(Protocol):
    """The controller, as its parts see it."""

    scheduler: Any
    nodes: Nodes
    catalogue: Catalogue
    diary: Diary
    errors: int

    def tell(self, decision: str, reason: str) -> None:
        """Put it into the story."""

    def count_error(self, where: str, error: BaseException) -> None:
        """One more error of ours."""

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Beside all else."""


def holders(context: Context, key: Hashable) -> tuple[str, ...]:
    """The workers that have a key's result."""
    task = compat.find_task(context.scheduler, key)
    return () if task is None or compat.is_actor(task) else compat.holders(task)


def node_names(context: Context) -> list[str]:
    """The nodes on which workers are running."""
    running = compat.running_workers(context.scheduler)
    return sorted({context.nodes.node_of(address) for address in running})


class Calls:
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
