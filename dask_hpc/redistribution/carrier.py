"""The dask arrays in what a user hands over, and a plan for them carried out: whole chunks
are moved as they are, new ones are made where they are to lie.

Where a new chunk takes a piece of a chunk of another worker, the piece is cut out there, and only the piece
travels. New chunks are made in waves: so many bytes for each worker at a time, and two waves at once, so that
one is computed while the next is on its way. All runs in the client, but for ``cut_out`` and ``join``, which
are what tasks do.

Failure conditions:

1. A worker dies: tasks that were meant for it run anywhere, what it had is computed again by Dask, and
   whoever asked for this plan sees in the end that chunks are not where they should be. The same if it pauses
   or is held, but tasks that it was given already wait until it goes on, as in plain Dask.
2. A result that cannot be computed again is lost: ``LostError``.
3. Computing something again fails: that error is raised.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import isnan
from secrets import token_hex
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.array.core import concatenate3
from dask.array.utils import meta_from_array
from distributed import CancelledError, Client, Future, futures_of

from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError, shown
from dask_hpc.planning.moves.redistribution import Blocks, Index, NewChunk, RedistributionPlan


@dataclass
class Chunks:
    """One array in memory of the cluster: its chunks are futures."""

    name: str
    dims: tuple[str, ...]
    chunks: tuple[tuple[int, ...], ...]
    meta: Any
    futures: dict[Index, Future]

    @classmethod
    def of(cls, array: da.Array, dims: tuple[str, ...], futures: Mapping[Hashable, Future]) -> "Chunks":
        indices = product(*(range(count) for count in array.numblocks))
        found = {index: futures[(array.name, *index)] for index in indices}
        return cls(array.name, dims, array.chunks, meta_from_array(array), found)

    @property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """Of each dimension, from 0 to its length."""
        return tuple(tuple(np.cumsum([0, *sizes]).tolist()) for sizes in self.chunks)

    def blocks(self, holders: Mapping[Hashable, Iterable[str]]) -> Blocks:
        """What a plan looks at; ``holders`` by key."""
        there = {index: tuple(holders[future.key]) for index, future in self.futures.items()}
        return Blocks(self.dims, self.edges, there, max(1, self.meta.dtype.itemsize))

    def key(self, index: Index) -> Hashable:
        return self.futures[index].key

    def array(self) -> da.Array:
        graph = {future.key: future for future in self.futures.values()}
        return da.Array(graph, self.name, chunks=self.chunks, meta=self.meta)


def sizes(edges: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The chunks of an array with these edges, as Dask writes them."""
    return tuple(tuple(end - begin for begin, end in pairwise(one)) for one in edges)


def check(obj: Any) -> None:
    """Whether there is anything to redistribute."""
    if not isinstance(obj, da.Array | xr.DataArray | xr.Dataset):
        allowed = "an xarray Dataset or DataArray, a dask array"
        raise InputError("redistribute", f"found {shown(obj)}", allowed)
    found = list(_arrays(obj))
    if not found:
        raise InputError("redistribute", f"nothing in this {type(obj).__name__} is a dask array", "chunks")
    for path, array, _ in found:
        if any(isnan(size) for sizes in array.chunks for size in sizes):
            where = f"redistribute: {path}" if path else "redistribute"
            unknown = "the sizes of its chunks are not known"
            raise InputError(where, unknown, "arrays after compute_chunk_sizes()")


def found_in(obj: Any) -> list[Chunks]:
    """The arrays of a persisted object, each once."""
    futures = {future.key: future for future in futures_of(obj)}
    arrays = {array.name: Chunks.of(array, dims, futures) for _, array, dims in _arrays(obj)}
    return list(arrays.values())


def labels_in(obj: Any) -> dict[str, str]:
    """What a person calls the arrays of an object, by their names: variables, or nothing."""
    return {array.name: path for path, array, _ in reversed(list(_arrays(obj)))}


def is_persisted(obj: Any) -> bool:
    known = {future.key for future in futures_of(obj)}
    return all(
        known.issuperset((array.name, *index) for index in product(*map(range, array.numblocks)))
        for _, array, _ in _arrays(obj)
    )


def replaced(obj: Any, arrays: Mapping[str, da.Array]) -> Any:
    """The object with other arrays in the place of those of that name; all else is as it was."""
    if isinstance(obj, da.Array):
        return arrays[obj.name]
    new = obj.copy(deep=False)
    for _, variable in _variables(new):
        variable.data = arrays[variable.data.name]
    return new


def _arrays(obj: Any) -> Iterable[tuple[str, da.Array, tuple[str, ...]]]:
    if isinstance(obj, da.Array):
        return [("", obj, tuple(f"dim_{i}" for i in range(obj.ndim)))]
    return [(name, variable.data, tuple(map(str, variable.dims))) for name, variable in _variables(obj)]


