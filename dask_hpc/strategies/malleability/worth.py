"""What nodes are worth to jobs, and who would give or take them first.

Nobody is weighed before it matters: on a full machine whose jobs have nothing to give, or on one whose
jobs are as large as they may be, a decision looks at none of them.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, log
from typing import Any, NamedTuple, cast

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
#: times a worth: more, whatever rounding has done to either
SURELY = 1.000001
#: in the order of growth jobs that start come after all that run
_AFTER_ALL = 2**62


def scaling(job: Job, nodes: int = 1, mtct: float | None = None) -> Speedup:
    """How it scales: as it says, or the power law that its measured MTCT on ``nodes`` nodes fits:
    ``1 / efficiency - 1 = mtct`` and ``efficiency = nodes ** (exponent - 1)``."""
    if job.speedup is not None:
        return job.speedup
    if job.io_intensity is not None:
        return IoScaling(job.io_intensity)
    return _ASSUMED if mtct is None or nodes < 2 else _fitted(nodes, mtct)


@lru_cache(maxsize=4096)  # the same few figures again and again: of all who scale perfectly, for instance
def _fitted(nodes: int, mtct: float) -> PowerLaw:
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
    return float((work if work > 1.0 else 1.0) ** -bias) if work < inf else 0.0


class Scales(NamedTuple):
    """How one decision weighs jobs: the time, and what counts beside the work that is left."""

    now: float
    bias: float
    #: node-seconds of work that a second since submission counts
    aging: float
    #: seconds that a job holds its nodes without working
    hold: float
    #: whether anybody waits
    is_full: bool
    #: node-seconds of work that each node of its user counts, over priority, and how many those have
    fairness: float = 0.0
    held: Mapping[str, int] = {}

    def weight(self, job: Job, work: float) -> float:
        """How much a job counts that has this much work left."""
        return weight_of(self.effective(job, work, self.now), self.bias)

    def effective(self, job: Job, work: float, now: float) -> float:
        """Work as it counts."""
        younger = work - self.aging * (now - job.submitted)
        if not self.fairness:
            return younger
        share = self.held[job.user] / (job.priority if job.priority > 0 else 1.0)
        return younger + self.fairness * share

    def value(self, running: Running, curve: Speedup, factor: float, now: float) -> Value:
        """What nodes are worth at a time to a job that runs, scales so and is so many times faster than on
        one node."""
        weight = self.weight_at(running, factor, now)
        if not self.hold:
            return Value(curve, weight)
        return Value(curve, weight, self.drag(max(0.0, running.expected_end - now) * factor))

    def weight_at(self, running: Running, factor: float, now: float) -> float:
        """How much a job counts then that runs and is so many times faster than on one node."""
        end = running.expected_end
        work = (end - now) * factor if end > now else 0.0
        if work == inf and not self.is_full:
            return 1.0
        return weight_of(self.effective(running.job, work, now), self.bias)

    def drag(self, work: float) -> float:
        """See ``Value``."""
        return self.hold / max(work, 1.0)

    @property
    def law(self) -> tuple[float, float] | None:
        """By what worth rises while time passes and nothing else happens to a job: two decisions of the same
        law can use each other's bounds. None: it may fall, or rise for another reason."""
        return None if self.hold or self.fairness else (self.bias, self.aging)


