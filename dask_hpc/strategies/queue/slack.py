"""Least slack first: who has the least time to spare before his deadline starts first."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Drop, Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import show_duration
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Slack(QueueStrategy):
    """The job with the least time to spare before its deadline starts first; seed 003, section 4.7.3.

    The queue is in order of slack, the time from now to a job's deadline beyond what it takes to run; whoever
    fits starts, in that order, and nobody has a reservation. As printed the slack does not depend on the time
    of day, and would never be negative (digest, G9): it is counted from now, which leaves the order as it is.
    What a job takes is its walltime; one without a walltime takes no time, and one without a deadline comes
    last. The source gives up jobs whose slack is negative. Here that has to be asked for, because a live
    cluster would cancel somebody's work for it.
    """

    name: ClassVar[str] = "slack"

    drop: Annotated[bool, Parameter("whether jobs that cannot meet their deadline any more are given up")] = (
        False
    )

    @property
    def gives_up(self) -> bool:
        return self.drop

    def rank(self, job: Job) -> float:
        """The latest time at which it may start."""
        return _latest_start(job)

    def drops(self, snapshot: Snapshot) -> Sequence[Drop]:
        """Jobs whose latest time to start is over."""
        found = []
        for job in snapshot.waiting:
            late = snapshot.now - _latest_start(job)
            if late > 0:
                found.append(Drop(job.id, f"would miss its deadline by {show_duration(late)} at least"))
        return found

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start whoever fits."""
        idle, starts = snapshot.idle, []
        for job in snapshot.waiting if idle else ():
            if job.nodes <= idle:
                spare = _latest_start(job) - snapshot.now
                why = f"has {show_duration(spare)} to spare" if 0 <= spare < inf else "fits"
                starts.append(Start(job.id, job.nodes, why))
                idle -= job.nodes
        return starts, None


def _latest_start(job: Job) -> float:
    if job.deadline is None:
        return inf
    return job.deadline - (job.walltime if job.walltime < inf else 0.0)
