"""The most that a network carries: a linear programme over minimal paths (seed 003, 7.3.2; digest 2.13.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from dask_hpc.model.errors import insist
from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.demands import Traffic, demands
from dask_hpc.planning.network.graph import Array, Graph, graph_of
from dask_hpc.planning.network.loads import load_of
from dask_hpc.planning.network.paths import Paths

Served = Literal["sum", "min"]
SERVED: tuple[Served, ...] = get_args(Served)

#: kinds of pairs of routers, and variables, that are still solved in seconds
_MOST_KINDS, _MOST_VARIABLES = 2_000_000, 250_000
#: up to which the simplex method is faster
_FEW = 5_000


@dataclass(frozen=True, slots=True)
class Solution:
    """``thetas`` by job, and what each link carries, in the row of the graph, in bytes a second."""

    thetas: Mapping[str, float]
    loads: Array
    variables: int


def solve(topology: Topology, jobs: Mapping[str, Traffic], objective: Served = "sum") -> Solution | None:
    """The best shares of their demands that jobs can be given; None if that is too large to be found.

    With "sum" the shares are most in sum, which may starve a job for others; with "min" the least of them is
    most, and then the sum. The source does not say which one it takes, nor that paths are minimal (G16):
    its words, "the satisfied percentage over all applications", are nearer to the first.

    The traffic of each pair is divided freely among its minimal paths, so what is found is a best case.
    Jobs that share a pair of routers share its paths; pairs that are alike are one (``paths``); what is below
    switches has one path and needs no variable.
    """
    insist(objective in SERVED, "objective", objective, ", ".join(SERVED))
    if not jobs:
        return Solution({}, np.zeros(len(graph_of(topology).capacity)), 0)
    graph = graph_of(topology)
    paths = Paths(graph, {name: demands(graph, job) for name, job in jobs.items()})
    if paths.kinds > _MOST_KINDS:
        return None
    below = np.array([load_of(topology, job)[graph.first_below :] for job in jobs.values()])
    programme = _Programme(graph, paths, below)
    if programme.variables > _MOST_VARIABLES:
        return None
    shares, flows = programme.maximise(objective)
    loads = paths.spread(flows)
    loads[graph.first_below :] += shares @ below
    return Solution(dict(zip(jobs, map(float, shares), strict=True)), loads, programme.variables)


class _Programme:
    """Variables are how much goes over each kind of path that a pair can choose, then the share of each job.
    All is divided by what the widest link carries, and each link by its own."""

    def __init__(self, graph: Graph, paths: Paths, below: Array) -> None:
        self._jobs = len(below)
        self._unit = max(level.bandwidth for level in graph.topology.levels)
        self._capacity = paths.capacity
        links, pairs = _Entries(), _Entries()
        self.variables = pair = 0
        direct = np.zeros((len(paths.capacity), self._jobs))
        demand = [np.zeros((0, self._jobs))]
        for group in paths.groups:
            count = group.demand.shape[1]
            if len(group.steps) == 1:  # there is one path: what it carries follows from the shares
                np.add.at(direct, group.steps[0][0], group.demand.T / self._unit)
                continue
            demand.append(group.demand.T / self._unit)
            for way in group.steps:
                columns = self.variables + np.arange(count)
                for step in way:
                    links.add(step, columns)
                pairs.add(pair + np.arange(count), columns)
                self.variables += count
            pair += count
        self._links = _beside(links.matrix(len(direct), self.variables), direct)
        self._pairs = _beside(pairs.matrix(pair, self.variables), -np.concatenate(demand))
        there = paths.capacity > 0
        each = self._unit / paths.capacity[there]
        capacity = graph.capacity[graph.first_below :]
        # of links below switches those that can be full, each but once
        tree = np.unique((below / capacity).T, axis=0)
        tree = tree[tree.sum(1) > 1]
        nothing = csr_array((len(tree), self.variables))
        self._carried = vstack([self._links[there] * each[:, None], _beside(nothing, tree)]).tocsr()

    def maximise(self, objective: Served) -> tuple[Array, Array]:
        """Shares, and what all links of each kind carry together, in bytes a second."""
        least = 0.0
        if objective == "min" and self._jobs > 1:
            # one more variable, that no share is below
            none = csr_array((self._jobs, self.variables))
            above = hstack([none, csr_array(-np.eye(self._jobs)), csr_array(np.ones((self._jobs, 1)))])
            rows = vstack([_beside(self._carried, np.zeros((self._carried.shape[0], 1))), above])
            room = np.concatenate([np.ones(self._carried.shape[0]), np.zeros(self._jobs)])
            pairs = _beside(self._pairs, np.zeros((self._pairs.shape[0], 1)))
            cost = np.zeros(self.variables + self._jobs + 1)
            cost[-1] = -1
            # a rounding error below, so that it can still be had
            least = max(0.0, float(self._solved(cost, rows, room, pairs)[-1]) * (1 - 1e-9) - 1e-12)
        cost = np.concatenate([np.zeros(self.variables), -np.ones(self._jobs)])
        found = self._solved(cost, self._carried, np.ones(self._carried.shape[0]), self._pairs, least)
        return np.clip(found[self.variables :], 0.0, 1.0), self._links @ found * self._unit

    def _solved(self, cost: Array, rows: Any, room: Array, pairs: Any, least: float = 0.0) -> Array:
        low = np.zeros(len(cost))
        high = np.full(len(cost), np.inf)
        low[self.variables :], high[self.variables :] = least, 1.0
        found = linprog(
            cost,
            A_ub=rows if len(room) else None,
            b_ub=room if len(room) else None,
            A_eq=pairs if pairs.shape[0] else None,
            b_eq=np.zeros(pairs.shape[0]) if pairs.shape[0] else None,
            bounds=np.column_stack([low, high]),
            method="highs" if len(cost) < _FEW else "highs-ipm",
        )
        if found.x is None:
            raise RuntimeError(f"HiGHS gave up: {found.message}")
        values: Array = found.x
        return values


class _Entries:
    """Ones of a sparse matrix."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._columns: list[Array] = []

    def add(self, rows: Array, columns: Array) -> None:
        """One in each of these places."""
        self._rows.append(rows)
        self._columns.append(columns)

    def matrix(self, rows: int, columns: int) -> Any:
        """All of them."""
        if not self._rows:
            return csr_array((rows, columns))
        places = np.concatenate(self._rows), np.concatenate(self._columns)
        return csr_array((np.ones(len(places[0])), places), shape=(rows, columns))


def _beside(left: Any, right: Array) -> Any:
    return hstack([left, csr_array(right)]).tocsr()
