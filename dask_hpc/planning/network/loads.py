"""What each link carries if all traffic is divided evenly among minimal paths."""

from functools import lru_cache
from itertools import combinations
from math import factorial

import numpy as np

from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.demands import PairDemand, ProductDemand, Traffic, demands
from dask_hpc.planning.network.graph import Array, Graph, graph_of


@lru_cache(128)
def load_of(topology: Topology, traffic: Traffic) -> Array:
    """Of all that a job sends, in bytes a second and in the row of the graph. That takes no list of paths, as
    sums over the parts of a lattice say what each link gets; below switches there is one path only."""
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
    sent, taken = (graph.at_routers(weights) for weights in (demand.sent, demand.taken))
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


@lru_cache(64)
def _ways(depth: int, at: int) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Which coordinates are changed before this one, in what share of all orders."""
    others = [dim for dim in range(depth) if dim != at]
    return tuple(
        (changed, factorial(count) * factorial(depth - 1 - count) / factorial(depth))
        for count in range(depth)
        for changed in combinations(others, count)
    )
