"""New chunks of one array, as tasks on the workers that are to have them.

What one worker has for another of a wave is one parcel: tasks cost time, and there may be many small pieces.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from distributed import Client, Future

from dask_hpc.live import compat
from dask_hpc.planning.redistribution import Index, NewChunk, Piece, RedistributionPlan
from dask_hpc.redistribution.arrays import Chunks, sizes
from dask_hpc.redistribution.pieces import CutOut, Join, Spans

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
        self._cut_out = compat.Portable(compat.by_value(CutOut()))
        self._join = compat.Portable(compat.by_value(Join()))
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
