"""Which blocks of data move where when workers leave: neighbours stay together, nobody gets too much.

A block is a key, its size and the workers that hold it; a room is how many bytes a worker can still take.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from dask_hpc.model.units import show_large

T = TypeVar("T")
_PIECE = 1_000  # blocks that are sorted at once
#: of what a worker gets: among so many smaller ones the order is of no matter
_GRAIN = 0.01
#: beyond an even share of its collection by so much, a worker takes no more blocks for their neighbours' sake
_LEAN = 0.2


class MovableBlock(NamedTuple):  # of which very many are made
    """One result in memory. ``holders`` are the workers that have a copy."""

    key: Hashable
    nbytes: int
    holders: tuple[str, ...]


class Move(NamedTuple):
    """Bring a block from one worker to another: a copy first, then the old copy goes."""

    key: Hashable
    nbytes: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What moves, what cannot, and why. No plan that does the same moves less than ``lower_bound`` bytes."""

    moves: tuple[Move, ...] = ()
    unplaced: tuple[MovableBlock, ...] = ()
    reason: str = ""
    lower_bound: int = 0
    #: where each block is to lie, if a layout was asked for: there and nowhere else
    places: Mapping[Hashable, str] = field(default_factory=dict)

    @property
    def bytes_moved(self) -> int:
        """The bytes of all moves."""
        return sum(move.nbytes for move in self.moves)

    def __bool__(self) -> bool:
        return bool(self.moves)


def collection_of(key: Hashable) -> str | None:
    """The collection a key is a block of, or None: Dask names the blocks of one ``(name, i, j, ...)``."""
    if isinstance(key, tuple) and len(key) > 1 and isinstance(key[0], str):
        return key[0] if set(map(type, key[1:])) == {int} else None
    return None


def in_rows(blocks: Iterable[MovableBlock]) -> Iterator[tuple[str, list[MovableBlock]]]:
    """The collections by name, each with its blocks in order; last, as "", what has no neighbours, the
    largest first. There may be very many: no lists and tuples are made of each, or the garbage collector
    would go through all there is.
    """
    rows: dict[str, list[MovableBlock]] = {}
    alone = []
    for block in blocks:
        name = collection_of(block.key)
        if name is None:
            alone.append(block)
        else:
            rows.setdefault(name, []).append(block)
    for name in sorted(rows):
        yield name, _in_order(rows[name], lambda block: block.key)
    yield "", _largest_first(alone)


def _largest_first(blocks: list[MovableBlock]) -> list[MovableBlock]:
    return sorted(_in_order(blocks, lambda block: str(block.key)), key=lambda block: -block.nbytes)


def _in_order(things: list[T], key: Callable[[T], Any]) -> list[T]:
    """Sorted piece by piece: while Python compares 100,000 keys no other thread has its turn."""
    pieces = (sorted(things[at : at + _PIECE], key=key) for at in range(0, len(things), _PIECE))
    return sorted(chain.from_iterable(pieces), key=key)


def evacuate(blocks: Iterable[MovableBlock], leaving: Collection[str], rooms: Mapping[str, int]) -> MovePlan:
    """A place among the survivors for every block that only leaving workers hold.

    ``blocks`` may name what survivors hold as well: neighbours are drawn to it. ``rooms`` are the free bytes
    of the survivors; leaving ones in it do not count. A run of neighbours is drawn to the survivors at its
    ends until these have an even share of the collection, what is left of it goes in pieces to those that
    lack most, and a block without neighbours to where most room is. If rooms are so tight that blocks are
    left over, sizes alone decide (the largest first, into the room it fills best), if that places more.
    """
    gone = frozenset(leaving)
    room = {worker: rooms[worker] for worker in sorted(rooms) if worker not in gone}
    blocks = list(blocks)
    if plan := _grains(blocks, gone, room):
        return plan
    rows = list(in_rows(blocks))
    homeless = [b for _, row in rows for b in row if b.holders and gone.issuperset(b.holders)]
    if not homeless:
        return MovePlan()
    targets = _by_neighbours(rows, gone, dict(room))
    if len(targets) < len(homeless):
        by_size = _by_size(homeless, room)
        if _placed(homeless, by_size) > _placed(homeless, targets):
            targets = by_size
    moves = [
        Move(block.key, block.nbytes, min(block.holders), targets[block.key])
        for block in homeless
        if block.key in targets
    ]
    unplaced = tuple(block for block in homeless if block.key not in targets)
    reason = _why_not(unplaced, homeless, room, moves) if unplaced else ""
    return MovePlan(tuple(moves), unplaced, reason, sum(move.nbytes for move in moves))


