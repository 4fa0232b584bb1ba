"""In situ pipelines as a workload declares them, and what the parts of an iteration take."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod
from typing import NamedTuple

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number
from dask_hpc.planning.in_situ.back_pressure import BackPressure, Skipped, Slow
from dask_hpc.planning.in_situ.partition import (
    Analysis,
    EqualNodes,
    Mode,
    Partition,
    PartitionProblem,
    Phases,
    Simulation,
)
from dask_hpc.planning.in_situ.phases import phase_times, work_of_each
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.simulator.platform import Platform

#: what a drift calls the simulation
SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class Drift:
    """From iteration ``start`` on a part takes ``times`` as long; it gets there within ``over`` iterations,
    by the same amount in each."""

    part: str
    start: int
    times: float
    over: int = 0

    def __post_init__(self) -> None:
        for name in ("start", "over"):
            value = getattr(self, name)
            insist(type(value) is int and value >= 0, f"drift.{name}", value, "a whole number, 0 or more")
        insist(is_number(self.times, 0, 1e9) and self.times != 0, "drift.times", self.times, "more than 0")

    def factor(self, iteration: int) -> float:
        """How many times as long the part takes in this iteration."""
        if iteration < self.start:
            return 1.0
        share = 1.0 if not self.over else min(1.0, (iteration - self.start + 1) / self.over)
        return 1.0 + share * (self.times - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A simulation and its analyses, as they are declared, and how what they take departs from that.

    ``jitter`` is the standard deviation of the logarithm of each part's time, which is as declared on
    average. Nodes have so many ``cores`` and bytes of ``memory``; staging nodes receive ``bandwidth``
    bytes per second each, but no more than the platform's links carry. A change of the partition stops the
    pipeline for ``change_cost`` seconds.
    """

    iterations: int
    simulation: Simulation
    analyses: tuple[Analysis, ...]
    cores: int
    memory: float = inf
    bandwidth: float = inf
    drifts: tuple[Drift, ...] = ()
    jitter: float = 0.0
    seed: int = 0
    change_cost: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (("iterations", 1, 10**6), ("seed", 0, 2**63 - 1)):
            value = getattr(self, name)
            fits = type(value) is int and low <= value <= high
            insist(fits, name, value, f"a whole number, {low} to {high:,}")
        for name, most in (("jitter", 2.0), ("change_cost", 1e9)):
            insist(is_number(getattr(self, name), 0, most), name, getattr(self, name), f"0 to {most:g}")
        known = [SIMULATION, *(one.name for one in self.analyses)]
        if known.count(SIMULATION) > 1:
            raise InputError("analyses", f"found one named {SIMULATION}", "other names")
        for drift in self.drifts:
            insist(drift.part in known, "drift.part", drift.part, ", ".join(known))
        try:
            declared = self.declared(1, Platform(1))
        except InputError as error:  # of nodes, which are this one's own
            raise InputError(error.where.removeprefix("nodes."), error.found, error.allowed) from None
        for name, time in zip(known, times_of(declared), strict=True):
            if not time:
                raise InputError(f"{name}.time", "found 0", "more than 0 s on a single core")

    def declared(self, nodes: int, platform: Platform) -> PartitionProblem:
        """What is to be divided, as it is declared."""
        bandwidth = min(self.bandwidth, platform.link)
        count = EqualNodes(count=nodes, cores=self.cores, memory=self.memory, bandwidth=bandwidth)
        return PartitionProblem(count, self.simulation, self.analyses)

    def quiet_runtime(self, nodes: int, platform: Platform) -> float:
        """Seconds on so many nodes if everything is as declared."""
        return self.iterations * partition(self.declared(nodes, platform)).iteration

    def real(self, iteration: int, nodes: int, platform: Platform) -> PartitionProblem:
        """The same as it is in one iteration. It does not depend on where anything runs."""
        declared = self.declared(nodes, platform)
        draws = np.random.default_rng([self.seed, iteration]).standard_normal(len(self.analyses) + 1)
        factors = np.exp(self.jitter * draws - self.jitter**2 / 2).tolist()
        names = [SIMULATION, *(one.name for one in self.analyses)]
        drifts = (
            prod(drift.factor(iteration) for drift in self.drifts if drift.part == name) for name in names
        )
        parts = zip(times_of(declared), factors, drifts, strict=True)
        return with_times(declared, [time * factor * drift for time, factor, drift in parts])


