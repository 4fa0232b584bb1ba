"""Simulated pipelines at work: measured, asked about their partition between two iterations, and recorded."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from statistics import fmean, median
from typing import Any, NamedTuple

from dask_hpc.model.story import Happening
from dask_hpc.planning.in_situ.back_pressure import SlowWish
from dask_hpc.planning.in_situ.partition import (
    Partition,
    PartitionProblem,
    Phases,
    PipelineView,
    Placement,
    tell_partition,
)
from dask_hpc.planning.in_situ.phases import with_split
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.policy import Policy
from dask_hpc.simulator.execution import Ask, Execution, Point, Step, Wait
from dask_hpc.simulator.in_situ import Pace, Pipeline, costs, times_of, with_times
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.service import Life, MachineService, Site

#: iterations that a median is taken of
_WINDOW = 5
#: asked where a policy says nothing about placement
_OTHERWISE = "in-situ-async"


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
    #: when everything was done
    end: float = nan

    def began(self, one: Began) -> None:
        """If the job was stopped and does an iteration again, the last time counts."""
        while self.iterations and self.iterations[-1].number >= one.number:
            self.iterations.pop()
        self.iterations.append(one)

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
        chosen = last.partition
        words = [f"{chosen.nodes:g} of {last.nodes} nodes simulate"]
        if chosen.in_situ:
            cores = f"{chosen.helper_cores:g} core{'' if chosen.helper_cores == 1 else 's'}"
            helped = f" on {cores}" if chosen.mode == "async" else ""
            words.append(f"{', '.join(chosen.in_situ)} in situ{helped}")
        if chosen.in_transit:
            words.append(f"{', '.join(chosen.in_transit)} in transit")
        return "; ".join(words)

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
        changes = [one._asdict() | {"partition": tell_partition(one.partition)} for one in self.changes]
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
        return self._if_always(
            lambda problem: partition(
                replace(self.pipeline.declared(problem.nodes.count, self.platform), mode=problem.mode)
            )
        )

    def _if_always(self, divide: Callable[[PartitionProblem], Partition | None]) -> float:
        """Seconds that these iterations take, on the same nodes, if only they divide them."""
        if not self.iterations:
            return nan
        reals = [self.pipeline.real(one.number, one.nodes, self.platform) for one in self.iterations]
        mean = with_times(reals[0], map(fmean, zip(*map(times_of, reals), strict=True)))
        mean = replace(mean, mode=self.iterations[0].partition.mode)
        divided: dict[int, Partition | None] = {}
        pace, now = Pace([one.name for one in self.pipeline.analyses]), 0.0
        for one, real in zip(self.iterations, reals, strict=True):
            if one.nodes not in divided:
                divided[one.nodes] = divide(replace(mean, nodes=replace(mean.nodes, count=one.nodes)))
            chosen = divided[one.nodes]
            if chosen is None or chosen.warning or chosen.iteration == inf:
                return nan
            found = costs(replace(real, mode=chosen.mode), chosen)
            now = pace.begins(one.number, now)
            now = pace.stepped(one.number, now + found.simulation, found, chosen.mode)
        return max(now, pace.end)


class PipelineRuns(dict[int, PipelineRun]):
    """Of one run of a machine, by the rows of their jobs."""


class Pipelines(MachineService):
    """Runs the pipelines among a machine's jobs, where the policy's placement strategy says."""

    def begin(self) -> None:
        self._strategy = self.site.policy.placement or Policy.load(_OTHERWISE).placement
        record = self.site.record
        self._runs = None if record is None else record.find(PipelineRuns) or record.add(PipelineRuns())

    def execution(self, life: Life) -> Execution | None:
        pipeline = life.arrival.application
        if not isinstance(pipeline, Pipeline):
            return None
        run = PipelineRun(life.arrival.job.id, pipeline, self.site.platform)
        if self._runs is not None:
            run = self._runs.setdefault(life.row, run)
        return Piped(run, self._strategy, self.site, life.arrival.requests, life.done)


class Piped(Execution):
    """Iterations of a pipeline; before each but the very first there is a scheduling point.

    What is measured of an iteration is known once its analyses are done, when the next step is.
    """

    def __init__(
        self,
        run: PipelineRun,
        strategy: Any,
        site: Site,
        requests: tuple[tuple[float, int], ...] = (),
        done: float = 0.0,
    ) -> None:
        self._run, self._strategy, self._site, self._pipeline = run, strategy, site, run.pipeline
        self._requests = [(share, nodes) for share, nodes in requests if share > done]
        self._iteration = round(done * run.pipeline.iterations)
        self._partition: Partition | None = None
        self._memory: Any = None
        #: the last iterations as measured: times of all parts, and phases under the partition in force
        self._seen: deque[list[float]] = deque(maxlen=_WINDOW)
        self._measured: list[Phases] = []
        #: those whose analyses may still run, and when they end
        self._unseen: deque[tuple[float, list[float], Phases]] = deque()
        # what is to be done if analyses do not keep up; strategies that do not say: wait
        slow = strategy.slow.over(SlowWish("wait", inf)).rule()
        self._pace = Pace([one.name for one in run.pipeline.analyses], slow)
        #: when the next step could begin if no analysis were late
        self._free = 0.0
        self._now = 0.0
        self.nodes = 0
        self._steps = self._iterate()

    def begin(self, now: float, nodes: int) -> None:
        self._now, self.nodes = now, nodes

    def proceed(self, now: float) -> Step | None:
        self._now = now
        return next(self._steps, None)

    def done(self, now: float) -> float:
        return self._iteration / self._pipeline.iterations

    def _iterate(self) -> Iterator[Step]:
        first = True
        while self._iteration < self._pipeline.iterations:
            while self._requests and self._requests[0][0] <= self.done(self._now):
                yield Ask(self._requests.pop(0)[1])
            begins = self._pace.begins(self._iteration, max(self._now, self._free))
            if begins > self._now:
                yield Wait(begins - self._now)
            if not first:
                yield Point()
            first = False
            if self._is_changed(begins) and self._pipeline.change_cost:
                yield Wait(self._pipeline.change_cost)
            yield from self._step(max(self._now, begins))  # the clock may be a rounding error too early
        yield Wait(max(0.0, self._pace.end - self._now))
        self._run.end = self._now

    def _step(self, begins: float) -> Iterator[Step]:
        number, partition = self._iteration, self._partition
        assert partition is not None
        real = replace(self._pipeline.real(number, self.nodes, self._site.platform), mode=partition.mode)
        found = costs(real, partition)
        left_out = tuple(one.analysis for one in self._pace.left_out(number, begins))
        self._run.began(Began(number, self._now, self.nodes, found.phases, partition, left_out))
        yield Wait(found.simulation)
        self._free = self._pace.stepped(number, self._now, found, partition.mode, left_out)
        self._unseen.append((self._pace.end, times_of(real), found.phases))
        self._iteration += 1

    def _is_changed(self, now: float) -> bool:
        """Ask, and carry out; answers whether something moves."""
        while self._unseen and self._unseen[0][0] <= now:  # what is done with all of its analyses is measured
            _, times, phases = self._unseen.popleft()
            self._seen.append(times)
            self._measured.append(phases)
        problem = self._pipeline.declared(self.nodes, self._site.platform)
        if self._seen:
            problem = with_times(problem, map(median, zip(*self._seen, strict=True)))
        recent = self._measured[-_WINDOW:]
        view = PipelineView(
            name=self._run.name,
            done=self._iteration,
            left=float(self._pipeline.iterations - self._iteration),
            problem=problem,
            partition=self._partition,
            phases=Phases(*map(median, zip(*recent, strict=True))) if recent else None,
            measured=len(self._measured),
            change_cost=self._pipeline.change_cost,
        )
        placement, self._memory = self._strategy.decide(view, self._memory)
        if placement is None:
            return False
        self._check(placement, problem)
        is_first, self._partition = self._partition is None, placement.partition
        self._measured, self._unseen = [], deque()
        self._pace.restart()
        self._run.changes.append(Changed(self._iteration, self._now, placement.partition, placement.reason))
        revision = self._site.indices.revision
        self._site.story.tell(
            Happening(revision, self._now, "placement", self._run.name, (), placement.reason)
        )
        return not is_first

    def _check(self, placement: Placement, problem: PartitionProblem) -> None:
        partition = placement.partition
        names = {one.name for one in problem.analyses}
        staging = self.nodes - partition.nodes
        if staging < 0 or {*partition.in_situ, *partition.in_transit} != names or partition.iteration == inf:
            raise RuntimeError(f"strategy {self._strategy.name}: {self._run.name} cannot be placed like that")
