"""What no split of the analyses can beat on given nodes and helper cores, for many pairs of them at once.

Ours. For given nodes and helper cores a split costs ``max(before + sum of a over what is in situ, sum of d
over what is in transit)`` and may need so much memory: weights on the two sums and on the memory turn that
into a choice for each analysis by itself, which bounds every split from below (Lagrange).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_hpc.model.partition import PartitionProblem
from dask_hpc.planning.partition_phases import Work, simulation_time

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


class Costs(NamedTuple):
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


def costs(problem: PartitionProblem, each: Work, pairs: Pairs) -> Costs:
    """Of every analysis on every pair."""
    machine = problem.nodes
    staging = (machine.count - pairs.nodes)[:, None]
    in_situ = each.serial + each.parallel / helper_cores(problem, pairs)[:, None]
    in_transit = each.serial + (each.parallel / machine.cores + each.volume / machine.bandwidth) / staging
    before = pairs.step if problem.mode == "sync" else np.zeros_like(pairs.step)
    return Costs(before, in_situ, in_transit, in_transit.sum(1))


def quick_bounds(problem: PartitionProblem, each: Work, pairs: Pairs) -> Array:
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


def bounds(cost: Costs, memory: Array, room: Array) -> Bound:
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


def _value(cost: Costs, memory: Array, room: Array, weight: Array) -> tuple[Array, Array, Array]:
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
