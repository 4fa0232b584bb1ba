"""Conservative backfilling: every waiting job has a reservation, and nobody may delay any of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nextafter
from typing import Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.profile import Profile
from dask_hpc.strategies.strategy import Starts


@dataclass(frozen=True, slots=True)
class Promises:
    """What is remembered: when each waiting job will start at the latest, and the nodes left free."""

    revision: int
    times: Mapping[str, float]
    profile: Profile


@dataclass(frozen=True, slots=True)
class ConservativeBackfill:
    """Give each job the earliest start that delays nobody before it; keep every such promise.

    Seed 001, section 5.1.1, calls this backfilling with a reservation for every job. When a job ends
    early the schedule is compressed: in queue order each reservation is lifted and made again, so it
    can only move forward. Only if nodes vanish or a job overstays are promises made anew from scratch.
    """

    concern: ClassVar[str] = "queue"
    name: ClassVar[str] = "conservative-backfill"

    def rank(self, job: Job) -> Any:
        """Arrival order alone decides."""
        return 0

    def decide(self, snapshot: Snapshot, memory: Promises | None) -> tuple[Starts, Promises]:
        """Bring the reservations up to date and start the jobs whose time has come."""
        now = snapshot.now
        if memory is not None and memory.revision == snapshot.revision:
            profile = memory.profile.copy()
            profile.forget_before(now)
            times = dict(memory.times)
        else:
            profile, times = _compressed(snapshot, memory.times if memory else {})
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


def _compressed(snapshot: Snapshot, promised: Mapping[str, float]) -> tuple[Profile, dict[str, float]]:
    """Reservations for the jobs that had one, each as early as the others allow."""
    now = snapshot.now
    soon = nextafter(now, inf)  # an overdue job still holds its nodes at this instant
    profile = Profile(
        now,
        snapshot.idle,
        ((max(r.expected_end, soon), len(r.nodes)) for r in snapshot.by_expected_end()),
    )
    known = [job for job in snapshot.waiting if promised.get(job.id, inf) < inf]
    base = profile.copy()
    for job in known:
        time = max(promised[job.id], now)
        if not profile.fits(time, job.nodes, job.walltime):
            return base, {}  # the machine got worse: these promises cannot be kept
        profile.take(time, job.nodes, job.walltime)
    times: dict[str, float] = {}
    for job in known:
        time = max(promised[job.id], now)
        profile.take(time, -job.nodes, job.walltime)
        times[job.id] = profile.earliest(job.nodes, job.walltime)
        profile.take(times[job.id], job.nodes, job.walltime)
    return profile, times
