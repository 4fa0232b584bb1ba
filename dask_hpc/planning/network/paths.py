"""The minimal paths between routers that are joined all to all, those that are alike counted as one.

Two chassis are alike if every job has as much at each place of the one as at the same place of the other.
Exchanging them changes nothing, so an optimum is not lost if alike pairs of routers divide their traffic
alike: one variable stands for all of them. Where nothing is alike each pair stands for itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from math import prod

import numpy as np

from dask_hpc.planning.network.demands import Demand, PairDemand, ProductDemand
from dask_hpc.planning.network.graph import Array, Graph


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Values of one coordinate in groups: of each value its group; of each group its size, and two members
    (the same one twice, if it has no other)."""

    group: Array
    size: Array
    first: Array
    second: Array

    @classmethod
    def by(cls, labels: Sequence[object]) -> "Alike":
        """Those with equal labels."""
        known: dict[object, list[int]] = {}
        for value, label in enumerate(labels):
            known.setdefault(label, []).append(value)
        members = list(known.values())
        group = np.empty(len(labels), int)
        for number, values in enumerate(members):
            group[values] = number
        firsts, seconds = ([values[min(at, len(values) - 1)] for values in members] for at in (0, 1))
        return cls(group, np.array([len(one) for one in members]), np.array(firsts), np.array(seconds))


@dataclass(frozen=True, slots=True, eq=False)
class PathGroup:
    """Pairs of routers that differ in the same coordinates. A column for each kind of pair: how many bytes a
    second all pairs of the kind have together for each job (``demand``), and on the way with each order of
    changes (``steps[order][step]``) which kind of link each step takes."""

    demand: Array
    steps: tuple[tuple[Array, ...], ...]