def _grains(blocks: list[MovableBlock], gone: frozenset[str], room: dict[str, int]) -> MovePlan:
    """Very many that are small and have no neighbours, each where most room is. Empty if they are not such,
    or do not all fit."""
    homeless = [block for block in blocks if block.holders and gone.issuperset(block.holders)]
    if not room or len(homeless) < _PIECE or any(collection_of(block.key) is not None for block in blocks):
        return MovePlan()
    sizes = [block.nbytes for block in homeless]
    if max(sizes) > _GRAIN * sum(sizes) / len(room):
        return MovePlan()
    plan = dearest_that_fit(homeless, room)
    return MovePlan() if plan.unplaced else plan


def _placed(blocks: list[MovableBlock], targets: Mapping[Hashable, str]) -> tuple[int, int]:
    placed = [block.nbytes for block in blocks if block.key in targets]
    return sum(placed), len(placed)


def _why_not(
    unplaced: tuple[MovableBlock, ...],
    homeless: list[MovableBlock],
    room: Mapping[str, int],
    moves: list[Move],
) -> str:
    count = f"{len(unplaced)} of {len(homeless)} blocks" if len(homeless) > 1 else "the only block"
    size = show_large(sum(block.nbytes for block in unplaced), "B")
    if not room:
        return f"{count} ({size}) cannot move: no worker stays"
    left = dict(room)
    for move in moves:
        left[move.target] -= move.nbytes
    most = show_large(max(0, *left.values()), "B")
    smallest = show_large(min(block.nbytes for block in unplaced), "B")
    fit = f"fit nowhere: the smallest has {smallest}, and the most room left on a worker that stays is {most}"
    return f"{count} ({size}) {fit}"


def _by_neighbours(
    rows: list[tuple[str, list[MovableBlock]]], gone: frozenset[str], room: dict[str, int]
) -> dict[Hashable, str]:
    targets: dict[Hashable, str] = {}
    *collections, (_, alone) = rows
    for _, row in collections:
        _place_row(row, gone, room, targets)
    roomiest = _Roomiest(room)
    for block in alone:
        if block.holders and gone.issuperset(block.holders):
            worker = roomiest.take(block.nbytes)
            if worker is not None:
                targets[block.key] = worker
    return targets


class _Roomiest:
    """The worker with the most room, again and again."""

    def __init__(self, room: dict[str, int]) -> None:
        self._room = room
        self._heap = [(-free, worker) for worker, free in room.items()]
        heapify(self._heap)

    def take(self, nbytes: int) -> str | None:
        """Room for a block where most is left; None if there is not enough."""
        if not self._heap or -self._heap[0][0] < nbytes:
            return None
        free, worker = self._heap[0]
        self._room[worker] -= nbytes
        heapreplace(self._heap, (free + nbytes, worker))
        return worker


