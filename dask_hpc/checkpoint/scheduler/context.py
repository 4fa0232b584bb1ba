"""What all parts of the controller share: scheduler, books, story, each other, and calls to workers."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.diary import Diary
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts
from dask_hpc.cluster.scheduler.service import Guard, context_of
from dask_hpc.model.node import Nodes

NAME = "dask-hpc-checkpoint"


class ControllerContext(Guard):
    """The controller, as its parts see it."""

    concern = "checkpoint: "
    farewell = "checkpoints are off after {} errors; all results are plain ones"
    nodes: Nodes
    catalogue: Catalogue
    diary: Diary
    failures: FailureCounts

    def tell(self, decision: str, reason: str) -> None:
        """Put it into the story, if the cluster is managed; else into Dask's event log."""
        if (managed := context_of(self.scheduler)) is not None:
            managed.tell(decision, reason)
        else:
            self.scheduler.log_event(NAME, {"decision": decision, "reason": reason})

    def _ended(self, where: str, task: asyncio.Task[None]) -> None:
        """That a worker that was asked has gone is no error of ours."""
        self._tasks.discard(task)
        if task.cancelled() or not isinstance(task.exception(), OSError):
            super()._ended(where, task)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def holders(context: ControllerContext, key: Hashable) -> tuple[str, ...]:
    task = compat.find_task(context.scheduler, key)
    return () if task is None or compat.is_actor(task) else compat.holders(task)


def node_names(context: ControllerContext) -> tuple[str, ...]:
    """The nodes on which workers are running."""
    running = compat.running_workers(context.scheduler)
    return tuple(sorted({context.nodes.node_of(address) for address in running}))


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
                raise HasGone(next(filter(self._is_gone, self._calls[call]), address))
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
