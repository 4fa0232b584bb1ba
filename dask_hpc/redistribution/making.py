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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from distributed import CancelledError, Client, Future

from dask_hpc import dask as compat
from dask_hpc.planning.moves.redistribution import Index, NewChunk, Piece, RedistributionPlan
from dask_hpc.redistribution.arrays import Chunks, sizes
from dask_hpc.redistribution.worker import CutOut, Join, Spans

#: bytes of new chunks that are made on one worker at a time; a larger chunk is made alone
WAVE = 64 * 2**20
#: before what else waits on the cluster: whoever redistributes waits for it
_PRIORITY = 10

#: of one array the workers of each new chunk
Places = Mapping[Index, Sequence[str]]


class Making:
    """Submits what makes the new chunks. ``source`` chooses who gives a piece."""

    def __init__(
        self,
        client: Client,
        array: Chunks,
        places: Places,
        holders: Mapping[Hashable, Sequence[str]],
        source: Callable[[Sequence[str], float], str],
    ) -> None:
        self._client = client
        self._array = array
        self._places = places
        self._holders = holders
        self._source = source
        self._token = token_hex(8)
        self._cut_out = compat.Portable(compat.pickled(CutOut()))
        self._join = compat.Portable(compat.pickled(Join()))
        #: of all tasks so far
        self.keys: list[Hashable] = []
        self._made: dict[Index, Future] = {}

    def submit(self, wave: Sequence[NewChunk]) -> list[Future]:
        """Make these chunks. Gives the futures of all tasks: of chunks, and of parcels on their way there."""
        parcels: dict[tuple[str, str], _Parcel] = {}
        joins: dict[str, list[tuple[NewChunk, list[Any], list[int | Spans | None]]]] = {}
        for chunk in wave:
            target = self._places[chunk.index][0]
            given: list[Any] = []
            where: list[int | Spans | None] = []
            for piece in chunk.pieces:
                future = self._array.futures[piece.old]
                held = self._holders[future.key]
                if chunk.is_old or target in held or not held:
                    given.append(future)
                    where.append(None if piece.is_whole else piece.spans)
                else:
                    pair = (self._source(held, piece.nbytes), target)
                    parcel = parcels.setdefault(pair, _Parcel([], []))
                    given.append(pair)
                    where.append(len(parcel.spans))
                    parcel.chunks.append(future)
                    parcel.spans.append(piece.spans)
            joins.setdefault(target, []).append((chunk, given, where))
        on_their_way = self._cut(parcels)
        for target, made in joins.items():
            chunks = [chunk for chunk, _, _ in made]
            futures = self._map(
                self._join,
                target,
                [(self._name, *chunk.index) for chunk in chunks],
                [
                    [on_their_way[one] if isinstance(one, tuple) else one for one in given]
                    for _, given, _ in made
                ],
                [where for _, _, where in made],
                [_grid(chunk.pieces) for chunk in chunks],
                [chunk.pieces[0].is_whole for chunk in chunks],
            )
            self._made.update(zip((chunk.index for chunk in chunks), futures, strict=True))
        return [*on_their_way.values(), *(self._made[chunk.index] for chunk in wave)]

    def _cut(self, parcels: Mapping[tuple[str, str], "_Parcel"]) -> dict[tuple[str, str], Future]:
        """Submit these; by source, as all tasks of one call go to one worker."""
        found: dict[tuple[str, str], Future] = {}
        for source in dict.fromkeys(source for source, _ in parcels):
            some = {pair: parcel for pair, parcel in parcels.items() if pair[0] == source}
            keys = [(f"parcel-{self._token}", len(self.keys) + i) for i in range(len(some))]
            chunks = [parcel.chunks for parcel in some.values()]
            spans = [parcel.spans for parcel in some.values()]
            found.update(zip(some, self._map(self._cut_out, source, keys, chunks, spans), strict=True))
        return found

    def made(self, plan: RedistributionPlan) -> Chunks:
        """The array of all new chunks."""
        old = self._array
        return Chunks(self._name, old.dims, sizes(plan.edges), old.meta, self._made)

    @property
    def _name(self) -> str:
        return f"redistributed-{self._token}"

    def _map(self, work: Any, worker: str, keys: list[Any], *arguments: list[Any]) -> list[Future]:
        self.keys += keys
        found: list[Future] = self._client.map(
            work, *arguments, key=keys, workers=[worker], priority=_PRIORITY, pure=False
        )
        return found


class _Parcel(NamedTuple):
    """What one worker cuts out for one other."""

    chunks: list[Future]
    spans: list[Spans]


def waves(plan: RedistributionPlan, places: Places) -> Iterator[list[NewChunk]]:
    """The new chunks by turns, so many bytes for each worker at a time."""
    queues: dict[str, list[NewChunk]] = {}
    for chunk in reversed(plan.chunks):
        queues.setdefault(places[chunk.index][0], []).append(chunk)
    while queues:
        wave = []
        for target in list(queues):
            queue, room = queues[target], float(WAVE)
            while queue and (room == WAVE or nbytes(queue[-1]) <= room):
                room -= nbytes(queue[-1])
                wave.append(queue.pop())
            if not queue:
                del queues[target]
        yield wave


def nbytes(chunk: NewChunk) -> float:
    """Of a new chunk."""
    return sum(piece.nbytes for piece in chunk.pieces)


def _grid(pieces: Sequence[Piece]) -> tuple[int, ...]:
    return tuple(len(set(places)) for places in zip(*(piece.old for piece in pieces), strict=True))


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
