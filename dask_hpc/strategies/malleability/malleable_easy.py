"""MEBF, malleable EASY backfilling: moldable starts by priority, small shrinks, growth of long jobs."""

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
    """Seed 002, section 4.1, Algorithm 1, steps 1 and 3.

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
    """Seed 002, section 4.1, Algorithm 1, steps 2 and 4, and its feasibility routine.

    If no node is free, running jobs of lower priority than the first waiting one give ``sharing_factor``
    of their nodes each, lowest priority first, until that job can start; here nobody gives if that is
    not enough. A job may give if its predicted remaining time grows at most ``gamma``-fold. The printed
    prediction is first-order; ``exact`` uses ``1 / (1 - share)`` instead (which 20 % and 1.24 never meet).
    If nodes are free, running jobs of higher priority grow, the longest first, while more than a quarter
    of its recorded time is left to it and it gains more than ``realloc_cost``.

    Walltimes stand in for execution times recorded on a dedicated system. With equal priorities an
    earlier submission is the higher priority; ``victims: all`` lets every running job give.
    """

    name: ClassVar[str] = "malleable-easy"

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

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """Shrink for the head when nothing is free, else grow."""
        head = outlook.head
        if head is None and not outlook.idle:
            return (), None
        jobs = malleable(snapshot)
        if outlook.idle:
            return self._growths(jobs, head, outlook.idle, snapshot.now), None
        if head is None or not jobs:
            return (), None
        need = smallest_size(head) - leaving(snapshot)
        return self._shrinks(jobs, head, need, snapshot.now), None

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

    def _shrinks(self, jobs: list[Running], head: Job, need: int, now: float) -> list[Resize]:
        resizes = []
        if self.victims == "lower":
            jobs = [running for running in jobs if _place(running.job) > _place(head)]
        for running in sorted(jobs, key=lambda running: _place(running.job), reverse=True):
            if need <= 0:
                break
            size, job = len(running.nodes), running.job
            granted = max(1, floor(size * self.sharing_factor))
            target = smallest_legal(job.constraint, max(job.min_nodes, size - granted), size - 1)
            if target is not None and self.can_shrink(left(running, now), size, size - target):
                resizes.append(gives(running, target, head))
                need -= size - target
        return resizes if need <= 0 else []

    def _growths(self, jobs: list[Running], head: Job | None, idle: int, now: float) -> list[Resize]:
        resizes = []
        for running in sorted(jobs, key=lambda running: -running.job.walltime):
            job, size = running.job, len(running.nodes)
            if head is not None and _place(job) > _place(head):
                continue
            target, remaining = grown(job, size, idle), left(running, now)
            if target == size or not self.can_grow(remaining, job.walltime):
                continue
            if remaining < inf and remaining * (1 - stretch(job, size, target)) <= self.realloc_cost:
                continue
            resizes.append(takes(running, target))
            idle -= target - size
        return resizes


def _place(job: Job) -> tuple[float, float]:
    """Smaller is higher priority."""
    return -job.priority, job.submitted
