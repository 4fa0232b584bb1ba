"""What jobs send: to each other's nodes, to partners in another part of the machine, to the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, within
from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.graph import Array, Graph

Pattern = Literal["all-to-all", "partner", "store"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
Stores = Literal["any", "own"]
STORES: tuple[Stores, ...] = get_args(Stores)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a job sends as long as its state lasts: seed 003, 7.3.3 (digest 2.13.4).

    - ``all-to-all``: ``rate`` bytes a second from each of its nodes to each other one.
    - ``partner``: so much from each node to a partner in another outermost part of the machine, a checkpoint
      of level 2.
    - ``store``: so much from each node to the service nodes, evenly divided: of ``any`` outermost part, or
      only of the node's ``own`` one. A checkpoint of level 3.

    Without a ``rate`` partner and store get what the narrowest link carries, as in the source: there is
    always more to save than can be sent at once. ``restart`` turns everything around.
    """

    nodes: tuple[str, ...]
    pattern: str = "all-to-all"
    rate: float | None = None
    stores: str = "any"
    restart: bool = False
    #: the partner of each node, where it is not that of ``partners_of``
    partners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        insist(self.pattern in PATTERNS, "pattern", self.pattern, ", ".join(PATTERNS))
        insist(self.stores in STORES, "stores", self.stores, ", ".join(STORES))
        if self.rate is None:
            insist(self.pattern != "all-to-all", "rate", None, "bytes a second from each node to each other")
        else:
            fine = is_number(self.rate, 0, inf) and self.rate < inf
            insist(fine, "rate", self.rate, "bytes a second, 0 or more")
        insist(len(self.nodes) > 0, "nodes", (), "at least one node")
        fine = len(self.partners) in (0, len(self.nodes))
        insist(fine, "partners", self.partners, "one of each node, or none")
        insist(len(set(self.nodes)) == len(self.nodes), "nodes", "a node twice", "each node once")


@dataclass(frozen=True, slots=True, eq=False)
class ProductDemand:
    """From each node to each other one ``sent`` of the one times ``taken`` of the other, bytes a second."""

    sent: Array
    taken: Array


@dataclass(frozen=True, slots=True, eq=False)
class PairDemand:
    """From nodes to others, one by one; ``rates`` in bytes a second."""

    sources: Array
    targets: Array
    rates: Array


#: all that a job sends is a few of these
Demand = ProductDemand | PairDemand


def demands(graph: Graph, traffic: Traffic) -> tuple[Demand, ...]:
    """Of a job. Nodes that are not in the topology, and partners or stores that nobody has, are refused."""
    topology = graph.topology
    with within("nodes"):
        topology.insist_on(traffic.nodes, "")
    rate = topology.smallest if traffic.rate is None else traffic.rate
    numbers = np.array([graph.numbers[name] for name in traffic.nodes])
    if traffic.pattern == "all-to-all":
        ones = np.zeros(len(graph.names))
        ones[numbers] = 1.0
        return (ProductDemand(ones, rate * ones),)
    if traffic.pattern == "partner":
        names = traffic.partners or partners_of(topology, traffic.nodes)
        with within("partners"):
            topology.insist_on(names, "")
        partners = np.array([graph.numbers[name] for name in names])
        sources, targets = (partners, numbers) if traffic.restart else (numbers, partners)
        return (PairDemand(sources, targets, np.full(len(numbers), float(rate))),)
    to = _to_stores(graph, numbers, rate, traffic.stores == "own")
    return tuple(ProductDemand(one.taken, one.sent) if traffic.restart else one for one in to)


def partners_of(topology: Topology, nodes: Sequence[str]) -> tuple[str, ...]:
    """For each of these one that does not fail with it: in the next outermost part the node with the same
    coordinates, or if there is none for jobs the one with the same number in its part."""
    domains = topology.domains()
    parts = list(domains)
    if len(parts) < 2:
        whole = topology.levels[0].name
        raise InputError("", f"found one {whole}: no partner is in another", "two or more for a partner")
    inner = {part: {topology.places[name][1:]: name for name in names} for part, names in domains.items()}
    following = dict(zip(parts, [*parts[1:], parts[0]], strict=True))
    ranks = {name: rank for names in domains.values() for rank, name in enumerate(names)}
    found = []
    for name in nodes:
        part, *rest = topology.places[name]
        other = following[part]
        same = inner[other].get(tuple(rest))
        found.append(same or domains[other][ranks[name] % len(domains[other])])
    return tuple(found)


def _to_stores(graph: Graph, numbers: Array, rate: float, own: bool) -> Sequence[ProductDemand]:
    topology = graph.topology
    insist(len(topology.service) > 0, "pattern", "store", "a topology with service nodes for that")
    outer = [topology.places[graph.names[number]][0] for number in numbers]
    groups = [(outer, topology.service)]
    if own:
        groups = [
            ([part], tuple(name for name in topology.service if topology.places[name][0] == part))
            for part in dict.fromkeys(outer)
        ]
    found = []
    for parts, leads in groups:
        insist(len(leads) > 0, "stores", f"own, and no service node in {parts[0]}", "any")
        sent, taken = np.zeros(len(graph.names)), np.zeros(len(graph.names))
        sent[[number for number, part in zip(numbers, outer, strict=True) if part in parts]] = 1.0
        taken[[graph.numbers[name] for name in leads]] = rate / len(leads)
        found.append(ProductDemand(sent, taken))
    return found
