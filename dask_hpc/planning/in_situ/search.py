"""The best split of the analyses for given nodes and helper cores: two halves, each listed, then joined.

Ours. The bound of ``partition_bounds`` says of every analysis where it belongs and what it costs at least to
put it elsewhere. So only few analyses are open, and only lists of exceptions whose costs together stay below
what is still to be gained. Of two such lists, one for either half of the open analyses, those pairs are
looked at that come near the bound: it also says how much memory, work in situ and work in transit may be
left unused. If nothing had to be left out, what is found is the optimum.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_hpc.planning.in_situ.partition import PartitionProblem
from dask_hpc.planning.in_situ.phases import PhaseWork, simulation_time

Array = NDArray[np.float64]

#: weights of work in situ against work in transit that are tried for every pair
_WEIGHTS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 4.0)
_CUTS = 24


class Pairs(NamedTuple):
    """Numbers of nodes and helper cores that could be, an array each, and what follows from them alone."""

    nodes: Array
    helper: Array
    #: seconds of the simulation: no iteration is shorter
    step: Array
    #: bytes that analyses in situ may have
    room: Array

    def at(self, places: "NDArray[np.intp] | NDArray[np.bool_]") -> "Pairs":
        """Some of them."""
        return Pairs(*(column[places] for column in self))


class SplitCosts(NamedTuple):
    """What each analysis (columns) costs on each pair (rows)."""

    #: seconds on the simulation's nodes before the first analysis: in "sync" the simulation's
    before: Array
    in_situ: Array
    in_transit: Array
    #: all of it
    total: Array


class Bound(NamedTuple):
    """No split of a pair takes less than ``time``; the weights that show it."""

    time: Array
    #: of work in situ, from 0 to 1; the rest is of work in transit
    weight: Array
    #: seconds that a byte is worth
    price: Array


def all_pairs(problem: PartitionProblem) -> Pairs:
    """Those on which analyses may run in situ and in transit."""
    machine = problem.nodes
    helpers = np.arange(1.0, machine.cores) if problem.mode == "async" else np.zeros(1)
    nodes, helper = (
        column.ravel() for column in np.meshgrid(np.arange(1.0, machine.count), helpers, indexing="ij")
    )
    step = simulation_time(problem, nodes * (machine.cores - helper))
    room = machine.memory * nodes * (1 + 1e-12) - problem.simulation.memory
    pairs = Pairs(nodes, helper, step, room)
    return pairs.at(room >= 0)


def helper_cores(problem: PartitionProblem, pairs: Pairs) -> Array:
    """Cores that analyses in situ have, over all nodes."""
    return pairs.nodes * (pairs.helper if problem.mode == "async" else problem.nodes.cores)


def costs(problem: PartitionProblem, each: PhaseWork, pairs: Pairs) -> SplitCosts:
    """Of every analysis on every pair."""
    machine = problem.nodes
    staging = (machine.count - pairs.nodes)[:, None]
    in_situ = each.serial + each.parallel / helper_cores(problem, pairs)[:, None]
    in_transit = each.serial + (each.parallel / machine.cores + each.volume / machine.bandwidth) / staging
    before = pairs.step if problem.mode == "sync" else np.zeros_like(pairs.step)
    return SplitCosts(before, in_situ, in_transit, in_transit.sum(1))


def quick_bounds(problem: PartitionProblem, each: PhaseWork, pairs: Pairs) -> Array:
    """A bound for each of very many pairs: a few weights, and one fractional knapsack for each of them."""
    machine = problem.nodes
    bound = pairs.step.copy()
    moved = each.volume * (machine.cores / machine.bandwidth)
    here = helper_cores(problem, pairs)
    there = machine.cores * (machine.count - pairs.nodes)
    before = pairs.step if problem.mode == "sync" else 0.0
    everything = each.parallel.sum() + moved.sum()
    serial = each.serial.sum()
    for weight in _WEIGHTS:
        gain = knapsack((1 - weight) * each.parallel + moved, each.memory, pairs.room)
        ours = weight * here
        work = ours * before + everything - gain + np.minimum(ours, there) * serial
        np.maximum(bound, work / (ours + there), out=bound)
    return bound


def knapsack(gain: Array, memory: Array, room: Array) -> Array:
    """The most that can be gained within each room, if analyses could be divided."""
    good = gain > 0
    order = np.argsort(-gain[good] / np.maximum(memory[good], 1e-200), kind="stable")
    weights = np.concatenate([[0.0], np.cumsum(memory[good][order])])
    gains = np.concatenate([[0.0], np.cumsum(gain[good][order])])
    free = int(np.searchsorted(weights, 0.0, side="right")) - 1  # what needs no memory comes first
    return np.interp(room, weights[free:], gains[free:])


def bounds(cost: SplitCosts, memory: Array, room: Array) -> Bound:
    """The best bound of this kind for each pair: the weights are found by cutting planes."""
    low, high = np.zeros_like(room), np.ones_like(room)
    at_low, up, price_low = _value(cost, memory, room, low)
    at_high, down, price_high = _value(cost, memory, room, high)
    best = np.where(at_low >= at_high, at_low, at_high)
    weight = np.where(at_low >= at_high, low, high)
    price = np.where(at_low >= at_high, price_low, price_high)
    for _ in range(_CUTS):
        # the bound is concave in the weight: look where the tangents of both ends meet
        turn = up - down
        open_ = (up > 0) & (down < 0) & (turn > 0)
        middle = (at_high - at_low + up * low - down * high) / np.where(open_, turn, 1.0)
        middle = np.where(open_, np.clip(middle, low, high), weight)
        at, slope, its_price = _value(cost, memory, room, middle)
        better = at > best
        best, weight = np.where(better, at, best), np.where(better, middle, weight)
        price = np.where(better, its_price, price)
        if not np.any(open_ & (at_low + up * (middle - low) - at > 1e-10 * np.abs(at))):
            break
        rising = slope > 0
        low, at_low, up = (
            np.where(open_ & rising, new, old) for new, old in ((middle, low), (at, at_low), (slope, up))
        )
        high, at_high, down = (
            np.where(open_ & ~rising, new, old) for new, old in ((middle, high), (at, at_high), (slope, down))
        )
    return Bound(best, weight, price)


def _value(cost: SplitCosts, memory: Array, room: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The bound with these weights, how it changes with them, and the price of a byte."""
    row = weight[:, None]
    gain = (1 - row) * cost.in_transit - row * cost.in_situ
    worth = np.where((gain > 0) & (memory <= room[:, None]), gain / np.maximum(memory, 1e-200), -1.0)
    order = np.argsort(-worth, axis=1, kind="stable")
    bytes_ = memory[order]
    before = np.cumsum(bytes_, axis=1) - bytes_
    worth = np.take_along_axis(worth, order, 1)
    share = np.where(bytes_ > 0, (room[:, None] - before) / np.maximum(bytes_, 1e-200), 1.0)
    taken = np.clip(share, 0, 1) * (worth >= 0)
    both = np.take_along_axis(cost.in_situ + cost.in_transit, order, 1)
    gained = (np.take_along_axis(gain, order, 1) * taken).sum(1)
    value = weight * cost.before + (1 - weight) * cost.total - gained
    slope = cost.before - cost.total + (both * taken).sum(1)
    price = np.maximum(np.where(taken < 1, worth, 0.0).max(1, initial=0.0), 0.0)
    return value, slope, price


