"""What all parts of the controller share: the scheduler, the books, the story, and work beside all else."""

import asyncio
from collections.abc import Coroutine, Hashable, Iterable
from typing import Any, Protocol

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.diary import Diary
from dask_hpc.model.node import Nodes


class ControllerContext(Protocol):
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


def holders(context: ControllerContext, key: Hashable) -> tuple[str, ...]:
    """The workers that have a key's result."""
    task = compat.find_task(context.scheduler, key)
    return () if task is None or compat.is_actor(task) else compat.holders(task)


def node_names(context: ControllerContext) -> list[str]:
    """The nodes on which workers are running."""
    running = compat.running_workers(context.scheduler)
    return sorted({context.nodes.node_of(address) for address in running})


class HasGone(ConnectionError):
    """A worker that was asked, or that is needed for the answer."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has gone")
        self.address = address


class WorkerCalls:
    """What is asked of workers now."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: and the workers that are needed for the answer
        self._calls: dict[asyncio.Future[Any], set[str]] = {}

    async def call(self, address: str, name: str, *, needs: Iterable[str] = (), **what: Any) -> Any:
        """The worker's answer, for which it needs others. Raises ``OSError`` if it cannot be had, at once if
        one of them goes: Dask would try for long to reach it."""
        if self._is_gone(address):
            raise HasGone(address)
        call = asyncio.ensure_future(getattr(self._scheduler.rpc(address), name)(**what))
        self._calls[call] = {address, *needs}
        try:
            await asyncio.wait([call])
            if call.cancelled():
                gone = next((one for one in self._calls[call] if self._is_gone(one)), address)
                raise HasGone(gone)
            return call.result()
        finally:
            call.cancel()
            del self._calls[call]

    def worker_is_gone(self, address: str) -> None:
        """Nobody waits for its answers any longer, nor for those of who needs it."""
        for call, needed in self._calls.items():
            if address in needed:
                call.cancel()

    def _is_gone(self, address: str) -> bool:
        return compat.worker_status(self._scheduler, address) is None