class Paths:
    """Of all jobs together, and of what kinds the links of the lattice are."""

    def __init__(self, graph: Graph, jobs: Mapping[str, Sequence[Demand]]) -> None:
        self._graph = graph
        self._jobs = jobs
        self._sums = {
            name: [
                (one, [graph.at_routers(weights) for weights in (one.sent, one.taken)])
                for one in demands
                if isinstance(one, ProductDemand)
            ]
            for name, demands in jobs.items()
        }
        self._alike = [Alike.by(labels) for labels in self._labels()]
        counts = [len(one.size) for one in self._alike]
        #: of the kinds of links: where those of each coordinate begin, and where all end
        self._shapes = [(*counts, count) for count in counts]
        self._starts = np.cumsum([0, *map(prod, self._shapes)])

    @property
    def kinds(self) -> int:
        """Pairs of routers that are told apart."""
        return prod(len(one.size) ** 2 + int((one.size > 1).sum()) for one in self._alike)

    @cached_property
    def groups(self) -> list[PathGroup]:
        """Those with traffic."""
        depth = len(self._alike)
        found = []
        for count in range(1, depth + 1):
            for changes in combinations(range(depth), count):
                group = self._group(changes)
                if group.demand.size:
                    found.append(group)
        return found

    @cached_property
    def capacity(self) -> Array:
        """Of all links of each kind together."""
        found = np.zeros(self._starts[-1])
        for at, (begin, end) in enumerate(zip(self._starts[:-1], self._starts[1:], strict=True)):
            found[begin:end] = self._links(at).reshape(-1) * self._graph.topology.levels[at].bandwidth
        return found

    def spread(self, flows: Array) -> Array:
        """What each link carries, in the row of the graph, if all links of a kind carry so much together."""
        graph, row = self._graph, np.zeros(len(self._graph.capacity))
        for at, (begin, end) in enumerate(zip(self._starts[:-1], self._starts[1:], strict=True)):
            links = self._links(at)
            with np.errstate(invalid="ignore", divide="ignore"):
                each = np.where(links > 0, flows[begin:end].reshape(links.shape) / links, 0.0)
            kinds = [one.group for one in self._alike]
            spread = each[np.ix_(*kinds, kinds[at])]
            own = np.arange(graph.shape[at])
            np.moveaxis(spread, at, -2)[..., own, own] = 0.0
            graph.lattice_links(row, at)[...] = spread
        return row

    def _links(self, at: int) -> Array:
        """How many links there are of each kind."""
        sizes = [one.size for one in self._alike]
        pairs = np.outer(sizes[at], sizes[at]) - np.diag(sizes[at])
        found: Array = np.ones(self._shapes[at], int)
        for dim, size in enumerate(sizes):
            if dim != at:
                found = found * size.reshape([-1 if one == dim else 1 for one in range(len(sizes) + 1)])
        shape = [1] * (len(sizes) + 1)
        shape[at], shape[-1] = pairs.shape
        return found * pairs.reshape(shape)

    def _labels(self) -> Iterator[list[object]]:
        """By which values of each coordinate are alike or not."""
        graph = self._graph
        for at in range(len(graph.shape)):
            labels: list[list[object]] = [[] for _ in range(graph.shape[at])]
            for name, demands in self._jobs.items():
                for _, sums in self._sums[name]:
                    for weights in sums:
                        for label, row in zip(labels, np.moveaxis(weights, at, 0), strict=True):
                            label.append(row.tobytes())
                for one in demands:
                    if isinstance(one, PairDemand):
                        for label, more in zip(labels, _pair_labels(graph, one, at), strict=True):
                            label.append(more)
            yield [tuple(label) for label in labels]

    def _group(self, changes: tuple[int, ...]) -> PathGroup:
        """Of pairs that differ in these coordinates and no others."""
        columns = [
            self._same(dim) if dim not in changes else self._other(dim) for dim in range(len(self._alike))
        ]
        chosen = np.indices([len(column[0]) for column in columns]).reshape(len(columns), -1)
        many: Array = np.ones(chosen.shape[1], int)
        source, target = [], []
        for (first, second, count), at in zip(columns, chosen, strict=True):
            source.append(first[at])
            target.append(second[at])
            many = many * count[at]
        demand = self._demand(source, target) * many
        used = demand.any(0)
        demand = demand[:, used]
        starts = [one.group[here[used]] for one, here in zip(self._alike, source, strict=True)]
        ends = [one.group[there[used]] for one, there in zip(self._alike, target, strict=True)]
        steps = []
        for order in permutations(changes):
            now = list(starts)
            way: list[Array] = []
            for dim in order:
                way.append(self._starts[dim] + np.ravel_multi_index([*now, ends[dim]], self._shapes[dim]))
                now[dim] = ends[dim]
            steps.append(tuple(way))
        return PathGroup(demand, tuple(steps))

    def _same(self, dim: int) -> tuple[Array, Array, Array]:
        """Pairs of values that do not differ: one, the other, and how many are like it."""
        one = self._alike[dim]
        return one.first, one.first, one.size

    def _other(self, dim: int) -> tuple[Array, Array, Array]:
        """Pairs that differ."""
        one = self._alike[dim]
        count = len(one.size)
        left, right = (side.reshape(-1) for side in np.indices((count, count)))
        within = left == right
        there = ~within | (one.size[left] > 1)
        left, right, within = left[there], right[there], within[there]
        many = one.size[left] * (one.size[right] - within)
        return one.first[left], np.where(within, one.second[right], one.first[right]), many

    def _demand(self, source: list[Array], target: list[Array]) -> Array:
        """Of each job, between each of these routers."""
        graph = self._graph
        here, there = (np.ravel_multi_index(one, graph.shape) for one in (source, target))
        found = np.zeros((len(self._jobs), len(here)))
        for row, (name, demands) in zip(found, self._jobs.items(), strict=True):
            for _, (sent, taken) in self._sums[name]:
                row += sent.reshape(-1)[here] * taken.reshape(-1)[there]
            for one in demands:
                if isinstance(one, PairDemand):
                    row += _between(graph, one, here * graph.routers + there)
        return found


def _pair_labels(graph: Graph, demand: PairDemand, at: int) -> Iterator[object]:
    """Values are alike whose pairs are the same but for this coordinate, if no pair differs in it."""
    source, target = (graph.router[one] for one in (demand.sources, demand.targets))
    before, after = (graph.coordinates(one)[at] for one in (source, target))
    count = graph.shape[at]
    if (before != after).any():
        yield from range(count)
        return
    inner = prod(graph.shape[at + 1 :])
    rows = np.array([source - before * inner, target - after * inner, demand.rates])
    for value in range(count):
        mine = rows[:, before == value]
        yield mine[:, np.lexsort(mine)].tobytes()


def _between(graph: Graph, demand: PairDemand, keys: Array) -> Array:
    """What goes between routers with these keys, source times all routers and target."""
    there = graph.router[demand.sources] * graph.routers + graph.router[demand.targets]
    known, at = np.unique(there, return_inverse=True)
    rates = np.bincount(at, demand.rates)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: Array = np.where(known[place] == keys, rates[place], 0.0)
    return found
