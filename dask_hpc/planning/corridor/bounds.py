"""How good a corridor's distribution could be at best: the program without its whole numbers, by sorting.

Every part may have any size between its least and its most here, so the optimum is never worse than that
of the program. With M the middle and W the half-width of a distribution's power, C and H those of the
corridor, the watts outside are W + |M - C| - H. By duality that is the largest of W + s (M - C) - H over s
from -1 (the lower bound alone) to 1 (the upper bound alone), and for each s the least of it is found by
giving nodes to the parts with the least W + s M per node. What is found that way has whole numbers.
"""

from dataclasses import dataclass

import numpy as np

from dask_hpc.planning.corridor.enumeration import Floats, Ints
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem

_ROUNDS = 60  # of cutting; every round but the last finds another distribution


@dataclass(frozen=True, slots=True)
class Edges:
    """A corridor with two finite edges, as middle and half-width."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Between the edges."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """From the middle to an edge; negative if the edges are the wrong way round."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Shift:
    """Nodes taken up and given up by each part, and the power they make for it together."""

    up: Ints
    down: Ints
    middle: float
    spread: float


class Bounds:
    """The parts of a problem as arrays. ``now`` is the allowed size that is nearest to the size now."""

    def __init__(self, problem: CorridorProblem) -> None:
        parts = problem.parts
        self.nodes, self.idle = problem.nodes, problem.idle
        self.low = np.array([part.sizes[0] for part in parts], np.int64)
        self.high = np.array([part.sizes[-1] for part in parts], np.int64)
        self.now = np.clip(np.array([part.now for part in parts], np.int64), self.low, self.high)
        #: the parts that cannot stop at any size
        self.sparse = [number for number, part in enumerate(parts) if not part.is_contiguous]
        self.least = np.array([part.power.least for part in parts])
        self.most = np.array([part.power.most for part in parts])
        self.middle, self.spread = (self.most + self.least) / 2, (self.most - self.least) / 2
        self.constant = problem.constant
        largest = problem.constant.most + float(self.most @ self.high) + problem.nodes * problem.idle
        far = 4 * (largest + abs(max(problem.floor, 0.0)) + 1.0)
        self.edges = Edges(max(problem.floor, -far), min(problem.ceiling, far))
        self.fewest_idle = max(0, problem.nodes - int(self.high.sum()))
        self.most_idle = problem.nodes - int(self.low.sum())

    def least_by_idle(self, s: float) -> Floats:
        """The least of W + s M by number of idle nodes, from the fewest. For 1 that is the lowest most power,
        for -1 the negative of the highest least power."""
        idle = np.arange(self.fewest_idle, self.most_idle + 1)
        price = self.spread + s * self.middle
        fixed = float(self.low @ price) + (self.constant.most - self.constant.least) / 2
        fixed += s * (self.constant.most + self.constant.least) / 2
        return _least_cost(price, self.high - self.low, self.most_idle - idle) + fixed + s * self.idle * idle

    def at(self, idle: int, origin: Ints | None = None) -> "Exchange":
        """What can be reached with so many idle nodes, from the sizes now or from ``origin``."""
        return Exchange(self, idle, self.now if origin is None else origin)


class Exchange:
    """All distributions with a given number of idle nodes, by how many nodes are taken and given."""

    def __init__(self, bounds: Bounds, idle: int, origin: Ints) -> None:
        self._bounds = bounds
        self.origin = origin
        self._room_up, self._room_down = bounds.high - origin, origin - bounds.low
        lacks = bounds.nodes - idle - int(origin.sum())
        self.least_up, self.least_down = max(lacks, 0), max(-lacks, 0)
        #: how many nodes can be exchanged beyond what the number of idle nodes asks for
        self.most_extra = min(
            int(self._room_up.sum()) - self.least_up, int(self._room_down.sum()) - self.least_down
        )
        watts, constant = idle * bounds.idle, bounds.constant
        self._middle = float(bounds.middle @ origin) + watts + (constant.least + constant.most) / 2
        self._spread = float(bounds.spread @ origin) + (constant.most - constant.least) / 2

    def first_extra(self, s: float, edges: Edges) -> int | None:
        """The fewest extra exchanges with which W + s (M - C) - H is not above 0, if there are any."""
        b = self._bounds
        price = b.spread + s * b.middle
        base = self._spread + s * (self._middle - edges.middle) - edges.half
        extra = np.arange(self.most_extra + 1)
        value = base + _least_cost(price, self._room_up, self.least_up + extra)
        value += _least_cost(-price, self._room_down, self.least_down + extra)
        inside = value <= TINY
        return int(np.argmax(inside)) if inside.any() else None

    def least(self, s: float, extra: int) -> Shift:
        """The least of W + s M with so many extra exchanges."""
        b = self._bounds
        price = b.spread + s * b.middle
        up = _fill(price, self._room_up, self.least_up + extra)
        down = _fill(-price, self._room_down, self.least_down + extra)
        change = up - down
        return Shift(
            up, down, self._middle + float(b.middle @ change), self._spread + float(b.spread @ change)
        )

    def outside(self, edges: Edges, extra: int) -> tuple[float, float, Shift, Shift]:
        """The least W + |M - C| - H there can be (negative inside), the s that proves it, and the two
        distributions between which it lies: M is not above C in the first and not below it in the second,
        unless all are on one side, when both are the same.
        """
        aim = edges.middle
        below, above = self.least(1.0, extra), self.least(-1.0, extra)
        s = 0.0
        if below.middle >= aim:
            s, above = 1.0, below
        elif above.middle <= aim:
            s, below = -1.0, above
        else:
            for _ in range(_ROUNDS):
                s = (below.spread - above.spread) / (above.middle - below.middle)
                value = above.spread + s * (above.middle - aim)
                new = self.least(s, extra)
                if new.spread + s * (new.middle - aim) >= value - TINY / 10:
                    break
                if new.middle > aim:
                    above = new
                else:
                    below = new
            new = self.least(s, extra)  # the cut may not be finished; what it proves is true in any case
            return new.spread + s * (new.middle - aim) - edges.half, s, below, above
        return below.spread + s * (below.middle - aim) - edges.half, s, below, above

    def fewest_extra(self, edges: Edges) -> int | None:
        """The fewest extra exchanges with which the relaxed program gets inside, or None if it does not."""
        extra = -1
        firsts = [self.first_extra(s, edges) for s in (1.0, -1.0)]
        for _ in range(_ROUNDS):
            if any(first is None for first in firsts):
                return None
            extra = max(extra, *(first for first in firsts if first is not None))
            value, s, _, _ = self.outside(edges, extra)
            if value <= TINY:
                break
            firsts = [self.first_extra(s, edges)]
            if firsts[0] is not None and firsts[0] <= extra:
                break  # rounding: both say the same
        return extra


def _fill(price: Floats, room: Ints, nodes: int) -> Ints:
    """``nodes`` given to the cheapest."""
    order = np.argsort(price, kind="stable")
    rooms = room[order]
    before = np.cumsum(rooms) - rooms
    filled = np.empty_like(room)
    filled[order] = np.clip(nodes - before, 0, rooms)
    return filled


def _least_cost(price: Floats, room: Ints, nodes: Ints) -> Floats:
    """The cost of so many nodes given to the cheapest, for many numbers of nodes."""
    order = np.argsort(price, kind="stable")
    steps = np.concatenate(([0], np.cumsum(room[order])))
    costs = np.concatenate(([0.0], np.cumsum(room[order] * price[order])))
    found: Floats = np.interp(nodes, steps, costs)
    return found
