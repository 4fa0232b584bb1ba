"""First come, first served: start from the front of the queue, stop at the first that does not fit."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Fcfs(QueueStrategy):
    """Start jobs strictly in order of arrival; seed 001, section 5.1.1."""

    name: ClassVar[str] = "fcfs"

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start the head of the queue, again and again, while it fits."""
        return from_the_front(snapshot)[0], None


def from_the_front(snapshot: Snapshot) -> tuple[list[Start], Job | None, int]:
    """Starts from the front while they fit; the first job that does not; the nodes then left idle."""
    idle = snapshot.idle
    starts: list[Start] = []
    head = snapshot.waiting.first if idle else None
    if head is None or head.nodes > idle:  # nearly always
        return starts, head, idle
    for job in snapshot.waiting:
        if job.nodes > idle:
            return starts, job, idle
        starts.append(Start(job.id, job.nodes, f"first in the queue, {count_nodes(idle)} idle"))
        idle -= job.nodes
    return starts, None, idle
