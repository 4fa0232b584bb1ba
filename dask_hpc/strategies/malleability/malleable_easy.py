"""MEBF, malleable EASY backfilling: moldable starts by priority, small shrinks, growth of long jobs."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.speedup import smallest_legal
from dask_hpc.strategies.malleability.grow_shrink import gives, grown, leaving, left, malleable, takes
from dask_hpc.strategies.queue.moldable import moldable_starts, smallest_size
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, QueueStrategy, Resizes, Starts


@dataclass(frozen=True, slots=True)
class MalleableEasyQueue(QueueStrategy):
    """Start by priority, on fewer nodes where not all are idle; seed 002, section 4.1, Algorithm 1, steps 1
    and 3.

    Every waiting job, in order of priority, starts on as many of its preferred nodes as are free, but at
    least its minimum. The printed BACKFILL step, another malleable job for the nodes left over, is what
    the loop does anyway. Although it is called EASY, no reservation is printed, and a later job can keep
    the first from starting for ever; ``reserve_head`` adds EASY's. Equal priorities: order of arrival.
    """

    name: ClassVar[str] = "malleable-easy"

    reserve_head: Annotated[bool, Parameter("whether the first job that cannot start has a reservation")] = (
        False
    )

    def rank(self, job: Job) -> Any:
        """Higher priorities first."""
        return -job.priority

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start whoever can."""
        return moldable_starts(snapshot, "with care" if self.reserve_head else "freely"), None


