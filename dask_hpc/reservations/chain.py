"""A chain of batch jobs, in which a program runs until it is done: what is known of it, what may happen to
it, and what there may be to do. What follows from what is in ``chain_rules``.

A chain has one *link* for each batch job. Nothing here knows a clock, a file or a batch system.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from typing import Any, Literal, get_args

from dask_hpc.checkpoint.client.reserved import Progress
from dask_hpc.history.runs import PastRun
from dask_hpc.planning.reservation.plan import ReservationPlan

#: what became of a link
Fate = Literal["asked", "running", "done", "cut", "lost", "failed", "cancelled", "dropped"]
#: why a chain is over, if it is
Over = Literal["", "done", "failed", "cancelled", "stuck"]

FORMAT = "dask-hpc chain 1"
_ROWS = 500  # of the story that are kept, the newest
_CARE = 1.5  # times that a commit may take as long as planned


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
    #: why it asked for that long
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainResumed:
    """None of its jobs is left, and a person wants it to go on: with these options beside those it has, and
    jobs no longer than that, if something is said."""

    now: float
    progress: Progress = field(default_factory=Progress)
    options: tuple[str, ...] = ()
    longest: float | None = None


Event = JobAsked | JobRefused | JobBegan | ProgramRuns | ProgramEnded | ChainCancelled | ChainResumed


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
