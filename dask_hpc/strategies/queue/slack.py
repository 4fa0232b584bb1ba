"""Least slack first: who has the least time to spare before his deadline starts first."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Drop
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import show_duration
from dask_hpc.strategies.queue.fcfs import whoever_fits
from dask_hpc.strategies.queue.foresight import Foresight
from dask_hpc.strategies.strategy import Starts


@dataclass(frozen=True, slots=True)
class Slack(Foresight):
    """The job with the least time to spare before its deadline starts first; seed 003, section 4.7.4.

    The queue is in order of slack, the time from now to a job's deadline beyond what it is expected to take;
    whoever fits starts, in that order, and nobody has a reservation. As printed the slack does not depend on
    the time of day, and would never be negative (digest, G9): it is counted from now, which leaves the order
    as it is. One of which nobody knows what it takes takes no time, and one without a deadline comes last.
    The source gives up jobs whose slack is negative. Here that has to be asked for, because a live cluster
    would cancel somebody's work for it.
    """

    name: ClassVar[str] = "slack"
    essential: ClassVar[tuple[str, ...]] = ("drop", "expected")

    drop: Annotated[bool, Parameter("whether jobs that cannot meet their deadline any more are given up")] = (
        False
    )

    @property
    def gives_up(self) -> bool:
        return self.drop

    def rank(self, job: Job) -> float:
        """The latest time at which it may start."""
        return inf if job.deadline is None else job.deadline - (self.seconds(job) or 0.0)

    def drops(self, snapshot: Snapshot) -> Sequence[Drop]:
        """Jobs whose latest time to start is over."""
        found = []
        for job in snapshot.waiting:
            late = snapshot.now - self.rank(job)
            if late > 0:
                by = f"by {show_duration(late)} at least" if late < inf else "whenever it starts"
                found.append(Drop(job.id, f"would miss its deadline {by}"))
        return found

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start whoever fits."""

        def why(job: Job) -> str:
            spare = self.rank(job) - snapshot.now
            return f"has {show_duration(spare)} to spare" if 0 <= spare < inf else "fits"

        return whoever_fits(snapshot, why), None
