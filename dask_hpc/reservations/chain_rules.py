"""What follows in a chain of batch jobs: events in, instructions out.

The first link is asked for by a person; each link, when it runs, asks for the next at once, which is to wait
for it to fail: a node that dies runs no code, so nobody may be needed to go on. What is to come is known only
in part then, so the next link is asked for the longest that may be needed, and lowers its limit when it
begins.

1. At most one link runs. While one does, the next is asked for or being asked for, unless all is over.
2. Exit code 0: the chain is done, the next link is dropped, the run is noted in the history.
3. Told to end, or 143: the next link goes on from what is saved, by a new plan given all that is known.
   (Seed 004, 12.3.1, goes on with the old plan. We solve it anew for the conditional law.)
4. Any other exit code: the chain has failed, the next link is dropped, and nothing is noted.
5. A link that ends without a word (its node died, it was killed) is judged by the next one: the chain goes
   on, unless somebody cancelled the link or it had too little memory.
6. A program that has opened no checkpoint with a store when it is cut is planned without checkpoints.
7. A commit that did not fit is given twice the time from then on.
8. Links that bring nothing end the chain, after some in a row.
9. A chain of which no job is left goes on if a person says so, unless it is done.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from dask_hpc.checkpoint.client.reserved import Progress
from dask_hpc.history.runs import PastRun
from dask_hpc.model.errors import InputError, insist
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.reservation.methods import BEST
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.run_times import why_this_long
from dask_hpc.reservations.chain import (
    AskFor,
    ChainCancelled,
    ChainResumed,
    DropJobs,
    Event,
    Fate,
    Instruction,
    JobAsked,
    JobBegan,
    JobChain,
    JobRefused,
    KeepOut,
    LeaveJob,
    Link,
    LowerLimit,
    NoteRun,
    Over,
    ProgramEnded,
    ProgramRuns,
    RunProgram,
    minutes,
)

TERMINATED = 143  # 128 + SIGTERM, as a shell reports it
_FRUITLESS = 5  # links in a row that bring nothing, and then it is enough
_LEAST = 0.01  # share of its length that a link must bring
_MOST_CARE = 24.0  # times that a commit may take as long as planned
_NEARLY = 30.0  # seconds before a limit at which it counts as reached
_SPARE = 5.0  # seconds that are left over beside
_REQUESTS = 50  # of a plan that are kept

#: a chain as it is now, and what is to be done
Change = tuple[JobChain, tuple[Instruction, ...]]


def first_link(chain: JobChain, now: float) -> Change:
    """The chain begins."""
    words = f"begins: {chain.plan.reason}" if chain.plan.reason else "begins"
    return _ask_next(chain.tell(now, words), "")


def follow(chain: JobChain, event: Event) -> Change:
    """What follows from an event."""
    after, instructions = _follow(chain, event)
    jobs = _not_needed(chain, event) if after.over and not chain.over else ()
    return after, (DropJobs(jobs), *instructions) if jobs else instructions


def _follow(chain: JobChain, event: Event) -> Change:
    match event:
        case JobAsked():
            return _asked(chain, event)
        case JobRefused():
            return _refused(chain, event), ()
        case JobBegan():
            return _began(chain, event)
        case ProgramRuns():
            return _look_ahead(chain, event)
        case ProgramEnded():
            return _ended(chain, event)
        case ChainCancelled():
            return chain if chain.over else _over(chain, event.now, "cancelled", "cancelled"), ()
        case ChainResumed():
            return _resumed(chain, event)


def _not_needed(before: JobChain, event: Event) -> tuple[str, ...]:
    """Jobs to drop when all is over: who waits; and who runs, if a person has had enough. The newest first:
    who waits for another is gone when that one fails."""
    own = event.job if isinstance(event, JobBegan) else ""
    fates = ("asked", "running") if isinstance(event, ChainCancelled) else ("asked",)
    return tuple(link.job for link in before.links[::-1] if link.fate in fates and link.job not in ("", own))


def _over(chain: JobChain, now: float, over: Over, words: str) -> JobChain:
    """No link goes on."""
    chain = replace(chain.tell(now, words), over=over)
    fate: Fate = "cancelled" if over == "cancelled" else "dropped"
    for link in chain.links:
        if link.is_open:
            chain = chain.with_link(link.number, fate=fate, ended=now)
    return chain


# a link is asked for


def _ask_next(chain: JobChain, after: str) -> Change:
    """One more link: the next that is planned."""
    request, whom = chain.plan.requests[0], None
    if chain.tried:  # the reason of a plan says first what it is given
        whom = f"such jobs, as this one {chain.plan.reason.partition('; ')[0]}"
    return _asking(chain, request.length, request.commit, after, why_this_long(chain.plan, whom))


def _asking(chain: JobChain, length: float, commits: bool, after: str, why: str) -> Change:
    granted = min(length, _granted(chain, length))
    why += "; no job may ask for more" if granted < length else ""
    link = Link(number=len(chain.links) + 1, length=granted, why=why)
    chain = replace(chain, links=(*chain.links, link))
    return chain, (_ask_for(chain, link, commits, after),)


def _ask_for(chain: JobChain, link: Link, commits: bool, after: str) -> AskFor:
    margin = margin_of(chain, link.length) if commits and can_commit(chain) else None
    return AskFor(link.number, link.length, after, margin, chain.plan.requests[0].memory)


def _granted(chain: JobChain, length: float) -> float:
    """Seconds that a job gets: whole minutes, and no more than are allowed."""
    most = inf if chain.longest is None else 60.0 * max(1, int(chain.longest // 60))
    return min(60.0 * minutes(length), most)


def can_commit(chain: JobChain) -> bool:
    return chain.is_resumable is not False and chain.plan.checkpoint < inf


def margin_of(chain: JobChain, length: float) -> float:
    """Seconds before its end that a link of that length is to be told of it."""
    wanted = chain.care * (chain.plan.checkpoint + chain.slowest) + _SPARE
    return min(wanted, 60 * minutes(length) / 2)


def _look_ahead(chain: JobChain, event: ProgramRuns) -> Change:
    """Somebody is to go on, whatever becomes of the link that runs."""
    link = chain.running
    if chain.over or link is None or link.number != event.number:
        return chain, ()
    if (following := chain.waiting) is not None:  # this link was put back into the queue meanwhile
        return chain, () if following.job else (_ask_for(chain, following, False, link.job),)
    try:
        length, commits = _whatever_becomes_of(chain, link)
    except InputError as error:  # there is no plan for more; perhaps none is needed
        return chain.tell(event.now, f"no next step can be planned: {error}"), ()
    why = "the most that may be needed, whether the step before commits or not"
    return _asking(chain, length, commits, link.job, why)


def _whatever_becomes_of(chain: JobChain, link: Link) -> tuple[float, bool]:
    """How long the link after this one may have to be, whether this one's commit fits or not; and whether it
    commits before its end in either case."""
    first = chain.plan.requests[0]
    ways = [chain.plan.after(chain.saved, max(chain.tried, first.work_until))]
    if link.commits:
        ways.append(chain.plan.after(first.work_until, max(chain.tried, first.work_until)))
    insist(all(way.requests for way in ways), "plan", "no requests", "longer walltimes")
    requests = [way.requests[0] for way in ways]
    return max(one.length for one in requests), all(one.commit for one in requests)


def _asked(chain: JobChain, event: JobAsked) -> Change:
    link = chain.links[event.number - 1]
    if link.job == event.job:
        return chain, ()
    if chain.over or not link.is_open or link.job:
        return chain.tell(event.now, f"job {event.job} is not needed"), (DropJobs((event.job,)),)
    words = f"step {link.number} is job {event.job}, asked for {show_duration(60 * minutes(link.length))}"
    chain = chain.with_link(link.number, job=event.job).tell(event.now, f"{words} ({link.why})")
    # From now on it is better that the one before fails than that it waits to be run again.
    return chain, (KeepOut(chain.running.job),) if chain.running else ()


def _refused(chain: JobChain, event: JobRefused) -> JobChain:
    words = f"step {event.number} could not be asked for: {event.why}"
    if event.is_final and not chain.over:
        return _over(chain, event.now, "stuck", f"{words}; the chain stops")
    return chain if chain.story and chain.story[-1][1] == words else chain.tell(event.now, words)


# a link begins


def _began(chain: JobChain, event: JobBegan) -> Change:
    is_ours = 1 <= event.number <= len(chain.links)
    link = chain.links[event.number - 1] if is_ours else None
    if chain.over:
        return chain.tell(event.now, f"job {event.job} came when all was over"), (LeaveJob(0),)
    if link is None or not link.is_open or (link.fate == "running" and link.job != event.job):
        return chain.tell(event.now, f"job {event.job} is not needed"), (LeaveJob(0),)
    if link.fate == "running":
        chain = chain.with_link(link.number, restarts=link.restarts + 1)
        chain = _lost(chain, link, event, "was put back into the queue")
    else:
        chain = _judged(chain, link, event)
    if chain.over:
        return chain, (LeaveJob(0),)
    # It may have been asked for twice, as an answer got lost.
    twice = (DropJobs((link.job,)),) if link.job and link.job != event.job else ()
    return _running(chain, event, twice)


def _running(chain: JobChain, event: JobBegan, before: tuple[Instruction, ...]) -> Change:
    link = chain.links[event.number - 1]
    request = chain.plan.requests[0]
    granted = 60.0 * minutes(link.length if not link.restarts else link.limit)
    limit = min(granted, _granted(chain, request.length))
    # Less than the plan would have: what is done by then had better be kept.
    commits = can_commit(chain) and (request.commit or request.length > limit)
    chain = chain.with_link(
        link.number, job=event.job, fate="running", limit=limit, commits=commits, nodes=event.nodes,
        began=event.now,
    )  # fmt: skip
    words = f"step {link.number} runs as job {event.job}, for {show_duration(limit)}"
    words += f", from {show_duration(chain.saved)} of work" if chain.saved else ""
    chain = chain.tell(event.now, f"{words}; {'commits' if commits else 'no commit'} before its end")
    lower = (LowerLimit(event.job, limit),) if limit < granted else ()
    seconds = chain.plan.checkpoint if commits else 0.0
    return chain, (*before, *lower, RunProgram(link.number, commits, seconds, chain.care, link.restarts))


def _judged(chain: JobChain, link: Link, event: JobBegan) -> JobChain:
    """The chain as it is after the link before this one."""
    before = chain.links[link.number - 2] if link.number > 1 else None
    if before is None or (before.fate != "running" and event.before != _CANCELLED):
        return chain
    if event.before not in _STOPS:
        words = f"ended without a word ({event.before or 'nobody knows why'})"
        return _lost(chain, before, event, words)
    over, fate, words = _STOPS[event.before]
    chain = chain.with_link(before.number, fate=fate, ended=before.ended or event.now)
    words = f"step {before.number}, job {before.job}, {words}; the chain stops"
    return _over(chain, event.now, over, words)


_CANCELLED = "CANCELLED"
#: what the batch system says of a link, and the chain does not go on
_STOPS: Mapping[str, tuple[Over, Fate, str]] = {
    _CANCELLED: ("cancelled", "cancelled", "was cancelled"),
    "OUT_OF_MEMORY": ("failed", "failed", "had too little memory"),
}


def _lost(chain: JobChain, link: Link, event: JobBegan | ChainResumed, what: str) -> JobChain:
    """A link could not tell how far it was; the file of its program does."""
    progress = event.progress
    is_known = link.is_of(progress)
    worked = progress.points and max(work for rows in progress.points.values() for _, work in rows)
    words = f"step {link.number}, job {link.job}, {what}"
    return _go_on(chain, link, event.now, progress if is_known else None, worked or 0.0, "lost", words)


def _resumed(chain: JobChain, event: ChainResumed) -> Change:
    if chain.over == "done":
        return chain, ()
    options = (*chain.options, *event.options)
    longest = chain.longest if event.longest is None else event.longest
    chain = replace(chain, over="", fruitless=0, options=options, longest=longest)
    chain = chain.tell(event.now, "is to go on")
    waiting = chain.waiting
    if waiting is not None:
        chain = chain.with_link(waiting.number, fate="dropped", ended=event.now)
    if chain.running is not None:
        chain = _lost(chain, chain.running, event, "is gone")
    else:
        chain = _planned_anew(chain, event.now)
    return (chain, ()) if chain.over else _ask_next(chain, "")


# a program ends


def _ended(chain: JobChain, event: ProgramEnded) -> Change:
    link = chain.links[event.number - 1]
    leave = (LeaveJob(event.code),)
    if chain.over or link.fate != "running":
        return chain.tell(event.now, f"step {link.number} ended with exit code {event.code}"), leave
    began = event.now if link.began is None else link.began
    chain = chain.with_link(link.number, code=event.code)
    progress = event.progress if link.is_of(event.progress) else None
    worked = chain.saved if chain.is_resumable else event.now - began
    if progress is not None:
        worked = progress.work_at(event.now)
    if event.code == 0:
        return _done(chain, link, event, progress, worked)
    if event.code != TERMINATED and not event.is_told:
        chain = chain.with_link(link.number, fate="failed", ended=event.now)
        words = f"step {link.number} failed: exit code {event.code} after {show_duration(event.now - began)}"
        return _over(chain, event.now, "failed", f"{words}; the chain stops, and nothing is learnt"), leave
    words = f"step {link.number} was cut after {show_duration(event.now - began)}"
    chain = _go_on(chain, link, event.now, progress, worked, "cut", words)
    following = chain.waiting
    if chain.over or (following is not None and following.job):
        return chain, leave
    if following is None:
        chain, asked = _ask_next(chain, link.job)
    else:
        asked = (_ask_for(chain, following, chain.plan.requests[0].commit, link.job),)
    return chain, (*asked, *leave)


def _done(
    chain: JobChain, link: Link, event: ProgramEnded, progress: Progress | None, worked: float
) -> Change:
    chain = _measured(chain, progress)
    chain = chain.with_link(link.number, fate="done", ended=event.now, saved=chain.saved)
    steps = counted(link.number, "step")
    chain = _over(chain, event.now, "done", f"done after {show_duration(worked)} of work, in {steps}")
    if progress is not None and progress.is_partial:
        chain = chain.tell(event.now, "it began with work that nobody has measured: nothing is learnt")
        return chain, (LeaveJob(0),)
    return chain, (NoteRun(_run_of(chain, link, event.now, worked)), LeaveJob(0))


def _run_of(chain: JobChain, link: Link, now: float, worked: float) -> PastRun:
    first = chain.links[0]
    waited = None if first.began is None else max(0.0, first.began - chain.created)
    return PastRun(
        nodes=link.nodes,
        seconds=max(worked, 1e-3),
        ended="done",
        when=now,
        saved_seconds=chain.saved or None,
        commit=None if chain.commit is None else (chain.commit, 0.0),
        restore=None if chain.restore is None else (chain.restore, 0.0),
        requested=60.0 * minutes(first.length),
        waited=waited,
    )


def _measured(chain: JobChain, progress: Progress | None) -> JobChain:
    if progress is None:
        return chain
    return replace(
        chain,
        saved=max(chain.saved, progress.saved),
        commit=chain.commit if progress.commit is None else progress.commit,
        restore=chain.restore if progress.restore is None else progress.restore,
        slowest=progress.slowest or chain.slowest,
    )


# the plan from then on


def _go_on(
    chain: JobChain,
    link: Link,
    now: float,
    progress: Progress | None,
    worked: float,
    fate: Fate,
    words: str,
) -> JobChain:
    """A link is over and the program is not done: what is known now, and the plan from now on."""
    before = chain.saved, chain.tried
    chain = _measured(chain, progress)
    chain = replace(chain, tried=max(chain.tried, chain.saved, worked))
    words += f", with {show_duration(chain.saved)} of work saved"
    has_store = progress is not None and progress.has_store
    if has_store and not chain.is_resumable:
        words += "; it does use checkpoints" if chain.is_resumable is False else ""
        chain = replace(chain, is_resumable=True)
    elif fate == "cut" and chain.is_resumable is None:
        if can_commit(chain):
            words += "; it opened no checkpoint with a store, and is planned without from now on"
        chain = replace(chain, is_resumable=False)
    if fate == "cut" and link.commits and has_store and progress is not None and progress.final != "safe":
        chain = replace(chain, care=min(2 * chain.care, _MOST_CARE))
        words += f"; the commit before its end did not fit, and gets {chain.care:g} times its time"
    gain = max(chain.saved - before[0], chain.tried - before[1])
    is_fruitful = gain >= max(1.0, _LEAST * link.limit)
    chain = replace(chain, fruitless=0 if is_fruitful else chain.fruitless + 1)
    chain = chain.with_link(link.number, saved=chain.saved)
    if chain.links[link.number - 1].restarts == link.restarts:  # else it runs again
        chain = chain.with_link(link.number, fate=fate, ended=now)
    chain = chain.tell(now, words)
    if chain.fruitless >= _FRUITLESS:
        words = f"{counted(chain.fruitless, 'job')} in a row have brought nothing; the chain stops"
        return _over(chain, now, "stuck", words)
    return _planned_anew(chain, now)


def _planned_anew(chain: JobChain, now: float) -> JobChain:
    known = chain.planned if chain.commit is None else (chain.commit, chain.commit)
    saved = chain.saved
    if known is None or chain.is_resumable is False:
        saved, known = 0.0, (inf, inf)
    elif chain.restore is not None:
        known = known[0], chain.restore
    # Who keeps nothing is planned as if there were no limit: what is not done within it never will be.
    limit = inf if known[0] == inf or chain.longest is None else chain.longest
    if known[0] == inf and chain.longest is not None and chain.tried >= _granted(chain, inf) - _NEARLY:
        words = f"needs more than {show_duration(chain.longest)} at once, the longest a job may ask for"
        return _over(chain, now, "stuck", f"{words}; the chain stops")
    try:
        plan = _replanned(replace(chain.plan, max_walltime=limit), saved, chain.tried, *known)
        insist(bool(plan.requests), "plan", plan.requests, "requests; the longest walltime allows none")
    except InputError as error:
        return _over(chain, now, "stuck", f"{error}; the chain stops")
    return replace(chain, plan=shortened(plan))


def shortened(plan: ReservationPlan) -> ReservationPlan:
    """Without requests that are hardly ever made: the file of a chain is read and written often."""
    return replace(plan, requests=plan.requests[:_REQUESTS])


def _replanned(
    plan: ReservationPlan, saved: float, tried: float, commit: float, restart: float
) -> ReservationPlan:
    try:
        found = plan.after(saved, tried, checkpoint=commit, restart=restart)
    except InputError:  # perhaps it was made in a way that needs checkpoints, and there are none
        if plan.method == BEST:
            raise
        found = replace(plan, method=BEST).after(saved, tried, checkpoint=commit, restart=restart)
    # What is left of a job may need all the memory that was thought of.
    memory = max((one.memory for one in plan.requests if one.memory is not None), default=None)
    return replace(found, requests=tuple(replace(one, memory=memory) for one in found.requests))
