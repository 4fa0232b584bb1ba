"""A topology in numbers: its routers, and all its directed links in one row."""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_hpc.model.topology import LinkLevel, Topology

Array = NDArray[Any]
T = TypeVar("T")
#: a place, or the first parts of one
Ends = tuple[str, ...]


class Graph:
    """Links stand in one row: for each level that is joined all to all those from every router to each value
    of that coordinate (to its own value none leads: capacity inf); then for each level of a tree those up
    from its parts, and those down to them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.names = list(topology.places)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        depth = len(topology.lattice)
        #: names of the parts at each lattice level; how many they are is the shape
        self.values: list[list[str]] = []
        columns = []
        for at in range(depth):
            known, column = _numbered(place[at] for place in topology.places.values())
            self.values.append(known)
            columns.append(column)
        self.shape = tuple(map(len, self.values))
        self.routers = prod(self.shape)
        #: of each node
        self.router: Array = np.zeros(len(self.names), int)
        if columns:
            self.router = np.ravel_multi_index(columns, self.shape)
        #: of each tree level: names of its parts, and of each node the number of its part
        self.trees: list[tuple[list[tuple[str, ...]], Array]] = [
            _numbered(place[: at + 1] for place in topology.places.values())
            for at in range(depth, len(topology.levels))
        ]
        sizes = [self.routers * count for count in self.shape]
        sizes += [len(parts) for parts, _ in self.trees for _ in range(2)]
        #: where the links of each begin, and where all end
        self.starts = [0, *accumulate(sizes)]

    @cached_property
    def capacity(self) -> Array:
        """Of each link, in bytes a second."""
        found = np.empty(self.starts[-1])
        for begin, end, level in zip(self.starts[:-1], self.starts[1:], self._levels(), strict=True):
            found[begin:end] = level.bandwidth
        for at in range(len(self.shape)):
            links = self.lattice_links(found, at)
            own = np.indices(self.shape)[at]
            np.put_along_axis(links, own[..., None], np.inf, -1)
        return found

    def lattice_links(self, row: Array, at: int) -> Array:
        """A view of what ``row`` says of the links of a lattice level, by router and where they lead to."""
        return row[self.starts[at] : self.starts[at + 1]].reshape(*self.shape, self.shape[at])

    def tree_links(self, row: Array, at: int) -> tuple[Array, Array]:
        """Views of what ``row`` says of the links of a tree level: up from its parts, and down to them."""
        first = len(self.shape) + 2 * at
        begin, middle, end = self.starts[first : first + 3]
        return row[begin:middle], row[middle:end]

    def at_routers(self, weights: Array) -> Array:
        """Sums of what nodes have, over the nodes of each router."""
        found: Array = np.bincount(self.router, weights, self.routers).reshape(self.shape)
        return found

    @property
    def first_below(self) -> int:
        """Where the links of trees begin."""
        return self.starts[len(self.shape)]

    def coordinates(self, routers: Array) -> list[Array]:
        """Of these routers."""
        return list(np.unravel_index(routers, self.shape)) if self.shape else []

    def level_of(self, link: int) -> LinkLevel:
        """The level that a link is of."""
        return self._levels()[self._at(link)]

    def is_of(self, level: str) -> Array:
        """Of each link whether it is of this level."""
        found = np.zeros(self.starts[-1], bool)
        for begin, end, one in zip(self.starts[:-1], self.starts[1:], self._levels(), strict=True):
            found[begin:end] = one.name == level
        return found

    def ends_of(self, link: int) -> tuple[Ends, Ends]:
        """Where a link leads from and to: places of routers, or a part of a tree and what is around it."""
        at = self._at(link)
        inside = link - self.starts[at]
        if at < len(self.shape):
            router, to = divmod(inside, self.shape[at])
            here = np.unravel_index(router, self.shape)
            source = tuple(values[int(value)] for values, value in zip(self.values, here, strict=True))
            return source, (*source[:at], self.values[at][to], *source[at + 1 :])
        tree, is_down = divmod(at - len(self.shape), 2)
        part = self.trees[tree][0][inside]
        return (part[:-1], part) if is_down else (part, part[:-1])

    def _at(self, link: int) -> int:
        return int(np.searchsorted(self.starts, link, "right")) - 1

    def _levels(self) -> list[LinkLevel]:
        """Of each stretch of the row."""
        levels, depth = self.topology.levels, len(self.shape)
        return [*levels[:depth], *(level for level in levels[depth:] for _ in range(2))]


def _numbered(values: Iterable[T]) -> tuple[list[T], Array]:
    """The different ones in their order, and of each its number."""
    known: dict[T, int] = {}
    column = np.array([known.setdefault(value, len(known)) for value in values])
    return list(known), column


@lru_cache(16)
def graph_of(topology: Topology) -> Graph:
    """The same one for the same topology."""
    return Graph(topology)