def _variables(obj: xr.DataArray | xr.Dataset) -> list[tuple[str, xr.Variable]]:
    if isinstance(obj, xr.Dataset):
        found = [(str(name), variable) for name, variable in obj.variables.items()]
    else:
        found = [(str(name), coordinate.variable) for name, coordinate in obj.coords.items()]
        found.insert(0, (str(obj.name or ""), obj.variable))
    return [
        (name, variable)
        for name, variable in found
        if variable.chunks is not None and isinstance(variable.data, da.Array)
    ]


#: bytes of new chunks that are made on one worker at a time; a larger chunk is made alone
WAVE = 64 * 2**20
#: waves at the same time: while one is joined, the pieces of the next one are cut out
_AT_ONCE = 2
#: before what else waits on the cluster: whoever redistributes waits for it
_PRIORITY = 10
_LOOK = 0.5  # seconds between looks for workers that are gone
_SHOW = 0.2  # seconds between looks at how far moves are

#: of one array the workers of each new chunk
Places = Mapping[Index, Sequence[str]]
Spans = Sequence[tuple[int, int]]
#: who gives a parcel, and who gets it
_Way = tuple[str, str]
#: hears how many bytes are done, and of how many
Progress = Callable[[float, float], None]


class LostError(RuntimeError):
    """Results are gone for good."""


def nbytes(chunk: NewChunk) -> float:
    return sum(piece.nbytes for piece in chunk.pieces)


@dataclass(frozen=True)
class Holding:
    """What there is now."""

    holders: Mapping[Hashable, Sequence[str]]
    #: the node of each worker, and the workers of each node that may have a part
    node_of: Mapping[str, str]
    workers: Mapping[str, Sequence[str]]
    #: exactly these nodes, if anybody said so
    asked: Sequence[str] | None


class Carrier:
    """One go at a plan of several arrays, of so many bytes in all."""

    def __init__(
        self, client: Client, run: str, seen: Holding, total: float, show: Progress | None = None
    ) -> None:
        self.client = client
        self.holders = seen.holders
        self._run = run
        self._total, self._done, self._show = total, 0.0, show
        #: bytes that each worker has to send
        self._sent: Counter[str] = Counter()

    def arrived(self, nbytes: float) -> None:
        """So many more bytes are where they should be; whoever asked hears of it."""
        self._done = min(self._total, self._done + nbytes)
        if self._show is not None:
            self._show(self._done, self._total)

    async def move(self, targets: Sequence[tuple[Hashable, Sequence[str]]], why: str) -> None:
        """Bring old chunks that stay whole to where they are to lie."""
        scheduler, seen = self.client.scheduler, 0
        work = asyncio.ensure_future(scheduler.hpc_redistribute_move(run=self._run, targets=targets, why=why))
        try:
            done = False
            while not done:
                done = bool((await asyncio.wait([work], timeout=_SHOW))[0])
                moved = await scheduler.hpc_redistribute_moved(run=self._run)
                if moved > seen:
                    self.arrived(moved - seen)
                    seen = moved
            await work
        finally:
            work.cancel()

    async def make(self, array: Chunks, plan: RedistributionPlan, places: Places, give_back: bool) -> Chunks:
        """The array in its new chunks; itself if these are the old ones. ``give_back``: old chunks are let go
        as soon as nothing more is taken from them."""
        if all(chunk.is_old for chunk in plan.chunks) and sizes(plan.edges) == array.chunks:
            return array
        maker = ChunkMaker(self, array, places)
        users = Counter(piece.old for chunk in plan.chunks for piece in chunk.pieces)
        under_way: deque[tuple[list[NewChunk], list[Future]]] = deque()

        async def finish() -> None:
            wave, futures = under_way.popleft()
            await wait_for(self.client, futures, [future.key for future in futures])
            self.arrived(sum(map(nbytes, wave)))
            users.subtract(piece.old for chunk in wave for piece in chunk.pieces)
            if give_back:
                for old in [old for old in array.futures if users[old] <= 0]:
                    del array.futures[old]

        try:
            for wave in waves(plan, places):
                if len(under_way) == _AT_ONCE:
                    await finish()
                under_way.append((wave, maker.submit(wave)))
            while under_way:
                await finish()
        finally:
            # Where they were made is not where they have to be if they are ever computed again.
            await self.client.scheduler.hpc_redistribute_free(keys=maker.keys, everywhere=True)
        return Chunks(maker.name, array.dims, sizes(plan.edges), array.meta, maker.made)

    def source(self, held: Sequence[str], nbytes: float) -> str:
        """Who of those that hold something gives it: whoever gives least so far."""
        found = min(held, key=lambda worker: self._sent[worker])
        self._sent[found] += nbytes  # type: ignore[assignment]
        return found


