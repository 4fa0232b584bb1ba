"""What a machine draws by the figures of its jobs: as it is, and once everything decided has happened."""

from dataclasses import dataclass, field
from math import floor, inf

from dask_hpc.model.constraint import largest_legal
from dask_hpc.model.job import Job
from dask_hpc.model.power import UNKNOWN, PowerRange, PowerView
from dask_hpc.model.snapshot import Snapshot

TINY = 1e-6  # watts that count as nothing: rounding errors of sums


@dataclass(slots=True)
class Sum:
    """Nodes that jobs hold, and their power."""

    nodes: int = 0
    least: float = 0.0
    most: float = 0.0

    def add(self, nodes: int, power: PowerRange) -> None:
        """So many nodes more (or less, if negative) of this power."""
        self.nodes += nodes
        self.least += nodes * power.least
        self.most += nodes * power.most


@dataclass(slots=True)
class Balance:
    """The account of one decision: whatever is decided is booked here at once.

    A job that is changing its size counts with the larger one in ``peak``, because tasks that run cannot be
    interrupted, and with the one it is on its way to in ``planned``. Starts and growths must fit under
    the peak; whether the corridor is broken, and what is done about it, goes by what is planned, or the
    same violation would be answered again and again until the first answer has come to effect.

    ``bias`` is what the machine draws beyond all figures; ``extra`` what somebody foretells beyond that.
    """

    view: PowerView
    size: int
    bias: float = 0.0
    extra: PowerRange = UNKNOWN
    held: int = 0
    #: nodes that no job holds and that cannot be held, either
    restless: int = 0
    #: watts that caps and releases of a moment ago are going to save
    cut: float = 0.0
    #: nobody is trusted to draw less than a node that works usually does
    is_wary: bool = False
    jobs: Sum = field(default_factory=Sum)
    peak_jobs: Sum = field(default_factory=Sum)

    @classmethod
    def of(cls, snapshot: Snapshot, view: PowerView, **more: object) -> "Balance":
        """The machine as it is, with everything that is under way."""
        balance = cls(view, snapshot.size, held=view.held, **more)  # type: ignore[arg-type]
        for job_id, running in snapshot.running.items():
            power, nodes = balance.per_node(job_id), len(running.nodes)
            balance.peak_jobs.add(nodes, balance.at_worst(job_id))
            balance.jobs.add(nodes if running.target is None else running.target, power)
        if view.holdable is not None:
            balance.restless = max(0, snapshot.size - balance.peak_jobs.nodes - view.holdable)
        return balance

    def per_node(self, job_id: str) -> PowerRange:
        """What is to be expected of one node of a job."""
        return self.view.per_node(job_id)

    def at_worst(self, job_id: str) -> PowerRange:
        """What one node may draw at most: where readings are in doubt, what working nodes usually do."""
        power = self.view.per_node(job_id)
        return PowerRange(power.least, max(power.most, self.view.active.most)) if self.is_wary else power

    @property
    def outside_power(self) -> PowerRange:
        """Of a node that works outside of jobs."""
        return self.view.active if self.view.outside == UNKNOWN else self.view.outside

    @property
    def outside(self) -> int:
        """Nodes that will work outside of jobs."""
        return min(self.view.outside_wanted, max(0, self.free - self.held))

    @property
    def free(self) -> int:
        """Nodes that no job will hold."""
        return self.size - self.jobs.nodes

    @property
    def planned(self) -> PowerRange:
        """Of the machine, once everything decided has happened."""
        return self._total(self.jobs, self.outside)

    @property
    def peak(self) -> float:
        """The most that may be drawn until then."""
        return self.with_outside(max(self.view.outside_nodes, self.outside))

    def with_outside(self, nodes: int) -> float:
        """The most that may be drawn until then with so many nodes at work outside of jobs."""
        return self._total(self.peak_jobs, nodes).most

    @property
    def working(self) -> int:
        """Nodes that work, until then."""
        outside = max(self.view.outside_nodes, self.outside)
        return self.peak_jobs.nodes + min(outside, self.size - self.peak_jobs.nodes)

    @property
    def resting(self) -> float:
        """Watts of all nodes that do not, and whatever has no node."""
        return (self.size - self.working) * self.view.idle + self.bias + self.extra.most

    @property
    def active(self) -> float:
        """Watts that work adds to the planned power."""
        outside = self.outside * (self.outside_power.most - self.view.idle)
        return self.jobs.most - self.jobs.nodes * self.view.idle + outside

    @property
    def now(self) -> PowerRange:
        """Of the machine as it is, by its figures alone."""
        total = self._total(self.peak_jobs, self.view.outside_nodes)
        return PowerRange(
            total.least - self.bias + self.extra.least, total.most - self.bias - self.extra.most
        )

    def _total(self, jobs: Sum, outside: int) -> PowerRange:
        free = self.size - jobs.nodes
        outside = min(outside, free)
        power = self.outside_power
        rest = (free - outside) * self.view.idle + self.bias - self.cut
        return PowerRange(
            jobs.least + outside * power.least + rest - self.extra.least,
            jobs.most + outside * power.most + rest + self.extra.most,
        )

    def book(self, job_id: str, before: int, after: int) -> None:
        """A job is to have another size. What it gives up it draws until it is gone."""
        self.jobs.add(after - before, self.per_node(job_id))
        if after > before or self.at_worst(job_id).most < self.view.idle:
            self.peak_jobs.add(after - before, self.at_worst(job_id))

    def fits(self, job_id: str, before: int, after: int, ceiling: float) -> bool:
        """Whether a job may grow so far, or start so large, without exceeding a bound on the way."""
        if ceiling == inf:
            return True
        peak = self.peak
        self.peak_jobs.add(after - before, self.at_worst(job_id))
        fits = self.peak <= max(ceiling, peak) + TINY  # who adds nothing does no harm
        self.peak_jobs.add(before - after, self.at_worst(job_id))
        return fits

    def alone(self, job_id: str, nodes: int) -> float:
        """The most that would be drawn if nobody worked but this job, on so many nodes."""
        power = self.at_worst(job_id).most
        return nodes * power + (self.size - nodes) * self.view.idle + self.bias + self.extra.most

    def largest(self, job: Job, before: int, wanted: int, ceiling: float) -> int:
        """The largest legal size up to the wanted one that fits; ``before`` (0: it waits) if none does."""
        least = max(before + 1, job.min_nodes)
        size = largest_legal(job.constraint, least, wanted)
        if size is None or self.fits(job.id, before, size, ceiling):
            return size or before
        step = self.at_worst(job.id).most - self.view.idle
        room = max(0.0, ceiling - self.peak)
        high = min(size - 1, before + floor((room + TINY) / step)) if step > 0 else size - 1
        while high >= least:
            size = largest_legal(job.constraint, least, high)
            if size is None:
                break
            if self.fits(job.id, before, size, ceiling):
                return size
            high = size - 1
        return before
