"""What a simulated pipeline did: its iterations, its partitions and why, and what other placements take."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import inf, nan
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.in_situ import (
    Analysis,
    EqualNodes,
    Mode,
    Partition,
    PartitionProblem,
    Phases,
    Simulation,
    tell_partition,
)
from dask_hpc.model.units import show_duration
from dask_hpc.planning.in_situ.back_pressure import BackPressure, Skipped, Slow
from dask_hpc.planning.in_situ.phases import phase_times, with_split, work_of_each
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.simulator.platform import Platform
from dask_hpc.view import table
from dask_hpc.view.in_situ import Iteration, phases_svg

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
            if type(value) is not int or value < 0:
                raise InputError(f"drift.{name}", f"found {shown(value)}", "a whole number, 0 or more")
        if not is_number(self.times, 0, 1e9) or self.times == 0:
            raise InputError("drift.times", f"found {shown(self.times)}", "more than 0")

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
            if type(value) is not int or not low <= value <= high:
                raise InputError(name, f"found {shown(value)}", f"a whole number, {low} to {high:,}")
        for name, most in (("jitter", 2.0), ("change_cost", 1e9)):
            if not is_number(getattr(self, name), 0, most):
                raise InputError(name, f"found {shown(getattr(self, name))}", f"0 to {most:g}")
        known = [SIMULATION, *(one.name for one in self.analyses)]
        if known.count(SIMULATION) > 1:
            raise InputError("analyses", f"found one named {SIMULATION}", "other names")
        for drift in self.drifts:
            if drift.part not in known:
                raise InputError("drift.part", f"found {shown(drift.part)}", ", ".join(known))
        times = [self.simulation.time, *(one.time for one in self.analyses)]
        for name, time in zip(known, times, strict=True):
            if not time:
                raise InputError(f"{name}.time", "found 0", "more than 0 s on a single core")
        try:
            self.declared(1, Platform(1))
        except InputError as error:  # of nodes, which are this one's own
            raise InputError(error.where.removeprefix("nodes."), error.found, error.allowed) from None

    def declared(self, nodes: int, platform: Platform) -> PartitionProblem:
        """What is to be divided, as it is declared."""
        return PartitionProblem(self._nodes(nodes, platform), self.simulation, self.analyses)

    def quiet_runtime(self, nodes: int, platform: Platform) -> float:
        """Seconds on so many nodes if everything is as declared."""
        return self.iterations * partition(self.declared(nodes, platform)).iteration

    def real(self, iteration: int, nodes: int, platform: Platform) -> PartitionProblem:
        """The same as it is in one iteration. It does not depend on where anything runs."""
        draws = np.random.default_rng([self.seed, iteration]).standard_normal(len(self.analyses) + 1)
        factors = np.exp(self.jitter * draws - self.jitter**2 / 2)
        first, *others = factors.tolist()
        time = self.simulation.time * first * self._drift(SIMULATION, iteration)
        analyses = tuple(
            replace(one, time=one.time * factor * self._drift(one.name, iteration))
            for one, factor in zip(self.analyses, others, strict=True)
        )
        return PartitionProblem(self._nodes(nodes, platform), replace(self.simulation, time=time), analyses)

    def _drift(self, part: str, iteration: int) -> float:
        factor = 1.0
        for drift in self.drifts:
            if drift.part == part:
                factor *= drift.factor(iteration)
        return factor

    def _nodes(self, count: int, platform: Platform) -> EqualNodes:
        bandwidth = min(self.bandwidth, platform.link)
        return EqualNodes(count=count, cores=self.cores, memory=self.memory, bandwidth=bandwidth)


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


class Began(NamedTuple):
    """One iteration: when, on how many nodes, what each part took, and the partition in force."""

    number: int
    time: float
    nodes: int
    phases: Phases
    partition: Partition
    #: analyses that are not done for it
    left_out: tuple[str, ...] = ()


class Changed(NamedTuple):
    """From this iteration on, another partition."""

    iteration: int
    time: float
    partition: Partition
    reason: str


@dataclass
class PipelineRun:
    """One pipeline's run, as far as it got."""

    name: str
    pipeline: Pipeline
    platform: Platform
    iterations: list[Began] = field(default_factory=list)
    changes: list[Changed] = field(default_factory=list)
    end: float = nan

    def began(
        self,
        number: int,
        now: float,
        nodes: int,
        phases: Phases,
        partition: Partition,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """An iteration begins, which takes so long. If the job was stopped and does it again, the last
        time counts."""
        while self.iterations and self.iterations[-1].number >= number:
            self.iterations.pop()
        self.iterations.append(Began(number, now, nodes, phases, partition, left_out))

    def changed(self, iteration: int, now: float, partition: Partition, reason: str) -> None:
        """Another partition is in force."""
        self.changes.append(Changed(iteration, now, partition, reason))

    def ended(self, now: float) -> None:
        """Everything is done."""
        self.end = now

    @property
    def seconds(self) -> list[float]:
        """Of each iteration, from its beginning to that of the next; of the last, until all is done. What
        a change of the partition or of nodes costs is in the iteration before."""
        times = [one.time for one in self.iterations]
        return [after - time for time, after in zip(times, [*times[1:], self.end], strict=True)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each iteration as a row of a table."""
        for one, seconds in zip(self.iterations, self.seconds, strict=True):
            yield {
                "pipeline": self.name,
                "iteration": one.number,
                "time": one.time,
                "seconds": seconds,
                "planned": one.partition.iteration,
                **one.phases._asdict(),
                "nodes": one.nodes,
                "simulation_nodes": int(one.partition.nodes),
                "helper_cores": int(one.partition.helper_cores),
                "in_situ": ", ".join(one.partition.in_situ),
                "in_transit": ", ".join(one.partition.in_transit),
                "left_out": ", ".join(one.left_out),
            }

    @property
    def total(self) -> float:
        """Seconds from the first iteration to the end of the last."""
        return self.end - self.iterations[0].time if self.iterations else nan

    @property
    def last_iteration(self) -> float:
        """Seconds of an iteration since the partition changed last (a median; the last one of all, which
        empties the pipeline, left out)."""
        first = self.changes[-1].iteration if self.changes else 0
        pairs = zip(self.iterations, self.seconds[:-1], strict=False)
        return median([seconds for one, seconds in pairs if one.number >= first] or [nan])

    @property
    def layout(self) -> str:
        """The partition in force at the end, in words."""
        if not self.iterations:
            return "-"
        last = self.iterations[-1]
        return layout(last.partition, last.nodes)

    @property
    def left_out(self) -> dict[str, int]:
        """For how many iterations each analysis was not done, if for any."""
        return dict(Counter(name for one in self.iterations for name in one.left_out))

    def told(self) -> dict[str, Any]:
        """As plain data; None for what is not known."""
        figures = {
            "iteration": self.last_iteration,
            "total": self.total,
            "all_in_situ": self.all_in_situ,
            "all_in_transit": self.all_in_transit,
            "divided_once": self.never_again,
        }
        changes = [
            {
                "iteration": one.iteration,
                "time": one.time,
                "reason": one.reason,
                "partition": tell_partition(one.partition),
            }
            for one in self.changes
        ]
        known = {name: value if value == value else None for name, value in figures.items()}
        return {"iterations": len(self.iterations), **known, "left_out": self.left_out, "changes": changes}

    @cached_property
    def all_in_situ(self) -> float:
        """Seconds that the same iterations take with all analyses in situ: the best partition of that kind
        for what everything took on average. nan if that needs more memory or cores than there are."""
        names = [one.name for one in self.pipeline.analyses]
        return self._if_always(lambda problem: with_split(problem, names))

    @cached_property
    def all_in_transit(self) -> float:
        """The same with all analyses on staging nodes."""
        return self._if_always(lambda problem: with_split(problem, ()))

    @cached_property
    def never_again(self) -> float:
        """The same with the best partition for what was declared, which only follows the nodes."""
        mode = self.iterations[0].partition.mode if self.iterations else "async"

        def declared(problem: PartitionProblem) -> Partition:
            known = self.pipeline.declared(problem.nodes.count, self.platform)
            return partition(replace(known, mode=mode))

        return self._if_always(declared)

    def _if_always(self, divide: Callable[[PartitionProblem], Partition | None]) -> float:
        """Seconds that these iterations take, on the same nodes, if only they divide them."""
        if not self.iterations:
            return nan
        mean, mode = self._mean(), self.iterations[0].partition.mode
        divided: dict[int, Partition | None] = {}
        pace, now = Pace([one.name for one in self.pipeline.analyses]), 0.0
        for one in self.iterations:
            problem = replace(mean, nodes=replace(mean.nodes, count=one.nodes), mode=mode)
            if one.nodes not in divided:
                divided[one.nodes] = divide(problem)
            chosen = divided[one.nodes]
            if chosen is None or chosen.warning or chosen.iteration == inf:
                return nan
            real = replace(self.pipeline.real(one.number, one.nodes, self.platform), mode=chosen.mode)
            found = costs(real, chosen)
            now = pace.begins(one.number, now)
            now = pace.stepped(one.number, now + found.simulation, found, chosen.mode)
        return max(now, pace.end)

    def _mean(self) -> PartitionProblem:
        """What the parts took on average."""
        seen = list(self._real())
        declared = seen[0]
        analyses = tuple(
            replace(one, time=fmean(problem.analyses[at].time for problem in seen))
            for at, one in enumerate(declared.analyses)
        )
        simulation = replace(declared.simulation, time=fmean(one.simulation.time for one in seen))
        return replace(declared, simulation=simulation, analyses=analyses)

    def _real(self) -> Iterator[PartitionProblem]:
        return (self.pipeline.real(one.number, one.nodes, self.platform) for one in self.iterations)


class PipelineRuns(dict[int, PipelineRun]):
    """Of one run of a machine, by the rows of their jobs."""


def layout(chosen: Partition, nodes: int) -> str:
    """A partition in a few words."""
    words = [f"{chosen.nodes:g} of {nodes} nodes simulate"]
    if chosen.in_situ:
        cores = f"{chosen.helper_cores:g} core{'' if chosen.helper_cores == 1 else 's'}"
        helped = f" on {cores}" if chosen.mode == "async" else ""
        words.append(f"{', '.join(chosen.in_situ)} in situ{helped}")
    if chosen.in_transit:
        words.append(f"{', '.join(chosen.in_transit)} in transit")
    return "; ".join(words)


#: columns of ``pipeline_row``
PIPELINE_HEADS = (
    "pipeline", "policy", "iterations", "partitions", "planned", "simulated", "total",
    "all in situ", "all in transit", "divided once", "at the end",
)  # fmt: skip
_MEANING = (
    "Planned and simulated: seconds of an iteration under the last partition, simulated as a median. The "
    "total is compared to the same iterations with everything in situ, everything in transit (each divided "
    "as well as it could have been, had all been known before), and divided once, from what was declared."
)


def pipeline_row(policy: str, run: PipelineRun) -> list[str]:
    """One pipeline under one policy."""
    last = run.changes[-1].partition if run.changes else None
    return [
        run.name,
        policy,
        f"{len(run.iterations):,}",
        f"{len(run.changes):,}",
        _time(last.iteration if last else float("nan")),
        _time(run.last_iteration),
        _time(run.total),
        *(_time(one) for one in (run.all_in_situ, run.all_in_transit, run.never_again)),
        run.layout,
    ]


def pipelines_html(runs: Sequence[PipelineRun]) -> str:
    """Their table, and of each its iterations as a picture and its partitions with the reasons."""
    if not runs:
        return ""
    parts = [
        "<h3>In situ pipelines</h3>",
        table(*_without_policy(runs)),
        f"<p>{_MEANING}</p>",
    ]
    for run in runs:
        reasons = [
            (str(change.iteration), show_duration(change.time), change.reason) for change in run.changes
        ]
        parts += [
            f"<h4>{escape(run.name)}</h4><p>At the end: {escape(run.layout)}.</p>",
            phases_svg(_iterations(run), {change.iteration: change.reason for change in run.changes}),
            table(("from iteration", "time", "why"), reasons),
        ]
    return "".join(parts)


def _without_policy(runs: Sequence[PipelineRun]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows without the policy, and without what is said of each below."""
    rows = [[*PIPELINE_HEADS], *(pipeline_row("", run) for run in runs)]
    heads, *others = [[row[0], *row[2:-1]] for row in rows]
    return heads, others


def _iterations(run: PipelineRun) -> Iterable[Iteration]:
    for one, seconds in zip(run.iterations, run.seconds, strict=True):
        if seconds == seconds:  # else the simulation ended before it did
            yield Iteration(one.number, seconds, one.phases, one.partition.phases, one.partition.iteration)


def _time(seconds: float) -> str:
    return "-" if seconds != seconds else show_duration(seconds)
