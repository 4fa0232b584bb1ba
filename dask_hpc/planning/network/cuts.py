"""Cuts: what has to cross some links of a network, beside what these can carry.

No routing does better than any of them allows. On a lattice a cut is, by the values of some coordinates: all
that leads out of the routers with these or into them; or all that leads from one value of one of them to
another, of who differs in no other one of these. A link of a tree is one by itself, and there cuts are exact.
"""

from collections.abc import Iterator, Sequence
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
        sums = [rooms[at].sum(free) if free else rooms[at] for at in kept]
        out = sum(one.sum(-1) for one in sums)
        back = sum(np.swapaxes(one, place, -1).sum(-1) for place, one in enumerate(sums))
        found += [np.asarray(one).reshape(-1) for one in (out, back)]
        # the value that is left, then the one that is gone to
        found += [np.moveaxis(one, place, -2).reshape(-1) for place, one in enumerate(sums)]
    return np.concatenate([*found, graph.capacity[graph.first_below :]])


def cut_needs(graph: Graph, sent: Sequence[Demand], load: Array) -> Array:
    """What has to cross each cut, in the same order, of all that is ``sent``; ``load`` is how it is divided."""
    found = []
    for kept, _ in _coordinates(len(graph.shape)):
        leaves = [_leaves(graph, demand, kept) for demand in sent]
        found += [sum(one[side] for one in leaves) for side in (0, 1)]
        found += [sum(_changes(graph, demand, kept, at) for demand in sent) for at in kept]
    return np.concatenate([*(np.asarray(one).reshape(-1) for one in found), load[graph.first_below :]])


def _coordinates(depth: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Some of them and the others."""
    for count in range(1, depth + 1):
        for kept in combinations(range(depth), count):
            yield kept, tuple(dim for dim in range(depth) if dim not in kept)


def _leaves(graph: Graph, demand: Demand, kept: tuple[int, ...]) -> tuple[Array, Array]:
    """By values of the coordinates that are kept: what leaves all routers with these, and what gets there."""
    if isinstance(demand, ProductDemand):
        free = tuple(dim for dim in range(len(graph.shape)) if dim not in kept)
        sent, taken = (graph.at_routers(one).sum(free) for one in (demand.sent, demand.taken))
        return sent * (taken.sum() - taken), taken * (sent.sum() - sent)
    shape = [graph.shape[dim] for dim in kept]
    source, target = _pair_groups(graph, demand, kept)
    leaves = source != target
    rates, size = demand.rates[leaves], prod(shape)
    out, back = (np.bincount(one[leaves], rates, size).reshape(shape) for one in (source, target))
    return out, back


def _changes(graph: Graph, demand: Demand, kept: tuple[int, ...], at: int) -> Array:
    """What goes from each value of a coordinate to each other one (the last two axes), of who differs in none
    of the others that are kept."""
    place = kept.index(at)
    shape = [graph.shape[dim] for dim in kept]
    if isinstance(demand, ProductDemand):
        free = tuple(dim for dim in range(len(graph.shape)) if dim not in kept)
        sent, taken = (
            np.moveaxis(graph.at_routers(one).sum(free), place, -1) for one in (demand.sent, demand.taken)
        )
        found: Array = sent[..., :, None] * taken[..., None, :]
    else:
        others = tuple(dim for dim in kept if dim != at)
        source, target = _pair_groups(graph, demand, others)
        before, after = (graph.coordinates(graph.router[one])[at] for one in (demand.sources, demand.targets))
        same = source == target
        size = graph.shape[at]
        number = (source * size + before) * size + after
        rows = [graph.shape[dim] for dim in others]
        found = np.bincount(number[same], demand.rates[same], prod(rows) * size * size)
        found = found.reshape(*rows, size, size)
    own = np.arange(shape[place])
    found[..., own, own] = 0.0
    return found


def _pair_groups(graph: Graph, demand: PairDemand, kept: tuple[int, ...]) -> tuple[Array, Array]:
    """The numbers of the groups of routers, by the coordinates that are kept, that pairs lead from and to."""
    if not kept:
        return np.zeros_like(demand.sources), np.zeros_like(demand.targets)
    shape = [graph.shape[dim] for dim in kept]
    source, target = (graph.coordinates(graph.router[one]) for one in (demand.sources, demand.targets))
    return (
        np.ravel_multi_index([source[dim] for dim in kept], shape),
        np.ravel_multi_index([target[dim] for dim in kept], shape),
    )
