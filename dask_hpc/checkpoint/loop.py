"""The loop of a program that commits: goes on where it was, and looks at each turn whether to commit."""

from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Protocol

from dask_hpc.checkpoint.due import Due
from dask_hpc.checkpoint.ending import Ending, end_of_job


class Committing(Protocol):
    """What a loop needs of a checkpoint."""

    due: Due
    step: int
    walltime: Any
    is_asked: bool

    def call(self, work: Any, *args: Any) -> Any:
        """Run a coroutine function, or give its coroutine to an asynchronous program."""

    async def commit_now(self, wait: bool) -> None:
        """Commit what there is."""

    def loop_begins(self, turns: Generator[Any, None, None]) -> None:
        """Raises ``InputError`` if it must not."""

    def loop_ends(self, is_over: bool) -> None:
        """There may be no more iterations."""


class Loop:
    """To be iterated once, with ``for`` or with ``async for``."""

    def __init__(self, checkpoint: Committing, iterable: Iterable[Any]) -> None:
        self._checkpoint = checkpoint
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        turns = self._begun()
        try:
            for item, wait in turns:
                if wait is None:
                    yield item
                else:
                    self._checkpoint.call(self._checkpoint.commit_now, wait)
        finally:
            turns.close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        turns = self._begun()
        try:
            for item, wait in turns:
                if wait is None:
                    yield item
                else:
                    await self._checkpoint.commit_now(wait)
        finally:
            turns.close()

    def _begun(self) -> Generator[tuple[Any, bool | None], None, None]:
        turns = self._turns()
        self._checkpoint.loop_begins(turns)
        return turns

    def _turns(self) -> Generator[tuple[Any, bool | None], None, None]:
        """Items, and between them what to do: commit and go on, or commit and wait until it is safe."""
        checkpoint, due = self._checkpoint, self._checkpoint.due
        is_over = False
        with Ending(end_of_job(checkpoint.walltime)) as ending:
            try:
                due.begin(checkpoint.step, monotonic())
                for item in self._left(checkpoint.step):
                    begun = monotonic()
                    yield item, None
                    now = monotonic()
                    checkpoint.step += 1
                    due.iterated(now - begun)
                    if ending.is_told or due.is_last_chance(ending.left()):
                        yield None, True
                    elif checkpoint.is_asked or due.is_due(checkpoint.step, now):
                        yield None, False
                    if ending.is_told:
                        ending.close()  # what SIGTERM does to this process happens here
                yield None, True
                is_over = True
            finally:
                checkpoint.loop_ends(is_over)

    def _left(self, done: int) -> Iterable[Any]:
        if isinstance(self._iterable, range):
            return self._iterable[done:]
        items = iter(self._iterable)
        return islice(items, done, None)
