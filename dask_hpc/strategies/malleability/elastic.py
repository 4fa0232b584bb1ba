"""Elastic: nodes go where they are worth most, whether the job there runs or waits."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf, log
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.speedup import IoScaling, PowerLaw, Speedup, next_legal_down, smallest_legal
from dask_hpc.model.units import count_nodes
from dask_hpc.model.waiting import Hole
from dask_hpc.strategies.malleability.grow_shrink import leaving, left, malleable
from dask_hpc.strategies.queue.moldable import smallest_size
from dask_hpc.strategies.queue.profile import shadow_time
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, QueueStrategy, Resizes, Starts

#: of jobs that say nothing about their scaling and were not measured
_ASSUMED = PowerLaw(0.9)


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


@dataclass(frozen=True, slots=True)
class Value:
    """The worth of nodes to one job: speed gained per node, weighted by how little work it has left."""

    curve: Speedup
    weight: float
    #: seconds it holds its nodes without working, over its work: the shorter the job, the less speed
    #: helps it to be done with its nodes
    drag: float = 0.0

    def between(self, small: int, large: int) -> float:
        """Of each node from ``small`` (exclusive) to ``large``."""
        fewer = self._speed(small) if small else 0.0
        return (self._speed(large) - fewer) / (large - small) * self.weight

    def _speed(self, nodes: int) -> float:
        factor = self.curve.factor(nodes)
        return factor / (1.0 + factor * self.drag) if self.drag else factor


def work_of(job: Job) -> float:
    """Its work by its walltime, in seconds on one node; a job of one size makes full use of its nodes."""
    return job.walltime * (job.nodes if job.kind == "rigid" else scaling(job).factor(job.nodes))


def weight_of(work: float, bias: float) -> float:
    """How much a job counts that has this much work left."""
    if not bias:
        return 1.0
    return float(max(work, 1.0) ** -bias) if work < inf else 0.0


class Room:
    """Nodes that running jobs could give, the least valuable first."""

    def __init__(self, jobs: list[Running], values: dict[str, Value]) -> None:
        self._heap: list[tuple[float, int, int, int, Job, Value]] = []
        #: how many nodes that is, if value is no matter
        self.total = 0
        for order, running in enumerate(jobs):
            job, size = running.job, len(running.nodes)
            self.total += size - (smallest_legal(job.constraint, job.min_nodes, size) or size)
            self._offer(-order, size, job, values[job.id])  # of equals, the youngest gives first

    def _offer(self, order: int, size: int, job: Job, value: Value) -> None:
        smaller = next_legal_down(job.constraint, size, job.min_nodes)
        if smaller is not None:
            worth = value.between(smaller, size)
            heappush(self._heap, (worth, order, smaller, size - smaller, job, value))

    def give(self, nodes: int, worth: float) -> dict[str, int]:
        """New sizes that free ``nodes`` nodes or a few more, all worth less than ``worth`` where they
        are; none if there are not that many."""
        heap = self._heap
        if nodes > self.total or not heap or heap[0][0] >= worth:
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
            self._offer(order, smaller, job, value)
        return changed


class Growth:
    """Nodes that jobs would take, the most valuable first; ``targets`` are the sizes they were given."""

    def __init__(self, idle: int) -> None:
        self.idle = idle
        self.targets: dict[str, int] = {}
        self._heap: list[tuple[float, int, int, int, Job, Value]] = []
        self._order = 0

    def join(self, job: Job, size: int, value: Value) -> None:
        """This job has ``size`` nodes and could use more."""
        self._order += 1
        self._offer(self._order, size, job, value)

    def _offer(self, order: int, size: int, job: Job, value: Value) -> None:
        larger = smallest_legal(job.constraint, size + 1, job.max_nodes)
        if larger is not None and (worth := value.between(size, larger)) > 0:
            heappush(self._heap, (-worth, order, larger, larger - size, job, value))

    def spread(self, above: float = -inf) -> None:
        """Give idle nodes away, step by legal step, while they are worth more than ``above``."""
        heap = self._heap
        while heap and self.idle and -heap[0][0] > above:
            _, order, larger, nodes, job, value = heappop(heap)
            if nodes <= self.idle:
                self.idle -= nodes
                self.targets[job.id] = larger
                self._offer(order, larger, job, value)


class Quiet(NamedTuple):
    """When there was nothing to do, and with which machine and queue."""

    revision: int
    arrivals: int
    time: float

    @classmethod
    def now(cls, snapshot: Snapshot) -> "Quiet":
        """At this moment."""
        return cls(snapshot.revision, snapshot.waiting.arrivals, snapshot.now)

    def lasts(self, snapshot: Snapshot, seconds: float) -> bool:
        """Whether nothing has happened since, and that was no longer ago."""
        return snapshot.now - self.time < seconds and self[:2] == Quiet.now(snapshot)[:2]


@dataclass(frozen=True, slots=True)
class _Elastic:
    """What both parts of ``elastic`` must know alike, and the decision itself, which they carry out
    half each.

    The worth of a node to a job is the speed it adds, by the job's scaling model (or one fitted to its
    measured MTCT), over the job's remaining work to the power of ``bias``; the nodes a job starts on are
    taken to be fully used. Jobs that wait are served in order of worth, little work first. One starts on
    the fewest nodes it can use, if they are idle and no running job makes more of them; or running jobs
    give it theirs, if those are worth ``hysteresis`` times more to it. What is left goes to running
    and starting jobs, step by legal step, wherever it is worth most. So growth never keeps useful work
    waiting, and a full queue keeps sizes small and therefore efficient. Orders of service and of worth
    must agree, or nodes would go round in circles.

    The work of a job of one size counts ``fixed`` times: it goes earlier, and jobs that can fill any gap
    remain for the end. Each second since its submission counts as ``aging`` node-seconds of work that a
    job no longer has, and each node its user holds as ``fairness`` more. A job that has waited for
    ``patience`` has EASY's reservation, which counts on all nodes that running jobs could give: nobody who
    would delay it starts any more.

    Jobs without a walltime keep the order of their arrival, after those with one, start on what they ask
    for, and grow only while nobody waits: nothing is known of what anything else would bring.

    Where jobs scale linearly, one after the other on the whole machine is best, but ruinous if starting a
    job takes time. ``overhead``, and what the body knows of it, keeps short jobs small: on the ESP mix with
    30 s to start, 30 s to clean up and a decision a minute the makespan is 12 ks with it and 24 ks without.

    The defaults were tried on the ESP mix of seed 000 (32 nodes, exact walltimes, no resize cost, power
    laws of exponent 1.0 to 0.5; means over 4 to 6 orders) and on random small workloads. With 20 to 100 %
    malleable jobs, makespan and mean response were below those of every published strategy. Without any,
    response was 10 % below the best of them, MEBF, and makespan 2 % above it (6 % below EASY); with 10 %,
    makespan was between 5 % below and 0.3 % above. ``bias`` from 0.1 up costs makespan where jobs
    scale badly.
    """

    essential: ClassVar[tuple[str, ...]] = ("bias", "hysteresis", "cost", "patience")

    bias: Annotated[
        float,
        Parameter("0: work is work (makespan); 1: little work left counts more (response)", low=0, high=2),
    ] = 0.03
    hysteresis: Annotated[
        float,
        Parameter("how many times more a node must be worth elsewhere to be taken away", low=1.0, high=1e6),
    ] = 1.2
    cost: Annotated[
        float, Parameter("what a resize costs a job: growth must save more", unit="s", low=0.0)
    ] = 0.0
    overhead: Annotated[
        float,
        Parameter("how long a job holds nodes without work, beyond what the body knows", unit="s", low=0.0),
    ] = 0.0
    guard: Annotated[
        float, Parameter("leave a job alone when no more than this is left to it", unit="s", low=0.0)
    ] = 0.0
    dwell: Annotated[float, Parameter("least time between two resizes of a job", unit="s", low=0.0)] = 0.0
    fixed: Annotated[
        float,
        Parameter(
            "how much the work of a job of one size counts; below 1 it goes earlier", low=0.0, high=1e3
        ),
    ] = 0.5
    patience: Annotated[
        float, Parameter("how long a job waits until nobody may delay it any more", unit="s", low=0.0)
    ] = 14_400.0
    aging: Annotated[
        float,
        Parameter("node-seconds of work that a second since submission counts", low=0.0, high=1e9),
    ] = 0.05
    depth: Annotated[
        int, Parameter("how many waiting jobs one decision considers", unit="jobs", low=1, high=1_000_000)
    ] = 250
    recheck: Annotated[
        float, Parameter("look again after so long even if nothing has happened", unit="s", low=0.0)
    ] = 60.0
    fairness: Annotated[
        float,
        Parameter("node-seconds of work that a node held by its user, over priority, counts", low=0.0),
    ] = 0.0

    def work(self, job: Job) -> float:
        """The work of a job that waits, as it counts."""
        return work_of(job) * (self.fixed if job.kind == "rigid" else 1.0)

    def share(self, snapshot: Snapshot) -> "Sharing":
        """The whole decision."""
        now, idle = snapshot.now, snapshot.idle
        least = max(self.guard, self.cost)
        movable = [
            r for r in malleable(snapshot) if left(r, now) > least and now - r.resized_at >= self.dwell
        ]
        growing = {r.job.id: r for r in movable} if idle else {}
        while True:
            sharing = Sharing(self, snapshot, movable, growing)
            sharing.serve()
            sharing.growth.spread()
            useless = [r for r in growing.values() if not self._worthwhile(r, sharing.growth.targets, now)]
            if not useless:
                return sharing
            for running in useless:
                del growing[running.job.id]

    def _worthwhile(self, running: Running, targets: dict[str, int], now: float) -> bool:
        target = targets.get(running.job.id)
        if target is None or not self.cost:
            return True
        return left(running, now) * (1 - stretch(running.job, len(running.nodes), target)) > self.cost


class Sharing:
    """One decision: who starts on what, who grows to what, and who gives nodes so that whom can start."""

    def __init__(
        self, wish: _Elastic, snapshot: Snapshot, movable: list[Running], growing: Iterable[str]
    ) -> None:
        self._wish, self._snapshot, self._now = wish, snapshot, snapshot.now
        self.starts: dict[str, int] = {}
        self.gives: dict[str, int] = {}
        self.beneficiaries: dict[str, str] = {}
        #: until when, and for how many nodes, others may use what the longest-waiting job will need
        self._window, self._spare = inf, 0
        #: nodes by user, if that matters
        self._held: Counter[str] = Counter()
        for running in snapshot.running.values() if wish.fairness else ():
            self._held[running.job.user] += len(running.nodes)
        values = {r.job.id: self._value(r) for r in movable}
        self.room, self.growth = Room(movable, values), Growth(snapshot.idle)
        for job_id in growing:
            running = snapshot.running[job_id]
            self.growth.join(running.job, len(running.nodes), values[job_id])

    def serve(self) -> None:
        """Look for nodes for the waiting jobs, in order of worth."""
        growth, room, wish, waiting = self.growth, self.room, self._wish, self._snapshot.waiting
        if not len(waiting) or not (growth.idle or room.total):
            return
        coming = leaving(self._snapshot)
        late = self._late()
        turn: Iterable[Job] = waiting
        if wish.fairness:
            turn = sorted(turn, key=lambda job: self._effective(job, wish.work(job), 0.0))
        if late is not None:
            turn = chain([late], (job for job in turn if job is not late))
        for job in islice(turn, wish.depth):
            least = smallest_size(job) if job.walltime < inf else job.nodes
            if least > growth.idle + coming + room.total and job is not late:
                continue
            weight = weight_of(self._effective(job, wish.work(job), self._now), wish.bias)
            growth.spread(above=inf if job is late else weight)
            if job is not late and not self._passes(job, least):
                continue
            if least <= growth.idle:
                self.starts[job.id] = least
                growth.idle -= least
                if job.kind != "rigid":
                    growth.join(job, least, Value(scaling(job), weight, self._drag(wish.work(job))))
            elif least <= growth.idle + coming:
                coming -= least - growth.idle
                growth.idle = 0
            elif gives := room.give(
                least - growth.idle - coming, inf if job is late else weight / wish.hysteresis
            ):
                self.gives |= gives
                self.beneficiaries |= dict.fromkeys(gives, job.id)
                growth.idle = coming = 0
            if not growth.idle and not room.total:
                return
        if growth.idle and len(waiting) > wish.depth and not wish.fairness:
            self._serve_the_rest(job)

    def _serve_the_rest(self, last: Job) -> None:
        """Beyond ``depth`` nobody shrinks for a job, but one that just fits may start."""
        hole, waiting = Hole(self.growth.idle), self._snapshot.waiting
        for job in waiting.fitting(waiting.key(last.id), hole):
            if job.id not in self.starts and self._passes(job, job.nodes):
                self.starts[job.id] = job.nodes
                hole.idle -= job.nodes
        self.growth.idle = hole.idle

    def _late(self) -> Job | None:
        """The job that has waited longest, and too long; if it cannot start now, its reservation."""
        if self._wish.patience == inf:
            return None
        late = min(self._snapshot.waiting, key=attrgetter("submitted"))
        if self._now - late.submitted < self._wish.patience or late.walltime == inf:
            return None
        least, available = smallest_size(late), self.growth.idle + self.room.total
        if least > available:
            shadow, self._spare = shadow_time(self._snapshot, (), least, available)
            self._window = shadow - self._now
        return late

    def _passes(self, job: Job, least: int) -> bool:
        """Whether the job that waits too long is not delayed."""
        if self._window == inf or job.walltime_on(least) <= self._window:
            return True
        if least > self._spare:
            return False
        self._spare -= least
        return True

    def _effective(self, job: Job, work: float, now: float) -> float:
        share = self._held[job.user] / (job.priority if job.priority > 0 else 1.0)
        return work - self._wish.aging * (now - job.submitted) + self._wish.fairness * share

    def _value(self, running: Running) -> Value:
        size, job = len(running.nodes), running.job
        curve = scaling(job, size, self._snapshot.mtct.get(job.id))
        work = left(running, self._now) * curve.factor(size)
        effective = self._effective(job, work, self._now)
        if effective == inf and not len(self._snapshot.waiting):
            return Value(curve, 1.0)
        return Value(curve, weight_of(effective, self._wish.bias), self._drag(work))

    def _drag(self, work: float) -> float:
        return (self._wish.overhead + self._snapshot.overhead) / max(work, 1.0)


@dataclass(frozen=True, slots=True)
class ElasticQueue(_Elastic, QueueStrategy):
    """The job for which nodes are worth most starts first; ours.

    See the malleability strategy of that name, which belongs to it and should have the same parameters.
    Without malleable jobs it is backfilling in order of work, with a reservation only for a job that has
    waited too long.
    """

    name: ClassVar[str] = "elastic"

    def rank(self, job: Job) -> Any:
        """Little work first, but early arrivals before much later ones."""
        return self.work(job) + self.aging * job.submitted

    def decide(self, snapshot: Snapshot, memory: Quiet | None) -> tuple[Starts, Quiet | None]:
        """Start those whose turn it is."""
        if not snapshot.idle or not len(snapshot.waiting):
            return (), None
        if memory is not None and memory.lasts(snapshot, self.recheck):
            return (), memory
        sharing = self.share(snapshot)
        sizes = {
            job_id: sharing.growth.targets.get(job_id, least) for job_id, least in sharing.starts.items()
        }
        starts = [Start(*one, f"makes good use of {count_nodes(one[1])}") for one in sizes.items()]
        return starts, None if starts else Quiet.now(snapshot)


@dataclass(frozen=True, slots=True)
class Elastic(_Elastic, MalleabilityStrategy):
    """Nodes go to the running job for which they are worth most; ours.

    It answers what the digest of seed 000 (4.4) found nobody to have:
    malleability with backfilling, predicted benefit, resize cost, hysteresis, constraints, fairness. Made
    for the queue strategy ``elastic``; beside another it may shrink jobs for one that does not start.
    """

    name: ClassVar[str] = "elastic"

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: Quiet | None
    ) -> tuple[Resizes, Quiet | None]:
        """Shrinks for those whose turn it is, or growths. Starts come first: then ask again."""
        if outlook.idle != snapshot.idle or not (outlook.idle or outlook.head):
            return (), None
        if memory is not None and memory.lasts(snapshot, self.recheck):
            return (), memory
        sharing, resizes = self.share(snapshot), []
        for job_id, size in sharing.gives.items():
            given = count_nodes(len(snapshot.running[job_id].nodes) - size)
            resizes.append(
                Resize(job_id, size, f"worth more to job {sharing.beneficiaries[job_id]}: {given}")
            )
        if resizes:
            return resizes, None
        for job_id, size in sharing.growth.targets.items():
            if job_id in snapshot.running:
                more = count_nodes(size - len(snapshot.running[job_id].nodes), "idle")
                resizes.append(Resize(job_id, size, f"makes the most of {more}"))
        return resizes, None if resizes else Quiet.now(snapshot)
