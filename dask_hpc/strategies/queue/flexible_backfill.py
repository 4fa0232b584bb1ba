"""Flexible backfilling: so many jobs have reservations, which may slip by so much, or only by a bet that is
lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf
from typing import Annotated, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import show_duration
from dask_hpc.model.waiting import FRONT, Hole, Key
from dask_hpc.strategies.queue.conservative_backfill import compressed
from dask_hpc.strategies.queue.profile import Profile
from dask_hpc.strategies.strategy import QueueStrategy, Starts

_ANY = 10**9  # more nodes than there are


@dataclass(frozen=True, slots=True)
class SlipMemory:
    """What is remembered: when each reservation is, and when it will be at the latest; good while the
    revision is: the nodes that are free beside them, and who was asked already."""

    revision: int
    times: Mapping[str, float]
    latest: Mapping[str, float]
    profile: Profile
    asked: Key


@dataclass(frozen=True, slots=True)
class FlexibleBackfill(QueueStrategy):
    """Start in order of arrival; the first that cannot have reservations, and the others fill holes.

    Seed 001, section 5.1.1, names three parameters of backfilling: how many reservations there are (one is
    aggressive, all is conservative); by how much one may slip for the sake of somebody who starts now
    (flexible); and that one may be disturbed in the hope that who starts ends early (speculative). Ours: the
    slack counts from the first promise, so that many small delays are no long one. A bet on a job is that
    it takes ``share`` of its walltime; it is made if then no reservation slips, and a bet that is lost costs
    no more than the slack. Nobody is stopped. Without slack, with one reservation this is ``easy-backfill``
    and with all ``conservative-backfill``. As there, what was promised is promised anew only if nodes vanish,
    a job overstays or gets into the way by another size, or a stopped job is put back ahead of the queue.
    """

    name: ClassVar[str] = "flexible-backfill"

    reservations: Annotated[
        int,
        Parameter("how many waiting jobs have a reservation at a time", unit="jobs", low=1, high=1_000_000),
    ] = 1
    slack: Annotated[
        float, Parameter("how much later than first promised such a job may start", unit="s", low=0.0)
    ] = 600.0
    share: Annotated[
        float,
        Parameter(
            "share of its walltime that a job is bet to take if one may slip; 0: no bet", low=0, high=1
        ),
    ] = 0.0

    def decide(self, snapshot: Snapshot, memory: SlipMemory | None) -> tuple[Starts, SlipMemory | None]:
        """Start whom the reservations let, and remember what was promised."""
        now, waiting = snapshot.now, snapshot.waiting
        last = waiting.last_key
        if last is None:
            return (), None
        table = _Reservations(self, snapshot, memory)
        overdue = any(running.expected_end <= now for running in islice(snapshot.by_expected_end(), 1))
        if memory is not None and memory.revision == snapshot.revision and not overdue:
            # Only the clock has moved, so whoever could not start before cannot now: ask newcomers.
            table.go_on(memory.profile)
            table.ask(memory.asked)
        else:
            table.compress()
            table.ask(FRONT)
        revision = snapshot.revision + len(table.starts)
        return table.starts, SlipMemory(revision, table.times, table.latest, table.profile, last)


class _Reservations:
    """They, and who starts, in the course of one decision."""

    def __init__(self, wish: FlexibleBackfill, snapshot: Snapshot, memory: SlipMemory | None) -> None:
        self._wish, self._snapshot, self._now = wish, snapshot, snapshot.now
        self._idle = snapshot.idle
        #: in the queue's order
        self.times = dict(memory.times) if memory else {}
        self.latest = dict(memory.latest) if memory else {}
        self.profile = Profile(snapshot.now, snapshot.idle)
        self.starts: list[Start] = []

    def go_on(self, profile: Profile) -> None:
        """Nothing has changed since this was left free."""
        self.profile = profile.copy()
        self.profile.forget_before(self._now)

    def compress(self) -> None:
        """Each reservation is made again, as early as the others allow; none, if they cannot be kept."""
        waiting = self._snapshot.waiting
        promised = {job_id: time for job_id, time in self.times.items() if job_id in waiting}
        stopped = takewhile(lambda job: waiting.ahead_of(job.id), waiting)
        if any(job.id not in promised for job in stopped):
            promised = {}  # somebody was put ahead of those with promises
        jobs = [waiting[job_id] for job_id in promised]
        self.profile, self.times = compressed(self._snapshot, promised, jobs)
        self.latest = {job_id: self.latest[job_id] for job_id in self.times}

    def ask(self, after: Key) -> None:
        """Let those behind ``after`` start that may, and reserve for them while that is to be had."""
        first = self._snapshot.waiting.first
        known = set(self.times) if after is FRONT else set()
        hole = Hole(0)
        self._shape(hole, known)
        for job in self._snapshot.waiting.fitting(after, hole):
            known.discard(job.id)
            if job.id in self.times or len(self.times) < self._wish.reservations:
                reason = self._reserve(job, job is first)
            elif self.profile.fits(self._now, job.nodes, job.walltime):
                self.profile.take(self._now, job.nodes, job.walltime)
                reason = "delays no reservation"
            else:
                reason = self._slip(job)
            if reason:
                self.starts.append(Start(job.id, job.nodes, reason))
                self._idle -= job.nodes
                self.times.pop(job.id, None)
                self.latest.pop(job.id, None)
            if reason or job.id in self.times:
                self._shape(hole, known)

    def _shape(self, hole: Hole, known: set[str]) -> None:
        """What jobs must fit into to be asked: anything, as long as there are reservations to be had, or some
        of before to be looked at; else what the first in line will leave over if it starts as late as it may.
        """
        if known or len(self.times) < self._wish.reservations:
            hole.idle, hole.window = _ANY, inf
            return
        job_id = next(iter(self.times))
        hole.idle, hole.window = self._idle, self.latest[job_id] - self._now
        if hole.window < inf:
            base, waiting = self.profile.copy(), self._snapshot.waiting
            for other, time in self.times.items():
                if time < inf:
                    base.take(time, -waiting[other].nodes, waiting[other].walltime)
            hole.spare = base.at(self.latest[job_id]) - waiting[job_id].nodes

    def _reserve(self, job: Job, is_first: bool) -> str:
        """Why it starts now, if its reservation is due, or others can slip for it."""
        if job.id not in self.times:
            time = self.profile.earliest(job.nodes, job.walltime)
            if time < inf:
                self.profile.take(time, job.nodes, job.walltime)
            self.times[job.id], self.latest[job.id] = time, time + self._wish.slack
        if self.times[job.id] > self._now:
            return self._slip(job)
        return "first in the queue" if is_first else "its reservation is due"

    def _slip(self, job: Job) -> str:
        """Why it starts now although reservations slip, if they can."""
        wish, now = self._wish, self._now
        if not wish.slack or job.nodes > self._idle:
            return ""
        profile, waiting = self.profile.copy(), self._snapshot.waiting
        reserved = [waiting[job_id] for job_id, time in self.times.items() if time < inf]
        if job in reserved:
            profile.take(self.times[job.id], -job.nodes, job.walltime)
            reserved.remove(job)
        if wish.share and not profile.fits(now, job.nodes, job.walltime * wish.share):
            return ""
        for other in reserved:
            profile.take(self.times[other.id], -other.nodes, other.walltime)
        profile.take(now, job.nodes, job.walltime)
        times: dict[str, float] = {}
        for other in reserved:
            time = times[other.id] = profile.earliest(other.nodes, other.walltime)
            if time > self.latest[other.id]:
                return ""
            profile.take(time, other.nodes, other.walltime)
        self.profile = profile
        self.times |= times
        late = max(times, key=lambda job_id: times[job_id] - self.latest[job_id])
        slip = max(0.0, times[late] - self.latest[late] + wish.slack)
        bound = show_duration(wish.slack)
        reason = f"job {late} starts {show_duration(slip)} later than promised, {bound} is allowed"
        return f"bet to take {wish.share:.0%} of its walltime; else {reason}" if wish.share else reason
