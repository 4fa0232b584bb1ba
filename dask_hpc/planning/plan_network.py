"""How much of what jobs send a network carries, and how it would be with other nodes (``plan network``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_hpc.model.errors import insist, shown, within
from dask_hpc.model.topology import Topology
from dask_hpc.model.units import counted
from dask_hpc.planning.network.bounds import bounds
from dask_hpc.planning.network.demands import Traffic, demands, partners_of
from dask_hpc.planning.network.description import topology_of, traffic_of
from dask_hpc.planning.network.graph import Array, graph_of
from dask_hpc.planning.network.program import SERVED, Served, solve

#: endpoints of a linear programme; of more there are bounds
MOST_ENDPOINTS = 2_000
_MOST_JOBS = 1_000
#: a link is full, and a share is all, but for this
_FULL = 1e-4


@dataclass(frozen=True, slots=True)
class BusyLink:
    """A directed link: where it leads from and to, of which level it is, and what it carries, in bytes a
    second."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    level: str
    load: float
    bandwidth: float

    @property
    def name(self) -> str:
        """As people say it: "cabinet0/chassis1/blade2 to cabinet1", "up from rack0"."""
        if len(self.source) != len(self.target):
            up = len(self.source) > len(self.target)
            return f"{'up from' if up else 'down to'} {'/'.join(self.source if up else self.target)}"
        other = next(part for part, here in zip(self.target, self.source, strict=True) if part != here)
        return f"{'/'.join(self.source)} to {other}"

    @property
    def share(self) -> float:
        """Of its bandwidth."""
        return self.load / self.bandwidth


@dataclass(frozen=True, slots=True)
class LevelUse:
    """All links of a level: how many they are, how many of them are full, the largest share that one carries
    of its bandwidth, and the mean."""

    links: int
    full: int
    most: float
    mean: float


@dataclass(frozen=True, slots=True)
class JobShare:
    """One job: the share ``theta`` of its demand that it gets beside the others, what it would get ``alone``
    on its nodes, and beside the others if all had ``contiguous`` nodes. Each of its nodes' partners, if there
    are any; and the nodes that it would have then."""

    traffic: Traffic
    theta: float
    alone: float
    contiguous: float
    partners: Mapping[str, str]
    nodes: tuple[str, ...]

    @property
    def slowdown(self) -> float:
        """How many times longer what it does takes, if that is all communication."""
        return 1 / self.theta if self.theta > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The answer of ``plan_network``.

    If ``is_exact``, thetas are those of the linear programme. Else they belong to a division of the traffic
    that was found, and what the worst served job gets at best is from ``least`` to ``most``. Either way no
    routing is as good as the best one: what congestion there is, is a lower bound. ``levels`` says how full
    links are; ``loads`` what each carries, in the row of ``planning.network.graph``.
    """

    topology: Topology
    jobs: Mapping[str, JobShare]
    objective: Served
    is_exact: bool
    least: float
    most: float
    levels: Mapping[str, LevelUse]
    loads: Array
    reason: str

    def busiest(self, count: int = 10) -> list[BusyLink]:
        """So many links that carry something, the fullest first."""
        graph = graph_of(self.topology)
        shares = np.where(self.loads > 0, self.loads / graph.capacity, 0.0)
        # shares that differ by a rounding error are the same
        order = np.argsort(-np.round(shares, 9), kind="stable")[:count]
        return [
            BusyLink(*graph.ends_of(link), graph.level_of(link).name, float(self.loads[link]),
                     float(graph.capacity[link]))
            for link in map(int, order) if shares[link] > 0
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Answer:
    thetas: Mapping[str, float]
    loads: Array
    least: float
    most: float
    is_exact: bool


def plan_network(
    topology: Topology | Mapping[str, Any],
    jobs: Mapping[str, Traffic | Mapping[str, Any]],
    *,
    objective: Served = "sum",
) -> NetworkPlan:
    """How much of their traffic jobs get from a network, which links are in the way, and what other nodes
    would change.

    The ``topology`` is one of ``dask_hpc.model.topology``, or is described: ``{"preset": "xc30"}``,
    ``{"preset": "fat-tree", "arity": 16, "levels": 2}`` or ``{"tree": {"rack0": "node[00-07]"}}``, whose
    switches carry what half of the nodes below them can send unless there are ``bandwidths``. Each job says
    its ``nodes`` (``"node[00-07]"``, ``"all of rack0"``), the ``pattern`` of what it sends (all-to-all,
    partner or store) and the ``rate``: from each of its nodes to each other one, or from each to its partner
    or to all stores together.

    ``objective``: "sum" has most traffic carried in all, "min" looks after the worst served job first. What
    is slowed down takes 1/theta times as long.
    """
    insist(objective in SERVED, "objective", objective, ", ".join(SERVED))
    with within("topology"):
        network = topology_of(topology)
    insist(isinstance(jobs, Mapping) and 0 < len(jobs) <= _MOST_JOBS, "jobs", jobs, f"1 to {_MOST_JOBS:,}")
    traffic = {}
    for name, job in jobs.items():
        insist(isinstance(name, str) and name != "", "jobs", name, "names")
        with within(f"jobs: {name}"):
            traffic[name] = traffic_of(job, network)
            demands(graph_of(network), traffic[name])  # partners and stores must be there
    endpoints = len({name for job in traffic.values() for name in job.nodes})
    found = _answer(network, traffic, objective, endpoints)
    other = contiguous(network, traffic)
    better = _answer(network, other, objective, endpoints).thetas
    has_partners = len(network.domains()) > 1
    shares = {
        name: JobShare(
            job,
            found.thetas[name],
            _answer(network, {name: job}, objective, endpoints).thetas[name],
            better[name],
            dict(zip(job.nodes, partners_of(network, job.nodes), strict=True)) if has_partners else {},
            other[name].nodes,
        )
        for name, job in traffic.items()
    }
    uses = _uses(network, found.loads)
    reason = _reason(network, shares, found, uses, endpoints)
    return NetworkPlan(network, shares, objective, found.is_exact, found.least, found.most, uses, found.loads,
                       reason)  # fmt: skip


def contiguous(topology: Topology, jobs: Mapping[str, Traffic]) -> dict[str, Traffic]:
    """The same jobs with as many nodes each, in as few outermost parts as can be: the largest job first, each
    into the fullest part that has room for it, and where none has into the emptiest ones. Jobs that share
    nodes go on doing so."""
    free = {part: list(names) for part, names in topology.domains().items()}
    found: dict[str, Traffic] = {}
    given: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, job in sorted(jobs.items(), key=lambda one: -len(one[1].nodes)):
        if job.nodes not in given:
            given[job.nodes] = _taken(free, len(job.nodes)) or job.nodes
        found[name] = Traffic(given[job.nodes], job.pattern, job.rate, job.stores, job.restart)
    return {name: found[name] for name in jobs}


def _taken(free: dict[str, list[str]], count: int) -> tuple[str, ...]:
    """So many nodes out of those that are free; none if there are not enough."""
    if sum(map(len, free.values())) < count:
        return ()
    fits = [part for part, names in free.items() if len(names) >= count]
    parts = (
        [min(fits, key=lambda part: len(free[part]))]
        if fits
        else sorted(free, key=lambda part: -len(free[part]))
    )
    taken: list[str] = []
    for part in parts:
        some = free[part][: count - len(taken)]
        taken += some
        del free[part][: len(some)]
    return tuple(taken)


def _answer(topology: Topology, jobs: Mapping[str, Traffic], objective: Served, endpoints: int) -> _Answer:
    """The linear programme's, or where that is too large what is known without."""
    found = solve(topology, jobs, objective) if endpoints <= MOST_ENDPOINTS else None
    if found is not None:
        least = min(found.thetas.values())
        return _Answer(found.thetas, found.loads, least, least, True)
    near = bounds(topology, jobs)
    return _Answer(near.thetas, near.loads, near.least, near.most, False)


