"""What nodes are worth to jobs, and who would give or take them first.

Nobody is weighed before it matters: on a full machine whose jobs have nothing to give, or on one whose
jobs are as large as they may be, a decision looks at none of them.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, log
from typing import NamedTuple, cast

from dask_hpc.model.job import Job
from dask_hpc.model.resizable import Scope
from dask_hpc.model.snapshot import Running
from dask_hpc.model.speedup import (
    Amdahl,
    IoScaling,
    Linear,
    PowerLaw,
    Speedup,
    next_legal_down,
    smallest_legal,
)

#: of jobs that say nothing about their scaling and were not measured
_ASSUMED = PowerLaw(0.9)
#: in the order of growth jobs that start come after all that run
_AFTER_ALL = 2**62


def scaling(job: Job, nodes: int = 1, mtct: float | None = None) -> Speedup:
    """How it scales: as it says, or the power law that its measured MTCT on ``nodes`` nodes fits:
    ``1 / efficiency - 1 = mtct`` and ``efficiency = nodes ** (exponent - 1)``."""
    if job.speedup is not None:
        return job.speedup
    if job.io_intensity is not None:
        return IoScaling(job.io_intensity)
    if mtct is None or nodes < 2:
        return _ASSUMED
    return PowerLaw(max(0.0, min(1.0, 1.0 - log(1.0 + mtct) / log(nodes))))


class Value(NamedTuple):
    """The worth of nodes to one job: speed gained per node, weighted by how little work it has left. A
    tuple, because a decision makes one for every job it looks at."""

    curve: Speedup
    weight: float
    #: seconds it holds its nodes without working, over its work: the shorter the job, the less speed
    #: helps it to be done with its nodes
    drag: float = 0.0

    def between(self, small: int, large: int) -> float:
        """Of each node from ``small`` (exclusive) to ``large``."""
        return self.gained(self.speed(small), self.speed(large), large - small)

    def gained(self, before: float, after: float, nodes: int) -> float:
        """Of each of so many nodes that raise the speed so far."""
        return (after - before) / nodes * self.weight

    def speed(self, nodes: int) -> float:
        """How fast it is done with its nodes, if it has so many; 0 without any."""
        if not nodes:
            return 0.0
        factor = self.curve.factor(nodes)
        return factor / (1.0 + factor * self.drag) if self.drag else factor

    @property
    def falls(self) -> bool:
        """Whether each node is worth no more than the one before."""
        curve = self.curve
        return isinstance(curve, Linear | Amdahl) or (isinstance(curve, PowerLaw) and curve.exponent <= 1.0)


def work_of(job: Job) -> float:
    """Its work by its walltime, in seconds on one node; a job of one size makes full use of its nodes."""
    return job.walltime * (job.nodes if job.kind == "rigid" else scaling(job).factor(job.nodes))


def weight_of(work: float, bias: float) -> float:
    """How much a job counts that has this much work left."""
    if not bias:
        return 1.0
    return float(max(work, 1.0) ** -bias) if work < inf else 0.0


class _FirstStep(NamedTuple):
    """What is known of a job's first step up or down while its size stays: all but how much it counts."""

    mtct: float | None
    curve: Speedup
    #: of the size that it has, and of the one after the step
    factor: float
    after: float
    #: the size after the step, by how many nodes it differs, and the speed that each of them is
    size: int
    nodes: int
    gain: float

    @classmethod
    def of(cls, scope: Scope[Running], mtct: Mapping[str, float], is_down: bool) -> "_FirstStep":
        """As it was worked out before, if nothing has changed."""
        job, found = scope.running.job, scope.known
        measured = mtct.get(job.id) if job.speedup is None else None
        if found is None or found.mtct != measured:
            size = len(scope.running.nodes)
            curve = scaling(job, size, measured)
            other = (next_legal_down(job.constraint, size, job.min_nodes) or 0) if is_down else scope.nodes
            factor, after = curve.factor(size), curve.factor(other)
            gain = (after - factor) / (other - size)
            found = cls(measured, curve, factor, after, other, abs(other - size), gain)
            scope.known = found
        return cast(_FirstStep, found)


#: what nodes are worth to a job that runs, scales so and is so many times faster than on one node
Weigh = Callable[[Running, Speedup, float], Value]
Scopes = Sequence[Scope[Running]]

#: ``(worth, order, size after it, nodes, job, value)``: a step down; of equals, the youngest gives first
_Shrink = tuple[float, int, int, int, Job, Value]


