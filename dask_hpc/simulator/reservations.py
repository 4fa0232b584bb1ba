"""What a plan of reservations does to jobs: to one, or to many that share the slots of a machine.

A job is known by how long it takes, which its plan does not know. What is done may take longer than what was
planned: a commit that does not fit is lost, and the next reservation starts from the one before, long enough
to come to its own milestone all the same (seed 004, 12.3.1; digest 4.4). So do the reservations that follow a
plan whose end a job outlives; each of these goes twice as far as the one before.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from math import inf, isfinite
from typing import NamedTuple

from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.memory_chain import MemorySequence
from dask_hpc.planning.reservation.plan import ReservationPlan

#: seconds that a commit or a restart really takes, of the state after so much work
Takes = Callable[[float], float]
_FURTHER = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """What one job needs as it goes on: seconds and peak of memory of each of its tasks, in order."""

    tasks: tuple[tuple[float, float], ...]

    @property
    def duration(self) -> float:
        """Of the whole job."""
        return sum(seconds for seconds, _ in self.tasks)

    @property
    def _ends(self) -> Iterator[float]:
        return accumulate(seconds for seconds, _ in self.tasks)

    def peak(self, at: float) -> float:
        """Of the task that runs after so much work, or has just ended."""
        found = (peak for end, (_, peak) in zip(self._ends, self.tasks, strict=True) if end >= at)
        return next(found, self.tasks[-1][1])

    def hungry(self, since: float, memory: float) -> tuple[float, float]:
        """When, from then on, the first task begins that needs more than this, and what it needs."""
        begin = 0.0
        for seconds, peak in self.tasks:
            if begin + seconds > since and peak > memory:
                return max(begin, since), peak
            begin += seconds
        return inf, memory


@dataclass(frozen=True, slots=True)
class UsedReservation:
    """One that a job had: what was asked for, and what came of it."""

    length: float
    #: until it was over: less than its length if the job ended in it
    used: float
    memory: float
    #: work that is safe when it is over; all of it when the job has ended
    saved: float


@dataclass(frozen=True, slots=True)
class JobStay:
    """All reservations of one job, which takes ``duration`` by itself."""

    duration: float
    reservations: tuple[UsedReservation, ...]
    #: commits that did not fit
    lost: int = 0

    @property
    def reserved(self) -> float:
        """Seconds that were asked for; the last reservation counts in full length."""
        return sum(one.length for one in self.reservations)

    @property
    def used(self) -> float:
        """Seconds that were used."""
        return sum(one.used for one in self.reservations)

    @property
    def utilisation(self) -> float:
        """What the job takes by itself, of what was asked for (seed 004, 12.3.2)."""
        return self.duration / self.reserved

    @property
    def stretch(self) -> float:
        """What was asked for, over what the job takes by itself."""
        return self.reserved / self.duration

    @property
    def byte_seconds(self) -> float:
        """Memory times time that were asked for."""
        return sum(one.length * one.memory for one in self.reservations)

    @property
    def memory(self) -> float:
        """Bytes that were asked for, weighted by the time."""
        return self.byte_seconds / self.reserved

    def price(self, cost: Cost) -> float:
        """What all its reservations cost."""
        return sum(cost.request(one.length) + cost.beta * one.used for one in self.reservations)


class _Asked(NamedTuple):
    """A reservation as it was planned."""

    until: float
    #: seconds, if there is anything to restart from
    restart: float
    #: seconds; None: without a commit
    commit: float | None
    #: bytes; 0: nothing is said of it
    memory: float


def stay(
    plan: ReservationPlan | MemorySequence,
    job: float | TaskTrace,
    *,
    commit: Takes | None = None,
    restart: Takes | None = None,
    fits: bool = False,
) -> JobStay:
    """What becomes of a job under a plan.

    ``commit`` and ``restart`` say what these really take; else they take what was planned. With ``fits``
    everybody knows that in advance, and each reservation is as much longer or shorter, as the source has it
    (11.3.2). A job with a trace of its tasks ends its work in a reservation before a task that needs more
    memory than was asked for, commits there, waits for the end, and asks for enough from then on.
    """
    trace = job if isinstance(job, TaskTrace) else TaskTrace(((job, 0.0),))
    duration, lost, least = trace.duration, 0, 0.0
    saved = plan.saved if isinstance(plan, ReservationPlan) else 0.0
    found: list[UsedReservation] = []
    for asked in _asked(plan):
        restoring = planned = asked.restart if saved > 0 else 0.0
        if restart is not None and saved > 0:
            restoring = restart(saved)
        memory = max(asked.memory, least)
        begins, peak = trace.hungry(saved, memory) if asked.memory else (inf, 0.0)
        committing = asked.commit or 0.0
        if fits:
            planned = restoring
            if commit is not None and asked.commit is not None:
                committing = commit(min(asked.until, begins))
        length = planned + asked.until - saved + committing
        reached = max(saved, min(begins, saved + length - committing - restoring))
        if duration <= reached * (1 + _ROUNDING):
            last = UsedReservation(length, restoring + duration - saved, memory, duration)
            return JobStay(duration, (*found, last), lost)
        if begins <= reached:
            least = peak
        if asked.commit is not None:
            room = length - restoring - (reached - saved)
            takes = committing if commit is None or fits else commit(reached)
            if takes <= room + _ROUNDING * length:
                saved = reached
            else:
                lost += 1
        found.append(UsedReservation(length, length, memory, saved))
    raise AssertionError("requests never end")


def _asked(plan: ReservationPlan | MemorySequence) -> Iterator[_Asked]:
    """What a plan asks for, and what comes after all of that."""
    if isinstance(plan, MemorySequence):
        rows = zip(plan.until, plan.steps, plan.memory, strict=True)
        *found, last = (_Asked(until, step.restart, step.commit, memory) for until, step, memory in rows)
        found.append(last._replace(commit=last.commit or None))
    else:
        restart = plan.restart if isfinite(plan.restart) else 0.0
        found = [
            _Asked(one.work_until, restart, plan.checkpoint if one.commit else None, one.memory or 0.0)
            for one in plan.requests
        ]
    yield from found
    work, memory = found[-1].until, max(one.memory for one in found)
    restart = max(one.restart for one in found)
    while True:
        work *= _FURTHER
        yield _Asked(work, restart, None, memory)


@dataclass(frozen=True, slots=True)
class QueueDay:
    """When each of many jobs had ended that were all there from the beginning."""

    ends: tuple[float, ...]
    slots: int

    @property
    def makespan(self) -> float:
        """Until all had ended."""
        return max(self.ends)


def queued(stays: Sequence[JobStay], slots: int) -> QueueDay:
    """Jobs that need one slot each come first, are served first. Whoever has to ask again stands at the end
    of the queue; a slot is free as soon as its reservation is no more used."""
    waiting = deque((job, 0) for job in range(len(stays)))
    running: list[tuple[float, int, int]] = []
    ends = [0.0] * len(stays)
    now = 0.0
    while waiting or running:
        while waiting and len(running) < slots:
            job, turn = waiting.popleft()
            heappush(running, (now + stays[job].reservations[turn].used, job, turn))
        now, job, turn = heappop(running)
        if turn + 1 < len(stays[job].reservations):
            waiting.append((job, turn + 1))
        else:
            ends[job] = now
    return QueueDay(tuple(ends), slots)