Places = NDArray[np.intp]

_CORE = 16  # analyses of which all subsets are tried first
_LISTED = 1 << 14  # sums in a half
_JOINED = 1 << 16  # pairs of sums that are looked at in one go
_HALF = 62  # analyses in a half, as bits of an integer
_STEPS = 16
_AGAIN = 16  # times nearer, if something was found among too many to look at all
_NEWTON = 12
_SURE = 30.0  # e to this is as good as certain
_NEARER = 4096  # times: where to begin, if what is left to be gained allows too many exceptions
_FAR = 1.01  # times the bound: so far from it that any good split is welcome first


@dataclass(frozen=True, slots=True)
class SplitPlace:
    """One pair of nodes and helper cores: each analysis's costs, what may not be passed, and the bound."""

    step: float
    room: float
    before: float
    in_situ: Array
    in_transit: Array
    memory: Array
    #: no split takes less
    bound: float
    weight: float
    price: float


class FoundSplit(NamedTuple):
    """The best split that was found; no other takes less than ``bound``, the simulation left aside."""

    time: float
    #: of each analysis
    in_situ: NDArray[np.bool_]
    bound: float
    #: sums that were looked at
    work: int


class _Sums(NamedTuple):
    """Sums over subsets of some open analyses, as changes of the split that they start from."""

    #: at least so much above the bound
    cost: Array
    in_situ: Array
    in_transit: Array
    memory: Array
    subset: NDArray[np.int64]