class Room:
    """Nodes that running jobs could give, the least valuable first. ``mtct`` is what was measured of them."""

    def __init__(self, givers: Scopes, mtct: Mapping[str, float], weigh: Weigh) -> None:
        self._givers, self._mtct, self._weigh = givers, mtct, weigh
        self._heap: list[_Shrink] | None = None
        #: how many nodes that is, if value is no matter
        self.total = sum(scope.nodes for scope in givers)

    @property
    def least(self) -> float:
        """What the least valuable node is worth where it is."""
        heap = self.weighed()
        return heap[0][0] if heap else inf

    def give(self, nodes: int, worth: float) -> dict[str, int]:
        """New sizes that free ``nodes`` nodes or a few more, all worth less than ``worth`` where they
        are; none if there are not that many."""
        if nodes > self.total:
            return {}
        heap = self.weighed()
        if not heap or heap[0][0] >= worth:
            return {}
        before, total = list(heap), self.total
        changed: dict[str, int] = {}
        while nodes > 0:
            if not heap or heap[0][0] >= worth:
                self._heap, self.total = before, total
                return {}
            _, order, smaller, freed, job, value = heappop(heap)
            nodes -= freed
            self.total -= freed
            changed[job.id] = smaller
            still = next_legal_down(job.constraint, smaller, job.min_nodes)
            if still is not None:
                worth_of_next = value.between(still, smaller)
                heappush(heap, (worth_of_next, order, still, smaller - still, job, value))
        return changed

    def weighed(self) -> list[_Shrink]:
        """The first step of each, as a heap; they are weighed when this is first asked."""
        if self._heap is None:
            self._heap = []
            for scope in self._givers:
                running, step = scope.running, _FirstStep.of(scope, self._mtct, is_down=True)
                value = self._weigh(running, step.curve, step.factor)
                if value.drag:
                    worth = value.between(step.size, step.size + step.nodes)
                else:
                    worth = step.gain * value.weight
                self._heap.append((worth, -running.order, step.size, step.nodes, running.job, value))
            heapify(self._heap)
        return self._heap


#: ``(-worth, order, size after it, nodes, speed after it, job, value)``: a step up
_Growth = tuple[float, int, int, int, float, Job, Value]


class Growth:
    """Nodes that jobs would take, the most valuable first; ``targets`` are the sizes they were given.
    ``takers`` run already, and ``mtct`` is what was measured of them."""

    def __init__(self, idle: int, takers: Scopes, mtct: Mapping[str, float], weigh: Weigh) -> None:
        self.idle = idle
        self.targets: dict[str, int] = {}
        self._takers, self._mtct, self._weigh = takers, mtct, weigh
        self._heap: list[_Growth] = []
        self._order = _AFTER_ALL

    @property
    def is_wanted(self) -> bool:
        """Whether anybody might take nodes."""
        return bool(self._heap or self._takers)

    def join(self, job: Job, size: int, value: Value) -> None:
        """This job starts on ``size`` nodes and could use more."""
        self._order += 1
        if self.idle and (step := self._step(self._order, size, value.speed(size), job, value)) is not None:
            heappush(self._heap, step)

    def spread(self, above: float = -inf) -> None:
        """Give idle nodes away, step by legal step, while they are worth more than ``above``."""
        if not self.idle or above == inf:
            return
        heap = self.weighed()
        while heap and self.idle and -heap[0][0] > above:
            _, order, size, nodes, speed, job, value = heap[0]
            step = None
            if nodes <= self.idle:
                self.idle -= nodes
                step = self._step(order, size, speed, job, value)
                if step is not None and job.constraint == "any" and value.falls:
                    size, step = self._several(step, above)
                self.targets[job.id] = size
            if step is None:
                heappop(heap)
            else:
                heapreplace(heap, step)

    def weighed(self) -> list[_Growth]:
        """The next step of each, as a heap; those that run are weighed when this is first asked."""
        if self._takers:
            for scope in self._takers:
                running = scope.running
                size, larger = len(running.nodes), scope.nodes
                if larger - size > self.idle:
                    continue
                step = _FirstStep.of(scope, self._mtct, is_down=False)
                value = self._weigh(running, step.curve, step.factor)
                if value.drag:
                    worth, after = value.between(size, larger), value.speed(larger)
                else:
                    worth, after = step.gain * value.weight, step.after
                if worth > 0:
                    self._heap.append((-worth, running.order, larger, step.nodes, after, running.job, value))
            self._takers = ()
            heapify(self._heap)
        return self._heap

    def _step(self, order: int, size: int, speed: float, job: Job, value: Value) -> _Growth | None:
        """Its next one, if there are idle nodes for it now: later there are no more of them."""
        larger = smallest_legal(job.constraint, size + 1, min(job.max_nodes, size + self.idle))
        if larger is None:
            return None
        faster = value.speed(larger)
        worth = value.gained(speed, faster, larger - size)
        return (-worth, order, larger, larger - size, faster, job, value) if worth > 0 else None

    def _several(self, step: _Growth, above: float) -> tuple[int, _Growth | None]:
        """The size that a job reaches by one node after the other before it is anybody else's turn, and its
        step after those; its turn was just now, and ``step`` would be its next."""
        heap, (_, order, first, _, _, job, value) = self._heap, step
        rival = min((one[:2] for one in heap[1:3]), default=(inf, 0))

        def is_its_turn(size: int) -> bool:
            worth = value.between(size - 1, size)
            return worth > max(above, 0.0) and (-worth, order) < rival

        if not (-step[0] > above and step[:2] < rival):
            return first - 1, step
        low, high = first, min(job.max_nodes, first - 1 + self.idle)  # it reaches the former
        ahead = 1
        while low + ahead <= high and is_its_turn(low + ahead):
            low += ahead
            ahead *= 2
        high = min(high, low + ahead - 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if is_its_turn(middle) else (low, middle - 1)
        self.idle -= low - (first - 1)
        return low, self._step(order, low, value.speed(low), job, value)
