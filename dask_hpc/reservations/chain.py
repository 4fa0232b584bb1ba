"""The chain of batch jobs in which a program runs until it is done: events in, instructions out.

A chain has one *link* for each batch job. The first is asked for by a person; each link, when it runs, asks
for the next at once, which is to wait for it to fail: a node that dies runs no code, so nobody may be needed
to go on. What is to come is known only in part then, so the next link is asked for the longest that may be
needed, and lowers its limit when it begins.

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

Nothing here knows a clock, a file or a batch system.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from typing import Any, Literal, get_args

from dask_hpc.checkpoint.client.reserved import Progress
from dask_hpc.history.runs import PastRun
from dask_hpc.model.errors import InputError, insist
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.reservation.methods import BEST
from dask_hpc.planning.reservation.plan import ReservationPlan

#: what became of a link
Fate = Literal["asked", "running", "done", "cut", "lost", "failed", "cancelled", "dropped"]
#: why a chain is over, if it is
Over = Literal["", "done", "failed", "cancelled", "stuck"]

FORMAT = "dask-hpc chain 1"
TERMINATED = 143  # 128 + SIGTERM, as a shell reports it
_FRUITLESS = 5  # links in a row that bring nothing, and then it is enough
_LEAST = 0.01  # share of its length that a link must bring
_CARE, _MOST_CARE = 1.5, 24.0  # times that a commit may take longer than it did
_NEARLY = 30.0  # seconds before a limit at which it counts as reached
_SPARE = 5.0  # seconds that are left over beside
_REQUESTS = 50  # of a plan that are kept
_ROWS = 500  # of the story that are kept, the newest


def minutes(seconds: float) -> float:
    """As batch systems count: whole ones, at least one."""
    return inf if seconds == inf else max(1, ceil(seconds / 60 - 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One batch job of a chain. ``length`` is what it asked for, ``limit`` what it may run, in seconds."""

    number: int
    length: float
    job: str = ""
    fate: Fate = "asked"
    limit: float = 0.0
    commits: bool = False
    nodes: float = 1.0
    began: float | None = None
    ended: float | None = None
    code: int | None = None
    #: how often it was put back into the queue
    restarts: int = 0
    #: seconds of work that were safe at its end
    saved: float = 0.0
    why: str = ""

    def is_of(self, progress: Progress) -> bool:
        """Whether that is what its program has noted."""
        return (progress.number, progress.restarts) == (self.number, self.restarts)

    @property
    def is_open(self) -> bool:
        return self.fate in ("asked", "running")


# events: what happened, at that time of the system's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """The batch system has taken a link as that job."""

    now: float
    number: int
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRefused:
    """It has not; ``is_final`` if nobody tries any more."""

    now: float
    number: int
    why: str
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBegan:
    """A link begins. ``before`` is what the batch system says of the one before it, if it knows."""

    now: float
    number: int
    job: str
    nodes: float = 1.0
    progress: Progress = field(default_factory=Progress)
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRuns:
    """The program of a link runs: there is time to think of the next."""

    now: float
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnded:
    """It has ended; ``is_told`` if somebody asked it to."""

    now: float
    number: int
    code: int
    is_told: bool = False
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCancelled:
    """A person has had enough."""

    now: float


Event = JobAsked | JobRefused | JobBegan | ProgramRuns | ProgramEnded | ChainCancelled


# instructions


@dataclass(frozen=True, slots=True)
class AskFor:
    """Ask for a link, to begin when the job ``after`` has failed. ``margin``: seconds before its end it is to
    be told; None: it is not."""

    number: int
    length: float
    after: str = ""
    margin: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class LowerLimit:
    """A job needs no more than so many seconds."""

    job: str
    length: float


@dataclass(frozen=True, slots=True)
class KeepOut:
    """A job is not to be put back into the queue: another waits to go on in its place."""

    job: str