class _Lists(NamedTuple):
    """Sums of both halves of the open analyses, the split that they change, and whether some are missing."""

    start: NDArray[np.bool_]
    halves: tuple[Places, Places]
    first: _Sums
    second: _Sums
    complete: bool


def best_split(place: SplitPlace, limit: float, close: float) -> FoundSplit:
    """The best split that takes less than ``limit``; the search ends within ``close`` of the optimum."""
    search = _Search(place)
    time, split = limit, search.start
    if limit > place.bound * _FAR:
        lists = search.lists(inf, _CORE, 1 << _CORE // 2)
        found, split = search.best_of_all(lists)
        if lists.complete:
            return FoundSplit(found, split, search.shown(found, found), search.work)
        time = min(found, limit)
    return search.refined(time, split, close)


class _Search:
    """The search on one pair of nodes and helper cores."""

    def __init__(self, place: SplitPlace) -> None:
        gain = (1 - place.weight) * place.in_transit - place.weight * place.in_situ
        worth = gain - place.price * place.memory
        fits = place.memory <= place.room
        self.place = place
        self.start: NDArray[np.bool_] = (worth > 0) & fits
        self.penalty: Array = np.abs(worth)
        order = np.argsort(self.penalty, kind="stable")
        self.order = order[fits[order]]
        rows = zip(place.in_situ, place.in_transit, place.memory, strict=True)
        self.some_alike = len(set(rows)) < len(place.memory)
        #: sums that were made and looked at
        self.work = 0

    def shown(self, found: float, listed: float) -> float:
        """What a complete list up to ``listed`` shows that no split is below."""
        # The simulation hides by how much a split is better than it.
        return max(self.place.bound, min(found, listed)) if found > self.place.step else self.place.bound

    def refined(self, time: float, split: NDArray[np.bool_], close: float) -> FoundSplit:
        """All that may be below ``time``; if that is too much, near the bound, then farther and farther."""
        place, proven = self.place, self.place.bound
        aim, nearer = inf, False
        for _ in range(_STEPS):
            if time <= max(place.step, proven * (1 + close)):
                break
            left = time - place.bound
            aim = left if 2 * aim > left else aim
            lists = self.lists(aim, 2 * _HALF, _LISTED)
            if lists.complete or nearer:
                found, its_split, all_ = self.best_of_near(lists, place.bound + aim)
                if lists.complete and all_:
                    proven = max(proven, self.shown(found, place.bound + aim))
                if found < time:
                    time, split = found, its_split
                    aim = inf if lists.complete else (time - place.bound) / _AGAIN
                    continue
            if aim < left:
                aim *= 4
            elif nearer:
                break
            else:
                aim, nearer = max(left / _NEARER, place.bound * close), True
        return FoundSplit(time, split, proven, self.work)

    def lists(self, aim: float, items: int, most: int) -> _Lists:
        """Changes that cost at most ``aim``: of so many analyses, so many of each half."""
        open_ = self.order[self.penalty[self.order] <= aim]
        found = self._both(open_, aim, items, most, self.start)
        if found.complete:
            return found
        start, open_ = self._likely(open_)
        return self._both(open_, inf, items, most, start)

    def _both(self, open_: Places, aim: float, items: int, most: int, start: NDArray[np.bool_]) -> _Lists:
        """The lists of both halves of what is open."""
        first, one = self._sums(open_[:items:2], open_, aim, most, start)
        second, other = self._sums(open_[1:items:2], open_, aim, most, start)
        complete = start is self.start and len(first) + len(second) == len(open_)
        return _Lists(start, (first, second), one, other, complete)

    def _likely(self, open_: Places) -> tuple[NDArray[np.bool_], Places]:
        """Where to start from if too many are open, and these, the least certain first.

        How likely each is in situ, if nothing is known but that a split comes near to the bound and to all of
        the memory, are the probabilities of largest entropy; by Newton's method.
        """
        place = self.place
        kept = self.start.copy()
        kept[open_] = False
        rows, left = [], []
        for price, each, wanted in (
            (place.weight, place.in_situ, place.bound - place.before),
            (1 - place.weight, place.in_transit, place.in_transit.sum() - place.bound),
            (place.price, place.memory, place.room),
        ):
            unit = float(each[open_].mean())
            if price > 0 and unit > 0:
                rows.append(each[open_] / unit)
                left.append((wanted - each[kept].sum()) / unit)
        columns, wanted = np.array(rows), np.array(left)
        prices, chance = np.zeros(len(rows)), np.full(len(open_), 0.5)
        for _ in range(_NEWTON):
            slope = wanted - columns @ chance
            bend = (columns * (chance * (1 - chance))) @ columns.T + 1e-6 * np.eye(len(rows))
            prices = np.clip(prices + np.linalg.solve(bend, slope), -_SURE, _SURE)
            chance = 1 / (1 + np.exp(-np.clip(prices @ columns, -_SURE, _SURE)))
        # The most certain first, each so that what is settled adds up to what was likely.
        order = np.argsort(-np.abs(chance - 0.5), kind="stable")
        start, missing = kept, np.zeros(len(rows))
        for at in order:
            missing = missing + chance[at] * columns[:, at]
            left_then = missing - columns[:, at]
            if left_then @ left_then < missing @ missing:
                start[open_[at]], missing = True, left_then
        return start, open_[order[::-1]]

    def _sums(
        self,
        items: Places,
        open_: Places,
        aim: float,
        most: int,
        start: NDArray[np.bool_],
    ) -> tuple[Places, _Sums]:
        """As many analyses as the list has room for, and their sums. If they are too many, without those
        that no other changes of what is open can bring back below the limits."""
        place, sign = self.place, np.where(start, -1.0, 1.0)
        changes = sign * np.array([sign * self.penalty, place.in_situ, -place.in_transit, place.memory])
        limits = np.array([aim, *self._limits(start, place.bound + aim)])
        limits += 1e-12 * np.abs(limits)
        saved = np.minimum(changes, 0.0)
        sums, subset = np.zeros((4, 1)), np.zeros(1, dtype=np.int64)
        for bit, item in enumerate(items):
            more = sums + changes[:, item, None]
            near = more[0] <= aim
            both = np.concatenate([sums, more[:, near]], axis=1)
            names = np.concatenate([subset, subset[near] | (1 << bit)])
            if len(names) > most:
                possible = saved[:, open_].sum(1) - saved[:, items[: bit + 1]].sum(1)
                can_be = np.all(both <= (limits - possible)[:, None], axis=0)
                both, names = both[:, can_be], names[can_be]
                if len(names) > most and self.some_alike:
                    both, names = _without_doubles(both, names)
            if len(names) > most:
                items = items[:bit]
                break
            sums, subset = both, names
        self.work += len(subset)
        return items, _Sums(sums[0], sums[1], -sums[2], sums[3], subset)

    def _limits(self, start: NDArray[np.bool_], target: float) -> tuple[float, float, float]:
        """By how much work in situ, work in transit and memory may grow from the start."""
        place = self.place
        return (
            target - place.before - float(place.in_situ[start].sum()),
            target - float(place.in_transit[~start].sum()),
            place.room - float(place.memory[start].sum()),
        )

    def best_of_all(self, lists: _Lists) -> tuple[float, NDArray[np.bool_]]:
        """The best of all pairs of sums."""
        one, other = lists.first, lists.second
        rows, columns = (axis.ravel() for axis in np.indices((len(one.cost), len(other.cost))))
        return self._best(lists, rows, columns)

    def best_of_near(self, lists: _Lists, target: float) -> tuple[float, NDArray[np.bool_], bool]:
        """The best of the pairs of sums that may take at most ``target``, and whether all were looked at."""
        if not len(lists.first.cost) or not len(lists.second.cost):
            return inf, lists.start, True
        mine, its, low, high = self._narrowest(lists, target)
        order = np.argsort(its)
        first = np.searchsorted(its[order], low - mine, side="left")
        counts = np.searchsorted(its[order], high - mine, side="right") - first
        pairs = int(counts.sum())
        if not pairs:
            return inf, lists.start, True
        some = slice(None, None, 1 + pairs // _JOINED)
        rows = np.repeat(np.arange(len(mine))[some], counts[some])
        ends = np.cumsum(counts[some])
        columns = order[np.arange(len(rows)) - np.repeat(ends - counts[some] - first[some], counts[some])]
        return *self._best(lists, rows, columns), len(rows) == pairs

    def _narrowest(self, lists: _Lists, target: float) -> tuple[Array, Array, float, float]:
        """Of memory, work in situ and work in transit, what tells most pairs apart: its changes in both
        lists, and from where to where both together may be."""
        place, one, other = self.place, lists.first, lists.second
        gap = target - place.bound
        limits = self._limits(lists.start, target)
        scale = 1e-12 * (target + float(place.in_transit.sum()) + sum(map(abs, limits[:2])))
        found: list[tuple[float, int, Array, Array, float, float]] = []
        # What is left unused of one of them takes an iteration so much farther away from the bound.
        for price, mine, its, most, error in (
            (place.weight, one.in_situ, other.in_situ, limits[0], scale),
            (1 - place.weight, -one.in_transit, -other.in_transit, limits[1], scale),
            (place.price, one.memory, other.memory, limits[2], 1e-12 * place.room),
        ):
            if price > 0 and most < inf:
                unused = gap / price
                spread = float(np.std(its) + np.std(mine))
                rank = unused / max(spread, 1e-200)
                found.append((rank, len(found), mine, its, most - unused - error, most + error))
        return min(found)[2:]

    def _best(self, lists: _Lists, rows: Places, columns: Places) -> tuple[float, NDArray[np.bool_]]:
        place, one, other, start = self.place, lists.first, lists.second, lists.start
        self.work += len(rows)
        if not len(rows):
            return inf, start
        here = place.before + place.in_situ[start].sum() + one.in_situ[rows] + other.in_situ[columns]
        there = place.in_transit[~start].sum() - one.in_transit[rows] - other.in_transit[columns]
        held = place.memory[start].sum() + one.memory[rows] + other.memory[columns]
        times = np.where(held <= place.room, np.maximum(np.maximum(here, there), place.step), inf)
        best = int(np.argmin(times))
        split = start.copy()
        for sums, items, at in ((one, lists.halves[0], rows[best]), (other, lists.halves[1], columns[best])):
            changed = [item for bit, item in enumerate(items) if int(sums.subset[at]) >> bit & 1]
            split[changed] = ~split[changed]
        return float(times[best]), split


def _without_doubles(sums: Array, subset: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """One of each of the sums that are the same, as they are if analyses are."""
    order = np.lexsort(sums)
    sums = sums[:, order]
    new = np.append(True, np.any(sums[:, 1:] != sums[:, :-1], axis=0))
    return sums[:, new], subset[order][new]
