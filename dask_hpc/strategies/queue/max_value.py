"""Most value first: who earns most by its end, or most for what it takes, starts first."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job, worth
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.queue.fcfs import whoever_fits
from dask_hpc.strategies.queue.foresight import Foresight
from dask_hpc.strategies.strategy import Starts

#: seconds that count for a job of which nobody knows what it takes
_UNKNOWN = 3600.0


@dataclass(frozen=True, slots=True)
class MaxValue(Foresight):
    """The job that is worth most when it would end starts first; seed 003, section 4.7.5.

    Whoever fits starts, in the order of what the job would be worth if it started now and took what is
    expected; or of that ``per`` second, per node, or per node and second (the source's value per resource).
    The source says nothing of jobs that would be worth nothing any more: here they come last, and start if
    they fit. Given up as with ``slack``, they would make this as good as that, which the source says it is
    not. A job that says no value has that of its size: the hours of its nodes.
    """

    name: ClassVar[str] = "max-value"
    essential: ClassVar[tuple[str, ...]] = ("per", "expected")

    per: Annotated[
        Literal["job", "time", "node", "node-time"], Parameter("of what the most value is wanted")
    ] = "job"

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start whoever fits."""
        now = snapshot.now
        worths: dict[str, float] = {}

        def key(job: Job) -> float:
            seconds = self.seconds(job)
            time = _UNKNOWN if seconds is None else seconds
            size = job.nodes * (job.walltime if job.walltime < inf else _UNKNOWN) / 3600.0
            worths[job.id] = value = worth(job, now + time, default=size) if time < inf else 0.0
            over = (time if "time" in self.per else 1.0) * (job.nodes if "node" in self.per else 1)
            return -value / over

        return whoever_fits(snapshot, lambda job: f"worth {worths[job.id]:.3g} when it ends", key), None
