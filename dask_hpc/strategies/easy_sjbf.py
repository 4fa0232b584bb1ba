"""EASY backfilling whose candidates are tried shortest first."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import show_duration
from dask_hpc.strategies.easy_backfill import EasyBackfill, Reservation, shadow_time
from dask_hpc.strategies.fcfs import from_the_front
from dask_hpc.strategies.strategy import Starts


@dataclass(frozen=True, slots=True)
class EasySjbf(EasyBackfill):
    """EASY with shortest-job backfilling: the head keeps its reservation, and among those that may
    overtake, shorter walltimes go first, then earlier arrivals.

    Known in the literature as EASY-SJBF; no seed names it. The reservation is that of ``easy-backfill``
    (seed 001, section 5.1.1).
    """

    name: ClassVar[str] = "easy-sjbf"

    def decide(self, snapshot: Snapshot, memory: Reservation | None) -> tuple[Starts, Reservation | None]:
        """Start from the front, reserve for the first that does not fit, then backfill."""
        waiting = snapshot.waiting
        head = waiting.first
        if memory is not None and memory.revision == snapshot.revision and head is not None:
            # Only the clock has moved, so whoever could not overtake before cannot now: ask newcomers.
            starts: list[Start] = []
            idle, shadow, spare, asked = snapshot.idle, memory.shadow, memory.spare, memory.asked
        else:
            starts, head, idle = from_the_front(snapshot)
            if head is None or not idle:
                return starts, None
            shadow, spare = shadow_time(snapshot, starts, head, idle)
            asked = waiting.key(head.id)
        window = shadow - snapshot.now
        found: list[Job] = []
        while (job := waiting.next_fitting(asked, idle, window, spare)) is not None:
            found.append(job)
            asked = waiting.key(job.id)
        found.sort(key=lambda job: job.walltime)
        overtaking = 0
        for job in found:
            if overtaking == self.depth:
                return starts, None
            if job.nodes > idle or (job.walltime > window and job.nodes > spare):
                continue
            if job.walltime > window:
                reason = f"the shortest that overtakes job {head.id}, which will leave {spare} nodes over"
                spare -= job.nodes
            elif shadow == inf:
                reason = f"overtakes job {head.id}: nobody knows when that can start"
            else:
                reason = f"the shortest to end before job {head.id} can start in {show_duration(window)}"
            starts.append(Start(job.id, job.nodes, reason))
            overtaking += 1
            idle -= job.nodes
        last = waiting.last_key
        assert last is not None
        return starts, Reservation(snapshot.revision + len(starts), shadow, spare, last)
