"""What a node is worth to a job, who would give some and who would take some: the sums behind ``elastic``."""

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf, log

from dask_hpc.model.constraint import next_legal_down, smallest_legal
from dask_hpc.model.indices import Running
from dask_hpc.model.io_demand import IoScaling
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw, Speedup

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

    __slots__ = ("_heap", "_sizes", "_values", "total")

    def __init__(self, jobs: list[Running], values: dict[str, Value]) -> None:
        self._values = values
        self._sizes = {running.job.id: len(running.nodes) for running in jobs}
        self._heap: list[tuple[float, int, int, Job]] = []
        #: how many nodes that is, if value is no matter
        self.total = 0
        for order, running in enumerate(jobs):
            job, size = running.job, len(running.nodes)
            self.total += size - (smallest_legal(job.constraint, job.min_nodes, size) or size)
            self._push(job, -order)  # of equals, the youngest gives first

    def _push(self, job: Job, order: int) -> None:
        size = self._sizes[job.id]
        smaller = next_legal_down(job.constraint, size, job.min_nodes)
        if smaller is not None:
            heappush(self._heap, (self._values[job.id].between(smaller, size), order, smaller, job))

    def give(self, nodes: int, worth: float) -> dict[str, int]:
        """New sizes that free ``nodes`` nodes or a few more, all worth less than ``worth`` where they
        are; none if there are not that many."""
        heap = self._heap
        if nodes > self.total or not heap or heap[0][0] >= worth:
            return {}
        before, sizes, total = list(heap), dict(self._sizes), self.total
        changed: dict[str, int] = {}
        while nodes > 0:
            if not heap or heap[0][0] >= worth:
                self._heap, self._sizes, self.total = before, sizes, total
                return {}
            _, order, smaller, job = heappop(heap)
            freed = self._sizes[job.id] - smaller
            nodes -= freed
            self.total -= freed
            self._sizes[job.id] = changed[job.id] = smaller
            self._push(job, order)
        return changed


class Growth:
    """Nodes that jobs would take, the most valuable first; ``targets`` are the sizes they were given."""

    __slots__ = ("_heap", "_order", "_values", "idle", "targets")

    def __init__(self, idle: int) -> None:
        self.idle = idle
        self.targets: dict[str, int] = {}
        self._heap: list[tuple[float, int, int, int, Job]] = []
        self._values: dict[str, Value] = {}
        self._order = 0

    def join(self, job: Job, size: int, value: Value) -> None:
        """This job has ``size`` nodes and could use more."""
        self._order += 1
        self._values[job.id] = value
        step = self._step(job, size, self._order)
        if step is not None:
            heappush(self._heap, step)

    def _step(self, job: Job, size: int, order: int) -> tuple[float, int, int, int, Job] | None:
        larger = smallest_legal(job.constraint, size + 1, job.max_nodes)
        if larger is None:
            return None
        worth = self._values[job.id].between(size, larger)
        return (-worth, order, larger, larger - size, job) if worth > 0 else None

    def spread(self, above: float = -inf) -> None:
        """Give idle nodes away, step by legal step, while they are worth more than ``above``."""
        heap = self._heap
        while heap and self.idle and -heap[0][0] > above:
            _, order, larger, nodes, job = heap[0]
            if nodes > self.idle:
                heappop(heap)
                continue
            self.idle -= nodes
            self.targets[job.id] = larger
            step = self._step(job, larger, order)
            if step is None:
                heappop(heap)
            else:
                heapreplace(heap, step)
