"""The loop of a pipeline: submits one iteration after the other, and hands out what each of them found.

Everything here runs on the client's event loop. An iteration is submitted as soon as the orders for it are
there (which is what holds the simulation back), usually while the step before it still runs: so Dask goes
from step to step without waiting for the client. Results come in order; the simulation waits for a user who
leaves two iterations' results lying.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from distributed import CancelledError, Client, Future, wait

from dask_hpc.in_situ import worker as tasks
from dask_hpc.in_situ.blocks import BlockGrid, join, rebuilt
from dask_hpc.in_situ.client.iteration import Finished, Group, Orders, Steering, Submitted, Submitter
from dask_hpc.in_situ.worker import AnalysisOutcome, TaskRecord, outline

_LOOK = 0.1  # seconds between two looks at what is done
_LYING = 2  # finished iterations that wait for the user before the simulation waits, too


class IterationLoop:
    """Iterations up to ``last`` of a pipeline, from the state that ``before`` left; those before ``new`` were
    handed out already: they are stepped, and neither analysed nor measured."""

    def __init__(
        self,
        client: Client,
        submitter: Submitter,
        steering: Steering,
        before: Submitted,
        last: int,
        new: int = 0,
        again: bool = False,
    ) -> None:
        self._client = client
        self._submitter = submitter
        self._steering = steering
        #: the iteration that was submitted last
        self.newest = before
        self._last, self._new = last, new
        #: whether the first is the iteration that ``before`` is
        self._again = again
        self._running: dict[str, dict[int, asyncio.Future[None]]] = {}
        #: what is under way, oldest first
        self.unfinished: list[Submitted] = []
        self._ends: asyncio.Queue[asyncio.Task[Finished] | None] = asyncio.Queue()
        self._ready: deque[Finished] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._error: BaseException | None = None
        #: an analysis was cancelled, as what it looks at is lost: so is all that would come of it
        self._is_lost = False
        #: all iterations are done, and none has failed
        self.is_done = False
        self._submits = asyncio.ensure_future(self._guarded(self._submit()))
        self._tasks = {self._submits, asyncio.ensure_future(self._guarded(self._deliver()))}

    async def next(self) -> Finished | None:
        """The next iteration that is done, or None after the last. Raises what went wrong."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self.is_done:
                return None
            self._news.clear()
            await self._news.wait()
        found = self._ready.popleft()
        if len(self._ready) < _LYING:
            self._room.set()
        return found

    def take_finished(self) -> list[Finished]:
        """What is done and nobody has asked for yet."""
        found = [*self._ready]
        self._ready.clear()
        return found

    async def deliver(self) -> None:
        """Submit no more, and wait for iterations that are done but for their results, which are not fetched
        yet: their states may have been let go."""
        self._submits.cancel()
        while self.unfinished and self.unfinished[0].is_done and self._error is None:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):  # their workers, too, may go meanwhile
                    await self._news.wait()

    async def stop(self) -> None:
        """Submit and hand out no more. What is held of iterations stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop; what is under way is let go, except the last state if all iterations are done."""
        await self.stop()
        if not self.is_done:
            self.unfinished.append(self.newest)
        # Not Client.cancel: with force, Dask's scheduler fails on tasks between that nobody holds any more.
        for one in self.unfinished:
            for future in one.futures():
                future.release()
        self.unfinished.clear()

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._news.set()

    async def _submit(self) -> None:
        for iteration in range(self.newest.iteration + (not self._again), self._last + 1):
            await self._room.wait()
            orders = await self._steering.orders(iteration, self.newest.home, self._running)
            if self._is_lost:
                await asyncio.Future()  # until it is stopped
            if iteration < self._new:
                orders = replace(orders, analyses=frozenset())
            one = self._next(iteration, orders)
            for name, outcome in one.outcomes.items():
                self._running.setdefault(name, {})[iteration] = self._started(
                    self._end(name, iteration, outcome)
                )
            self._ends.put_nowait(self._started(self._finish(one, monotonic())))
        self._ends.put_nowait(None)

    async def _deliver(self) -> None:
        while (end := await self._ends.get()) is not None:
            done = await end
            if done.iteration >= self._new:
                await self._steering.finished(done)
            self._let_go(done.iteration)
            self._ready.append(done)
            if len(self._ready) >= _LYING:
                self._room.clear()
            self._news.set()
        self.is_done = True

    def _next(self, iteration: int, orders: Orders) -> Submitted:
        """Submit it. Of the states under way two are held: others live as long as tasks need them."""
        before = self.newest
        before.bring_to(orders)
        one = self._submitter.submit(iteration, orders, before, iteration == before.iteration)
        if all(late is not before for late in self.unfinished):
            before.groups.clear()
        for late in self.unfinished[:-1]:
            late.groups.clear()
        self.newest = one
        self.unfinished.append(one)
        return one

    def _let_go(self, iteration: int) -> None:
        """It is done: its state is needed by the next step only."""
        for one in self.unfinished:
            if one.iteration == iteration and one is not self.newest:
                one.groups.clear()
        self.unfinished = [one for one in self.unfinished if one.iteration != iteration]

    def _started(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        """One that failed is looked at, or asyncio complains: the first error is all that matters."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def _end(self, name: str, iteration: int, outcome: Future) -> None:
        """An analysis has ended, well or not."""
        try:
            await self._over([outcome])
        except CancelledError:
            self._is_lost = True
        finally:
            self._running[name].pop(iteration, None)

    async def _finish(self, one: Submitted, submitted: float) -> Finished:
        reports = await self._gather(one.reports.values())
        stepped = monotonic()
        plain = {name: future for name, future in one.outcomes.items() if name not in one.kept}
        outcomes: list[AnalysisOutcome] = await self._gather(plain.values())
        kept = await self._gather(records for _, records in one.kept.values())
        results = {name: one.values[None] for name, one in zip(plain, outcomes, strict=True)}
        results |= {name: future for name, (future, _) in one.kept.items()}
        measured: list[TaskRecord] = [record for some in (*reports, *kept) for record in some]
        measured += [record for outcome in outcomes for record in outcome.records]
        return Finished(
            iteration=one.iteration,
            orders=one.orders,
            records=tuple(measured),
            submitted=submitted,
            stepped=stepped,
            ended=monotonic(),
            results={name: results[name] for name in one.outcomes},
        )

    async def _over(self, futures: list[Future]) -> None:
        """All of them have ended. Dask's ``wait`` asks the current client, which may be another."""
        with self._client.as_current():
            over = wait(futures)
        await over

    async def _gather(self, futures: Iterable[Future]) -> list[Any]:
        asked = list(futures)
        if asked:
            await self._over(asked)
        for future in asked:
            if future.status != "finished":
                await future  # raises; gathering several that failed makes Dask complain of all but one
        found: list[Any] = await self._client.gather(asked)
        return found


async def lazy(client: Client, grid: BlockGrid, groups: Sequence[Group]) -> xr.Dataset:
    """The state as it is now. Its data stay where they are, as Dask arrays; coordinates with an index are
    here."""
    holder = {block: group for group in groups for block in group.blocks}
    futures = [
        client.submit(outline, holder[block].future, block, workers=[holder[block].address], pure=False)
        for block in range(len(grid))
    ]
    outlines = await client.gather(futures)
    whole = join({block: indexed for block, (indexed, _) in enumerate(outlines)}, grid)
    found = dict(whole.variables)
    coords = {*whole.coords}
    for name, (dims, _, _, attrs, is_coord) in outlines[0][1].items():
        blocks = np.empty([len(lengths) for lengths in grid.chunks], dtype=object)
        for block, index in enumerate(grid.indices):
            _, shape, dtype, _, _ = outlines[block][1][name]
            array = dask.delayed(tasks.array_of)(holder[block].future, block, name)
            blocks[index] = da.from_delayed(array, shape, dtype)
        found[name] = xr.Variable(dims, _assembled(blocks, grid, dims), attrs)
        coords |= {name} if is_coord else set()
    like = whole.assign_coords({name: found[name] for name in coords})
    return rebuilt(like, found)


def _assembled(blocks: np.ndarray, grid: BlockGrid, dims: Sequence[Any]) -> da.Array:
    """One Dask array of the blocks of a variable, along the dimensions that it has."""
    for axis, dim in reversed(list(enumerate(grid.dims))):
        if dim not in dims:
            blocks = blocks.take(0, axis=axis)
    there = [dim for dim in grid.dims if dim in dims]
    if not there:
        return blocks.item() if isinstance(blocks, np.ndarray) else blocks

    def along(some: np.ndarray, depth: int) -> da.Array:
        if depth == len(there):
            return some.item() if isinstance(some, np.ndarray) else some
        axis = list(dims).index(there[depth])
        return da.concatenate([along(one, depth + 1) for one in some], axis=axis)

    return along(blocks, 0)