@dataclass(frozen=True, slots=True)
class DropJobs:
    """These jobs are not needed."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunProgram:
    """Run the program; whether it is to commit before its end, and how long that may take."""

    number: int
    commits: bool
    seconds: float
    care: float
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class NoteRun:
    """Remember how long it took."""

    run: PastRun


@dataclass(frozen=True, slots=True)
class LeaveJob:
    """The job is to end, with that exit code."""

    code: int


Instruction = AskFor | LowerLimit | KeepOut | DropJobs | RunProgram | NoteRun | LeaveJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChain:
    """All that is known of a chain. ``plan`` is from now on: its first request is for the link that runs, or
    else for the next one."""

    id: str
    name: str
    user: str
    command: tuple[str, ...]
    directory: str
    options: tuple[str, ...] = ()
    plan: ReservationPlan
    created: float = 0.0
    #: whether the program opens checkpoints; None as long as nobody knows
    is_resumable: bool | None = None
    #: seconds of work: safe in the store; more than that many are needed
    saved: float = 0.0
    tried: float = 0.0
    #: seconds that one job may ask for, if there is a limit
    longest: float | None = None
    #: seconds of a commit and a restart, if there are any: as planned at first, and as measured
    planned: tuple[float, float] | None = None
    commit: float | None = None
    restore: float | None = None
    slowest: float = 0.0
    care: float = _CARE
    #: links in a row that brought nothing
    fruitless: int = 0
    links: tuple[Link, ...] = ()
    over: Over = ""
    #: what happened: when, and words
    story: tuple[tuple[float, str], ...] = ()

    @property
    def running(self) -> Link | None:
        return next((link for link in self.links if link.fate == "running"), None)

    @property
    def waiting(self) -> Link | None:
        """The next link, once it is thought of."""
        return next((link for link in self.links if link.fate == "asked"), None)

    @property
    def state(self) -> str:
        """In a word: waiting, running, or how it is over."""
        return self.over or ("running" if self.running else "waiting")

    def as_text(self) -> str:
        """As its file has it."""
        return json.dumps(self.as_plain(), indent=1)

    def as_plain(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("plan", "links")}
        links = [asdict(link) for link in self.links]
        return {"format": FORMAT, **plain, "plan": self.plan.as_plain(), "links": links}

    @classmethod
    def of(cls, plain: Any) -> "JobChain":
        """From its file. Raises any of the errors of wrong data."""
        given = {**plain}
        if given.pop("format") != FORMAT:
            raise ValueError
        given["plan"] = ReservationPlan.of(given["plan"])
        given["links"] = tuple(Link(**one) for one in given["links"])
        given["story"] = tuple((float(when), str(words)) for when, words in given["story"])
        for name in ("command", "options", "planned"):
            given[name] = None if given[name] is None else tuple(given[name])
        chain = cls(**given)
        if chain.over not in get_args(Over) or any(one.fate not in get_args(Fate) for one in chain.links):
            raise ValueError
        if [one.number for one in chain.links] != list(range(1, len(chain.links) + 1)):
            raise ValueError
        return chain

    # small changes

    def tell(self, now: float, words: str) -> "JobChain":
        return replace(self, story=(*self.story, (now, words))[-_ROWS:])

    def with_link(self, number: int, **new: Any) -> "JobChain":
        links = list(self.links)
        links[number - 1] = replace(links[number - 1], **new)
        return replace(self, links=tuple(links))

    def end(self, now: float, over: Over, words: str) -> "Change":
        """It is over: who still waits is dropped."""
        open_links = [link for link in reversed(self.links) if link.is_open]
        chain = replace(self.tell(now, words), over=over)
        fate: Fate = "cancelled" if over == "cancelled" else "dropped"
        for link in open_links:
            chain = chain.with_link(link.number, fate=fate, ended=now)
        jobs = tuple(link.job for link in open_links if link.job and link.fate == "asked")
        return chain, (DropJobs(jobs),) if jobs else ()

    # decisions

    def minutes_for(self, length: float) -> float:
        """Seconds to ask for: whole minutes, and no more than are allowed."""
        most = inf if self.longest is None else 60.0 * max(1, int(self.longest // 60))
        return min(60.0 * minutes(length), most)

    @property
    def can_commit(self) -> bool:
        return self.is_resumable is not False and self.plan.checkpoint < inf

    def lookahead(self, link: Link) -> tuple[float, bool]:
        """How long the link after this one may have to be, whether this one's commit fits or not; and whether
        it commits before its end in either case."""
        first = self.plan.requests[0]
        ways = [self.plan.after(self.saved, max(self.tried, first.work_until))]
        if link.commits:
            ways.append(self.plan.after(first.work_until, max(self.tried, first.work_until)))
        insist(all(way.requests for way in ways), "plan", "no requests", "longer walltimes")
        requests = [way.requests[0] for way in ways]
        return max(one.length for one in requests), all(one.commit for one in requests)

    def margin(self, length: float) -> float:
        """Seconds before its end that a link of that length is to be told of it."""
        wanted = self.care * (self.plan.checkpoint + self.slowest) + _SPARE
        return min(wanted, 60 * minutes(length) / 2)


#: a chain as it is now, and what is to be done
Change = tuple[JobChain, tuple[Instruction, ...]]


def first_link(chain: JobChain, now: float) -> Change:
    """The chain begins."""
    request = chain.plan.requests[0]
    words = f"begins: {chain.plan.reason}" if chain.plan.reason else "begins"
    return _asking(chain.tell(now, words), request.length, request.commit, "")


def follow(chain: JobChain, event: Event) -> Change:
    """What follows from an event."""
    match event:
        case JobAsked():
            return _asked(chain, event)
        case JobRefused():
            return _refused(chain, event)
        case JobBegan():
            return _began(chain, event)
        case ProgramRuns():
            return _look_ahead(chain, event)
        case ProgramEnded():
            return _ended(chain, event)
        case ChainCancelled():
            if chain.over:
                return chain, ()
            running = chain.running
            chain, drops = chain.end(event.now, "cancelled", "cancelled")
            if running is not None:
                drops = (*drops, DropJobs((running.job,)))
            return chain, drops


def _asking(chain: JobChain, length: float, commits: bool, after: str) -> Change:
    """One more link."""
    link = Link(number=len(chain.links) + 1, length=min(length, chain.minutes_for(length)))
    chain = replace(chain, links=(*chain.links, link))
    return chain, (_ask_for(chain, link, commits, after),)


def _ask_for(chain: JobChain, link: Link, commits: bool, after: str) -> AskFor:
    margin = chain.margin(link.length) if commits and chain.can_commit else None
    return AskFor(link.number, link.length, after, margin, chain.plan.requests[0].memory)


def _asked(chain: JobChain, event: JobAsked) -> Change:
    link = chain.links[event.number - 1]
    if link.job == event.job:
        return chain, ()
    if chain.over or not link.is_open or link.job:
        return chain.tell(event.now, f"job {event.job} is not needed"), (DropJobs((event.job,)),)
    words = f"step {link.number} is job {event.job}, asked for {show_duration(60 * minutes(link.length))}"
    chain = chain.with_link(link.number, job=event.job).tell(event.now, words)
    # From now on it is better that the one before fails than that it waits to be run again.
    return chain, (KeepOut(chain.running.job),) if chain.running else ()


def _refused(chain: JobChain, event: JobRefused) -> Change:
    words = f"step {event.number} could not be asked for: {event.why}"
    if not event.is_final or chain.over:
        return (chain if chain.story and chain.story[-1][1] == words else chain.tell(event.now, words)), ()
    return chain.end(event.now, "stuck", f"{words}; the chain stops")


def _began(chain: JobChain, event: JobBegan) -> Change:
    if chain.over:
        return chain.tell(event.now, f"job {event.job} came when all was over"), (LeaveJob(0),)
    if not 1 <= event.number <= len(chain.links):
        return chain.tell(event.now, f"job {event.job} is not of this chain"), (LeaveJob(0),)
    link = chain.links[event.number - 1]
    if not link.is_open or (link.fate == "running" and link.job != event.job):
        return chain.tell(event.now, f"job {event.job} is not needed"), (LeaveJob(0),)
    drops: tuple[Instruction, ...] = ()
    if link.job and link.job != event.job:  # it was asked for twice, as an answer got lost
        drops = (DropJobs((link.job,)),)
    if link.fate == "running":
        chain = chain.with_link(link.number, restarts=link.restarts + 1)
        chain = _lost(chain, link, event, "was put back into the queue")
    else:
        chain = _judged(chain, link, event)
    chain, stopped = _if_enough(chain, event.now)
    if chain.over:
        return chain, (*drops, *stopped, LeaveJob(0))
    return _running(chain, event, drops)


def _running(chain: JobChain, event: JobBegan, before: tuple[Instruction, ...]) -> Change:
    link = chain.links[event.number - 1]
    request = chain.plan.requests[0]
    granted = 60.0 * minutes(link.length if not link.restarts else link.limit)
    limit = min(granted, chain.minutes_for(request.length))
    # Less than the plan would have: what is done by then had better be kept.
    commits = chain.can_commit and (request.commit or request.length > limit)
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
    chain = chain.with_link(before.number, fate=fate, ended=before.ended or event.now, why=words)
    words = f"step {before.number}, job {before.job}, {words}; the chain stops"
    return chain.end(event.now, over, words)[0]


_CANCELLED = "CANCELLED"
#: what the batch system says of a link, and the chain does not go on
_STOPS: Mapping[str, tuple[Over, Fate, str]] = {
    _CANCELLED: ("cancelled", "cancelled", "was cancelled"),
    "OUT_OF_MEMORY": ("failed", "failed", "had too little memory"),
}


def _if_enough(chain: JobChain, now: float) -> Change:
    """It stops if too many links in a row have brought nothing."""
    if chain.over or chain.fruitless < _FRUITLESS:
        return chain, ()
    words = f"{counted(chain.fruitless, 'job')} in a row have brought nothing; the chain stops"
    return chain.end(now, "stuck", words)


def _lost(chain: JobChain, link: Link, event: JobBegan, what: str) -> JobChain:
    """A link could not tell how far it was; the file of its program does."""
    progress = event.progress
    is_known = link.is_of(progress)
    worked = progress.points and max(work for rows in progress.points.values() for _, work in rows)
    words = f"step {link.number}, job {link.job}, {what}"
    return _go_on(chain, link, event.now, progress if is_known else None, worked or 0.0, "lost", words)


def _look_ahead(chain: JobChain, event: ProgramRuns) -> Change:
    link = chain.running
    if chain.over or link is None or link.number != event.number:
        return chain, ()
    if (following := chain.waiting) is not None:  # this link was put back into the queue meanwhile
        return chain, () if following.job else (_ask_for(chain, following, False, link.job),)
    try:
        length, commits = chain.lookahead(link)
    except InputError as error:  # there is no plan for more; perhaps none is needed
        return chain.tell(event.now, f"no next step can be planned: {error}"), ()
    return _asking(chain, length, commits, link.job)


def _ended(chain: JobChain, event: ProgramEnded) -> Change:
    link = chain.links[event.number - 1]
    if chain.over or link.fate != "running":
        return chain.tell(event.now, f"step {link.number} ended with exit code {event.code}"), (
            LeaveJob(event.code),
        )
    began = event.now if link.began is None else link.began
    progress = event.progress if link.is_of(event.progress) else None
    worked = chain.saved if chain.is_resumable else event.now - began
    if progress is not None:
        worked = progress.work_at(event.now)
    if event.code == 0:
        return _done(chain, link, event, progress, worked)
    if event.code != TERMINATED and not event.is_told:
        chain = chain.with_link(link.number, fate="failed", ended=event.now, code=event.code)
        words = f"step {link.number} failed: exit code {event.code} after {show_duration(event.now - began)}"
        chain, drops = chain.end(event.now, "failed", f"{words}; the chain stops, and nothing is learnt")
        return chain, (*drops, LeaveJob(event.code))
    chain = chain.with_link(link.number, code=event.code)
    words = f"step {link.number} was cut after {show_duration(event.now - began)}"
    chain = _go_on(chain, link, event.now, progress, worked, "cut", words)
    chain, drops = _if_enough(chain, event.now)
    if chain.over:
        return chain, (*(drops or _drops(chain, link)), LeaveJob(event.code))
    following = chain.waiting
    request = chain.plan.requests[0]
    if following is None:
        chain, asked = _asking(chain, request.length, request.commit, link.job)
        return chain, (*asked, LeaveJob(event.code))
    ask = () if following.job else (_ask_for(chain, following, request.commit, link.job),)
    return chain, (*ask, LeaveJob(event.code))


def _drops(chain: JobChain, link: Link) -> tuple[Instruction, ...]:
    jobs = tuple(one.job for one in chain.links[link.number :] if one.job)
    return (DropJobs(jobs),) if jobs else ()


def _done(
    chain: JobChain, link: Link, event: ProgramEnded, progress: Progress | None, worked: float
) -> Change:
    chain = _measured(chain, progress).with_link(
        link.number, fate="done", ended=event.now, code=0, saved=chain.saved
    )
    steps = counted(link.number, "step")
    chain, drops = chain.end(event.now, "done", f"done after {show_duration(worked)} of work, in {steps}")
    notes: tuple[Instruction, ...] = ()
    if progress is not None and progress.is_partial:
        chain = chain.tell(event.now, "it began with work that nobody has measured: nothing is learnt")
    else:
        notes = (NoteRun(_run_of(chain, link, event.now, worked)),)
    return chain, (*notes, *drops, LeaveJob(0))


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
        if chain.can_commit:
            words += "; it opened no checkpoint with a store, and is planned without from now on"
        chain = replace(chain, is_resumable=False)
    if fate == "cut" and link.commits and has_store and progress is not None and progress.final != "safe":
        chain = replace(chain, care=min(2 * chain.care, _MOST_CARE))
        words += f"; the commit before its end did not fit, and gets {chain.care:g} times its time"
    gain = max(chain.saved - before[0], chain.tried - before[1])
    is_fruitful = gain >= max(1.0, _LEAST * link.limit)
    chain = replace(chain, fruitless=0 if is_fruitful else chain.fruitless + 1)
    chain = chain.with_link(link.number, saved=chain.saved, why=words)
    if chain.links[link.number - 1].restarts == link.restarts:  # else it runs again
        chain = chain.with_link(link.number, fate=fate, ended=now)
    return _planned_anew(chain.tell(now, words), now)


def _planned_anew(chain: JobChain, now: float) -> JobChain:
    known = chain.planned if chain.commit is None else (chain.commit, chain.commit)
    saved = chain.saved
    if known is None or chain.is_resumable is False:
        saved, known = 0.0, (inf, inf)
    elif chain.restore is not None:
        known = known[0], chain.restore
    # Who keeps nothing is planned as if there were no limit: what is not done within it never will be.
    limit = inf if known[0] == inf or chain.longest is None else chain.longest
    if known[0] == inf and chain.longest is not None and chain.tried >= chain.minutes_for(inf) - _NEARLY:
        words = f"needs more than {show_duration(chain.longest)} at once, the longest a job may ask for"
        return chain.end(now, "stuck", f"{words}; the chain stops")[0]
    try:
        plan = _replanned(replace(chain.plan, max_walltime=limit), saved, chain.tried, *known)
        insist(bool(plan.requests), "plan", plan.requests, "requests; the longest walltime allows none")
    except InputError as error:
        return chain.end(now, "stuck", f"{error}; the chain stops")[0]
    return replace(chain, plan=shortened(plan))


def shortened(plan: ReservationPlan) -> ReservationPlan:
    """Without requests that are hardly ever made: the file of a chain is read and written often."""
    return replace(plan, requests=plan.requests[:_REQUESTS])


def _replanned(
    plan: ReservationPlan, saved: float, tried: float, commit: float, restart: float
) -> ReservationPlan:
    try:
        return plan.after(saved, tried, checkpoint=commit, restart=restart)
    except InputError:  # perhaps it was made in a way that needs checkpoints, and there are none
        if plan.method == BEST:
            raise
        return replace(plan, method=BEST).after(saved, tried, checkpoint=commit, restart=restart)
