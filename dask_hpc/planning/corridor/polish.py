"""A larger distance from a corridor's edges, at the same idle and changed nodes, by exchanges of nodes.

With many parts of different power there are so many distributions that their power is nearly everywhere; two
exchanges of one node each, chosen so that together they hit the aim, find one very near to it.
"""

import numpy as np

from dask_hpc.planning.corridor.bounds import Bounds
from dask_hpc.planning.corridor.enumerate import Ints

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
    give, take = _exchanges(bounds, sizes, can_step)
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


def _exchanges(bounds: Bounds, sizes: Ints, can_step: Ints) -> tuple[Ints, Ints]:
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
