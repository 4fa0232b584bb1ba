"""How a job gives nodes up: what it runs there ends, and its results come along.

The job's new tasks already go to the nodes that stay. Of what was sent to the others, what has not started
goes to the nodes that stay, too; what runs, and what may run nowhere else as the user said, is waited for, up
to the drain budget, and longer while a shuffle of the job needs the nodes; and results that are nowhere else
are moved to the nodes that stay, in the job's layout if it has declared one. Only then are the nodes given to
others. A hand-over never fails: what still runs at the end finishes where it is, and what fits nowhere stays
where it is; the story says so.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.leaving import LOOK, with_neighbours
from dask_hpc.cluster.scheduler.moves import beside, blocks_of, blocks_on, carry_out, rooms_on
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.units import show_duration
from dask_hpc.planning.moves.leaving import MovableBlock, Move, evacuate
from dask_hpc.planning.moves.spread import lay_out

_DRAIN = 0.2  # seconds after which the rest is asked for again: somebody may be able to take it now
_PATIENCE = 0.1  # who has waited for long looks less often: another tenth of that is nothing to anybody
_ROUNDS = 3  # of moving: tasks end while results are moved


class HandOvers:
    """The nodes that are changing hands, by the job that gives them."""

    def __init__(self, context: Context, mover: compat.TaskMover) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._owner = context.owner
        self._mover = mover
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, job: LiveJob, gives: set[str], done: Callable[[], None]) -> bool:
        """Ask for what has not started on these workers. Whether there is anything to wait for: then ``done``
        is called when it is over. With a budget of 0 there never is."""
        budget = self._context.drain
        for address in gives:
            self._mover.drain(address, job.unfinished)
        if not budget or not (self._is_busy(job, gives) or self._holds_results(job, gives)):
            return False
        work = self._hand_over(job, gives, budget, done)
        self._under_way[job.id] = self._context.do("the end of a hand-over", work)
        return True

    def recall(self, job: LiveJob, workers: set[str]) -> None:
        """The job stops: what has not started on these workers waits with it. What runs there ends."""
        for address in workers:
            self._mover.recall(address, job.unfinished)

    def cancel(self, job: LiveJob) -> None:
        """The job gives up no nodes any more: it is over, or has lost them all."""
        if task := self._under_way.pop(job.id, None):
            task.cancel()

    def close(self) -> None:
        """No hand-over goes on."""
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()

    async def _hand_over(
        self, job: LiveJob, gives: set[str], budget: float, done: Callable[[], None]
    ) -> None:
        try:
            await self._wait(job, gives, budget)
            self._context.get(Figures).phase_ends(job, "drain")
            for _ in range(_ROUNDS):
                async with job.moving:
                    if not await self._move(job, gives):
                        break
        except Exception as error:
            self._context.count_error("a hand-over", error)
        del self._under_way[job.id]
        done()

    async def _wait(self, job: LiveJob, gives: set[str], budget: float) -> None:
        clock = asyncio.get_running_loop().time
        since = asked = clock()
        while self._is_busy(job, gives):
            now = clock()
            if now - since >= budget and not self._is_shuffling(job, gives):
                running = {key for address in gives for key in self._tasks(job, address)}
                running.update(self._bound(job, gives))
                self._context.tell(
                    "hand-over",
                    f"job {job.id}: the drain budget of {show_duration(budget)} is over; {len(running)} of "
                    "its tasks finish on nodes it has given up",
                )
                return
            if now - asked >= _DRAIN:
                asked = now
                for address in gives:
                    if compat.worker_status(self._scheduler, address):
                        self._mover.drain(address, job.unfinished)
            await asyncio.sleep(min(max(LOOK, (now - since) * _PATIENCE), _DRAIN))

    async def _move(self, job: LiveJob, gives: set[str]) -> bool:
        """Whether everything that was to move has arrived, and perhaps more is there now."""
        stays = job.workers - gives
        blocks = await self._results(job, gives)
        if not blocks:
            return False
        blocks = await with_neighbours(self._scheduler, blocks, stays)
        rooms = rooms_on(self._scheduler, stays)
        # What has no place in the layout, or no room there, goes where it fits.
        moves: tuple[Move, ...] = ()
        if job.layout:
            moves = (await beside(lay_out, len(blocks), blocks, job.layout, rooms)).moves
        for move in moves:
            rooms[move.target] -= move.nbytes
        placed = {move.key for move in moves}
        blocks = [block for block in blocks if block.key not in placed]
        plan = await beside(evacuate, len(blocks), blocks, set(gives), rooms)
        if plan.unplaced:
            self._context.tell(
                "not-moved", f"results of job {job.id} stay on nodes it gives up: {plan.reason}"
            )
        why = f"job {job.id} gives up the nodes they are on"
        failed = await carry_out(self._scheduler, (*moves, *plan.moves), why, self._context.tell)
        return bool(moves or plan) and not plan.unplaced and not failed

    def _is_busy(self, job: LiveJob, gives: set[str]) -> bool:
        return (
            any(self._tasks(job, address) for address in gives)
            or self._is_shuffling(job, gives)
            or next(self._bound(job, gives), None) is not None
        )

    def _bound(self, job: LiveJob, gives: set[str]) -> Iterator[Hashable]:
        """Its tasks that still have to run, and may do so on workers that are given up only."""
        fewer: Iterable[Hashable] = job.wishes if len(job.wishes) < len(job.unfinished) else job.unfinished
        for key in fewer:
            wishes = job.wishes.get(key)
            if key in job.unfinished and wishes is not None and not wishes.loose:
                where = compat.wished_addresses(self._scheduler, wishes)
                if where and where <= gives:
                    yield key

    def _is_shuffling(self, job: LiveJob, gives: set[str]) -> bool:
        return bool(job.unfinished) and any(
            compat.worker_status(self._scheduler, address) and compat.veto(self._scheduler, address)
            for address in gives
        )

    def _tasks(self, job: LiveJob, address: str) -> list[Any]:
        return [key for key in compat.processing(self._scheduler, address) if key in job.unfinished]

    def _holds_results(self, job: LiveJob, gives: set[str]) -> bool:
        """Whether there is a result of the job that only these workers hold."""
        keys = (key for address in gives for key in compat.keys_on(self._scheduler, address))
        blocks = blocks_of(self._scheduler, (key for key in keys if self._owner.get(key) is job))
        return any(gives.issuperset(block.holders) for block in blocks)

    async def _results(self, job: LiveJob, gives: set[str]) -> list[MovableBlock]:
        """What only workers that are given up hold of the job's results."""
        return [
            block
            for block in await blocks_on(self._scheduler, gives)
            if gives.issuperset(block.holders) and self._owner.get(block.key) is job
        ]