class _FirstStep:
    """What is known of a job's first step up or down while its size stays.

    Until something happens to the job, a node is worth the more to it the less work it has left: what a step
    was worth once it is worth at least from then on, and what it will be worth some day is the most until
    then. So most jobs need not be weighed to see that it is not their turn. Jobs without a walltime, and what
    else has no law, have no such bounds.
    """

    __slots__ = ("after", "bound", "curve", "factor", "fitted", "gain", "holds", "law", "mtct", "nodes",
                 "order", "size")  # fmt: skip

    def __init__(self, scope: Scope[Running], mtct: float | None, is_down: bool) -> None:
        job, size = scope.running.job, len(scope.running.nodes)
        self.order = scope.running.order
        #: the job, if the curve is fitted to what was measured of it, and the measurement
        self.fitted, self.mtct = (job.id if job.speedup is None else ""), mtct
        self.curve = scaling(job, size, mtct)
        #: the size after the step, and by how many nodes it differs
        self.size = (next_legal_down(job.constraint, size, job.min_nodes) or 0) if is_down else scope.nodes
        self.nodes = abs(self.size - size)
        #: how fast it is now, and after the step, and the speed that each of those nodes is
        self.factor, self.after = self.curve.factor(size), self.curve.factor(self.size)
        self.gain = (self.after - self.factor) / (self.size - size)
        #: what it is worth down at the least, or up at the most; by which law, and from or until when
        self.bound = -inf if is_down else inf
        self.law: object = None
        self.holds = inf if is_down else -inf

    @classmethod
    def of(cls, scope: Scope[Running], mtct: Mapping[str, float], is_down: bool) -> "_FirstStep":
        """As it was worked out before, if nothing has changed."""
        job, found = scope.running.job, scope.known
        measured = mtct.get(job.id) if job.speedup is None else None
        if found is None or found.mtct != measured:
            found = scope.known = cls(scope, measured, is_down)
        return cast(_FirstStep, found)

    def weigh(self, running: Running, scales: Scales, now: float) -> tuple[float, float, Value]:
        """What each of its nodes is worth at a time, how fast the job is after the step, and its value."""
        value = scales.value(running, self.curve, self.factor, now)
        if value.drag:
            size = len(running.nodes)
            return value.between(*sorted((size, self.size))), value.speed(self.size), value
        return self.gain * value.weight, self.after, value

    def worth(self, running: Running, scales: Scales, now: float) -> float:
        """What each of its nodes is worth at a time."""
        if scales.hold:
            return self.weigh(running, scales, now)[0]
        return self.gain * scales.weight_at(running, self.factor, now)

    def remember_least(self, running: Running, worth: float, scales: Scales) -> None:
        """Of a step down, for later decisions."""
        if scales.law is not None and running.expected_end < inf:
            self.bound, self.law, self.holds = worth / SURELY, scales.law, scales.now

    def remember_most(self, running: Running, scales: Scales) -> None:
        """Of a step up, for the next decisions, until the job has an eighth less to do."""
        left = max(0.0, running.expected_end - scales.now)
        if scales.law is not None and left < inf:
            until = scales.now + left / 8
            self.bound, self.law, self.holds = self.worth(running, scales, until) * SURELY, scales.law, until


Scopes = Collection[Scope[Running]]

#: ``(worth, order, size after it, nodes, speed after it, job, value)``: a step down; of equals, the youngest
#: gives first. Of one that was not weighed, what it is worth at the least, and its scope
_Shrink = tuple[float, int, int, int, float, Job | Scope[Running], Value | None]


def _work_out(scopes: Scopes, mtct: Mapping[str, float], is_down: bool) -> None:
    """Know the first step of each: anew where anything is new."""
    measured = mtct.get
    for scope in [
        scope
        for scope in scopes
        if (step := scope.known) is None or (step.fitted and step.mtct != measured(step.fitted))
    ]:
        _FirstStep.of(scope, mtct, is_down)


def are_dearer(
    givers: Iterable[Scope[Running]], mtct: Mapping[str, float], scales: Scales, than: float
) -> bool:
    """Whether the first node that any of them could give is worth at least this to it."""
    now, law = scales.now, scales.law
    for scope in givers:
        step = scope.known
        if step is None or (step.fitted and step.mtct != mtct.get(step.fitted)):
            step = _FirstStep.of(scope, mtct, is_down=True)
        if step.bound < than or step.holds > now or step.law != law:
            running = scope.running
            worth = step.worth(running, scales, now)
            step.remember_least(running, worth, scales)
            if worth < than:
                return False
    return True


