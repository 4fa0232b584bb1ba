"""How long each part of an iteration takes on given nodes and cores, and which nodes have the memory for it.

Seed 004, 2.1 to 2.2 and 2.5. Everything depends on the analyses through a few sums only, so all of this
takes one set of analyses or arrays of many. Ours: shares of analyses that no further core makes shorter,
and analyses that move less than they look at.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.planning.in_situ.partition import Analysis, Partition, PartitionProblem, Phases

#: memory that sums leave over or lack because they are rounded
_ROUNDING = 1e-12


class PhaseWork(NamedTuple):
    """What some analyses cost together; each field a number, or an array for many sets of analyses."""

    #: how many they are
    count: Any
    #: seconds that no further core makes shorter
    serial: Any
    #: the other seconds, on a single core
    parallel: Any
    #: bytes at the peaks
    memory: Any
    #: bytes that go to the staging nodes if they run there
    volume: Any

    def without(self, other: "PhaseWork") -> "PhaseWork":
        """What is left if ``other`` is taken out: nothing of nothing, however sums are rounded."""
        left = self.count - other.count
        pairs = zip(self[1:], other[1:], strict=True)
        return PhaseWork(left, *(np.where(left > 0, np.maximum(a - b, 0.0), 0.0) for a, b in pairs))


def work_of(analyses: Iterable[Analysis]) -> PhaseWork:
    """The sums over analyses."""
    rows = [PhaseWork(0, 0.0, 0.0, 0.0, 0.0), *map(_row, analyses)]
    return PhaseWork(*map(sum, zip(*rows, strict=True)))


def work_of_each(analyses: Iterable[Analysis]) -> PhaseWork:
    """Every analysis by itself, as arrays."""
    return PhaseWork(*np.array([*map(_row, analyses)], dtype=float).reshape(-1, 5).T)


def _row(one: Analysis) -> PhaseWork:
    return PhaseWork(1, one.time * one.serial, one.time * (1 - one.serial), one.memory, one.volume)


def split_by(problem: PartitionProblem, in_situ: Iterable[str]) -> tuple[PhaseWork, PhaseWork]:
    """What the analyses of these names cost, and what the others do."""
    names = set(in_situ)
    inside = work_of(one for one in problem.analyses if one.name in names)
    return inside, work_of(one for one in problem.analyses if one.name not in names)


def simulation_time(problem: PartitionProblem, cores: Any) -> Any:
    """Seconds of the simulation on so many cores (Amdahl)."""
    one = problem.simulation
    return one.time * one.serial + _shared(one.time * (1 - one.serial), cores)


def in_situ_time(work: PhaseWork, cores: Any) -> Any:
    """Seconds of analyses that run one after another, each on so many cores."""
    return work.serial + _shared(work.parallel, cores)


def in_transit_time(problem: PartitionProblem, work: PhaseWork, staging: Any) -> Any:
    """Seconds of analyses that run one after another on so many staging nodes, once they have their data."""
    nodes = problem.nodes
    return work.serial + _shared(work.parallel / nodes.cores + work.volume / nodes.bandwidth, staging)


def _shared(seconds: Any, parts: Any) -> Any:
    """PhaseWork divided by cores or nodes; none takes no time, not even on none of them."""
    return np.where(parts > 0, seconds / np.maximum(parts, 1e-200), np.where(seconds > 0, np.inf, 0.0))


def phase_times(
    problem: PartitionProblem, nodes: Any, helper: Any, inside: PhaseWork, outside: PhaseWork
) -> Phases:
    """All three; in "sync" the simulation and then the analyses in situ have all cores of their nodes."""
    cores = problem.nodes.cores
    free, taken = (cores, cores) if problem.mode == "sync" else (cores - helper, helper)
    return Phases(
        simulation_time(problem, nodes * free),
        in_situ_time(inside, nodes * taken),
        in_transit_time(problem, outside, problem.nodes.count - nodes),
    )


def iteration_time(problem: PartitionProblem, phases: Phases) -> Any:
    """Seconds from one iteration to the next; as ``Phases.iteration``, also of arrays."""
    if problem.mode == "sync":
        return np.maximum(phases.simulation + phases.in_situ, phases.in_transit)
    return np.maximum(np.maximum(phases.simulation, phases.in_situ), phases.in_transit)


def fits(problem: PartitionProblem, nodes: Any, memory: Any) -> Any:
    """Whether so many nodes hold the simulation and analyses with these peaks (the source's VIABILITY)."""
    return problem.simulation.memory + memory <= problem.nodes.memory * nodes * (1 + _ROUNDING)


def least_nodes(problem: PartitionProblem, memory: Any) -> Any:
    """How many nodes hold the simulation and analyses with these peaks; at least one."""
    needed = (problem.simulation.memory + memory) / (problem.nodes.memory * (1 + _ROUNDING))
    return np.maximum(np.ceil(needed), 1)


def placed(
    problem: PartitionProblem, nodes: int, helper: int, in_situ: Iterable[str], warning: str = ""
) -> Partition:
    """The partition that these choices make, with what is wrong with it in words."""
    names = set(in_situ)
    memory = split_by(problem, names)[0].memory
    if not fits(problem, nodes, memory):
        needed, there = (problem.simulation.memory + memory) / nodes, problem.nodes.memory
        needs, has = ("that simulates needs", "has") if nodes == 1 else ("that simulate need", "have")
        words = f"{count_nodes(nodes)} {needs} {show_large(needed, 'B')} each and {has}"
        beyond = f"memory does not suffice: {words} {show_large(there, 'B')}"
        warning = "; ".join(filter(None, (warning, beyond)))
    return made(problem, nodes, helper if problem.mode == "async" else 0, names, warning)


def made(
    problem: PartitionProblem, nodes: float, helper: float, names: Collection[str], warning: str = ""
) -> Partition:
    """The partition in which these analyses run in situ."""
    phases = phase_times(problem, nodes, helper, *split_by(problem, names))
    inside = tuple(one.name for one in problem.analyses if one.name in names)
    outside = tuple(one.name for one in problem.analyses if one.name not in names)
    return Partition(problem.mode, nodes, helper, inside, outside, Phases(*map(float, phases)), warning)


def with_split(problem: PartitionProblem, in_situ: Iterable[str], warning: str = "") -> Partition | None:
    """The best partition in which just these analyses run in situ; None if no core or node is left for some.

    If no number of nodes has the memory, it has as many nodes as there may be and says so.
    """
    names = set(in_situ)
    inside, outside = split_by(problem, names)
    most = problem.nodes.count - (outside.count > 0)
    helpers = np.zeros(1) if problem.mode == "sync" or not inside.count else np.arange(1, problem.nodes.cores)
    if most < 1 or not len(helpers):
        return None
    nodes = np.arange(1, most + 1)[:, None]
    nodes = nodes[fits(problem, nodes[:, 0], inside.memory)]
    if not len(nodes):
        nodes = np.array([[most]])
    times = iteration_time(problem, phase_times(problem, nodes, helpers, inside, outside))
    row, column = np.unravel_index(np.argmin(times), times.shape)
    return placed(problem, int(nodes[row, 0]), int(helpers[column]), names, warning)


def least_memory(problem: PartitionProblem, warning: str = "") -> Partition:
    """What needs the least memory of a node, for a machine on which nothing fits."""
    splits = (frozenset[str](), frozenset(one.name for one in problem.analyses))
    found = [one for names in splits if (one := with_split(problem, names, warning))]
    memory = {one.name: one.memory for one in problem.analyses}
    needed = [problem.simulation.memory + sum(memory[name] for name in one.in_situ) for one in found]
    return min(zip(needed, found, strict=True), key=lambda pair: pair[0] / pair[1].nodes)[1]
