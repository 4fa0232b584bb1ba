"""EASY backfilling: only the first blocked job has a reservation; whoever does not delay it may overtake."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import merge
from math import inf
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.fcfs import from_the_front
from dask_hpc.strategies.strategy import Starts


@dataclass(frozen=True, slots=True)
class EasyBackfill:
    """Start in order of arrival; let later jobs fill holes that do not delay the head.

    Seed 001, section 5.1.1. The shadow time is when the head can start if running jobs use their whole
    walltime; a later job may start now if it ends by then, or if it fits into the nodes that the head
    will leave over. Without walltimes the shadow time may be never, and then every job that fits may
    overtake.
    """

    concern: ClassVar[str] = "queue"
    name: ClassVar[str] = "easy-backfill"

    depth: Annotated[
        int,
        Parameter("how many jobs may overtake in one decision", unit="jobs", low=0, high=1_000_000),
    ] = 1_000_000

    def rank(self, job: Job) -> Any:
        """Arrival order alone decides."""
        return 0

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start from the front, reserve for the first that does not fit, then backfill."""
        starts, head, idle = from_the_front(snapshot)
        if head is None or not idle or len(snapshot.waiting) == len(starts) + 1:
            return starts, None
        now = snapshot.now
        waiting = snapshot.waiting
        shadow, spare = reservation(snapshot, starts, head, idle)
        window = shadow - now
        candidate = waiting.next_fitting(head, idle, window, spare)
        overtaking = 0
        while candidate is not None and overtaking < self.depth:
            nodes = candidate.nodes
            if window == inf:
                reason = f"overtakes job {head.id}: nobody knows when that can start"
            elif candidate.walltime <= window:
                reason = f"overtakes job {head.id}: ends before its reservation at {shadow:g} s"
            else:
                reason = f"overtakes job {head.id}: it leaves {spare} nodes over at {shadow:g} s"
                spare -= nodes
            starts.append(Start(candidate.id, nodes, reason))
            overtaking += 1
            idle -= nodes
            candidate = waiting.next_fitting(candidate, idle, window, spare) if idle else None
        return starts, None


def reservation(snapshot: Snapshot, starts: list[Start], head: Job, idle: int) -> tuple[float, int]:
    """The shadow time of ``head`` and the nodes it will leave over then.

    ``starts`` (the first jobs of the queue) are decided but not yet carried out; ``idle`` is what they
    leave. A head that needs more nodes than there are has no shadow time: infinity.
    """
    now = snapshot.now
    ends: Iterable[tuple[float, int]] = (
        (running.expected_end, len(running.nodes)) for running in snapshot.by_expected_end()
    )
    if starts:
        started = zip(snapshot.waiting, starts, strict=False)
        ends = merge(ends, sorted((now + job.walltime, job.nodes) for job, _ in started))
    missing = head.nodes - idle
    shadow = now
    for end, nodes in ends:
        if missing <= 0 and end > shadow:
            break
        shadow = max(end, now)
        missing -= nodes
    return (inf, idle) if missing > 0 else (shadow, -missing)
