"""How much of their traffic a network carries for jobs, without a linear programme.

What is sent in equal parts over all minimal paths can be had: a lower bound. It needs no list of paths, as
sums over the parts of a lattice say what each link gets; below switches there is one path only. Upper bounds
come of cuts: what has to cross some links, over what they carry, level by level and router by router.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np

from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.demands import Demand, PairDemand, ProductDemand, Traffic, demands
from dask_hpc.planning.network.graph import Array, Graph, graph_of, water_fill


@dataclass(frozen=True, slots=True)
class ThetaBounds:
    """Theta is the share of its demand that a job gets, the same for all that it sends (digest 2.13.1).

    ``fair`` can be had for all of them at once. ``alone`` is the most that a job could get if no other one
    were there, so no routing gives it more. What the worst served of them gets at best lies between
    ``least`` and ``most``.
    """

    fair: Mapping[str, float]
    alone: Mapping[str, float]
    least: float
    most: float


def thetas(topology: Topology, jobs: Mapping[str, Traffic]) -> dict[str, float]:
    """Of each job the share of its demand that it gets where traffic is divided evenly among minimal paths
    and links are shared fairly. It can be had, and is exact where all links form a tree. What a job sends is
    remembered, so that one more or less is a matter of a few hundred microseconds."""
    return water_fill(
        {name: load_of(topology, job) for name, job in jobs.items()}, graph_of(topology).capacity
    )


def bounds(topology: Topology, jobs: Mapping[str, Traffic]) -> ThetaBounds:
    """Both sides."""
    graph = graph_of(topology)
    loads = {name: load_of(topology, job) for name, job in jobs.items()}
    fair = water_fill(loads, graph.capacity)
    sent = {name: demands(graph, job) for name, job in jobs.items()}
    alone = {name: cut_bound(graph, loads[name], sent[name]) for name in jobs}
    everything = sum(loads.values(), np.zeros(len(graph.capacity)))
    together = cut_bound(graph, everything, [one for found in sent.values() for one in found])
    most = min([together, *alone.values()], default=1.0)
    return ThetaBounds(fair, alone, min(fair.values(), default=1.0), most)


@lru_cache(256)
def load_of(topology: Topology, traffic: Traffic) -> Array:
    """What each link carries of all that a job sends if that is evenly divided among minimal paths, in bytes
    a second."""
    graph = graph_of(topology)
    found = np.zeros(len(graph.capacity))
    for demand in demands(graph, traffic):
        if isinstance(demand, ProductDemand):
            _add_product(graph, demand, found)
        else:
            _add_pairs(graph, demand, found)
    found.setflags(write=False)
    return found


def _add_product(graph: Graph, demand: ProductDemand, found: Array) -> None:
    """On the way coordinates are changed one by one, in every order equally often. So what crosses from a
    router at one of them, some others being changed already, is what all come from who has its others, times
    what all go to who has those that are changed."""
    sent, taken = (_at_routers(graph, weights) for weights in (demand.sent, demand.taken))
    for at in range(len(graph.shape)):
        links = graph.lattice_links(found, at)
        for changed, share in _ways(len(graph.shape), at):
            later = tuple(dim for dim in range(len(graph.shape)) if dim != at and dim not in changed)
            source = sent.sum(changed, keepdims=True)
            target = np.swapaxes(taken.sum(later, keepdims=True)[..., None], at, -1)
            links += share * source[..., None] * target
        own = np.indices(graph.shape, sparse=True)[at]
        np.put_along_axis(links, np.broadcast_to(own, graph.shape)[..., None], 0.0, -1)
    for at, (parts, part) in enumerate(graph.trees):
        out, back = graph.tree_links(found, at)
        sends = np.bincount(part, demand.sent, len(parts))
        takes = np.bincount(part, demand.taken, len(parts))
        out += sends * (takes.sum() - takes)
        back += takes * (sends.sum() - sends)


def _add_pairs(graph: Graph, demand: PairDemand, found: Array) -> None:
    source = graph.coordinates(graph.router[demand.sources])
    target = graph.coordinates(graph.router[demand.targets])
    for at in range(len(graph.shape)):
        links = graph.lattice_links(found, at).reshape(-1)
        differs = source[at] != target[at]
        for changed, share in _ways(len(graph.shape), at):
            here = [target[dim] if dim in changed else source[dim] for dim in range(len(graph.shape))]
            number = np.ravel_multi_index([*here, target[at]], (*graph.shape, graph.shape[at]))
            np.add.at(links, number[differs], share * demand.rates[differs])
    for at, (_, part) in enumerate(graph.trees):
        out, back = graph.tree_links(found, at)
        left, reached = part[demand.sources], part[demand.targets]
        np.add.at(out, left[left != reached], demand.rates[left != reached])
        np.add.at(back, reached[left != reached], demand.rates[left != reached])


def _at_routers(graph: Graph, weights: Array) -> Array:
    return np.bincount(graph.router, weights, graph.routers).reshape(graph.shape)


@lru_cache(64)
def _ways(depth: int, at: int) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Which coordinates are changed before this one, in what share of all orders."""
    others = [dim for dim in range(depth) if dim != at]
    return tuple(
        (changed, factorial(count) * factorial(depth - 1 - count) / factorial(depth))
        for count in range(depth)
        for changed in combinations(others, count)
    )


