"""Data spreads by itself after growth: workers that joined get their share of what lies on the others.

Dask moves no result when a worker joins: 20, 20, 0, 0 for ever. Here, a moment after the last growth, each
collection that somebody wants for longer (a client holds it) is laid evenly over the workers it belongs to,
neighbours together: the results of a running job over the nodes it has, all else over the nodes that no
running job has. The collections of a job that has declared a layout are laid out in it instead, after every
change of its size. Nothing is pulled onto a job's nodes from outside or off them, and a group of workers
without a new one among them is left as it is. Not during one of Dask's shuffles, and not while control is
paused: then it waits.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.moves import blocks_of, carry_out, rooms_on, settle_on
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.cluster.scheduler.window import AdaptationWindows
from dask_hpc.planning.moves.leaving import MovableBlock, collection_of
from dask_hpc.planning.moves.spread import lay_out, spread

#: seconds without another growth, before anything moves. Workers that are started together join within about
#: a second of each other, more if the machine is busy; each wave by itself would move more than all at once.
QUIET = 1.5
_AGAIN = 1.0  # seconds between looks at what we wait for
_LOOKS = 10  # at most, for what a job that has declared a layout computes again
_MANY = 5_000  # blocks: plans for more are made in a thread, so that the scheduler goes on meanwhile


class Spread:
    """Waits for growth to be over, then moves data. At most one spread at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scheduler = context.scheduler
        #: workers that joined the cluster or a job, and have not got their share yet
        self._new: set[str] = set()
        self._timer = Timer(context, "spreading data", self._look)
        self._spread: asyncio.Task[None] | None = None
        self._told_why_it_waits = False

    def joined(self, address: str) -> None:
        """A worker joined the cluster. If nobody holds anything yet, Dask gives it its share itself."""
        workers = compat.workers_by_name(self._scheduler)
        if any(compat.keys_on(self._scheduler, other) for other in workers):
            self.grown([address])

    def grown(self, addresses: Iterable[str]) -> None:
        """These workers joined the cluster, or the allotment of a running job, or are what it is left with
        and it has declared a layout."""
        if self._context.settings["spread"] and not self._context.is_dry:
            self._new.update(addresses)
            self._timer.set(QUIET)

    @property
    def is_under_way(self) -> bool:
        """Whether data moves."""
        return self._spread is not None and not self._spread.done()

    def close(self) -> None:
        """Whatever is under way stops: each result is where a copy is."""
        self._new.clear()
        self._timer.stop()
        if self._spread is not None:
            self._spread.cancel()

    def _look(self) -> None:
        if self._has_to_wait():
            self._timer.set(_AGAIN)
        else:
            new, self._new = self._new, set()
            if self._context.settings["spread"]:
                self._spread = self._context.do("spreading data", self._spread_to(new))

    def _has_to_wait(self) -> bool:
        if self._context.is_paused or self.is_under_way:
            return True
        waits = compat.is_shuffling(self._scheduler)
        if waits and not self._told_why_it_waits:
            self._context.tell("spread-waits", "data moves to the new workers when Dask's shuffle is over")
        self._told_why_it_waits = waits
        return waits

    async def _spread_to(self, new: set[str]) -> None:
        for job, addresses in list(self._context.groups()):
            if new.isdisjoint(addresses):
                continue
            if job is None:
                await self._spread_over(job, addresses)
                continue
            if job.layout:
                await self._until_computed(job, await self._blocks(job, addresses))
            async with job.moving:
                # meanwhile it may have given nodes up, or be over
                if addresses := self._context.workers_of(job):
                    await self._spread_over(job, addresses)

    async def _spread_over(self, job: LiveJob | None, addresses: list[str]) -> None:
        blocks = await self._blocks(job, addresses)
        rooms = rooms_on(self._scheduler, addresses)
        planned = partial(spread, blocks, rooms)
        if job is not None and job.layout:
            planned = partial(lay_out, blocks, job.layout, rooms)
        plan = await asyncio.to_thread(planned) if len(blocks) > _MANY else planned()
        whose = "outside of jobs" if job is None else f"of job {job.id}"
        why = f"data {whose} spreads over {len(rooms)} workers: {plan.reason}"
        if plan:
            began = self._context.clock()
            await carry_out(self._scheduler, plan.moves, why, self._context.tell)
            self._context.get(Figures).spread(job, self._context.clock() - began)
        elif plan.unplaced:
            self._context.tell("not-moved", why)
        spared = compat.SparedCopies.of(self._scheduler) or ()
        settle_on(self._scheduler, [(key, (at,)) for key, at in plan.places.items() if key not in spared])

    async def _until_computed(self, job: LiveJob, blocks: list[MovableBlock]) -> None:
        """What was lost of these collections is there again, or takes long."""
        names = {collection_of(block.key) for block in blocks}
        for _ in range(_LOOKS):
            if not any(collection_of(key) in names for key in job.unfinished):
                return
            await asyncio.sleep(_AGAIN)

    async def _blocks(self, job: LiveJob | None, addresses: list[str]) -> list[MovableBlock]:
        """The blocks of collections on these workers that are the job's, or no running job's, and that
        a client holds, but for those that its program has laid out. The scheduler gets a turn after each
        worker."""
        found: list[MovableBlock] = []
        seen = set()
        placed = {None, *self._context.get(AdaptationWindows).placed(job)}
        for address in addresses:
            keys = [
                key
                for key in compat.keys_on(self._scheduler, address)
                if key not in seen and collection_of(key) not in placed and self._owner(key) is job
            ]
            seen.update(keys)
            found += blocks_of(self._scheduler, keys, wanted=True)
            await asyncio.sleep(0)
        return found

    def _owner(self, key: Any) -> LiveJob | None:
        job = self._context.owner.get(key)
        return job if job is not None and job.state == "running" else None
