"""The best split together with the best whole numbers of nodes and helper cores, for any number of analyses.

Ours. Every pair of nodes and helper cores has a bound that no split can beat; pairs are searched in the order
of their bounds until the next bound is no better than what was found. All splits are tried where there are
few analyses; else ``partition_search`` looks for the best one near the bound. The result is the optimum to a
hundred-thousandth (mostly to a millionth, for few analyses to rounding errors), or it is said how far from it
it may be: where very many splits are as good as each other, or after very much work.
"""

from math import inf
from operator import attrgetter

import numpy as np

from dask_hpc.planning.in_situ.orders import ORDERS, Choice, greedy, subset_sums
from dask_hpc.planning.in_situ.partition import PartitionProblem
from dask_hpc.planning.in_situ.phases import PhaseWork, iteration_time, phase_times, with_split, work_of_each
from dask_hpc.planning.in_situ.search import (
    Array,
    Pairs,
    Places,
    SplitPlace,
    all_pairs,
    best_split,
    bounds,
    costs,
    quick_bounds,
)

by_time = attrgetter("time")
_FEW = 12  # analyses of which all subsets are tried
_CLOSE = 1e-6  # share of an iteration that is not looked for any more
_SAID = 1e-5  # share of an iteration from which on it is said that a better one is not ruled out
_TOGETHER = 16  # pairs that are bounded at a time
_AT_ONCE = 256  # numbers of nodes that are bounded together
_EFFORT = 5  # sums that could be looked at while an analysis is bounded
_WORK = 6_000_000  # sums that are looked at, before the search is given up


def optimum(problem: PartitionProblem) -> tuple[Choice, float]:
    """The best choice, and by which share of its time a better one could be shorter; inf if none fits."""
    everything = frozenset(one.name for one in problem.analyses)
    best = min((_alone(problem, names) for names in (everything, frozenset[str]())), key=by_time)
    if not problem.analyses or problem.nodes.count == 1:
        return best, 0.0
    each, pairs = work_of_each(problem.analyses), all_pairs(problem)
    low = quick_bounds(problem, each, pairs)
    good = np.flatnonzero(low < best.time)
    if not len(good):
        return best, 0.0
    pairs, low = pairs.at(good), low[good]
    if len(problem.analyses) <= _FEW:
        return _of_all_subsets(problem, each, pairs, low, best), 0.0
    return _Pruned(problem, each, pairs, low, best).run()


def _alone(problem: PartitionProblem, names: frozenset[str]) -> Choice:
    """Everything in situ, or nothing."""
    found = with_split(problem, names)
    if not found or found.warning:
        return Choice(inf, 1, 0, names)
    return Choice(found.iteration, int(found.nodes), int(found.helper_cores), names)


def _of_all_subsets(
    problem: PartitionProblem, each: PhaseWork, pairs: Pairs, low: Array, best: Choice
) -> Choice:
    """The best of all subsets on all pairs whose bound is below what was found."""
    inside = subset_sums(each)
    sums = PhaseWork(*(column[None, :] for column in inside))
    outside = PhaseWork(*(column[-1] for column in inside)).without(inside)
    rest = PhaseWork(*(column[None, :] for column in outside))
    order, chunk = np.argsort(low, kind="stable"), max(1, (1 << 16) // len(inside.count))
    for first in range(0, len(low), chunk):
        if low[order[first]] >= best.time:
            break
        now = pairs.at(order[first : first + chunk])
        phases = phase_times(problem, now.nodes[:, None], now.helper[:, None], sums, rest)
        times = np.where(sums.memory <= now.room[:, None], iteration_time(problem, phases), inf)
        row, place = (int(at) for at in np.unravel_index(np.argmin(times), times.shape))
        if times[row, place] < best.time:
            names = frozenset(one.name for bit, one in enumerate(problem.analyses) if place >> bit & 1)
            best = Choice(float(times[row, place]), int(now.nodes[row]), int(now.helper[row]), names)
    return best


class _Pruned:
    """Pairs searched in the order of their bounds, for more analyses than have subsets to try."""

    def __init__(self, problem: PartitionProblem, each: PhaseWork, pairs: Pairs, least: Array, best: Choice):
        self.problem, self.each, self.pairs, self.best = problem, each, pairs, best
        #: no split takes less on a pair
        self.least = least
        #: the best time that was known when a pair was searched
        self.searched = np.full(len(least), inf)
        self.bounded = np.zeros(len(least), dtype=np.bool_)
        self.work = 0

    def run(self) -> tuple[Choice, float]:
        """The best choice, and how far it is proven."""
        while self.work <= _WORK and len(open_ := self._open()):
            if not (self.work and self._bound_of_most_helpers(open_)):
                self._search(open_)
        if self._gap() > _SAID:  # then at least as good as the orders
            self.best = min((self.best, *(greedy(self.problem, order) for order in ORDERS)), key=by_time)
        return self.best, self._gap() if self._gap() > _SAID else 0.0

    def _gap(self) -> float:
        return 1 - float(self.least.min()) / self.best.time if self.best.time > 0 else 0.0

    def _open(self) -> Places:
        return np.flatnonzero((self.least < self.best.time * (1 - _CLOSE)) & (self.best.time < self.searched))

    def _bound_of_most_helpers(self, open_: Places) -> bool:
        """Of each number of nodes, bound the open pair with most helper cores: analyses take no less with
        fewer. Whether that was worth while."""
        pairs = self.pairs
        last = open_[np.append(np.diff(pairs.nodes[open_]) != 0, True)]
        last = last[~self.bounded[last]]
        last = last[np.argsort(self.least[last], kind="stable")[:_AT_ONCE]]
        if len(last) <= _TOGETHER:
            return False
        self.bounded[last] = True
        self.work += _EFFORT * len(last) * len(self.each.count)
        cost = costs(self.problem, self.each, pairs.at(last))
        known = np.zeros(self.problem.nodes.count + 1)
        known[pairs.nodes[last].astype(int)] = bounds(cost, self.each.memory, pairs.room[last]).time
        self.least[open_] = np.maximum(self.least[open_], known[pairs.nodes[open_].astype(int)])
        return True

    def _search(self, open_: Places) -> None:
        """Search the pairs with the least bounds; of equal ones first that with most helper cores. Last
        again those of which nothing was proven; now there is less to be gained."""
        again = self.searched[open_] < inf
        order = np.lexsort((-self.pairs.helper[open_], self.least[open_], again))
        places = open_[order[:_TOGETHER]]
        pairs = self.pairs.at(places)
        cost = costs(self.problem, self.each, pairs)
        bound = bounds(cost, self.each.memory, pairs.room)
        self.least[places] = np.maximum(self.least[places], bound.time)
        for row, place in enumerate(places):
            if self.least[place] >= self.best.time * (1 - _CLOSE):
                continue
            step, room, before = float(pairs.step[row]), float(pairs.room[row]), float(cost.before[row])
            proof = (float(column[row]) for column in bound)
            splits = cost.in_situ[row], cost.in_transit[row], self.each.memory
            found = best_split(SplitPlace(step, room, before, *splits, *proof), self.best.time, _CLOSE)
            self.work += found.work
            nodes, helper = pairs.nodes[row], pairs.helper[row]
            fewer = (self.pairs.nodes == nodes) & (self.pairs.helper <= helper)
            self.least[fewer] = np.maximum(self.least[fewer], found.bound)
            if found.time < self.best.time:
                analyses = zip(self.problem.analyses, found.in_situ, strict=True)
                names = frozenset(one.name for one, yes in analyses if yes)
                self.best = Choice(found.time, int(nodes), int(helper), names)
            self.searched[place] = self.best.time
