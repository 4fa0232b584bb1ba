"""From the optimum of the corridor's relaxed program to a distribution of whole nodes and allowed sizes."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor.bounds import Bounds, Exchange, Shift
from dask_hpc.planning.corridor.enumerate import Ints, enumerate_all
from dask_hpc.planning.corridor.problem import CorridorProblem, Part

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
    order = np.argsort(middle, kind="stable")
    givers = [(n, -int(change[n])) for n in order.tolist() if change[n] < 0]
    takers = [(n, int(change[n])) for n in order.tolist() if change[n] > 0]
    ends = sorted({*np.cumsum([k for _, k in givers]).tolist(), *np.cumsum([k for _, k in takers]).tolist()})
    found = []
    give, take = iter(givers), iter(takers)
    giver = taker = -1
    left = lacks = 0
    for start, end in pairwise([0, *ends]):
        if not left:
            giver, left = next(give)
        if not lacks:
            taker, lacks = next(take)
        found.append((giver, taker, end - start))
        left -= end - start
        lacks -= end - start
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
