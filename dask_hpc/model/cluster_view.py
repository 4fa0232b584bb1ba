"""What a decision about the size of the whole cluster looks at, and what it answers.

A *unit* is what the cluster can ask for and give back as a whole: a batch job with all its workers, or one
worker. It is pending until its first worker connects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from dask_hpc.model.story import Word

#: what its own system (Slurm, the operating system) says of a unit: "held" is queued, and somebody keeps it
#: from starting; "unknown" if it could not be asked
UnitState = Literal["queued", "held", "running", "gone", "unknown"]
#: what became of its submission to a batch system; "" if there is none, or nobody knows yet
Submission = Literal["", "accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as it is now."""

    name: str
    #: workers it has when all are there, and those connected now
    members: int = 1
    connected: int = 0
    state: UnitState = "unknown"
    #: why it is gone, or what its system says it waits for
    why: str = ""
    #: seconds since it was asked for, and since its system started it (if that is known)
    age: float = 0.0
    running_for: float | None = None
    #: seconds until its walltime ends; until its system expects to start it, if it says so
    left: float = inf
    starts_in: float | None = None
    #: whether it ends because another job is to have its place
    is_preempted: bool = False
    #: how often its system has put it back into the queue, as far as it says
    restarts: int = 0
    #: seconds since its system was asked for this
    asked_ago: float = 0.0
    submission: Submission = ""
    #: whether its workers do something, or a running job holds them
    is_busy: bool = False
    #: bytes of results on it
    held: float = 0.0
    #: why it must not go now, if so
    pinned: str = ""
    #: it was told to go already
    is_leaving: bool = False
    #: seconds since it last refused to go
    refused_ago: float = inf


@dataclass(frozen=True, slots=True)
class JobNeed:
    """Nodes of one job: those it holds (or asks for, if it waits), what it can use, and its work."""

    nodes: int
    max_nodes: int
    work: float = 0.0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one instant. ``interval`` is how often somebody looks; seconds of any clock."""

    now: float
    interval: float
    units: tuple[Unit, ...]
    minimum: int
    maximum: float
    #: units that may be submitted now, by the manners of the place; and a number from 0 to 1 that differs
    #: between those who ask
    may_submit: float = inf
    chance: float = 0.0
    #: what one unit brings
    threads: int = 1
    memory: float = inf
    nodes_per_unit: float = 1.0
    #: expected seconds of the tasks outside of jobs that run or could run now, and their number
    work: float = 0.0
    tasks: int = 0
    #: tasks outside of jobs that wait for something else: they run some day, and need somebody who is there
    dormant: int = 0
    #: connected workers that no unit is known to have started
    strangers: int = 0
    #: changes whenever a task has moved
    steps: int = 0
    jobs: tuple[JobNeed, ...] = ()
    #: nodes that a service needs, and for what
    for_service: int = 0
    for_what: str = ""


@dataclass(frozen=True, slots=True)
class Parting:
    """A unit that is to go, and why."""

    unit: str
    reason: str
    #: seconds until it ends anyway: so long may what it runs take, but for what its results need to move
    left: float = inf


@dataclass(frozen=True, slots=True)
class SizePlan:
    """What to do about the size of the cluster. ``inputs`` is what it was decided from."""

    target: int
    submit: int = 0
    reason: str = ""
    #: pending units that are taken back
    cancel: tuple[Parting, ...] = ()
    #: connected units that are to finish what they run, hand over their data and go
    leave: tuple[Parting, ...] = ()
    #: units that exist only on paper
    dead: tuple[Parting, ...] = ()
    #: what the user should know
    news: tuple[str, ...] = ()
    inputs: Mapping[str, float] = field(default_factory=dict)
    #: what was not done instead
    rejected: tuple[str, ...] = ()
    #: the same was asked for before, and nothing has come of it
    is_asked_again: bool = False

    def __bool__(self) -> bool:
        return bool(self.submit or self.cancel or self.leave or self.dead or self.news)

    def rows(self) -> Iterator[tuple[Word, str]]:
        """What the story says of it: a word and the reason."""
        if self.submit and not self.is_asked_again:
            yield Word.SUBMIT_UNITS, f"{self.submit} more: {self.reason}"
        for word, partings in (
            (Word.UNIT_DEAD, self.dead),
            (Word.CANCEL_UNIT, self.cancel),
            (Word.UNIT_LEAVES, self.leave),
        ):
            yield from ((word, f"{parting.unit}: {parting.reason}") for parting in partings)
        yield from ((Word.WARNING, news) for news in self.news)
