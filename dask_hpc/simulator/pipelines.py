"""A simulated pipeline at work: measured, asked about its partition between two iterations, and recorded."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from dask_hpc.model.in_situ import Partition, PartitionProblem, Phases, PipelineView
from dask_hpc.model.plan import Placement
from dask_hpc.model.story import Happening
from dask_hpc.planning.in_situ.back_pressure import Slow
from dask_hpc.policy import Policy
from dask_hpc.simulator.execution import Ask, Execution, Point, Step, Wait
from dask_hpc.simulator.in_situ import Pace, Pipeline, PipelineRun, PipelineRuns, costs
from dask_hpc.simulator.service import Life, MachineService

#: iterations that a median is taken of
_WINDOW = 5
#: asked where a policy says nothing about placement
_OTHERWISE = "in-situ-async"


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
        job = life.arrival.job.id
        run = PipelineRun(job, pipeline, self.site.platform)
        if self._runs is not None:
            run = self._runs.setdefault(life.row, run)

        def tell(now: float, reason: str) -> None:
            revision = self.site.indices.revision
            self.site.story.tell(Happening(revision, now, "placement", job, (), reason))

        return Piped(run, self._strategy, tell, life.arrival.requests, life.done)


def rule_of(strategy: Any) -> Slow:
    """What the strategy wants done if analyses do not keep up; those that do not say: wait."""
    return Slow(getattr(strategy, "when_slow", "wait"), getattr(strategy, "stall", inf))


class Piped(Execution):
    """Iterations of a pipeline; before each but the very first there is a scheduling point.

    What is measured of an iteration is known once its analyses are done, when the next step is.
    """

    __slots__ = ("_free", "_iteration", "_measured", "_memory", "_now", "_pace", "_partition", "_pipeline",
                 "_platform", "_requests", "_run", "_seen", "_steps", "_strategy", "_tell",
                 "_unseen")  # fmt: skip

    def __init__(
        self,
        run: PipelineRun,
        strategy: Any,
        tell: Callable[[float, str], None],
        requests: tuple[tuple[float, int], ...] = (),
        done: float = 0.0,
    ) -> None:
        self._run, self._strategy, self._tell = run, strategy, tell
        self._pipeline, self._platform = run.pipeline, run.platform
        self._requests = [(share, nodes) for share, nodes in requests if share > done]
        self._iteration = round(done * run.pipeline.iterations)
        self._partition: Partition | None = None
        self._memory: Any = None
        #: the last iterations as measured: costs of all parts, and phases under the partition in force
        self._seen: deque[PartitionProblem] = deque(maxlen=_WINDOW)
        self._measured: list[Phases] = []
        #: those whose analyses may still run, and when they end
        self._unseen: deque[tuple[float, PartitionProblem, Phases]] = deque()
        self._pace = Pace([one.name for one in run.pipeline.analyses], rule_of(strategy))
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
        self._run.ended(self._now)

    def _step(self, begins: float) -> Iterator[Step]:
        number, partition = self._iteration, self._partition
        assert partition is not None
        real = replace(self._pipeline.real(number, self.nodes, self._platform), mode=partition.mode)
        found = costs(real, partition)
        left_out = tuple(one.analysis for one in self._pace.left_out(number, begins))
        self._run.began(number, self._now, self.nodes, found.phases, partition, left_out)
        yield Wait(found.simulation)
        self._free = self._pace.stepped(number, self._now, found, partition.mode, left_out)
        self._unseen.append((self._pace.end, real, found.phases))
        self._iteration += 1

    def _see(self, now: float) -> None:
        """What is done with all of its analyses is measured."""
        while self._unseen and self._unseen[0][0] <= now:
            _, problem, phases = self._unseen.popleft()
            self._seen.append(problem)
            self._measured.append(phases)

    def _is_changed(self, now: float) -> bool:
        """Ask, and carry out; answers whether something moves."""
        self._see(now)
        view = PipelineView(
            name=self._run.name,
            done=self._iteration,
            left=float(self._pipeline.iterations - self._iteration),
            problem=self._known(),
            partition=self._partition,
            phases=_median(self._measured[-_WINDOW:]) if self._measured else None,
            measured=len(self._measured),
            change_cost=self._pipeline.change_cost,
        )
        placement, self._memory = self._strategy.decide(view, self._memory)
        if placement is None:
            return False
        self._check(placement, view.problem)
        is_first, self._partition = self._partition is None, placement.partition
        self._measured, self._unseen = [], deque()
        self._pace.restart()
        self._run.changed(self._iteration, self._now, placement.partition, placement.reason)
        self._tell(self._now, placement.reason)
        return not is_first

    def _known(self) -> PartitionProblem:
        """As declared until it is measured, then as measured (medians)."""
        declared = self._pipeline.declared(self.nodes, self._platform)
        if not self._seen:
            return declared
        analyses = tuple(
            replace(one, time=median(seen.analyses[at].time for seen in self._seen))
            for at, one in enumerate(declared.analyses)
        )
        time = median(seen.simulation.time for seen in self._seen)
        return replace(declared, simulation=replace(declared.simulation, time=time), analyses=analyses)

    def _check(self, placement: Placement, problem: PartitionProblem) -> None:
        partition = placement.partition
        names = {one.name for one in problem.analyses}
        staging = self.nodes - partition.nodes
        if staging < 0 or {*partition.in_situ, *partition.in_transit} != names or partition.iteration == inf:
            raise RuntimeError(f"strategy {self._strategy.name}: {self._run.name} cannot be placed like that")


def _median(phases: list[Phases]) -> Phases:
    return Phases(*(median(column) for column in zip(*phases, strict=True)))
