"""A simulated pipeline at work: measured, asked about its partition between two iterations, and recorded."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from dask_hpc.model.partition import Partition, PartitionProblem, Phases, PipelineView
from dask_hpc.model.plan import Placement
from dask_hpc.planning.partition_phases import placed
from dask_hpc.policy import Policy
from dask_hpc.simulator.execution import Ask, Point, Step, Wait
from dask_hpc.simulator.in_situ.pace import Pace
from dask_hpc.simulator.in_situ.run import PipelineRun

#: iterations that a median is taken of
_WINDOW = 5
#: asked where a policy says nothing about placement
_OTHERWISE = "in-situ-async"


def placement_of(policy: Policy) -> Any:
    """Who is asked where analyses run."""
    return policy.placement or Policy.load(_OTHERWISE).placement


class Piped:
    """Iterations of a pipeline; before each but the very first there is a scheduling point.

    What is measured of an iteration is known once its analyses are done, when the next step is.
    """

    __slots__ = ("_iteration", "_measured", "_memory", "_now", "_pace", "_partition", "_pipeline",
                 "_platform", "_requests", "_run", "_seen", "_steps", "_strategy", "_tell", "_unseen",
                 "nodes")  # fmt: skip

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
        self._unseen: tuple[PartitionProblem, Phases] | None = None
        self._pace = Pace()
        self._now = 0.0
        self.nodes = 0
        self._steps = self._iterate()

    def begin(self, now: float, nodes: int) -> None:
        """Go on on so many nodes."""
        self._now, self.nodes = now, nodes

    def stand_still(self, now: float) -> None:
        """The step at hand stops; used between steps only."""

    def proceed(self, now: float) -> Step | None:
        """What comes next; None at the end."""
        self._now = now
        return next(self._steps, None)

    def done(self, now: float) -> float:
        """The share of the iterations that are done."""
        return self._iteration / self._pipeline.iterations

    def saved(self, now: float, interval: float) -> float:
        """With checkpoints, the iterations that are done are safe."""
        return self.done(now) if interval else 0.0

    def mtct(self) -> float | None:
        """What staging nodes cost beside computing is the partition's business, not the job's size's."""
        return None

    def _iterate(self) -> Iterator[Step]:
        first = True
        while self._iteration < self._pipeline.iterations:
            while self._requests and self._requests[0][0] <= self.done(self._now):
                yield Ask(self._requests.pop(0)[1])
            if not first:
                yield Point()
            first = False
            if self._is_changed() and self._pipeline.change_cost:
                yield Wait(self._pipeline.change_cost)
            partition = self._partition
            assert partition is not None
            real = replace(self._real(), mode=partition.mode)
            phases = placed(real, int(partition.nodes), int(partition.helper_cores), partition.in_situ).phases
            self._run.began(self._iteration, self._now, self.nodes, phases, partition)
            yield Wait(phases.simulation)
            self._see()
            self._unseen = real, phases
            self._iteration += 1
            free = self._pace.stepped(self._now, phases, partition.mode)
            if free > self._now:
                yield Wait(free - self._now)
        yield Wait(max(0.0, self._pace.end - self._now))
        self._run.ended(self._now)

    def _real(self) -> PartitionProblem:
        return self._pipeline.real(self._iteration, self.nodes, self._platform)

    def _see(self) -> None:
        """The analyses of the last iteration but one are done by now: it is measured."""
        if self._unseen is not None:
            problem, phases = self._unseen
            self._seen.append(problem)
            self._measured.append(phases)

    def _is_changed(self) -> bool:
        """Ask, and carry out; answers whether something moves."""
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
        self._measured, self._unseen = [], None
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
