"""When a batch system is asked next, and how many jobs may be submitted now: manners, not strategy.

A batch system serves everybody, and each question costs it time. What happens is mostly heard from others: a
worker that connects says that its job runs, one that leaves that something is the matter. So it is asked

1. at rest no more often than every ``poll`` seconds, and not at all while there is no job;
2. no more often than every ``due`` seconds while something is due, which only it can tell (``due_because``);
3. after questions that were not answered ever more rarely, down to what holds at rest.

Intervals are lengthened by up to a quarter, by chance, so that many programs do not ask in step.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from dask_hpc.model.cluster_view import UnitState

_JITTER = 0.25  # of an interval, that it may be longer
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Manners:
    """What a site thinks is polite. Seconds; submissions per minute."""

    poll: float = 120.0
    due: float = 10.0
    per_minute: int = 30


@dataclass(frozen=True, slots=True)
class JobWatch:
    """What is known of one batch job without asking. Times are seconds of one clock."""

    #: when it was submitted, and when its system was last asked about it and answered
    submitted: float
    answered: float = -inf
    state: UnitState = "unknown"
    #: when its system started it, or said that it would; when it ends
    started: float | None = None
    starts: float | None = None
    ends: float = inf
    #: since when its system has said nothing clear: it ends, or goes back into the queue
    unclear: float | None = None
    #: whether it was running at some time
    has_run: bool = False
    #: since when a worker of it is connected, or none is any more
    connected: float | None = None
    vanished: float | None = None


def due_because(job: JobWatch, now: float, manners: Manners) -> str:
    """What only its batch system can tell of this job, and soon; nothing if there is no haste."""
    poll, due = manners.poll, manners.due
    if job.connected is not None:
        if job.answered < job.connected and now >= job.connected + due:
            return "it runs, and nobody has said until when"
        return "its walltime ends" if 0 <= job.ends - now <= 3 * due else ""
    if job.vanished is not None:
        is_settled = job.answered > job.vanished and job.state in ("queued", "held", "gone")
        if not is_settled and now <= job.vanished + poll:
            return "its workers have gone"
    if job.state == "gone":
        return ""
    if job.unclear is not None and now <= job.unclear + poll:
        return "it ends, or goes back into the queue"
    if job.answered < job.submitted:
        return "it was submitted" if now >= job.submitted + due else ""
    if job.state == "running":
        is_new = job.started is not None and now <= job.started + poll
        return "it has started, and no worker of it has connected" if is_new else ""
    is_time = job.starts is not None and job.starts - due <= now <= job.starts + poll
    return "it was to start" if is_time else ""


def next_question(
    jobs: Collection[JobWatch],
    asked: float,
    unanswered: int,
    now: float,
    manners: Manners,
    chance: float,
    is_wanted: bool = False,
) -> float:
    """When to ask next, at the earliest: seconds of the jobs' clock, in the past if at once.

    ``asked`` is when it was last asked; ``unanswered`` so many questions in a row were not answered;
    ``chance`` is a number from 0 to 1; an answer is wanted if somebody is about to submit by it.
    """
    longer = 1 + _JITTER * chance
    if is_wanted or any(due_because(job, now, manners) for job in jobs):
        return asked + min(manners.poll, manners.due * 2.0 ** min(unanswered, 60)) * longer
    # Who has just come is asked about when something is due.
    first = min((job.submitted for job in jobs if job.state != "gone"), default=inf)
    return max(asked, first) + manners.poll * longer


def submissions_left(past: Iterable[float], now: float, manners: Manners) -> int:
    """How many jobs may be submitted now, if these were the times of those before."""
    lately = sum(now - at < _MINUTE for at in past)
    return max(0, manners.per_minute - lately)
