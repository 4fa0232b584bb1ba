"""How much of their traffic a network carries for jobs, without a linear programme.

``thetas`` is for decisions: cuts alone, in less than a millisecond. ``bounds`` also looks for a good division
of the traffic, step by step, and so has a bound on either side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.cuts import cut_needs, cut_rooms
from dask_hpc.planning.network.demands import Traffic, demands
from dask_hpc.planning.network.division import NEAR, Division
from dask_hpc.planning.network.graph import Array, Graph, graph_of
from dask_hpc.planning.network.loads import load_of
from dask_hpc.planning.network.paths import Paths

#: kinds of pairs of routers that a division is still looked for of
_MOST_KINDS = 4_000_000
_ROUNDS = 80


def thetas(topology: Topology, jobs: Mapping[str, Traffic]) -> dict[str, float]:
    """Of each job the share of its demand that cuts leave it, where they are shared fairly.

    What is left out is how traffic is routed, so none of this is more than a bound: the least of them is not
    below what the worst served job gets at best. It is exact where all links form a tree. On 259 random
    small lattices with up to four jobs that send too much it was within 2 % of that in 93 of 100, within 16 %
    in 99, and 40 % above in one; ``bounds`` takes longer and is nearer. What a job sends is remembered, so
    that one more or less on 200 nodes takes less than a millisecond.
    """
    return JobsTogether(topology, jobs).thetas() if jobs else {}


class JobsTogether:
    """The same jobs again and again, alone or with one more that is now here, now there."""

    def __init__(self, topology: Topology, jobs: Mapping[str, Traffic]) -> None:
        self._topology, self._graph, self._names = topology, graph_of(topology), list(jobs)
        known = [_needs_of(topology, job) for job in jobs.values()]
        self._needs = [one.needs for one in known]
        self._most = [one.alone for one in known]
        self._used = np.logical_or.reduce([one.used for one in known]) if known else None
        #: of all together, if each got as much as it could alone
        self._all = sum((one.alone * one.needs for one in known), np.zeros(1))

    def thetas(self) -> dict[str, float]:
        """Of each, as they are."""
        assert self._used is not None
        found = self._shared(self._needs, self._most, self._used, self._all)
        return dict(zip(self._names, found, strict=True))

    def thetas_with(self, traffic: Traffic) -> tuple[float, dict[str, float]]:
        """Of one more, and of each of them beside it."""
        new = _needs_of(self._topology, traffic)
        used = new.used if self._used is None else self._used | new.used
        whole = self._all + new.alone * new.needs
        *found, own = self._shared([*self._needs, new.needs], [*self._most, new.alone], used, whole)
        return own, dict(zip(self._names, found, strict=True))

    def _shared(
        self, needs: Sequence[Array], most: Sequence[float], used: Array, whole: Array
    ) -> list[float]:
        room = cut_rooms(self._graph, used)
        tight = whole > room * (1 + 1e-12)  # nobody is held up by the others
        shares = share_fairly(np.array([one[tight] for one in needs]), room[tight], np.array(most))
        return [float(share) for share in shares]


def share_fairly(needs: Array, room: Array, most: Array) -> Array:
    """The share of its needs (a row for each job) that each gets, none more than its ``most``, so that they
    fit in the room: all shares grow together, and those stop that have come to a full one."""
    tight = most @ needs > room * (1 + 1e-12)
    needs, left = needs[:, tight], room[tight]
    shares = np.zeros(len(needs))
    grows = most > 0
    level = 0.0
    demand = needs[grows].sum(0)
    nothing = 1e-12 * demand  # what rounding leaves where all have stopped
    while grows.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(demand > nothing, left / demand, inf)
        step = min(float(steps.min(initial=inf)), float(most[grows].min()) - level)
        level += step
        shares[grows] = level
        left = np.maximum(left - step * demand, 0.0)
        full = steps <= step * (1 + 1e-9)
        stops = grows & ((most <= level * (1 + 1e-12)) | (needs[:, full] > 0).any(1))
        demand -= needs[stops].sum(0)
        grows &= ~stops
    return shares


@dataclass(frozen=True, slots=True, eq=False)
class _Needs:
    """Of one job: which links it can use, what crosses each cut, and what it would get alone."""

    used: Array
    needs: Array
    alone: float


@lru_cache(128)
def _needs_of(topology: Topology, traffic: Traffic) -> _Needs:
    graph = graph_of(topology)
    load = load_of(topology, traffic)
    needs = cut_needs(graph, demands(graph, traffic), load)
    room = cut_rooms(graph, load > 0)
    crossed = needs > 0
    return _Needs(load > 0, needs, float((room[crossed] / needs[crossed]).min(initial=1.0)))


@dataclass(frozen=True, slots=True)
class ThetaBounds:
    """Theta is the share of its demand that a job gets, the same for all that it sends (digest 2.13.1).

    What the worst served job gets at best lies between ``least``, for which a division of the traffic was
    found, and ``most``. ``thetas`` are had with that division, links being shared fairly; no division at all
    gives a job more than its ``alone``. ``loads`` is what each link carries then, in the row of the graph.
    """

    thetas: Mapping[str, float]
    alone: Mapping[str, float]
    least: float
    most: float
    loads: Array


def bounds(topology: Topology, jobs: Mapping[str, Traffic], rounds: int = _ROUNDS) -> ThetaBounds:
    """Both sides, the nearer the more ``rounds``; without any traffic is evenly divided among paths."""
    graph = graph_of(topology)
    if not jobs:
        return ThetaBounds({}, {}, 1.0, 1.0, np.zeros(len(graph.capacity)))
    known = [_needs_of(topology, job) for job in jobs.values()]
    alone = [one.alone for one in known]
    loads = np.array([load_of(topology, job) for job in jobs.values()])
    most = min(thetas(topology, jobs).values())
    best = _least_of(graph, loads)
    if rounds and best < most * (1 - NEAR):
        paths = Paths(graph, {name: demands(graph, job) for name, job in jobs.items()})
        if paths.kinds <= _MOST_KINDS:
            search = Division(paths)
            search.bound(rounds, 1 / most)
            search.improve(rounds)
            better = loads.copy()
            for row, load in zip(better, search.loads(), strict=True):
                row[: graph.first_below] = paths.spread(load)[: graph.first_below]
            if _least_of(graph, better) > best:
                loads = better
            most = min(most, 1 / max(search.floor, 1.0))
    carried = np.isfinite(graph.capacity)
    shares = share_fairly(loads[:, carried], graph.capacity[carried], np.ones(len(jobs)))
    least = float(shares.min())
    named = dict(zip(jobs, map(float, shares), strict=True))
    return ThetaBounds(named, dict(zip(jobs, alone, strict=True)), least, max(least, most), shares @ loads)


def _least_of(graph: Graph, loads: Array) -> float:
    return min(1.0, 1.0 / max(float((loads.sum(0) / graph.capacity).max()), 1e-300))