@dataclass(frozen=True, slots=True)
class MalleableEasy(MalleabilityStrategy):
    """Jobs give a share of their nodes for the one that waits, else long ones grow; seed 002, section 4.1,
    Algorithm 1, steps 2 and 4, and its feasibility routine.

    If no node is free, running jobs of lower priority than a waiting one give ``sharing_factor`` of their
    nodes each, lowest priority first, until that job can start; here nobody gives if that is not enough. A
    job may give if its predicted remaining time grows at most ``gamma``-fold. The printed prediction is
    first-order; ``exact`` uses ``1 / (1 - share)`` instead (which 20 % and 1.24 never meet). If nodes are
    free, running jobs of higher priority than a waiting one grow, the longest first, while more than a
    quarter of its recorded time is left to it and it gains more than ``realloc_cost``.

    As printed, this is done for each waiting job in turn, higher priorities first; ``pending: first`` looks
    at the head of the queue alone. In one decision a job changes its size once, so who has given for one that
    waits gives nothing for the next; whom the nodes are for in the end is the queue strategy's decision.

    Execution times are those recorded before (``Job.recorded``; the source takes them from runs on a
    dedicated system), brought to the job's present size; walltimes stand in for what is not known. What of it
    a quarter must be left is, as the source does not say, the time on the start nodes: who runs on fewer may
    grow until shortly before its end. With equal priorities an earlier submission is the higher priority;
    ``victims: all`` lets every running job give.
    """

    name: ClassVar[str] = "malleable-easy"
    essential = ("sharing_factor", "gamma", "victims")

    sharing_factor: Annotated[
        float, Parameter("share of its nodes that a job gives at once", low=0.0, high=0.99)
    ] = 0.20
    gamma: Annotated[
        float, Parameter("how many times longer a job may take after giving nodes", low=1.0, high=1e6)
    ] = 1.24
    realloc_cost: Annotated[float, Parameter("what a resize costs the job", unit="s", low=0.0)] = 0.0
    exact: Annotated[bool, Parameter("predict by 1 / (1 - share) instead of 1 + share")] = False
    quarter: Annotated[
        float, Parameter("share of its recorded time that a growing job must have left", low=0.0, high=1.0)
    ] = 0.25
    victims: Annotated[
        Literal["lower", "all"], Parameter("who gives: jobs of lower priority than the waiting one, or all")
    ] = "lower"
    pending: Annotated[
        Literal["each", "first"],
        Parameter("for which waiting jobs others change size: each in turn, or the first"),
    ] = "each"

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """Shrink for those that wait when nothing is free, else grow."""
        head = outlook.head
        if head is None and not outlook.idle:
            return (), None
        jobs = malleable(snapshot)
        if not jobs:
            return (), None
        if self.pending == "first":
            waiting = [] if head is None else [head]
        elif outlook.idle < snapshot.idle:
            return (), None  # somebody starts: the decision that follows knows who still waits
        else:
            waiting = [*snapshot.waiting]
        if outlook.idle:
            return self._growths(jobs, waiting, outlook.idle, snapshot.now), None
        return self._shrinks(jobs, waiting, leaving(snapshot), snapshot.now), None

    def can_shrink(self, remaining: float, size: int, granted: int) -> bool:
        """Equations 4.2 to 4.4; ``remaining`` seconds are left on ``size`` nodes."""
        if remaining <= 0 or remaining == inf:
            return False
        share = granted / size
        growth = share * remaining if not self.exact else remaining / (1 - share) - remaining
        return (remaining + growth + self.realloc_cost) / remaining <= self.gamma

    def can_grow(self, remaining: float, recorded: float) -> bool:
        """The quarter rule."""
        return remaining > self.quarter * recorded

    def _gift(self, running: Running, now: float) -> int:
        """How many nodes a job may give."""
        size, job = len(running.nodes), running.job
        granted = max(1, floor(size * self.sharing_factor))
        target = smallest_legal(job.constraint, max(job.min_nodes, size - granted), size - 1)
        if target is None or not self.can_shrink(remaining(running, now), size, size - target):
            return 0
        return size - target

    def _shrinks(self, jobs: list[Running], waiting: Iterable[Job], coming: int, now: float) -> list[Resize]:
        """``coming`` nodes are on their way already, for those that wait in front."""
        found = sorted(jobs, key=lambda running: _place(running.job), reverse=True)
        givers = [(running, gift) for running in found if (gift := self._gift(running, now))]
        resizes: list[Resize] = []
        for job in waiting:
            if not givers:
                break
            need = smallest_size(job) - coming
            if need <= 0:
                coming = -need
                continue
            chosen = 0
            for running, gift in givers:
                if need <= 0 or (self.victims == "lower" and _place(running.job) <= _place(job)):
                    break
                need -= gift
                chosen += 1
            if need <= 0:
                coming = -need
                resizes += [gives(one, len(one.nodes) - gift, job) for one, gift in givers[:chosen]]
                del givers[:chosen]
        return resizes

    def _growths(self, jobs: list[Running], waiting: list[Job], idle: int, now: float) -> list[Resize]:
        resizes = []
        last = max(map(_place, waiting), default=_LAST)
        for running in sorted(jobs, key=lambda running: -running.job.recorded_on(running.job.nodes)):
            job, size = running.job, len(running.nodes)
            if _place(job) > last:
                continue
            target, its_left = grown(job, size, idle), remaining(running, now)
            if target == size or not self.can_grow(its_left, job.recorded_on(job.nodes)):
                continue
            if its_left < inf and its_left * (1 - stretch(job, size, target)) <= self.realloc_cost:
                continue
            resizes.append(takes(running, target))
            idle -= target - size
        return resizes


def remaining(running: Running, now: float) -> float:
    """Seconds that a job is predicted to have left on the nodes it has: what was recorded, on these, less
    what it has done, on these; 0 if it takes longer than that. What the body expects is taken where nothing
    is recorded, and where it comes from the job's progress: of jobs without a walltime."""
    job, size, expected = running.job, len(running.nodes), left(running, now)
    if job.recorded is None or (job.walltime == inf and expected < inf):
        return expected
    if job.walltime == inf:
        return max(0.0, job.recorded_on(size) - (now - running.started))
    # the end that the walltime says moves with each change of size, so what is done of the work follows
    return max(0.0, expected - (job.walltime_on(size) - job.recorded_on(size)))


_LAST = (inf, inf)


def _place(job: Job) -> tuple[float, float]:
    """Smaller is higher priority."""
    return -job.priority, job.submitted
