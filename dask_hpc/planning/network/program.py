"""The most that a network carries: a linear programme over minimal paths (seed 003, 7.3.2; digest 2.13.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from dask_hpc.model.errors import insist
from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.bounds import thetas
from dask_hpc.planning.network.commodities import Commodities
from dask_hpc.planning.network.demands import Traffic, demands
from dask_hpc.planning.network.graph import Array, Graph, graph_of
from dask_hpc.planning.network.loads import load_of
from dask_hpc.planning.network.paths import Paths

Served = Literal["sum", "min"]
SERVED: tuple[Served, ...] = get_args(Served)

#: kinds of pairs of routers, and variables, that are still solved in seconds
_MOST_KINDS, _MOST_VARIABLES = 2_000_000, 40_000
#: variables, up to which the simplex method is faster
_FEW = 5_000
#: of what a link carries: a rounding error; nearly all; and from where on it is looked at from the first
_SLACK, _NEARLY, _HALF = 1e-7, 0.95, 0.5


@dataclass(frozen=True, slots=True)
class Carried:
    """``thetas`` by job, and what each link carries, in the row of the graph, in bytes a second."""

    thetas: Mapping[str, float]
    loads: Array
    variables: int


def solve(topology: Topology, jobs: Mapping[str, Traffic], objective: Served = "sum") -> Carried | None:
    """The best shares of their demands that jobs can be given; None if that is too large to be found.

    With "sum" the shares are most in sum, which may starve a job for others; with "min" the least of them is
    most, and then the sum. The source does not say which one it takes, nor that paths are minimal (G16):
    its words, "the satisfied percentage over all applications", are nearer to the first.

    The traffic of each pair is divided freely among its minimal paths, so what is found is a best case.
    Jobs that share a pair of routers share its paths; pairs that are alike are one (``paths``); what is below
    switches has one path and needs no variable. At first only those links are looked at that are half full
    or more where traffic is evenly divided (``commodities``), then also those that this has overfilled. In
    the end none is, and as what was left out could only be in the way, that is the optimum.
    """
    insist(objective in SERVED, "objective", objective, ", ".join(SERVED))
    if not jobs:
        return Carried({}, np.zeros(len(graph_of(topology).capacity)), 0)
    graph = graph_of(topology)
    paths = Paths(graph, {name: demands(graph, job) for name, job in jobs.items()})
    if paths.kinds > _MOST_KINDS:
        return None
    below = np.array([load_of(topology, job)[graph.first_below :] for job in jobs.values()])
    usual = np.array(list(thetas(topology, jobs).values()))
    may_be_full = _carried_evenly(paths, usual) > _HALF * paths.capacity
    while True:
        commodities = Commodities(paths, may_be_full, len(jobs))
        if len(commodities.commodity) > _MOST_VARIABLES:
            return None
        flows, shares = _Programme(graph, paths, commodities, below).maximise(objective)
        loads = commodities.carried(flows, shares)
        over = loads > paths.capacity * (1 + _SLACK)
        if not (over & ~may_be_full).any():
            break
        may_be_full |= loads > _NEARLY * paths.capacity
    row = paths.spread(loads)
    row[graph.first_below :] += shares @ below
    return Carried(dict(zip(jobs, map(float, shares), strict=True)), row, len(commodities.commodity))


def _carried_evenly(paths: Paths, shares: Array) -> Array:
    """What all links of each kind carry if each job gets its share, evenly divided among paths."""
    found = np.zeros(len(paths.capacity))
    for group in paths.groups:
        sent = shares @ group.demand / len(group.steps)
        for way in group.steps:
            for step in way:
                found += np.bincount(step, sent, len(found))
    return found


class _Programme:
    """Variables are how much goes over each option that a commodity can choose, then the share of each job.
    All is divided by what the widest link carries, and each link by its own."""

    def __init__(self, graph: Graph, paths: Paths, commodities: Commodities, below: Array) -> None:
        self._jobs = len(below)
        self._unit = max(level.bandwidth for level in graph.topology.levels)
        self.variables = len(commodities.commodity)
        columns = np.arange(self.variables)
        self._pairs = _beside(
            _ones(commodities.commodity, columns, len(commodities.demand), self.variables),
            -commodities.demand / self._unit,
        )
        option, place = np.nonzero(commodities.links >= 0)
        link = commodities.links[option, place]
        used = np.unique(np.concatenate([link, np.nonzero(commodities.direct.any(1))[0]]))
        rows = _ones(np.searchsorted(used, link), option, len(used), self.variables)
        each = self._unit / paths.capacity[used]
        capacity = graph.capacity[graph.first_below :]
        # of links below switches those that can be full, each but once
        tree = np.unique((below / capacity).T, axis=0)
        tree = tree[tree.sum(1) > 1]
        lattice = _beside(rows, commodities.direct[used] / self._unit) * each[:, None]
        self._carried = vstack([lattice, _beside(csr_array((len(tree), self.variables)), tree)]).tocsr()

    def maximise(self, objective: Served) -> tuple[Array, Array]:
        """What goes over each option, in bytes a second, and shares."""
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
        flows = np.maximum(found[: self.variables], 0.0) * self._unit
        return flows, np.clip(found[self.variables :], 0.0, 1.0)

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


def _ones(rows: Array, columns: Array, height: int, width: int) -> Any:
    """A sparse matrix with ones in these places."""
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(height, width))


def _beside(left: Any, right: Array) -> Any:
    return hstack([left, csr_array(right)]).tocsr()
