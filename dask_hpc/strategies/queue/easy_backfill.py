"""EASY backfilling: only the first blocked job has a reservation; whoever does not delay it may overtake."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes, show_duration
from dask_hpc.model.waiting import Hole, Key, Waiting
from dask_hpc.strategies.queue.fcfs import from_the_front
from dask_hpc.strategies.queue.profile import shadow_time
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is remembered: the head's reservation, good while the revision is; who was asked already."""

    revision: int
    shadow: float
    spare: int
    asked: Key


@dataclass(frozen=True, slots=True)
class EasyBackfill(QueueStrategy):
    """Start in order of arrival; let later jobs fill holes that do not delay the head.

    Seed 001, section 5.1.1. The shadow time is when the head can start if running jobs use their whole
    walltime; a later job may start now if it ends by then, or if it fits into the nodes that the head
    will leave over. Without walltimes the shadow time may be never, and then every job that fits may
    overtake.
    """

    name: ClassVar[str] = "easy-backfill"

    depth: Annotated[
        int,
        Parameter("how many jobs may overtake in one decision", unit="jobs", low=0, high=1_000_000),
    ] = 1_000_000

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
            started = zip(snapshot.waiting, starts, strict=False) if starts else ()
            ends = [(snapshot.now + job.walltime, job.nodes) for job, _ in started]
            shadow, spare = shadow_time(snapshot, ends, head.nodes, idle)
            asked = waiting.key(head.id)
        hole = Hole(idle, shadow - snapshot.now, spare)
        for overtaking, job in enumerate(self.candidates(waiting, asked, hole)):
            if overtaking == self.depth:
                return starts, None
            if job.walltime > hole.window:
                reason = f"overtakes job {head.id}, which will leave {count_nodes(hole.spare)} over"
                hole.spare -= job.nodes
            elif shadow == inf:
                reason = f"overtakes job {head.id}: nobody knows when that can start"
            else:
                reason = (
                    f"overtakes job {head.id}: ends before that can start in {show_duration(hole.window)}"
                )
            starts.append(Start(job.id, job.nodes, reason))
            hole.idle -= job.nodes
        last = waiting.last_key
        assert last is not None
        return starts, Reservation(snapshot.revision + len(starts), shadow, hole.spare, last)

    def candidates(self, waiting: Waiting, asked: Key, hole: Hole) -> Iterable[Job]:
        """Those behind ``asked`` who fit into the hole, which shrinks with everyone who is let in."""
        return waiting.fitting(asked, hole)


@dataclass(frozen=True, slots=True)
class EasySjbf(EasyBackfill):
    """EASY with shortest-job backfilling: the head keeps its reservation, and among those that may
    overtake, shorter walltimes go first, then earlier arrivals.

    Known in the literature as EASY-SJBF; no seed names it. All but the order of the candidates is that
    of ``easy-backfill`` (seed 001, section 5.1.1).
    """

    name: ClassVar[str] = "easy-sjbf"

    def candidates(self, waiting: Waiting, asked: Key, hole: Hole) -> Iterable[Job]:
        """Those behind ``asked`` who fit into the hole, the shortest first."""
        for job in sorted(waiting.fitting(asked, hole), key=lambda job: job.walltime):
            if job.nodes <= hole.idle and (job.walltime <= hole.window or job.nodes <= hole.spare):
                yield job