def cut_bound(graph: Graph, load: Array, sent: Sequence[Demand]) -> float:
    """No routing gives more than this share to all that is sent, of which ``load`` is the even division.

    Each cut is some links and what has to cross one of them; counted are only those of its links that a
    minimal path leads over. On one link of a tree nothing can be divided.
    """
    found = [1.0]
    shape, depth = graph.shape, len(graph.shape)
    first = graph.starts[depth]
    found.append(_least(graph.capacity[first:], load[first:]))
    rooms = []
    for at in range(depth):
        rooms.append(np.where(graph.lattice_links(load, at) > 0, graph.topology.levels[at].bandwidth, 0.0))
    for kept in (kept for count in range(1, depth + 1) for kept in combinations(range(depth), count)):
        free = tuple(dim for dim in range(depth) if dim not in kept)
        # into and out of all routers that have the same of these coordinates
        out = np.zeros([shape[dim] for dim in kept])
        back = np.zeros_like(out)
        for at in kept:
            out += rooms[at].sum((*free, depth))
            back += np.swapaxes(rooms[at], at, depth).sum((*free, depth))
        needs = [_leaves(graph, one, kept) for one in sent]
        found += [_least(out, sum(one for one, _ in needs)), _least(back, sum(one for _, one in needs))]
        # from one value of one of them to another, of who differs in no other one of these
        for place, at in enumerate(kept):
            room = np.moveaxis(rooms[at].sum(free), place, -1)
            found.append(_least(room.swapaxes(-1, -2), sum(_changes(graph, one, kept, at) for one in sent)))
    return min(found)


def _least(room: Array, need: Any) -> float:
    """The share that the fullest of these cuts carries."""
    need = np.broadcast_to(need, room.shape)
    crossed = need > 0
    return float((room[crossed] / need[crossed]).min(initial=1.0))


def _leaves(graph: Graph, demand: Demand, kept: tuple[int, ...]) -> tuple[Array, Array]:
    """By values of the coordinates that are kept: what leaves all routers with these, and what gets there."""
    if isinstance(demand, ProductDemand):
        free = tuple(dim for dim in range(len(graph.shape)) if dim not in kept)
        sent, taken = (_at_routers(graph, one).sum(free) for one in (demand.sent, demand.taken))
        return sent * (taken.sum() - taken), taken * (sent.sum() - sent)
    shape = [graph.shape[dim] for dim in kept]
    source, target = _pair_groups(graph, demand, kept)
    leaves = source != target
    rates, size = demand.rates[leaves], int(np.prod(shape))
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
            np.moveaxis(_at_routers(graph, one).sum(free), place, -1) for one in (demand.sent, demand.taken)
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
        found = np.bincount(number[same], demand.rates[same], int(np.prod(rows)) * size * size)
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
