"""Which blocks move where after growth: every worker gets an even, contiguous part of each collection.

A collection is cut into one segment per worker, and the segments are given to the workers so that as much as
possible stays where it is. Cuts and order are improved in turn: given the cuts, the best order is an
assignment problem; given the order, the best cuts are found by dynamic programming over their positions.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from dask_hpc.planning.moves.layout import DimLayout
from dask_hpc.planning.moves.leaving import MovableBlock, Move, MovePlan, in_rows
from dask_hpc.planning.moves.redistribution import (
    Blocks,
    Index,
    JointPlan,
    NewChunk,
    Span,
    heaviest,
    overlaps,
)

#: a collection with fewer blocks per worker is left alone
LEAST_BLOCKS = 2
#: to keep neighbours together may cost so many times the bytes that an even layout costs anyway
_WORTH = 3.0
_ROUNDS = 4  # of improvement, as long as more than _ENOUGH of all bytes is gained
_ENOUGH = 0.005
_POSITIONS = 50  # of a cut that are looked at, on either side of where it would be if all were exactly even


def spread(blocks: Iterable[MovableBlock], rooms: Mapping[str, int], tolerance: float = 0.2) -> MovePlan:
    """Moves that leave each of the workers with an even share of each collection, in neighbouring blocks.

    ``rooms`` are the workers and their free bytes. Even means: within ``tolerance`` of a share, or as near as
    whole blocks allow. What is even already stays as it is, whatever the order; what is not is brought
    within half the tolerance, so that it does not soon need another plan. Blocks that none of the workers
    holds, and blocks without neighbours, are left alone. If to have neighbours together costs three times the
    bytes of an even layout or more (one worker joins many that hold a collection interleaved), blocks
    only go from those that have too many to those that lack some.
    """
    room = {worker: rooms[worker] for worker in sorted(rooms)}
    moves: list[Move] = []
    unplaced: list[MovableBlock] = []
    reasons = []
    lower_bound = 0
    for name, row in in_rows(blocks):
        row = [block for block in row if not room.keys().isdisjoint(block.holders)]
        if not name or len(room) < 2 or len(row) < LEAST_BLOCKS * len(room):
            continue
        layout = _Layout(row, list(room), tolerance)
        if layout.is_even:
            continue
        lower_bound += layout.lower_bound
        for block, source, target in layout.moves():
            if block.nbytes <= room[target]:
                room[target] -= block.nbytes
                moves.append(Move(block.key, block.nbytes, source, target))
            else:
                unplaced.append(block)
        most = max(layout.held.values()) / layout.share
        reasons.append(f"the fullest of {len(room)} workers holds {most:.1f} times an even share of {name}")
    return MovePlan(tuple(moves), tuple(unplaced), _said(reasons, len(unplaced)), lower_bound)


def _said(reasons: list[str], unplaced: int) -> str:
    text = reasons[0] if reasons else ""
    if len(reasons) > 1:
        text += f", and {len(reasons) - 1} more collections are uneven"
    return text + (f"; {unplaced} blocks stay where they are: there is no room for them" if unplaced else "")


class _Layout:
    """Where the blocks of one collection are, and where they should be."""

    def __init__(self, row: list[MovableBlock], workers: list[str], tolerance: float) -> None:
        self.row = row
        self.workers = workers
        self.ends = [0, *accumulate(block.nbytes for block in row)]
        self.share = self.ends[-1] / len(workers)
        #: (index, bytes, worker) of all copies in order
        self.copies: list[tuple[int, int, str]] = []
        #: one place for each block; if it has several, the one that makes the layout more even
        self.places: list[str] = []
        self.held = dict.fromkeys(workers, 0)
        choices = []
        for index, block in enumerate(row):
            has = [worker for worker in block.holders if worker in self.held]
            self.copies.extend((index, block.nbytes, worker) for worker in has)
            self.places.append(has[0])
            if len(has) == 1:
                self.held[has[0]] += block.nbytes
            else:
                choices.append((index, has))
        for index, has in choices:
            self.places[index] = place = min(has, key=lambda worker: (self.held[worker], worker))
            self.held[place] += row[index].nbytes
        self.cuts = self._even_cuts()
        nearest = max(abs(size - self.share) for size in self._sizes(self.cuts))
        self.trigger = max(tolerance * self.share, nearest)
        self.slack = max(tolerance / 2 * self.share, nearest)

    @property
    def is_even(self) -> bool:
        """Whether nobody has much more or less than a share."""
        return self._are_even(self.held)

    @cached_property
    def lower_bound(self) -> int:
        """Bytes that go to somebody, or from somebody, in any plan after which all is even."""
        copies, only = dict.fromkeys(self.workers, 0), dict.fromkeys(self.workers, 0)
        for index, nbytes, worker in self.copies:
            copies[worker] += nbytes
            if len(self.row[index].holders) == 1:
                only[worker] += nbytes
        lacking = sum(max(0.0, self.share - self.trigger - held) for held in copies.values())
        surplus = sum(max(0.0, held - self.share - self.trigger) for held in only.values())
        return int(max(lacking, surplus))

    def moves(self) -> list[tuple[MovableBlock, str, str]]:
        """Each block that moves, from where and to where."""
        targets = self._contiguous()
        if self._cost(targets) > _WORTH * self.lower_bound:
            level = self._level()
            if self._are_even(self._sums(level)):
                targets = level
        return [
            (block, place, target)
            for block, place, target in zip(self.row, self.places, targets, strict=True)
            if target not in block.holders
        ]

    def _are_even(self, held: Mapping[str, int]) -> bool:
        # The last digits of a share are lost where blocks cannot be divided.
        return all(abs(size - self.share) <= self.trigger * (1 + 1e-9) for size in held.values())

    def _sums(self, places: list[str]) -> dict[str, int]:
        sums = dict.fromkeys(self.workers, 0)
        for block, place in zip(self.row, places, strict=True):
            sums[place] += block.nbytes
        return sums

    def _sizes(self, cuts: list[int]) -> list[int]:
        return [self.ends[b] - self.ends[a] for a, b in pairwise(cuts)]

    def _cost(self, targets: list[str]) -> int:
        return sum(b.nbytes for b, target in zip(self.row, targets, strict=True) if target not in b.holders)

    def _even_cuts(self) -> list[int]:
        """The positions nearest to equal parts."""
        cuts = [0]
        for i in range(1, len(self.workers)):
            exact = i * self.share
            above = bisect_left(self.ends, exact)
            nearer_below = above > 0 and exact - self.ends[above - 1] <= self.ends[above] - exact
            cuts.append(max(cuts[-1], above - nearer_below))
        return [*cuts, len(self.row)]

    def _contiguous(self) -> list[str]:
        """For each block the worker that should have it: one segment for each worker."""
        at: dict[str, list[int]] = {worker: [] for worker in self.workers}
        sums = {worker: [0] for worker in self.workers}
        for index, nbytes, worker in self.copies:
            at[worker].append(index)
            sums[worker].append(sums[worker][-1] + nbytes)

        def in_place(worker: str) -> Callable[[int], int]:
            """How many bytes before a position the worker has already."""
            indices, kept = at[worker], sums[worker]
            return lambda position: kept[bisect_left(indices, position)]

        cuts, order, stays = self.cuts, self.workers, -1
        for _ in range(_ROUNDS):
            new_order = self._best_order(cuts)
            new_cuts, new_stays = self._best_cuts([in_place(worker) for worker in new_order])
            gain = new_stays - stays
            if gain > 0:
                cuts, order, stays = new_cuts, new_order, new_stays
            if gain <= _ENOUGH * self.ends[-1]:
                break
        lengths = [b - a for a, b in pairwise(cuts)]
        return [worker for worker, length in zip(order, lengths, strict=True) for _ in range(length)]

    def _best_order(self, cuts: list[int]) -> list[str]:
        """The worker of each segment, so that most bytes stay."""
        stays: dict[tuple[str, int], int] = defaultdict(int)
        segment = 0
        for index, nbytes, worker in self.copies:
            while index >= cuts[segment + 1]:
                segment += 1
            stays[worker, segment] += nbytes
        return heaviest(stays, self.workers, len(self.workers))

    def _best_cuts(self, in_place: list[Callable[[int], int]]) -> tuple[list[int], int]:
        """Where to cut if the order of the workers is given, and the bytes that stay then.

        ``best[b]`` is the most that stays of all blocks before ``b`` if the segments so far end there. For
        the next segment, ending at ``b``, the start is searched among those that make its size right:
        both ends of that window only move on, so a queue with the best in front is enough.
        """
        low, high = self.share - self.slack * (1 + 1e-9), self.share + self.slack * (1 + 1e-9)
        ends, count = self.ends, len(self.workers)
        best: dict[int, int] = {0: 0}
        chosen: list[dict[int, int]] = []
        for i, kept_before in enumerate(in_place, start=1):
            starts = iter([(start, stays - kept_before(start)) for start, stays in best.items()])
            following = next(starts, None)
            queue: deque[tuple[int, int]] = deque()
            best, came_from = {}, {}
            for position in self._positions(i) if i < count else [len(self.row)]:
                while following is not None and following[0] <= position:
                    if ends[position] - ends[following[0]] < low:
                        break
                    while queue and queue[-1][1] < following[1]:
                        queue.pop()
                    queue.append(following)
                    following = next(starts, None)
                while queue and ends[position] - ends[queue[0][0]] > high:
                    queue.popleft()
                if queue:
                    best[position] = queue[0][1] + kept_before(position)
                    came_from[position] = queue[0][0]
            chosen.append(came_from)
        cuts = [len(self.row)]
        for came_from in reversed(chosen):
            cuts.append(came_from[cuts[-1]])
        return cuts[::-1], best[len(self.row)]

    def _positions(self, i: int) -> list[int]:
        """Where cut ``i`` may be: up to one share from the even place, which is among them."""
        first = bisect_left(self.ends, (i - 1) * self.share)
        last = bisect_right(self.ends, (i + 1) * self.share) - 1
        step = max(1, (last - first) // (2 * _POSITIONS))
        return sorted({*range(first, last + 1, step), self.cuts[i]})

    def _level(self) -> list[str]:
        """For each block the worker that should have it, if blocks only go to those that lack some: from
        those with more than a share, and if that is not enough, from those that can spare them."""
        held = dict(self.held)
        targets = list(self.places)
        lacking = deque(sorted((w for w in held if held[w] < self.share), key=lambda w: (held[w], w)))
        for keeps in (self.share, self.share - self.slack):
            for index, block in enumerate(self.row):
                half = block.nbytes / 2
                while lacking and held[lacking[0]] + half > self.share:
                    lacking.popleft()
                giver = targets[index]
                if lacking and held[giver] - half >= keeps and lacking[0] not in block.holders:
                    targets[index] = lacking[0]
                    held[giver] -= block.nbytes
                    held[lacking[0]] += block.nbytes
        return targets


#: beyond an even share of its node by so much, a worker keeps no more chunks only because it has them
_LEAN = 0.2


def within_nodes(
    arrays: Sequence[Blocks], plan: JointPlan, workers: Mapping[str, Sequence[str]]
) -> list[dict[Index, tuple[str, ...]]]:
    """For each array the workers of each new chunk, one on each of its nodes. ``arrays`` say which workers
    hold what, where the plan speaks of nodes."""
    on_node: Counter[str] = Counter()
    for one in plan.arrays:
        for chunk in one.chunks:
            for node in chunk.targets:
                on_node[node] += chunk.nbytes  # type: ignore[assignment]
    load: Counter[str] = Counter()
    found = []
    for blocks, one in zip(arrays, plan.arrays, strict=True):
        places = {}
        for chunk in one.chunks:
            places[chunk.index] = tuple(
                _worker(chunk, blocks, workers[node], on_node[node] / len(workers[node]), load)
                for node in chunk.targets
            )
        found.append(places)
    return found


def _worker(chunk: NewChunk, blocks: Blocks, workers: Sequence[str], share: float, load: Counter[str]) -> str:
    nbytes = chunk.nbytes
    held: Counter[str] = Counter()
    for piece in chunk.pieces:
        for worker in blocks.holders.get(piece.old, ()):
            held[worker] += piece.nbytes  # type: ignore[assignment]
    by_load = sorted(workers, key=lambda worker: load[worker])
    best = max(by_load, key=lambda worker: held[worker])
    is_fair = held[best] and load[best] + nbytes / 2 <= share * (1 + _LEAN)
    chosen = best if is_fair else by_load[0]
    load[chosen] += nbytes  # type: ignore[assignment]
    return chosen


def lay_out(blocks: Iterable[MovableBlock], layout: str, rooms: Mapping[str, int]) -> MovePlan:
    """Moves that leave each collection in this layout on these workers. ``rooms`` are their free bytes; what
    has no room stays where it is. Blocks without neighbours are left alone."""
    room = dict(rooms)
    workers = list(room)
    if not workers:
        return MovePlan()
    parts = [
        (block, part)
        for name, row in in_rows(blocks)
        if name
        for block, part in _parts(row, DimLayout.read(layout, "layout"), len(workers))
    ]
    stays: Counter[tuple[str, int]] = Counter()
    for block, part in parts:
        for worker in block.holders:
            stays[worker, part] += block.nbytes
    worker_of = heaviest(stays, workers, len(workers))
    moves: list[Move] = []
    unplaced: list[MovableBlock] = []
    places: dict[Hashable, str] = {}
    for block, part in parts:
        target = worker_of[part]
        if target in block.holders:
            places[block.key] = target
        if target in block.holders or not block.holders:
            continue
        if block.nbytes > room[target]:
            unplaced.append(block)
            continue
        room[target] -= block.nbytes
        places[block.key] = target
        moves.append(Move(block.key, block.nbytes, min(block.holders), target))
    least = sum(block.nbytes for block, _ in parts) - sum(
        stays[worker, part] for part, worker in enumerate(worker_of)
    )
    reason = f"{layout} on {len(workers)} workers"
    if unplaced:
        reason += f"; {len(unplaced)} blocks have no room there"
    return MovePlan(tuple(moves), tuple(unplaced), reason, max(0, least), places)


def _parts(row: list[MovableBlock], layout: DimLayout, parts: int) -> Iterable[tuple[MovableBlock, int]]:
    """The part of each block of one collection."""
    indices = [block.key[1:] for block in row]  # type: ignore[index]
    axis = max(range(len(indices[0])), key=lambda axis: (len({index[axis] for index in indices}), -axis))
    along: Counter[int] = Counter()
    for block, index in zip(row, indices, strict=True):
        along[index[axis]] += max(1, block.nbytes)
    places = sorted(along)
    edges = [0, *accumulate(along[place] for place in places)]
    new, owners = layout.parts_of(edges, parts)
    part_of = {
        place: _most(pieces, owners) for place, pieces in zip(places, overlaps(new, edges), strict=True)
    }
    return [(block, part_of[index[axis]]) for block, index in zip(row, indices, strict=True)]


def _most(pieces: Iterable[tuple[int, Span]], owners: Sequence[int]) -> int:
    """To whom most of a chunk belongs, of which these are pieces."""
    shares: Counter[int] = Counter()
    for piece, (begin, end) in pieces:
        shares[owners[piece]] += end - begin
    return max(shares, key=lambda owner: (shares[owner], -owner))