def _place_row(
    row: list[MovableBlock], gone: frozenset[str], room: dict[str, int], targets: dict[Hashable, str]
) -> None:
    """The homeless blocks of one collection: drawn to their neighbours first, then in pieces."""
    places: list[str | None] = []
    have = dict.fromkeys(room, 0)
    for block in row:
        stays = [worker for worker in block.holders if worker in have]
        place = places[-1] if places and places[-1] in stays else min(stays, default=None)
        places.append(place)
        if place is not None:
            have[place] += block.nbytes
    homeless = [at for at, block in enumerate(row) if block.holders and gone.issuperset(block.holders)]
    if not have or not homeless:
        return
    share = sum(block.nbytes for block in row) / len(have)

    def put(index: int, worker: str | None, limit: float) -> bool:
        """Place a block, if it fits and leaves the worker nearer to the limit than beyond it."""
        nbytes = row[index].nbytes
        if worker is None or room[worker] < nbytes or have[worker] + nbytes / 2 > limit:
            return False
        places[index] = targets[row[index].key] = worker
        room[worker] -= nbytes
        have[worker] += nbytes
        return True

    def beside(index: int) -> str | None:
        return places[index] if 0 <= index < len(row) else None

    for index in homeless:
        put(index, beside(index - 1), share)
    for index in reversed(homeless):
        if places[index] is None:
            put(index, beside(index + 1), share)
    least = min(row[index].nbytes for index in homeless)
    poorest = [(held, worker) for worker, held in have.items() if room[worker] >= least]
    heapify(poorest)
    for index in homeless:
        if places[index] is None:
            before, after = beside(index - 1), beside(index + 1)
            if not put(index, before, share) and not put(index, after, share):
                # Beyond the share only to keep neighbours together, and then not by much.
                worker = _poorest_with_room(poorest, have, room, row[index].nbytes, least)
                fits = worker is not None and have[worker] + row[index].nbytes / 2 <= share
                lean = share * (1 + _LEAN)
                if fits or not (put(index, before, lean) or put(index, after, lean)):
                    put(index, worker, float("inf"))


def _poorest_with_room(
    poorest: list[tuple[int, str]],
    have: Mapping[str, int],
    room: Mapping[str, int],
    nbytes: int,
    least: int,
) -> str | None:
    """The worker with the least of the collection among those where a block fits. Those without room even
    for the least block are asked no more."""
    tried = []
    found = None
    while poorest and found is None:
        held, worker = heappop(poorest)
        if held != have[worker]:
            heappush(poorest, (have[worker], worker))
        elif room[worker] >= least:
            tried.append((held, worker))
            found = worker if room[worker] >= nbytes else None
    for entry in tried:
        heappush(poorest, entry)
    return found


def _by_size(homeless: list[MovableBlock], room: Mapping[str, int]) -> dict[Hashable, str]:
    """The largest first, each into the smallest room that takes it."""
    targets: dict[Hashable, str] = {}
    free = sorted((left, worker) for worker, left in room.items())
    for block in _largest_first(homeless):
        index = bisect_left(free, (block.nbytes, ""))
        if index < len(free):
            left, worker = free.pop(index)
            targets[block.key] = worker
            insort(free, (left - block.nbytes, worker))
    return targets


#: reads per thread that a worker may be ahead of another for the sake of neighbours
_RUN = 2.0


class FreeWorker(NamedTuple):
    """A worker that can take tasks: how busy each of its threads is, how many threads it has, and how many
    reads."""

    load: float
    address: str
    threads: int
    reads: int = 0


def place(openings: Collection[FreeWorker], last: str | None, given: Mapping[str, int]) -> str:
    """The worker for the next read. ``last`` got the one before; ``given``: how many reads each has got.

    Threads that have nothing to do go first, as in Dask; if there are none, those that do not read: behind
    another read one waits for all its time, and counts as in flight. Among those workers it is the last one
    again, unless it is far ahead of others: so reads go to the workers in runs, and all get their share.
    """
    idle = [one for one in openings if one.load < 1]
    if not idle:
        fewest = min(one.reads / one.threads for one in openings)
        idle = [one for one in openings if one.reads / one.threads <= fewest]
    ahead = {one.address: given.get(one.address, 0) / one.threads for one in idle}
    least = min(ahead.values())
    if last in ahead and ahead[last] - least < _RUN:
        return last
    return min(idle, key=lambda one: (ahead[one.address], one.load, one.address)).address