def _uses(topology: Topology, loads: Array) -> dict[str, LevelUse]:
    graph = graph_of(topology)
    found = {}
    for level in topology.levels:
        shares = (loads / graph.capacity)[np.isfinite(graph.capacity) & graph.is_of(level.name)]
        full = int((shares > 1 - _FULL).sum())
        most, mean = float(shares.max(initial=0.0)), float(shares.mean()) if len(shares) else 0.0
        found[level.name] = LevelUse(len(shares), full, most, mean)
    return found


def _reason(
    topology: Topology,
    jobs: Mapping[str, JobShare],
    found: _Answer,
    uses: Mapping[str, LevelUse],
    endpoints: int,
) -> str:
    words = []
    slowed = [name for name, one in jobs.items() if one.theta < 1 - _FULL]
    if not slowed:
        words.append("the network carries all that the jobs send")
    else:
        worst = min(slowed, key=lambda name: jobs[name].theta)
        words.append(
            f"{len(slowed)} of {counted(len(jobs), 'job')} slowed down: "
            f"{shown(worst)} gets {jobs[worst].theta:.0%} of its demand"
        )
        full = [f"{use.full:,} of {use.links:,} {name} links" for name, use in uses.items() if use.full]
        words.append(f"full: {', '.join(full) or 'none by itself'}")
        better = [name for name in slowed if jobs[name].contiguous > jobs[name].theta + _FULL]
        if better:
            best = max(better, key=lambda name: jobs[name].contiguous - jobs[name].theta)
            words.append(f"with contiguous nodes {shown(best)} gets {jobs[best].contiguous:.0%}")
    if not found.is_exact:
        why = f"{endpoints:,} endpoints" if endpoints > MOST_ENDPOINTS else "too many paths that differ"
        between = f"{found.least:.1%} to {found.most:.1%}"
        if found.most - found.least < _FULL:
            between = f"{found.least:.1%}"
        words.append(f"bounds, not a linear programme ({why}): the worst served job gets {between} at best")
    if len(topology.domains()) < 2:
        words.append(f"one {topology.levels[0].name}: no node has a partner that does not fail with it")
    return "; ".join(words)