class Room:
    """Nodes that running jobs could give, the least valuable first. ``mtct`` is what was measured of them."""

    def __init__(self, givers: Scopes, mtct: Mapping[str, float], scales: Scales) -> None:
        self.givers, self._mtct, self._scales = givers, mtct, scales
        self._heap: list[_Shrink] | None = None
        #: nobody's first node is worth less than this
        self._floor = -inf
        #: how many nodes that is, if value is no matter
        self.total = sum([scope.nodes for scope in givers])

    def is_dearer(self, than: float) -> bool:
        """Whether nobody's first node is worth less than this where it is."""
        if not are_dearer(self.givers, self._mtct, self._scales, than):
            return False
        self._floor = than
        return True

    def has_below(self, worth: float) -> bool:
        """Whether any node is worth less than this where it is."""
        return self._first(worth) is not None

    def give(self, nodes: int, worth: float) -> dict[str, int]:
        """New sizes that free ``nodes`` nodes or a few more, all worth less than ``worth`` where they
        are; none if there are not that many."""
        if nodes > self.total or self._first(worth) is None:
            return {}
        heap = self._offers()
        before, total = heap.copy(), self.total
        changed: dict[str, int] = {}
        while nodes > 0:
            first = self._first(worth)
            if first is None:
                self._heap, self.total = before, total
                return {}
            _, order, smaller, freed, speed, job, value = first
            assert isinstance(job, Job) and value is not None
            nodes -= freed
            self.total -= freed
            changed[job.id] = smaller
            still = next_legal_down(job.constraint, smaller, job.min_nodes)
            if still is None:
                heappop(heap)
            else:
                freed, slower = smaller - still, value.speed(still)
                worth_of_next = value.gained(slower, speed, freed)
                heapreplace(heap, (worth_of_next, order, still, freed, slower, job, value))
        return changed

    def _first(self, below: float) -> _Shrink | None:
        """The least valuable step, if it is worth less than this."""
        if self._heap is None and (below <= self._floor or (below < inf and self.is_dearer(below))):
            return None
        heap = self._offers()
        while heap and heap[0][0] < below:
            first = heap[0]
            if first[6] is not None:
                return first
            scope: Any = first[5]
            running, step = scope.running, scope.known
            worth, speed, value = step.weigh(running, self._scales, self._scales.now)
            step.remember_least(running, worth, self._scales)
            heapreplace(heap, (worth, first[1], step.size, step.nodes, speed, running.job, value))
        return None

    def _offers(self) -> list[_Shrink]:
        """The next step of each, as a heap: first what it is worth at the least."""
        if self._heap is None:
            law, now = self._scales.law, self._scales.now
            _work_out(self.givers, self._mtct, is_down=True)
            # once or twice in each decision: all that matters for what it costs
            self._heap = [
                (step.bound if step.holds <= now and step.law == law else -inf,
                 -step.order, 0, 0, 0.0, scope, None)
                for scope in self.givers if (step := scope.known)
            ]  # fmt: skip
            heapify(self._heap)
        return self._heap


#: ``(-worth, order, size after it, nodes, speed after it, job, value)``: a step up. Of one that was not
#: weighed, what it is worth at the most, and its scope
_Growth = tuple[float, int, int, int, float, Job | Scope[Running], Value | None]


class Growth:
    """Nodes that jobs would take, the most valuable first; ``targets`` are the sizes they were given.
    ``takers`` run already, and ``mtct`` is what was measured of them."""

    def __init__(self, idle: int, takers: Scopes, mtct: Mapping[str, float], scales: Scales) -> None:
        self.idle = idle
        self.targets: dict[str, int] = {}
        self._takers, self._mtct, self._scales = takers, mtct, scales
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
        heap = self._wishes()
        while heap and self.idle and -heap[0][0] > above:
            _, order, size, nodes, speed, job, value = heap[0]
            step = None
            if value is None:
                step = self._weighed(job)
            elif nodes <= self.idle:
                assert isinstance(job, Job)
                self.idle -= nodes
                step = self._step(order, size, speed, job, value)
                if step is not None and job.constraint == "any" and value.falls:
                    size, step = self._several(step, above)
                self.targets[job.id] = size
            if step is None:
                heappop(heap)
            else:
                heapreplace(heap, step)

    def _wishes(self) -> list[_Growth]:
        """The next step of each, as a heap: of those that run, first what it is worth at the most."""
        if self._takers:
            law, now, idle = self._scales.law, self._scales.now, self.idle
            _work_out(self._takers, self._mtct, is_down=False)
            self._heap += [
                (-step.bound if now <= step.holds and step.law == law else -inf,
                 step.order, 0, 0, 0.0, scope, None)
                for scope in self._takers if (step := scope.known).nodes <= idle
            ]  # fmt: skip
            self._takers = ()
            heapify(self._heap)
        return self._heap

    def _weighed(self, scope: Any) -> _Growth | None:
        """The first step of a job that runs."""
        running, step, scales = scope.running, scope.known, self._scales
        worth, speed, value = step.weigh(running, scales, scales.now)
        if scales.now > step.holds or scales.law != step.law:
            step.remember_most(running, scales)
        if worth <= 0:
            return None
        return -worth, step.order, step.size, step.nodes, speed, running.job, value

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
        assert isinstance(job, Job) and value is not None
        rival = min(heap[1:3])[:2] if len(heap) > 1 else (inf, 0)

        def is_its_turn(size: int) -> bool:
            worth = value.between(size - 1, size)
            return worth > max(above, 0.0) and (-worth, order) < rival

        if not (-step[0] > above and step[:2] < rival):
            return first - 1, step
        low, high = first, min(job.max_nodes, first - 1 + self.idle)  # it reaches the former
        if low < high and is_its_turn(high):
            low = high
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