def times_of(problem: PartitionProblem) -> list[float]:
    """Seconds of the simulation and of each analysis on a single core."""
    return [problem.simulation.time, *(one.time for one in problem.analyses)]


def with_times(problem: PartitionProblem, times: Iterable[float]) -> PartitionProblem:
    """The same if its parts take so long."""
    first, *others = times
    parts = zip(problem.analyses, others, strict=True)
    analyses = tuple(replace(one, time=time) for one, time in parts)
    return replace(problem, simulation=replace(problem.simulation, time=first), analyses=analyses)


class PartTimes(NamedTuple):
    """Seconds of the simulation and of each analysis of one iteration, where they run."""

    simulation: float
    in_situ: Mapping[str, float]
    in_transit: Mapping[str, float]

    @property
    def phases(self) -> Phases:
        """One after another, in situ and in transit."""
        return Phases(self.simulation, sum(self.in_situ.values()), sum(self.in_transit.values()))


def costs(problem: PartitionProblem, partition: Partition) -> PartTimes:
    """By the planner's model."""
    each = work_of_each(problem.analyses)
    times = phase_times(problem, partition.nodes, partition.helper_cores, each, each)
    names = [one.name for one in problem.analyses]
    in_situ, in_transit = np.asarray(times.in_situ), np.asarray(times.in_transit)
    inside = {name: float(in_situ[names.index(name)]) for name in partition.in_situ}
    outside = {name: float(in_transit[names.index(name)]) for name in partition.in_transit}
    return PartTimes(float(times.simulation), inside, outside)


class Pace:
    """Analyses of an iteration begin when its step is done: those in situ one after another, those in transit
    one after another, and after what has begun before.

    The next step begins meanwhile, in "sync" after those in situ. At most two iterations are alive: an
    analysis that still looks at the last iteration but one is late, and dealt with by the rule.
    """

    def __init__(self, names: Iterable[str], rule: Slow | None = None) -> None:
        self._pressure = BackPressure(dict.fromkeys(names, rule or Slow("wait")))
        #: by analysis, when the runs that have begun are done
        self._ends: dict[str, dict[int, float]] = {}
        self._in_situ = self._in_transit = 0.0

    def restart(self) -> None:
        """Another partition is in force."""
        self._pressure.restart()

    def begins(self, iteration: int, now: float) -> float:
        """When an iteration begins that could begin now."""
        begins = now
        for name, seconds in self._pressure.waits(iteration, self._late(iteration, now)).items():
            last = max(end for one, end in self._ends[name].items() if one < iteration - 1)
            begins = max(begins, min(last, now + seconds))
        return begins

    def left_out(self, iteration: int, now: float) -> list[Skipped]:
        """The analyses that are not done for an iteration that begins now."""
        deeds = self._pressure.deeds(iteration, self._late(iteration, now))
        return [Skipped(iteration, name, why) for name, (deed, why) in deeds.items() if deed == "skip"]

    def stepped(
        self, iteration: int, now: float, found: PartTimes, mode: Mode, left_out: Iterable[str] = ()
    ) -> float:
        """The step of an iteration is done: its analyses begin. Answers when the next may begin."""
        for runs in self._ends.values():
            for done in [one for one, end in runs.items() if end <= now]:
                del runs[done]
        out = set(left_out)
        self._in_situ = self._run(iteration, max(now, self._in_situ), found.in_situ, out)
        self._in_transit = self._run(iteration, max(now, self._in_transit), found.in_transit, out)
        return max(now, self._in_situ) if mode == "sync" else now

    @property
    def end(self) -> float:
        """When everything that has begun is done."""
        return max(self._in_situ, self._in_transit)

    def _run(self, iteration: int, begins: float, seconds: Mapping[str, float], out: set[str]) -> float:
        for name, time in seconds.items():
            if name not in out:
                begins += time
                self._ends.setdefault(name, {})[iteration] = begins
        return begins

    def _late(self, iteration: int, now: float) -> dict[str, list[int]]:
        """Runs that should have ended by now: those of the iteration before run beside this step."""
        return {
            name: [one for one, end in runs.items() if one < iteration - 1 and end > now]
            for name, runs in self._ends.items()
        }
