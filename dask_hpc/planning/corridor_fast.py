"""The corridor's best distribution without a solver: bounds say how good it can be, a search gets there.

Level by level (watts outside, idle nodes, changed nodes, slack) the relaxed program gives a bound (see
corridor_bounds). It is sharpened by what whole nodes can do: with the number of idle nodes fixed, power moves
in multiples of the greatest common divisor of the parts' differences, if they have one. The relaxed optimum
lies between two distributions of whole nodes; the way from one to the other by exchanges of single nodes
passes the aim, and there the sizes of a few parts are chosen by looking at all of their sizes nearby.
What meets a bound is an optimum. Where bounds are not met the answer says so, and by how much.
"""

from dataclasses import replace

import numpy as np

from dask_hpc.planning.corridor_bounds import Bounds, Edges
from dask_hpc.planning.corridor_core import PARTS, best_near, crossing
from dask_hpc.planning.corridor_enumerate import Floats, Ints
from dask_hpc.planning.corridor_lattice import common_step, down_to, node_step, slack_on_steps
from dask_hpc.planning.corridor_polish import polished
from dask_hpc.planning.corridor_problem import TINY, CorridorProblem, Distribution, distribution

_TRIES = 6  # numbers of idle nodes, and of changed nodes, for which a distribution is looked for in vain
_LOOKS = 300  # numbers of idle nodes that are refuted one by one
_TURNS = 3  # different few parts whose sizes are looked at
_CLOSE = 1e-4  # of its bound: such a slack is the best, as solvers mean it


def search(problem: CorridorProblem) -> Distribution | None:
    """The best distribution found and what is proven of it; None if nothing was found."""
    return _Search(problem).run()


class _Search:
    def __init__(self, problem: CorridorProblem) -> None:
        self._problem = problem
        self._bounds = bounds = Bounds(problem)
        self._edges = bounds.edges
        is_free = bounds.low < bounds.high
        self._free = int(is_free.sum())
        self._most_step = common_step(bounds.most[is_free])
        self._least_step = common_step(bounds.least[is_free])
        self._lowest, self._highest, self._narrowest = bounds.extremes()
        now = np.array([part.now for part in problem.parts], np.int64)
        self._must_change = int(abs(now - bounds.now).sum())
        self._best: Distribution | None = None

    def run(self) -> Distribution | None:
        """The number of idle nodes that the bounds favour, then the next, until they are met."""
        outside = self._outside_by_idle()
        first: tuple[float, int] | None = None
        tries = 0
        for _ in range(_LOOKS):
            least = float(outside.min())
            if tries == _TRIES or least == np.inf:
                break
            at = int(np.argmax(outside <= least + TINY))
            idle = self._bounds.fewest_idle + at
            wide = self._tightened(Edges(self._edges.low - least, self._edges.high + least), at)
            more = self._bounds.at(idle, self._bounds.low).outside(wide, 0)[0]
            if more > TINY:
                outside[at] = least + more
                continue
            first = first or (least, idle)
            tries += 1
            if self._construct(idle, wide, least):
                break
            outside[at] = np.inf
        return self._judged(first)

    def _outside_by_idle(self) -> Floats:
        """For every number of idle nodes, from the fewest on, a bound of the watts outside."""
        low, high = self._edges.low, self._edges.high
        outside = np.maximum(0.0, np.maximum(self._lowest - high, low - self._highest))
        outside = np.maximum(outside, self._narrowest - self._edges.half)
        tight_high = down_to(high, self._lowest, self._most_step)
        tight_low = -down_to(-low, -self._highest, self._least_step)
        is_hole = (tight_low > self._highest + TINY) | (tight_high < self._lowest - TINY)
        is_hole |= self._narrowest > (tight_high - tight_low) / 2 + TINY
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

    def _construct(self, idle: int, wide: Edges, least: float) -> bool:
        """Whether a distribution with so many idle nodes and not more watts outside was found."""
        exchange = self._bounds.at(idle)
        extra = exchange.fewest_extra(wide)
        if extra is None:
            return False
        aim = self._edges if least <= TINY else wide
        for more in range(min(_TRIES, exchange.most_extra - extra + 1)):
            value, _, below, above = exchange.outside(aim, extra + more)
            sizes, pair = crossing(self._bounds, exchange, below, above, aim.middle)
            best: Distribution | None = None
            for turn in range(_TURNS):
                found = self._near(sizes, pair, turn)
                if found is None:
                    break
                if found.idle_nodes == idle and found.outside <= least + TINY:
                    best = found if best is None else min(best, found, key=lambda one: one.levels)
                    if best.slack >= self._problem.margin - value - TINY or self._free <= PARTS:
                        break
            if best is not None:
                fewest = self._must_change + exchange.least_up + exchange.least_down + 2 * extra
                slack = -exchange.outside(self._edges, extra)[0] + self._problem.margin
                proved = self._proved(best, fewest, slack)
                if proved.unproven == "slack":
                    proved = self._proved(self._polished(best), fewest, slack)
                self._best = proved
                return True
        return False

    def _polished(self, found: Distribution) -> Distribution:
        """The same idle and changed nodes, and more slack if that is found."""
        parts = self._problem.parts
        can_step = np.array([n for n, part in enumerate(parts) if part.is_contiguous], np.int64)
        sizes = np.array([found.sizes[part.id] for part in parts], np.int64)
        sizes = polished(self._bounds, sizes, found.idle_nodes, can_step)
        named = {part.id: int(size) for part, size in zip(parts, sizes, strict=True)}
        return min(found, distribution(self._problem, named, "fast"), key=lambda one: one.levels)

    def _near(self, sizes: Ints, pair: tuple[int, ...], turn: int) -> Distribution | None:
        """The best distribution near these sizes; it is kept if there was none better."""
        near = best_near(self._problem, self._bounds, sizes, pair, turn)
        if near is None:
            return None
        found = distribution(self._problem, near, "fast", 1.0, "outside")
        if self._best is None or found.levels < self._best.levels:
            self._best = found
        return found

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