_STEPS = 100_000  # looks at ancestors in one ordering; beyond, a result is worth its own seconds only


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """What making one result again costs: its own seconds, and those of what it needs and is lost too."""

    seconds: float
    nbytes: int
    needs: tuple[Hashable, ...] = ()


def worth_first(held: Iterable[Hashable], recipes: Mapping[Hashable, RecomputeCost]) -> list[Hashable]:
    """The results that are ``held``, those first that save most seconds of computing per byte.

    ``recipes`` has them, and of their ancestors those that would have to be computed again as well; an
    ancestor that is not there costs nothing. What has been put on the list counts as saved, so a result
    is worth less after its costly ancestor: greedy, and looked at again only when its turn comes
    (a worth never rises). Where nothing lost needs what is lost as well, the worth of none changes.
    """
    keys = list(held)
    kinds = {id(recipe): recipe for recipe in map(recipes.__getitem__, keys)}  # often few for very many
    if all(recipes.keys().isdisjoint(recipe.needs) for recipe in kinds.values()):
        worths = {kind: -recipe.seconds / max(recipe.nbytes, 1) for kind, recipe in kinds.items()}
        return _in_order(keys, lambda key: worths[id(recipes[key])]) if len(kinds) > 1 else keys
    steps = _STEPS

    def worth(key: Hashable, saved: set[Hashable]) -> float:
        nonlocal steps
        recipe = recipes[key]
        if recipes.keys().isdisjoint(recipe.needs):
            return recipe.seconds / max(recipe.nbytes, 1)
        seconds, seen, todo = 0.0, {key}, [key]
        while todo:
            one = recipes[todo.pop()]
            seconds += one.seconds
            steps -= 1
            if steps < 0:
                break
            for need in one.needs:
                if need in recipes and need not in seen and need not in saved:
                    seen.add(need)
                    todo.append(need)
        return seconds / max(recipe.nbytes, 1)

    saved: set[Hashable] = set()
    # The place in the list makes equal worth first come first served, and keys need no order.
    queue = [(-worth(key, saved), place, key) for place, key in enumerate(keys)]
    heapify(queue)
    order = []
    while queue:
        _, place, key = heappop(queue)
        now = (-worth(key, saved), place, key)
        if queue and now > queue[0]:
            heappush(queue, now)
        else:
            order.append(key)
            saved.add(key)
    return order


def dearest_that_fit(blocks: Iterable[MovableBlock], rooms: Mapping[str, int]) -> MovePlan:
    """Places for as many of these as fit, those first in the list first, each where most room is."""
    roomiest = _Roomiest(dict(rooms))
    moves, unplaced = [], []
    for block in blocks:
        worker = roomiest.take(block.nbytes)
        if worker is None:
            unplaced.append(block)
        else:
            moves.append(Move(block.key, block.nbytes, min(block.holders), worker))
    return MovePlan(
        tuple(moves), tuple(unplaced), "no room" if unplaced else "", sum(m.nbytes for m in moves)
    )


def dearest_first(
    held: Mapping[Hashable, MovableBlock],
    recipes: Mapping[Hashable, RecomputeCost],
    leaving: Collection[str],
    rooms: Mapping[str, int],
) -> tuple[list[Hashable], MovePlan]:
    """All that is ``held``, the dearest first and last what has no recipe; and where it goes, in this order.
    If not all of it fits, the dearest does."""
    order = worth_first((key for key in held if key in recipes), recipes)
    order += (key for key in held if key not in recipes)
    blocks = [held[key] for key in order]
    room = {worker: rooms[worker] for worker in rooms if worker not in leaving}
    if all(collection_of(key) is None for key in order):  # no neighbours: the order is all that counts
        plan = dearest_that_fit(blocks, room)
        if not plan.unplaced:
            return order, plan
    plan = evacuate(blocks, leaving, room)
    if plan.unplaced and room:
        return order, replace(dearest_that_fit(blocks, room), reason=plan.reason)
    place = {key: number for number, key in enumerate(order)}
    return order, replace(plan, moves=tuple(sorted(plan.moves, key=lambda move: place[move.key])))
