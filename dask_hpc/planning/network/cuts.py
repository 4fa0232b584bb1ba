"""Cuts: what has to cross some links of a network, beside what these can carry.

No routing does better than any of them allows. On a lattice a cut is, by the values of some coordinates: all
that leads from one value of one of them to another, of who differs in no other one of these; and where they
are several, all that leads out of the routers with these values, or into them. A link of a tree is one by
itself, and there cuts are exact.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod

import numpy as np

from dask_hpc.planning.network.demands import Demand, PairDemand, ProductDemand
from dask_hpc.planning.network.graph import Array, Graph


def cut_rooms(graph: Graph, used: Array) -> Array:
    """What each cut can carry, in bytes a second, by those links that are used at all: the ones that some
    minimal path of the traffic in question leads over."""
    depth = len(graph.shape)
    rooms = [graph.lattice_links(used, at) * graph.topology.levels[at].bandwidth for at in range(depth)]
    found = []
    for kept, free in _coordinates(depth):
        # by the coordinates that are kept and, last, the value that is gone to
        sums = [rooms[at].sum(free) if free else rooms[at] for at in kept]
        found += [one.transpose(_to(len(kept) + 1, place, -2)) for place, one in enumerate(sums)]
        if len(kept) > 1:
            out, back = np.zeros(sums[0].shape[:-1]), np.zeros(sums[0].shape[:-1])
            for place, one in enumerate(sums):
                out += one.sum(-1)
                back += one.sum(place).transpose(_to(len(kept), -1, place))
            found += [out, back]
    return np.concatenate([*(one.reshape(-1) for one in found), graph.capacity[graph.first_below :]])


def cut_needs(graph: Graph, sent: Sequence[Demand], load: Array) -> Array:
    """What has to cross each cut, in the same order, of all that is ``sent``; ``load`` is how that is evenly
    divided."""
    below = load[graph.first_below :]
    if not graph.shape:
        return below
    each = [np.concatenate([one.reshape(-1) for one in _crossing(graph, demand)]) for demand in sent]
    return np.concatenate([sum(each[1:], each[0]), below])


def _crossing(graph: Graph, demand: Demand) -> Iterator[Array]:
    return _of_product(graph, demand) if isinstance(demand, ProductDemand) else _of_pairs(graph, demand)


def _of_product(graph: Graph, demand: ProductDemand) -> Iterator[Array]:
    sends, takes = graph.at_routers(demand.sent), graph.at_routers(demand.taken)
    all_sent, all_taken = sends.sum(), takes.sum()
    for kept, free in _coordinates(len(graph.shape)):
        sent, taken = (sends.sum(free), takes.sum(free)) if free else (sends, takes)
        for place, at in enumerate(kept):
            order = _to(len(kept), place, -1)
            changes = sent.transpose(order)[..., :, None] * taken.transpose(order)[..., None, :]
            own = np.arange(graph.shape[at])
            changes[..., own, own] = 0.0
            yield changes
        if len(kept) > 1:
            yield sent * (all_taken - taken)
            yield taken * (all_sent - sent)


def _of_pairs(graph: Graph, demand: PairDemand) -> Iterator[Array]:
    source, target = (
        np.array(graph.coordinates(graph.router[one])) for one in (demand.sources, demand.targets)
    )
    differ = source != target
    for kept, _ in _coordinates(len(graph.shape)):
        shape = [graph.shape[dim] for dim in kept]
        for at in kept:
            others = [dim for dim in kept if dim != at]
            pairs = differ[at] & ~differ[others].any(0)
            sides = [*source[others], source[at], target[at]]
            sizes = [*(graph.shape[dim] for dim in others), graph.shape[at], graph.shape[at]]
            yield _summed(sides, sizes, demand.rates, pairs)
        if len(kept) > 1:
            leaves = differ[list(kept)].any(0)
            for side in (source, target):
                yield _summed(list(side[list(kept)]), shape, demand.rates, leaves)


def _summed(sides: Sequence[Array], sizes: Sequence[int], rates: Array, pairs: Array) -> Array:
    """Rates of these pairs, by some coordinates."""
    places = np.ravel_multi_index([side[pairs] for side in sides], sizes)
    found: Array = np.bincount(places, rates[pairs], prod(sizes))
    return found


@lru_cache(32)
def _coordinates(depth: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Some of them, and the others."""
    return tuple(
        (kept, tuple(dim for dim in range(depth) if dim not in kept))
        for count in range(1, depth + 1)
        for kept in combinations(range(depth), count)
    )


@lru_cache(256)
def _to(axes: int, source: int, target: int) -> tuple[int, ...]:
    """The order of axes in which one of them has moved there."""
    order = list(range(axes))
    order.insert(target % axes, order.pop(source))
    return tuple(order)
