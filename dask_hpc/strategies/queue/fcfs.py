"""First come, first served: start from the front of the queue, stop at the first that does not fit."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.strategy import Starts


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Start jobs strictly in order of arrival; seed 001, section 5.1.1."""

    concern: ClassVar[str] = "queue"
    name: ClassVar[str] = "fcfs"

    def rank(self, job: Job) -> Any:
        """Arrival order alone decides."""
        return 0

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start the head of the queue, again and again, while it fits."""
        starts, _, _ = from_the_front(snapshot)
        return starts, None


def from_the_front(snapshot: Snapshot) -> tuple[list[Start], Job | None, int]:
    """Starts from the front while they fit; the first job that does not; the nodes then left idle."""
    idle = snapshot.idle
    starts: list[Start] = []
    head = snapshot.waiting.first
    if head is None or not idle:
        return starts, None, idle
    if head.nodes > idle:
        return starts, head, idle
    for job in snapshot.waiting:
        if job.nodes > idle:
            return starts, job, idle
        starts.append(
            Start(job.id, job.nodes, f"first in the queue, {idle} node{'' if idle == 1 else 's'} idle")
        )
        idle -= job.nodes
    return starts, None, idle