class ChunkMaker:
    """Submits what makes the new chunks of one array."""

    def __init__(self, carrier: Carrier, array: Chunks, places: Places) -> None:
        self._carrier = carrier
        self._array = array
        self._places = places
        self._token = token_hex(8)
        #: of the new array
        self.name = f"redistributed-{self._token}"
        #: of all tasks so far
        self.keys: list[Hashable] = []
        self.made: dict[Index, Future] = {}

    def submit(self, wave: Sequence[NewChunk]) -> list[Future]:
        """Make these chunks. Gives the futures of all tasks: of chunks, and of parcels on their way there."""
        parcels: dict[_Way, list[tuple[Future, Spans]]] = defaultdict(list)
        # by worker: a chunk, for each of its pieces what has it (the way of a parcel, too), and where it is
        joins: dict[str, list[tuple[NewChunk, list[Any], list[int | Spans | None]]]] = {}
        for chunk in wave:
            target = self._places[chunk.index][0]
            given: list[Any] = []
            where: list[int | Spans | None] = []
            for piece in chunk.pieces:
                future = self._array.futures[piece.old]
                held = self._carrier.holders[future.key]
                if chunk.is_old or target in held or not held:
                    given.append(future)
                    where.append(None if piece.is_whole else piece.spans)
                else:
                    way = (self._carrier.source(held, piece.nbytes), target)
                    given.append(way)
                    where.append(len(parcels[way]))
                    parcels[way].append((future, piece.spans))
            joins.setdefault(target, []).append((chunk, given, where))
        on_their_way = self._cut(parcels)
        for target, jobs in joins.items():
            chunks, givens, wheres = zip(*jobs, strict=True)
            futures = self._map(
                join,
                target,
                [(self.name, *chunk.index) for chunk in chunks],
                [[on_their_way[one] if isinstance(one, tuple) else one for one in given] for given in givens],
                wheres,
                [
                    tuple(len(set(at)) for at in zip(*(piece.old for piece in chunk.pieces), strict=True))
                    for chunk in chunks
                ],
                [chunk.pieces[0].is_whole for chunk in chunks],
            )
            self.made.update(zip((chunk.index for chunk in chunks), futures, strict=True))
        return [*on_their_way.values(), *(self.made[chunk.index] for chunk in wave)]

    def _cut(self, parcels: Mapping[_Way, list[tuple[Future, Spans]]]) -> dict[_Way, Future]:
        """Submit these; by source, as all tasks of one call go to one worker."""
        found: dict[_Way, Future] = {}
        for source in dict.fromkeys(source for source, _ in parcels):
            ways = [way for way in parcels if way[0] == source]
            keys = [(f"parcel-{self._token}", len(self.keys) + i) for i in range(len(ways))]
            chunks = [[future for future, _ in parcels[way]] for way in ways]
            spans = [[cut for _, cut in parcels[way]] for way in ways]
            found.update(zip(ways, self._map(cut_out, source, keys, chunks, spans), strict=True))
        return found

    def _map(self, work: Any, worker: str, keys: list[Any], *arguments: Sequence[Any]) -> list[Future]:
        self.keys += keys
        found: list[Future] = self._carrier.client.map(
            work, *arguments, key=keys, workers=[worker], priority=_PRIORITY, pure=False
        )
        return found


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


def cut_out(chunks: Sequence[Any], spans: Sequence[Spans]) -> list[Any]:
    """A parcel: pieces of some chunks for one other worker. Only these travel."""
    return [_piece(chunk, cut) for chunk, cut in zip(chunks, spans, strict=True)]


def join(given: Sequence[Any], where: Sequence[int | Spans | None], grid: Sequence[int], is_own: bool) -> Any:
    """A chunk of its pieces, in the order of the array; ``grid`` is how many there are along each axis.
    Where to find a piece: a number means that one of a parcel, spans that it is to be cut out, None that it
    is all of a chunk; ``is_own`` says that the only piece is nobody's part."""
    parts = [
        one if at is None else one[at] if isinstance(at, int) else _piece(one, at)
        for one, at in zip(given, where, strict=True)
    ]
    if len(parts) > 1:
        return concatenate3(_nested(parts, grid))
    # What is cut out is a view of the whole chunk, and would keep all of it in memory.
    return parts[0] if is_own else parts[0].copy()


def _piece(chunk: Any, spans: Spans) -> Any:
    return chunk[tuple(slice(*span) for span in spans)]


def _nested(parts: Sequence[Any], grid: Sequence[int]) -> Any:
    if len(grid) == 1:
        return list(parts)
    size = len(parts) // grid[0]
    return [_nested(parts[i * size : (i + 1) * size], grid[1:]) for i in range(grid[0])]
