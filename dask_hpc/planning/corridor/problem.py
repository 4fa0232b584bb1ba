"""What the corridor's integer program is given and what it answers, in nodes and watts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan

import numpy as np
from numpy.typing import NDArray

from dask_hpc.model.errors import InputError, insist
from dask_hpc.model.power import UNKNOWN, PowerRange
from dask_hpc.model.speedup import Constraint, is_legal
from dask_hpc.model.units import count_nodes

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: watts that count as nothing: rounding errors of sums, and the tolerance of solvers
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Part:
    """One item whose size may be chosen, with its power per node.

    ``sizes`` are all it may have, ascending, size constraint applied (see ``sizes_of``); a ``range`` of
    step 1 is as good as a tuple and cheaper. ``now`` is its size today: what differs from it counts as
    changed. A job that waits has ``now`` 0, and 0 among its sizes. Work outside of jobs is a part too.
    """

    id: str
    power: PowerRange
    sizes: Sequence[int]
    now: int

    @property
    def is_contiguous(self) -> bool:
        """Whether every size between the least and the most is allowed."""
        return self.sizes[-1] - self.sizes[0] + 1 == len(self.sizes)


def sizes_of(constraint: Constraint, low: int, high: int, may_wait: bool = False) -> Sequence[int]:
    """The sizes from ``low`` to ``high`` that satisfy the constraint, and 0 if the job may wait."""
    low = max(low, 1)
    if constraint == "any" and (not may_wait or low == 1):
        return range(0 if may_wait else low, high + 1)
    if constraint == "any":
        legal: Sequence[int] = range(low, high + 1)
    else:
        legal = [size for size in range(low, high + 1) if is_legal(constraint, size)]
    return (0, *legal) if may_wait else tuple(legal)


@dataclass(frozen=True, slots=True)
class CorridorProblem:
    """Nodes to share among parts so that power stays from ``lower`` to ``upper``, ``margin`` inside.

    ``nodes`` are those the parts share: the sizes and the idle nodes add up to them. Jobs that cannot
    change are not parts; their power is in ``constant``. The lower bound is compared with the least power,
    the upper one with the most. Power is never below 0 W, so a ``lower`` of 0 is no bound and has no edge
    to keep a margin from.
    """

    nodes: int
    idle: float
    lower: float
    upper: float
    parts: tuple[Part, ...]
    constant: PowerRange = UNKNOWN
    margin: float = 0.0

    def __post_init__(self) -> None:
        if isnan(self.lower) or isnan(self.upper) or self.lower > self.upper or self.lower == inf:
            raise InputError(
                "corridor", f"found {self.lower:g} to {self.upper:g} W", "a lower bound, then an upper"
            )
        insist(0 <= self.idle < inf, "idle", self.idle, "watts of an idle node, 0 or more")
        insist(0 <= self.margin < inf, "margin", self.margin, "watts, 0 or more")
        need = 0
        for part in self.parts:
            if not part.sizes:
                raise InputError(part.id, "no size is allowed", "at least one size")
            need += part.sizes[0]
        if need > self.nodes:
            found = f"{count_nodes(self.nodes)} for parts that need {need} at least"
            raise InputError("nodes", found, f"{need} or more")

    @property
    def floor(self) -> float:
        """What the least power must reach."""
        return self.lower + self.margin if self.lower > 0 else -inf

    @property
    def ceiling(self) -> float:
        """What the most power must not exceed."""
        return self.upper - self.margin

    def power_of(self, sizes: Mapping[str, int]) -> PowerRange:
        """The power of a distribution: constant, parts and idle nodes."""
        idle = (self.nodes - sum(sizes.values())) * self.idle
        least = self.constant.least + sum(part.power.least * sizes[part.id] for part in self.parts) + idle
        most = self.constant.most + sum(part.power.most * sizes[part.id] for part in self.parts) + idle
        return PowerRange(least, most)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Who has how many nodes, and what is known of it.

    ``changed`` counts nodes given and taken. ``slack`` is the distance from the nearer edge of the corridor
    in watts, negative outside; it is infinite if there is no edge. ``outside`` is what it lacks to the
    margin. ``is_optimal`` says that no better one exists: nearest to the corridor, then fewest idle nodes,
    then fewest changed nodes, then the largest slack. If that is not proven, ``unproven`` names the first
    of these four that might be better, and ``gap`` by how much of its value at most. ``how`` says what found
    it.
    """

    sizes: dict[str, int]
    idle_nodes: int
    power: PowerRange
    is_feasible: bool
    is_optimal: bool
    gap: float
    changed: int
    slack: float
    outside: float
    how: str
    unproven: str = ""

    @property
    def levels(self) -> tuple[float, int, int, float]:
        """What is compared, in this order; less is better."""
        return self.outside, self.idle_nodes, self.changed, -self.slack


def distribution(
    problem: CorridorProblem,
    sizes: Mapping[str, int],
    how: str,
    gap: float = 0.0,
    unproven: str = "",
) -> Distribution:
    """The answer that gives the parts these sizes."""
    power = problem.power_of(sizes)
    below = power.least - problem.lower if problem.lower > 0 else inf
    slack = min(below, problem.upper - power.most)
    return Distribution(
        sizes=dict(sizes),
        idle_nodes=problem.nodes - sum(sizes.values()),
        power=power,
        is_feasible=slack >= problem.margin - TINY,
        is_optimal=not unproven,
        gap=gap,
        changed=sum(abs(sizes[part.id] - part.now) for part in problem.parts),
        slack=slack,
        outside=0.0 if slack >= problem.margin - TINY else problem.margin - slack,
        how=how,
        unproven=unproven,
    )


class Groups:
    """``merged`` is the problem with one part for all parts of equal power that can stop at any size.

    That loses nothing: if each of them changes only towards where the group goes, the group changes by just
    the difference. A part whose size now is not allowed any more has to change by a fixed number first.
    """

    def __init__(self, problem: CorridorProblem) -> None:
        self._members: dict[str, list[Part]] = defaultdict(list)
        by_power: dict[PowerRange, list[Part]] = defaultdict(list)
        for part in problem.parts:
            if part.is_contiguous:
                by_power[part.power].append(part)
        parts = [part for part in problem.parts if not part.is_contiguous]
        for power, members in by_power.items():
            low = sum(part.sizes[0] for part in members)
            high = min(sum(part.sizes[-1] for part in members), problem.nodes)
            now = sum(_allowed(part) for part in members)
            self._members[members[0].id] = members
            parts.append(Part(members[0].id, power, range(low, high + 1), now))
        self.merged = replace(problem, parts=tuple(parts))

    def split(self, sizes: dict[str, int]) -> dict[str, int]:
        """The sizes of all parts, from those of the groups."""
        found: dict[str, int] = {}
        for name, size in sizes.items():
            members = self._members.get(name)
            if members is None:
                found[name] = size
                continue
            nows = [_allowed(part) for part in members]
            more = size - sum(nows)
            for part, now in zip(members, nows, strict=True):
                step = max(part.sizes[0] - now, min(part.sizes[-1] - now, more))
                found[part.id] = now + step
                more -= step
        return found


def _allowed(part: Part) -> int:
    """The allowed size that is nearest to the size now."""
    return max(part.sizes[0], min(part.now, part.sizes[-1]))


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
        #: what was asked already: edges move, and the least at most prices stays the same
        self._known: dict[tuple[float, int], Shift] = {}

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
        known = self._known.get((s, extra))
        if known is None:
            known = self._known[s, extra] = self._least(s, extra)
        return known

    def _least(self, s: float, extra: int) -> Shift:
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
