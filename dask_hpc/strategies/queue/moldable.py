"""Moldable starts: a job that does not fit at its start size starts on what is idle, if it can."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal, smallest_legal
from dask_hpc.strategies.queue.profile import shadow_time
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Moldable(QueueStrategy):
    """In order of arrival; whoever may run on several sizes starts on the largest idle one up to its own.

    Seed 000, section 1.2.1, lets the scheduler choose any valid start size, where its chapter 4 starts
    at ``--nodes``; this is the former, taken up again by seed 002's MEBF. A job shrunk at its start keeps
    the same work, so its walltime is stretched. ``overtake`` adds EASY's rule, with the first blocked
    job's reservation made for its smallest legal size.
    """

    name: ClassVar[str] = "moldable"

    overtake: Annotated[bool, Parameter("whether jobs that do not delay the first may overtake it")] = False

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start from the front, on fewer nodes if need be; then let others overtake, if they may."""
        return moldable_starts(snapshot, "with care" if self.overtake else "never"), None


def moldable_starts(snapshot: Snapshot, overtaking: Literal["never", "with care", "freely"]) -> list[Start]:
    """Whoever can start, in the queue's order, on the largest size that is idle.

    Behind the first that cannot: nobody, or those who do not delay its reservation, or everybody.
    """
    idle = snapshot.idle
    starts: list[Start] = []
    if not idle:
        return starts
    ends: list[tuple[float, int]] = []
    head: Job | None = None
    window, spare = inf, 0
    for job in snapshot.waiting:
        size = start_size(job, idle)
        if size is None and head is None:
            if overtaking == "never":
                break
            head = job
            if overtaking == "with care":
                shadow, spare = shadow_time(snapshot, ends, smallest_size(job), idle)
                window = shadow - snapshot.now
            continue
        if head is not None and size is not None and job.walltime_on(size) > window:
            size = start_size(job, min(idle, spare))
            spare -= size or 0
        if size is None:
            continue
        reason = "first in the queue" if head is None else f"overtakes job {head.id}"
        reason += "" if size == job.nodes else f"; on {size} of {job.nodes} nodes"
        starts.append(Start(job.id, size, reason))
        ends.append((snapshot.now + job.walltime_on(size), size))
        idle -= size
        if not idle:
            break
    return starts


def start_size(job: Job, idle: int) -> int | None:
    """Its start size if that is idle, else the largest smaller one it can use, or None."""
    if job.nodes <= idle:
        return job.nodes
    return None if job.kind == "rigid" else largest_legal(job.constraint, job.min_nodes, idle)


def smallest_size(job: Job) -> int:
    """The fewest nodes it can start on."""
    if job.kind == "rigid":
        return job.nodes
    return smallest_legal(job.constraint, job.min_nodes, job.nodes) or job.nodes
