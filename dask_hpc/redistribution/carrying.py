"""A plan carried out: whole chunks are moved as they are, new ones are made where they are to lie.

Where a new chunk takes a piece of a chunk of another worker, the piece is cut out there, and only the piece
travels. New chunks are made in waves: so many bytes for each worker at a time, and two waves at once, so that
one is computed while the next is on its way.

Failure conditions:

1. A worker dies: tasks that were meant for it run anywhere, what it had is computed again by Dask, and
   whoever asked for this plan sees in the end that chunks are not where they should be. The same if it pauses
   or is held, but tasks that it was given already wait until it goes on, as in plain Dask.
2. A result that cannot be computed again is lost: ``LostError``.
3. Computing something again fails: that error is raised.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from distributed import CancelledError, Client, Future

from dask_hpc.live import compat
from dask_hpc.planning.redistribution import NewChunk, RedistributionPlan
from dask_hpc.redistribution.arrays import Chunks, sizes
from dask_hpc.redistribution.making import Making, Places, nbytes, waves

#: waves at the same time: while one is joined, the pieces of the next one are cut out
_AT_ONCE = 2
_LOOK = 0.5  # seconds between looks for workers that are gone
_SHOW = 0.2  # seconds between looks at how far moves are

#: hears of bytes that are where they should be
Hears = Callable[[float], None]


class LostError(RuntimeError):
    """Results are gone for good."""


async def wait_for(client: Client, futures: Sequence[Future], mind: Sequence[Hashable] = ()) -> None:
    """Until all are there. ``mind`` are tasks that may run anywhere if the worker meant for them is gone."""
    pending = list(futures)
    while pending:
        # One that is "lost" is being computed again.
        gone = [future for future in pending if future.status == "cancelled"]
        if gone:
            count = f"{len(gone)} chunk{'s are' if len(gone) > 1 else ' is'}"
            raise LostError(f"{count} lost, and cannot be computed again")
        try:
            is_done = await compat.settled(pending, _LOOK)
        except CancelledError:
            continue
        if not is_done and mind:
            await client.scheduler.hpc_redistribute_free(keys=list(mind), everywhere=False)
        for future in pending:
            if future.status == "error":
                raise await future.exception()
        pending = [future for future in pending if future.status != "finished"]


class Carrying:
    """One go at a plan of several arrays."""

    def __init__(
        self,
        client: Client,
        run: str,
        holders: Mapping[Hashable, Sequence[str]],
        sizes: Mapping[Hashable, int],
        why: str,
        hears: Hears,
    ) -> None:
        self._client = client
        self._run = run
        self._holders = holders
        self._sizes = sizes
        self._why = why
        self._hears = hears
        #: bytes that each worker has to send
        self._sent: Counter[str] = Counter()

    async def move(
        self, arrays: Sequence[Chunks], plans: Sequence[RedistributionPlan], places: Sequence[Places]
    ) -> None:
        """Bring old chunks that stay whole to where they are to lie."""
        moves, copies = [], []
        for array, plan, there in zip(arrays, plans, places, strict=True):
            for chunk in plan.chunks:
                if not chunk.is_old:
                    continue
                key = array.key(chunk.pieces[0].old)
                held, nbytes = self._holders[key], self._sizes[key]
                missing = [target for target in there[chunk.index] if target not in held]
                if not missing or not held:
                    continue
                if len(there[chunk.index]) > 1:
                    copies.append((key, nbytes, missing))
                else:
                    moves.append((key, nbytes, self._source(held, nbytes), missing[0]))
        if moves or copies:
            work = self._client.scheduler.hpc_redistribute_move(
                run=self._run, moves=moves, copies=copies, why=self._why
            )
            await self._shown(asyncio.ensure_future(work))

    async def make(self, array: Chunks, plan: RedistributionPlan, places: Places, give_back: bool) -> Chunks:
        """The array in its new chunks; itself if these are the old ones. ``give_back``: old chunks are let go
        as soon as nothing more is taken from them."""
        if all(chunk.is_old for chunk in plan.chunks) and sizes(plan.edges) == array.chunks:
            return array
        making = Making(self._client, array, places, self._holders, self._source)
        users = Counter(piece.old for chunk in plan.chunks for piece in chunk.pieces)
        under_way: deque[tuple[list[NewChunk], list[Future]]] = deque()

        async def finish() -> None:
            wave, futures = under_way.popleft()
            await wait_for(self._client, futures, [future.key for future in futures])
            self._hears(sum(map(nbytes, wave)))
            users.subtract(piece.old for chunk in wave for piece in chunk.pieces)
            if give_back:
                for old in [old for old in array.futures if users[old] <= 0]:
                    del array.futures[old]

        try:
            for wave in waves(plan, places):
                if len(under_way) == _AT_ONCE:
                    await finish()
                under_way.append((wave, making.submit(wave)))
            while under_way:
                await finish()
        finally:
            # Where they were made is not where they have to be if they are ever computed again.
            await self._client.scheduler.hpc_redistribute_free(keys=making.keys, everywhere=True)
        return making.made(plan)

    def _source(self, held: Sequence[str], nbytes: float) -> str:
        found = min(held, key=lambda worker: self._sent[worker])
        self._sent[found] += nbytes  # type: ignore[assignment]
        return found

    async def _shown(self, work: "asyncio.Future[Any]") -> None:
        seen = 0
        try:
            while True:
                done, _ = await asyncio.wait([work], timeout=_SHOW)
                moved = await self._client.scheduler.hpc_redistribute_moved(run=self._run)
                if moved > seen:
                    self._hears(moved - seen)
                    seen = moved
                if done:
                    await work
                    return
        finally:
            work.cancel()
