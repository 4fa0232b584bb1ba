"""A loop that outlives the workers it runs on.

Tasks of a pipeline are bound to their workers, so with a worker go its tasks, and what it held. The loop then
begins again, on the nodes that are left, from the newest of these that is still complete:

1. the state of the first iteration that was not handed out: nothing is stepped again, only analysed again. So
   it is when the worker gave its data away before it left, or held none;
2. the state that was kept last (``keep_every``): each of its blocks is on two nodes, after a loss again;
3. the state that the pipeline began with.

Iterations that were handed out already are stepped again, without their analyses, and not handed out again.

A step or an analysis that kills its worker would kill one after the other. So, as with Dask's tasks, this
ends with an error when workers were lost with what they held more than
``distributed.scheduler.allowed-failures`` times in a row, and no iteration was done in between.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import dask.config
import xarray as xr
from distributed import Client, Future

from dask_hpc import dask as compat
from dask_hpc.in_situ import worker as tasks
from dask_hpc.in_situ.client.iteration import Finished, Group, Orders, Steering, Submitted, Submitter
from dask_hpc.in_situ.client.job import PipelineDiary
from dask_hpc.in_situ.client.loop import IterationLoop
from dask_hpc.in_situ.worker import PipelineWork

_LOOK = 0.25  # seconds between two looks at which workers are there
_NOT_LOST = "whose state was not lost"


class WorkersKilledError(RuntimeError):
    """Workers die one after the other in one iteration."""


class KeptState:
    """A state whose groups of blocks are held, each with its copies (none yet after a loss)."""

    def __init__(self, of: Submitted, copies: Sequence[Sequence[Future]] = ()) -> None:
        self.of = Submitted(of.iteration, of.orders, list(of.groups))
        self.copies = copies

    @property
    def is_done(self) -> bool:
        return all(copy.status == "finished" for some in self.copies for copy in some)


class StateKeeper(Submitter):
    """Keeps the state of every ``every``th iteration that it submits, until the next is kept."""

    def __init__(
        self,
        client: Client,
        pipeline: str,
        work: PipelineWork,
        annotations: Mapping[str, Any],
        every: int | None,
    ) -> None:
        super().__init__(client, pipeline, work, annotations)
        self._every = every
        #: the last that is complete, and one that perhaps is not yet
        self.kept: deque[KeptState] = deque()

    def submit(self, iteration: int, orders: Orders, before: Submitted, again: bool = False) -> Submitted:
        """All tasks of an iteration, and copies of its state if it is to be kept."""
        one = super().submit(iteration, orders, before, again)
        self.kept = deque(kept if kept.copies else self._keep(kept.of, orders) for kept in self.kept)
        if self._every and iteration % self._every == 0 and len(self.kept) < 2:
            self.kept.append(self._keep(one, orders))
        return one

    def handed_out(self, first: int) -> None:
        """Iterations before this one are never done again: of two states up to it the newer is enough."""
        if len(self.kept) == 2 and self.kept[1].is_done and self.kept[1].of.iteration <= first:
            self.kept.popleft()

    def _keep(self, one: Submitted, orders: Orders) -> KeptState:
        """A state with copies on the node where it is, and on another if there is one. On its own node, too:
        when a copy has fetched its data, Dask has them twice and drops one or the other (ReduceReplicas),
        so that what the step made may be left on the node of that copy alone."""
        kept = KeptState(one)
        kept.of.bring_to(orders)
        node_of = {place.address: place.node for place in orders.places.simulation}
        node_of |= {place.address: place.node for place in orders.places.staging}
        node_of |= dict(orders.idle)
        copies = []
        for group in kept.of.groups:
            others = [address for address, node in node_of.items() if node != node_of[group.address]]
            turn = sorted(node_of).index(group.address)
            homes = [group.address] + ([others[turn % len(others)]] if others else [])
            copies.append([self.task(home, tasks.copied, group.future) for home in homes])
        kept.copies = copies
        return kept


class LastingLoop:
    """Iterations up to ``last``, whoever comes and goes."""

    def __init__(
        self,
        client: Client,
        submitter: StateKeeper,
        steering: Steering,
        before: Submitted,
        last: int,
        initial: xr.Dataset,
        diary: PipelineDiary,
    ) -> None:
        self._client = client
        self._submitter = submitter
        self._steering = steering
        self._last = last
        self._initial = initial
        self._diary = diary
        #: the next iteration to be handed out
        self._next = before.iteration + 1
        self._ready: deque[Finished] = deque()
        #: how often workers were lost with what they held since an iteration was done
        self._losses = 0
        self._loop = IterationLoop(client, submitter, steering, before, last)

    @property
    def newest(self) -> Submitted:
        """The iteration that was submitted last."""
        return self._loop.newest

    @property
    def is_done(self) -> bool:
        return self._loop.is_done

    async def close(self) -> None:
        """Stop, as ``IterationLoop.close``."""
        self._submitter.kept.clear()
        await self._loop.close()

    async def next(self) -> Finished | None:
        """The next iteration that is done, or None after the last. Raises what went wrong."""
        while True:
            if self._ready:
                self._next += 1
                self._submitter.handed_out(self._next)
                return self._ready.popleft()
            found = await self._next_or_lost()
            if found is None:
                return None
            if isinstance(found, Finished):
                if found.iteration >= self._next:
                    self._losses = 0
                    self._ready.append(found)
                continue
            try:
                await self._begin_again(found)
            except Exception as error:
                is_over = isinstance(error, WorkersKilledError)
                if is_over or not await self._lost() - found:  # else one more is gone meanwhile
                    raise

    async def _next_or_lost(self) -> Finished | set[str] | None:
        """What the loop has, or the workers that it has lost."""
        taking = asyncio.ensure_future(self._loop.next())
        try:
            while True:
                await asyncio.wait([taking], timeout=_LOOK)
                # what needs scattered data that is lost is cancelled
                failed = taking.done() and (taking.cancelled() or taking.exception() is not None)
                if taking.done() and not failed:
                    return taking.result()
                if lost := await self._lost():
                    return lost
                if failed:
                    return taking.result()  # raises: it was nobody's leaving
        finally:
            taking.cancel()

    async def _lost(self) -> set[str]:
        there = await self._client.scheduler.ncores(workers=None)
        used = {address for one in self._loop.unfinished for address in one.orders.places.addresses}
        used |= {*self._loop.newest.home.values()}
        return used - set(there)

    async def _begin_again(self, lost: set[str]) -> None:
        await self._loop.deliver()
        await self._loop.stop()
        self._steering.look_again()
        self._ready.extend(self._loop.take_finished())
        first = self._next + len(self._ready)
        under_way = self._loop.unfinished
        before, again, how = await self._left(first, under_way)
        names = ", ".join(sorted(lost))
        self._count_loss(names, first, how != _NOT_LOST)
        self._diary.tell("recovered", f"{names} is gone: goes on from iteration {before.iteration}, {how}")
        kept = {future.key for future in before.futures()}
        kept |= {group.future.key for one in self._submitter.kept for group in one.of.groups}
        for one in (*under_way, self._loop.newest):
            for future in one.futures():
                if future.key not in kept:
                    future.release()
        self._loop = IterationLoop(
            self._client, self._submitter, self._steering, before, self._last, first, again
        )

    def _count_loss(self, names: str, first: int, is_lost: bool) -> None:
        self._losses = 0 if self._ready else self._losses + is_lost
        allowed = dask.config.get("distributed.scheduler.allowed-failures", 3)
        if self._losses > allowed:
            raise WorkersKilledError(
                f"iteration {first}: {self._losses} times in a row workers died with their blocks, the last "
                f"time {names}; perhaps a step or an analysis needs more memory than there is "
                f"(allowed-failures: {allowed})"
            )

    async def _left(self, first: int, under_way: Sequence[Submitted]) -> tuple[Submitted, bool, str]:
        """What to begin again from, whether its analyses are to be done again, and how that is called."""
        newest = under_way[0] if under_way else self._loop.newest
        complete = [await self._there(kept.of, kept.copies) for kept in self._submitter.kept]
        self._submitter.kept = deque(KeptState(one) for one in complete if one is not None)
        if newest.groups and newest.iteration <= first and (found := await self._there(newest, ())):
            return found, newest.iteration == first, _NOT_LOST
        for kept in reversed(self._submitter.kept):
            if kept.of.iteration <= first:
                one = Submitted(kept.of.iteration, kept.of.orders, list(kept.of.groups))
                return one, one.iteration == first, "which was kept on another node"
        return await self._submitter.lay(self._initial, self._steering), False, "with which it began"

    async def _there(self, one: Submitted, copies: Sequence[Sequence[Future]]) -> Submitted | None:
        """That state, its blocks where they are now; None if any is lost."""
        choices = [[group.future] for group in one.groups]
        for futures, some in zip(choices, copies, strict=False):
            futures += some
        holding = await compat.who_holds(self._client, (one.key for some in choices for one in some))
        running = await self._client.scheduler.ncores_running(workers=None)
        groups = []
        for group, futures in zip(one.groups, choices, strict=True):
            holders = [
                (future, address)
                for future in futures
                for address in holding.get(future.key, ())
                if address in running
            ]
            if not holders:
                return None
            future, address = next((pair for pair in holders if pair[1] == group.address), holders[0])
            groups.append(Group(future, address, group.blocks))
        return Submitted(one.iteration, one.orders, groups)
