"""Conservative backfilling: every waiting job has a reservation, and nobody may delay any of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf, nextafter
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.queue.profile import Profile
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Promises:
    """What is remembered: when each waiting job will start at the latest, and the nodes left free."""

    revision: int
    times: Mapping[str, float]
    profile: Profile


@dataclass(frozen=True, slots=True)
class ConservativeBackfill(QueueStrategy):
    """Give each job the earliest start that delays nobody before it; keep every such promise.

    Seed 001, section 5.1.1, calls this backfilling with a reservation for every job. When a job ends
    early the schedule is compressed: in queue order each reservation is lifted and made again, so it
    can only move forward. Only if nodes vanish, a job overstays, or a stopped job is put back ahead of the
    queue are promises made anew from scratch.
    """

    name: ClassVar[str] = "conservative-backfill"

    def decide(self, snapshot: Snapshot, memory: Promises | None) -> tuple[Starts, Promises]:
        """Bring the reservations up to date and start the jobs whose time has come."""
        now = snapshot.now
        overdue = any(running.expected_end <= now for running in islice(snapshot.by_expected_end(), 1))
        if memory is not None and memory.revision == snapshot.revision and not overdue:
            profile = memory.profile.copy()
            profile.forget_before(now)
            times = dict(memory.times)
        else:
            promised = memory.times if memory else {}
            stopped = takewhile(lambda job: snapshot.waiting.ahead_of(job.id), snapshot.waiting)
            if any(job.id not in promised for job in stopped):
                promised = {}  # somebody was put ahead of jobs with promises: seed 002, section 3.1.3
            profile, times = compressed(snapshot, promised, snapshot.waiting)
        starts: list[Start] = []
        first = snapshot.waiting.first
        for job in snapshot.waiting:
            time = times.get(job.id)
            if time is None:
                time = times[job.id] = profile.earliest(job.nodes, job.walltime)
                if time < inf:
                    profile.take(time, job.nodes, job.walltime)
            if time <= now:
                del times[job.id]
                place = "first in the queue" if job is first else "delays no job before it"
                starts.append(Start(job.id, job.nodes, f"its reservation is due; {place}"))
        return starts, Promises(snapshot.revision + len(starts), times, profile)


def compressed(
    snapshot: Snapshot, promised: Mapping[str, float], jobs: Iterable[Job]
) -> tuple[Profile, dict[str, float]]:
    """Reservations for the jobs that had one, each as early as the others allow. ``jobs`` are they, or more,
    in the queue's order."""
    now = snapshot.now
    soon = nextafter(now, inf)  # an overdue job still holds its nodes at this instant
    profile = Profile(
        now,
        snapshot.idle,
        ((max(r.expected_end, soon), len(r.nodes)) for r in snapshot.by_expected_end()),
    )
    base, known = profile.copy(), []
    for job in jobs:
        time = max(promised.get(job.id, inf), now)
        if time < inf:
            if not profile.fits(time, job.nodes, job.walltime):
                return base, {}  # the machine got worse: these promises cannot be kept
            profile.take(time, job.nodes, job.walltime)
            known.append((job, time))
    times: dict[str, float] = {}
    for job, time in known:
        profile.take(time, -job.nodes, job.walltime)
        times[job.id] = profile.earliest(job.nodes, job.walltime)
        profile.take(times[job.id], job.nodes, job.walltime)
    return profile, times
