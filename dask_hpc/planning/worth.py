"""Which results to save first when there is not the time to save them all."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from dask_hpc.planning.moves import Block, Move, MovePlan

_STEPS = 100_000  # looks at ancestors in one ordering; beyond, a result is worth its own seconds only


@dataclass(frozen=True, slots=True)
class Recipe:
    """What making one result again costs: its own seconds, and those of what it needs and is lost too."""

    seconds: float
    nbytes: int
    needs: tuple[Hashable, ...] = ()


def worth_first(held: Iterable[Hashable], recipes: Mapping[Hashable, Recipe]) -> list[Hashable]:
    """The results that are ``held``, those first that save most seconds of computing per byte.

    ``recipes`` has them, and of their ancestors those that would have to be computed again as well; an
    ancestor that is not there costs nothing. What has been put on the list counts as saved, so a result
    is worth less after its costly ancestor: greedy, and looked at again only when its turn comes
    (a worth never rises).
    """
    steps = _STEPS

    def worth(key: Hashable, saved: set[Hashable]) -> float:
        nonlocal steps
        seconds, seen, todo = 0.0, {key}, [key]
        while todo:
            recipe = recipes[todo.pop()]
            seconds += recipe.seconds
            steps -= 1
            if steps < 0:
                break
            for need in recipe.needs:
                if need in recipes and need not in seen and need not in saved:
                    seen.add(need)
                    todo.append(need)
        return seconds / max(recipes[key].nbytes, 1)

    saved: set[Hashable] = set()
    # The place in the list makes equal worth first come first served, and keys need no order.
    queue = [(-worth(key, saved), place, key) for place, key in enumerate(held)]
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


def dearest_that_fit(blocks: Iterable[Block], rooms: Mapping[str, int]) -> MovePlan:
    """Places for as many of these as fit, those first in the list first, each where most room is."""
    roomiest = [(-room, worker) for worker, room in rooms.items()]
    heapify(roomiest)
    moves, unplaced = [], []
    for block in blocks:
        if roomiest and block.nbytes <= -roomiest[0][0]:
            room, worker = heappop(roomiest)
            heappush(roomiest, (room + block.nbytes, worker))
            moves.append(Move(block.key, block.nbytes, min(block.holders), worker))
        else:
            unplaced.append(block)
    return MovePlan(
        tuple(moves), tuple(unplaced), "no room" if unplaced else "", sum(m.nbytes for m in moves)
    )
