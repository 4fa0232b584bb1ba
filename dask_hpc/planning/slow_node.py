"""Nodes whose tasks take longer than tasks of the same kinds elsewhere, and not by chance."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, log, sqrt
from statistics import median
from typing import NamedTuple

_LEAST = 5  # tasks of a node before it is judged
_OTHERS = 8  # tasks of the same kinds elsewhere
_SURE = 3.0  # standard deviations that their ranks are off
_NEARLY_ALL = 0.95  # of pairs of a task here and one elsewhere, the share in which the one here took longer
_TICK = 1e-9  # seconds; a task may take none

#: seconds of tasks by kind and node
Times = Mapping[str, Mapping[str, Sequence[float]]]


class SlowNode(NamedTuple):
    """How it was found."""

    #: how many times as long its tasks take: of the medians
    ratio: float
    #: how many of its tasks were looked at
    tasks: int
    #: by how many standard deviations the sum of their ranks is above that of equal nodes
    sigmas: float


def slow_nodes(times: Times, factor: float) -> dict[str, SlowNode]:
    """The nodes that take at least so many times as long. Of two nodes, one may be.

    Van Elteren's test: Wilcoxon's of ranks for each kind, with weights 1 / (N + 1), so nothing is assumed of
    how long tasks of a kind take, and one that takes very long is only one. On a busy machine many nodes are
    a little slower for a while, and that is no chance: so the medians must be apart, and nearly all tasks of
    the node must have taken longer than those elsewhere.
    """
    pools = {kind: sorted(chain.from_iterable(by_node.values())) for kind, by_node in times.items()}
    found = {}
    for node in dict.fromkeys(chain.from_iterable(times.values())):
        if (one := _judged(times, pools, node)) is not None and one.ratio >= factor:
            found[node] = one
    return found


def _judged(times: Times, pools: Mapping[str, Sequence[float]], node: str) -> SlowNode | None:
    above = variance = longer = pairs = 0.0
    tasks = elsewhere = 0
    kinds = []
    for kind, by_node in times.items():
        own, pool = by_node.get(node, ()), pools[kind]
        n, m = len(own), len(pool) - len(own)
        if not n or not m:
            continue
        kinds.append(kind)
        # Mann and Whitney's U, in how many pairs the one here took longer: those among themselves are half
        won = sum(bisect_left(pool, one) + bisect_right(pool, one) for one in own) / 2 - n * n / 2
        weight = 1 / (n + m + 1)
        above += weight * (won - n * m / 2)
        variance += weight * n * m / 12
        longer, pairs = longer + won, pairs + n * m
        tasks, elsewhere = tasks + n, elsewhere + m
    if tasks < _LEAST or elsewhere < _OTHERS or longer < _NEARLY_ALL * pairs:
        return None
    sigmas = above / sqrt(variance)
    return SlowNode(_ratio(times, kinds, node, tasks), tasks, sigmas) if sigmas >= _SURE else None


def _ratio(times: Times, kinds: Sequence[str], node: str, tasks: int) -> float:
    logs = 0.0
    for kind in kinds:
        own = times[kind][node]
        others = chain.from_iterable(some for other, some in times[kind].items() if other != node)
        logs += len(own) * log(max(median(own), _TICK) / max(median(others), _TICK))
    return exp(logs / tasks)
