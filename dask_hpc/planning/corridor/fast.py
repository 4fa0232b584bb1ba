"""The corridor's best distribution without a solver: bounds say how good it can be, a search gets there.

Level by level (watts outside, idle nodes, changed nodes, slack) the relaxed program gives a bound (see
``Bounds``). It is sharpened by what whole nodes can do: with the number of idle nodes fixed, power moves
in multiples of the greatest common divisor of the parts' differences, if they have one. The relaxed optimum
lies between two distributions of whole nodes; the way from one to the other by exchanges of single nodes
passes the aim, and there the sizes of a few parts are chosen by looking at all of their sizes nearby.
What meets a bound is an optimum. Where bounds are not met the answer says so, and by how much.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor.enumeration import (
    common_step,
    down_to,
    enumerate_all,
    least_outside,
    node_step,
    slack_on_steps,
)
from dask_hpc.planning.corridor.problem import (
    TINY,
    Bounds,
    CorridorProblem,
    Distribution,
    Edges,
    Exchange,
    Floats,
    Ints,
    Part,
    Shift,
    distribution,
)

_LOOKED_AT = 16_000  # distributions around the relaxed optimum
#: parts whose sizes are looked at; the others keep theirs
PARTS = 6


def crossing(
    bounds: Bounds, exchange: Exchange, below: Shift, above: Shift, aim: float
) -> tuple[Ints, tuple[int, ...]]:
    """On the way from one distribution to the other, the last whose power is not above the aim, and the
    parts whose exchange comes next."""
    change = below.up - below.down
    middle = below.middle
    for there, here, sign in ((above.up, below.up, 1), (above.down, below.down, -1)):
        for give, take, nodes in _exchanges((there - here) * sign, bounds.middle):
            step = float(bounds.middle[take] - bounds.middle[give])
            if middle + step * nodes <= aim:
                whole = nodes
            else:
                whole = int((aim - middle) / step) if step > 0 else nodes
            change[give] -= whole
            change[take] += whole
            middle += step * whole
            if whole < nodes:
                return exchange.origin + change, (give, take)
    return exchange.origin + change, ()


def _exchanges(change: Ints, middle: Ints) -> list[tuple[int, int, int]]:
    """Who gives how many nodes to whom to bring the change about; both in the order of their power."""
    order = np.argsort(middle, kind="stable").tolist()
    givers = deque((n, -int(change[n])) for n in order if change[n] < 0)
    found = []
    for taker in order:
        lacks = int(change[taker])
        while lacks > 0:
            giver, left = givers.popleft()
            nodes = min(left, lacks)
            found.append((giver, taker, nodes))
            lacks -= nodes
            if left > nodes:
                givers.appendleft((giver, left - nodes))
    return found


def best_near(
    problem: CorridorProblem, bounds: Bounds, sizes: Ints, pair: Sequence[int], turn: int
) -> Ints | None:
    """The best distribution in which all parts but a few have these sizes, and those few a size nearby.

    The few are those whose size is not allowed, the ``pair``, and others of all powers, every ``turn``
    different ones. None if what is allowed does not fit into the nodes.
    """
    parts = problem.parts
    chosen = _chosen(parts, bounds, sizes, pair, turn)
    radius = int((_LOOKED_AT ** (1 / max(len(chosen), 1)) - 1) / 2)
    inner = [replace(parts[n], sizes=_nearby(parts[n], int(sizes[n]), radius)) for n in chosen]
    near = sizes.copy()
    for n in bounds.sparse:
        near[n] = _nearby(parts[n], int(sizes[n]), 0)[0]
    near[chosen] = 0
    nodes = problem.nodes - int(near.sum())
    if sum(part.sizes[0] for part in inner) > nodes:
        return None
    constant = PowerRange(
        problem.constant.least + float(bounds.least @ near), problem.constant.most + float(bounds.most @ near)
    )
    small = replace(problem, nodes=nodes, parts=tuple(inner), constant=constant)
    found = enumerate_all(small, inner, 2 * _LOOKED_AT)
    if found is None:
        return None
    near[chosen] = [found[parts[n].id] for n in chosen]
    return near


def _chosen(parts: Sequence[Part], bounds: Bounds, sizes: Ints, pair: Sequence[int], turn: int) -> list[int]:
    """The numbers of the few parts."""
    free = np.flatnonzero(bounds.low < bounds.high)
    wrong = [n for n in bounds.sparse if int(sizes[n]) not in parts[n].sizes]
    chosen = dict.fromkeys((*wrong, *(n for n in pair if bounds.low[n] < bounds.high[n])))
    wanted = PARTS - len(chosen)
    if wanted > 0 and len(free):
        order = free[np.argsort(bounds.middle[free], kind="stable")]
        spots = (np.arange(wanted) + (turn + 1) / 4) * len(order) / wanted
        chosen |= dict.fromkeys(order[spots.astype(int)].tolist())
    return list(chosen)[:PARTS]


def _nearby(part: Part, size: int, radius: int) -> Sequence[int]:
    """The allowed size nearest to this one, and so many to either side."""
    sizes = part.sizes
    at = min(bisect_left(sizes, size), len(sizes) - 1)
    if at and size - sizes[at - 1] <= abs(sizes[at] - size):
        at -= 1
    return sizes[max(at - radius, 0) : at + radius + 1]


_ROUNDS = 3
_PARTS = 48  # to take from and to give to
_TRIED = 64  # pairs of exchanges, the best first: some ask more of a part than it has


def polished(bounds: Bounds, sizes: Ints, idle: int, can_step: Ints) -> Ints:
    """The sizes after the exchanges; ``can_step`` are the parts that can stop at any size."""
    aim = bounds.edges.middle - idle * bounds.idle - (bounds.constant.least + bounds.constant.most) / 2
    for _ in range(_ROUNDS):
        better = _one_round(bounds, sizes, aim, can_step)
        if better is None:
            break
        sizes = better
    return sizes


def _one_round(bounds: Bounds, sizes: Ints, aim: float, can_step: Ints) -> Ints | None:
    """The best two exchanges, if they bring something."""
    give, take = _exchanges_of_polish(bounds, sizes, can_step)
    if not len(give):
        return None
    middle = np.append(bounds.middle[take] - bounds.middle[give], 0.0)  # the last one: no exchange
    spread = np.append(bounds.spread[take] - bounds.spread[give], 0.0)
    order = np.argsort(middle, kind="stable")
    aim -= float(bounds.middle @ sizes)
    at = np.clip(np.searchsorted(middle[order], aim - middle), 1, len(order) - 1)
    first = np.concatenate([np.arange(len(middle))] * 2)
    second = np.concatenate([order[at], order[at - 1]])
    score = spread[first] + spread[second] + abs(middle[first] + middle[second] - aim)
    changed = abs(sizes - bounds.now).sum()
    for best in np.argsort(score, kind="stable")[:_TRIED].tolist():
        if score[best] >= abs(aim) - 1e-9:
            return None
        new = sizes.copy()
        for exchange in (int(first[best]), int(second[best])):
            if exchange < len(give):
                new[give[exchange]] -= 1
                new[take[exchange]] += 1
        fits = (new >= bounds.low).all() and (new <= bounds.high).all()
        if fits and abs(new - bounds.now).sum() == changed:
            return new
    return None


def _exchanges_of_polish(bounds: Bounds, sizes: Ints, can_step: Ints) -> tuple[Ints, Ints]:
    """Who can give a node to whom without more nodes changed: what was taken goes elsewhere, or what was
    given comes from elsewhere."""
    n, now = sizes[can_step], bounds.now[can_step]
    low, high = bounds.low[can_step], bounds.high[can_step]
    pairs = [
        (_few(can_step[n > now], bounds), _few(can_step[(n >= now) & (n < high)], bounds)),
        (_few(can_step[(n <= now) & (n > low)], bounds), _few(can_step[n < now], bounds)),
    ]
    give = np.concatenate([np.repeat(giver, len(taker)) for giver, taker in pairs])
    take = np.concatenate([np.tile(taker, len(giver)) for giver, taker in pairs])
    return give[give != take], take[give != take]


def _few(parts: Ints, bounds: Bounds) -> Ints:
    """Some of many, of all powers."""
    if len(parts) <= _PARTS:
        return parts
    ordered = parts[np.argsort(bounds.middle[parts], kind="stable")]
    return ordered[np.linspace(0, len(parts) - 1, _PARTS).astype(int)]


_TRIES = 6  # numbers of changed nodes for which a distribution is looked for, from the fewest
_LOOKS = 24  # times that distributions near a relaxed optimum are looked at
_PROOFS = 80  # times that the relaxed program is solved to refute a number of idle nodes
_TURNS = 3  # different few parts whose sizes are looked at
#: a share of the watts outside that is not worth a search
NEAR = 1e-3
_CLOSE = 1e-4  # of its bound: such a slack is the best, as solvers mean it


def search(problem: CorridorProblem) -> Distribution | None:
    """The best distribution found and what is proven of it; None if nothing was found."""
    return _CorridorSearch(problem).run()


class _CorridorSearch:
    def __init__(self, problem: CorridorProblem) -> None:
        self._problem = problem
        self._bounds = bounds = Bounds(problem)
        self._edges = bounds.edges
        is_free = bounds.low < bounds.high
        self._free = int(is_free.sum())
        self._most_step = common_step(bounds.most[is_free])
        self._least_step = common_step(bounds.least[is_free])
        self._lowest, self._highest = bounds.least_by_idle(1.0), -bounds.least_by_idle(-1.0)
        now = np.array([part.now for part in problem.parts], np.int64)
        self._must_change = int(abs(now - bounds.now).sum())
        self._looks_left, self._proofs_left = _LOOKS, _PROOFS
        self._best: Distribution | None = None
        #: by number of idle nodes, the least watts outside, once they are asked for
        self._exact: Floats | None = None

    def run(self) -> Distribution | None:
        """The number of idle nodes that the bounds favour, then the next, until they are met."""
        outside = self._outside_by_idle()
        first: tuple[float, int] | None = None
        while self._looks_left > 0:
            least = float(outside.min())
            if least == np.inf:
                break
            at = int(np.argmax(outside <= least + TINY))
            idle = self._bounds.fewest_idle + at
            wide = Edges(self._edges.low - least, self._edges.high + least)
            if self._proofs_left > 0 and self._is_refuted(outside, at, wide, least):
                continue
            # Where nothing is left to refute it, another number of idle nodes may be as good.
            first = first or (least, idle if self._proofs_left > 0 else self._bounds.fewest_idle)
            if self._construct(idle, at, wide, least):
                break
            if self._exact is None:
                # worth its time only where the bounds were not met at once
                exact = least_outside(self._problem, self._most_step)
                self._exact = np.zeros(len(outside)) if exact is None else exact
                np.maximum(outside, self._exact, out=outside)
                if outside[at] > least + TINY:
                    first = None
                    continue
            outside[at] = np.inf
        return self._judged(first)

    def _is_refuted(self, outside: Floats, at: int, wide: Edges, least: float) -> bool:
        """Whether so many idle nodes need more watts outside after all; then the bounds are raised."""
        exchange = self._bounds.at(self._bounds.fewest_idle + at, self._bounds.low)
        more, s, _, _ = exchange.outside(wide, 0)
        self._proofs_left -= 1
        if more > TINY:
            # What proves it for one number of idle nodes says something of every other.
            proof = self._bounds.least_by_idle(s) - s * self._edges.middle - self._edges.half
            np.maximum(outside, proof, out=outside)
            outside[at] = max(outside[at], least + more)
            return True

        def fits(watts: float) -> bool:
            self._proofs_left -= 1
            wider = self._tightened(Edges(wide.low - watts, wide.high + watts), at)
            return exchange.outside(wider, 0)[0] <= TINY

        if fits(0.0):
            return False
        # A step further out there is room for the whole of the corridor as it was.
        below, above = 0.0, max(self._most_step, self._least_step)
        while above - below > TINY / 2 and self._proofs_left > 0:
            middle = (below + above) / 2
            below, above = (below, middle) if fits(middle) else (middle, above)
        outside[at] = least + (above if above - below <= TINY / 2 else max(below, TINY))
        return True

    def _outside_by_idle(self) -> Floats:
        """For every number of idle nodes, from the fewest on, a bound of the watts outside."""
        low, high = self._edges.low, self._edges.high
        outside = np.maximum(0.0, np.maximum(self._lowest - high, low - self._highest))
        narrowest = self._bounds.least_by_idle(0.0)
        outside = np.maximum(outside, narrowest - self._edges.half)
        tight_high = down_to(high, self._lowest, self._most_step)
        tight_low = -down_to(-low, -self._highest, self._least_step)
        is_hole = (tight_low > self._highest + TINY) | (tight_high < self._lowest - TINY)
        is_hole |= narrowest > (tight_high - tight_low) / 2 + TINY
        beyond = np.minimum(
            tight_high + self._most_step - high if self._most_step else 0.0,
            low - tight_low + self._least_step if self._least_step else 0.0,
        )
        outside = np.where(is_hole & (outside <= TINY), np.maximum(beyond, 0.0), outside)
        step = node_step(self._problem.parts)
        free = self._bounds.most_idle - self._bounds.fewest_idle - np.arange(len(outside))
        outside[free % step != 0 if step else free != 0] = np.inf
        return outside

    def _tightened(self, edges: Edges, at: int) -> Edges:
        """The outermost powers inside that whole nodes can have."""
        high = down_to(edges.high, self._lowest[at : at + 1], self._most_step)
        low = -down_to(-edges.low, -self._highest[at : at + 1], self._least_step)
        return Edges(float(low[0]), float(high[0]))

    def _construct(self, idle: int, at: int, wide: Edges, least: float) -> bool:
        """Whether a distribution with so many idle nodes and hardly more watts outside was found."""
        self._looks_left -= 1
        exchange = self._bounds.at(idle)
        extra = exchange.fewest_extra(self._tightened(wide, at))
        if extra is None:
            extra = exchange.fewest_extra(wide)
        if extra is None:
            return False
        aim = self._edges if least <= TINY else wide
        for more in range(min(_TRIES, exchange.most_extra - extra + 1)):
            best = self._look(exchange, aim, extra + more, idle)
            if best is None:
                continue
            if best.outside > least + TINY:
                # Almost as near as can be; what it takes to be nearer is not worth it.
                if best.outside <= least * (1 + NEAR):
                    return True
            elif best.idle_nodes == idle:
                fewest = self._must_change + exchange.least_up + exchange.least_down + 2 * extra
                slack = -exchange.outside(self._edges, extra)[0] + self._problem.margin
                self._best = self._proved(best, fewest, slack)
                if self._best.unproven == "slack":
                    self._best = self._proved(self._polished(best), fewest, slack)
                return True
        return False

    def _look(self, exchange: Exchange, aim: Edges, extra: int, idle: int) -> Distribution | None:
        """The best distribution that is found near the relaxed optimum, with so many idle nodes if it is
        inside the corridor."""
        value, _, below, above = exchange.outside(aim, extra)
        sizes, pair = crossing(self._bounds, exchange, below, above, aim.middle)
        enough = self._problem.margin - value - TINY if aim is self._edges else -np.inf
        best: Distribution | None = None
        for turn in range(min(_TURNS, self._looks_left)):
            self._looks_left -= 1
            near = best_near(self._problem, self._bounds, sizes, pair, turn)
            if near is None:
                break
            found = self._distribution(near)
            self._keep(found)
            if found.idle_nodes == idle or found.outside > TINY:
                best = found if best is None else min(best, found, key=lambda one: one.levels)
                if best.slack >= enough or self._free <= PARTS:
                    break
        if best is not None and best.outside > TINY:
            best = self._polished(best)
            self._keep(best)
        return best

    def _polished(self, found: Distribution) -> Distribution:
        """The same idle and changed nodes, and more slack if that is found."""
        parts = self._problem.parts
        can_step = np.setdiff1d(np.arange(len(parts)), self._bounds.sparse)
        sizes = np.array([found.sizes[part.id] for part in parts], np.int64)
        better = self._distribution(polished(self._bounds, sizes, found.idle_nodes, can_step))
        return min(found, better, key=lambda one: one.levels)

    def _distribution(self, sizes: Ints) -> Distribution:
        """With nothing proven yet."""
        names = [part.id for part in self._problem.parts]
        named = dict(zip(names, sizes.tolist(), strict=True))
        return distribution(self._problem, named, "fast", 1.0, "outside")

    def _keep(self, found: Distribution) -> None:
        """Remember it if there was none better."""
        if self._best is None or found.levels < self._best.levels:
            self._best = found

    def _proved(self, found: Distribution, fewest: int, slack: float) -> Distribution:
        """With what bounds say of changed nodes and slack, its watts outside and idle nodes being best."""
        if found.changed > fewest:
            return replace(found, unproven="changed", gap=(found.changed - fewest) / found.changed)
        gap = 0.0
        if found.outside <= TINY and np.isfinite(found.slack):
            at = found.idle_nodes - self._bounds.fewest_idle
            upper, lower = self._problem.upper, self._problem.lower
            below = slack_on_steps(upper, slack, self._lowest[at], self._most_step)
            above = slack_on_steps(
                -lower if lower > 0 else np.inf, slack, -self._highest[at], self._least_step
            )
            missing = min(slack, max(below, above)) - found.slack
            gap = missing / max(abs(slack), 1.0) if missing > TINY else 0.0
        return replace(found, unproven="slack" if gap > _CLOSE else "", gap=gap)

    def _judged(self, first: tuple[float, int] | None) -> Distribution | None:
        """The best there is, with the first level at which it misses its bound."""
        best = self._best
        if best is None or first is None:
            return best
        outside, idle = first
        if best.outside > outside + TINY:
            gap = (best.outside - outside) / best.outside
            return replace(best, is_optimal=False, unproven="outside", gap=gap)
        if best.idle_nodes > idle:
            gap = (best.idle_nodes - idle) / best.idle_nodes
            return replace(best, is_optimal=False, unproven="idle", gap=gap)
        return replace(best, is_optimal=not best.unproven)
