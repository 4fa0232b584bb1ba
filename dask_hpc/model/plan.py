"""What a policy answers: decisions, each with its reason."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from dask_hpc.model.power import Verdict

#: how a job gets another size: while it runs, or by starting it again
RestartKind = Literal["", "after a commit", "at once"]


class Start(NamedTuple):
    """Start a waiting job on this many idle nodes. A tuple, because a replay makes one for every job."""

    job: str
    nodes: int
    reason: str


class Resize(NamedTuple):
    """Bring a running job to this many nodes: while it runs, or by starting it again there, after one more
    commit or from its last one."""

    job: str
    nodes: int
    reason: str
    restart: RestartKind = ""


#: at once, which loses what the job has not kept; or once it has kept its state, the next time that it does
#: so anyway, or as soon as it can
Moment = Literal["now", "next-commit", "forced-commit"]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop a running job and put it back into the queue, ahead of all but those that failed. If that is not
    at once, it is only done if job ``whom`` still lacks nodes by then."""

    job: str
    reason: str
    when: Moment = "now"
    whom: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up a waiting job: it will never start."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Let so many of the nodes that no job holds start no work, from now on until another plan says so."""

    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cap:
    """From now on nodes use this share of their threads, and draw at most so many watts each (None: as
    much as they can)."""

    threads: float
    watts: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Do without so many nodes, from now on until another plan says so: idle ones are given back."""

    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Lend:
    """Give a service so many idle nodes for itself: no job's work runs there until it gives them back."""

    service: str
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Tell a service to give back so many of its nodes. It chooses which, and takes its time."""

    service: str
    nodes: int
    reason: str


class Plan(NamedTuple):
    """Everything decided at one instant. A tuple, because a replay makes one for nearly every job.

    Bodies carry it out in this order: drops, interrupts, shrinks, starts, growths. Starts and growths
    together need no more nodes than were idle when the plan was made: nodes that a shrink frees are given
    away by a later plan, once they are free indeed. What is lent comes from what those left idle. Caps,
    holds and releases come last; a body without that lever does nothing about it.
    """

    id: int
    time: float
    starts: tuple[Start, ...] = ()
    resizes: tuple[Resize, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    drops: tuple[Drop, ...] = ()
    hold: Hold | None = None
    cap: Cap | None = None
    release: Release | None = None
    #: whether the power corridor can be kept, when that has changed
    verdict: Verdict | None = None
    #: jobs whose start or resize the power strategy made, or made other than it was wished
    for_power: frozenset[str] = frozenset()
    #: whether it was made for the sake of jobs that lost nodes
    for_failed: bool = False
    #: jobs that are resized for the sake of a service; nodes that services get, and give back
    for_loans: frozenset[str] = frozenset()
    lend: Lend | None = None
    take_back: TakeBack | None = None

    def in_order(self, size_of: Callable[[str], int]) -> Iterator[Drop | Interrupt | Resize | Start]:
        """The decisions in that order. ``size_of`` is asked for a running job's size when its turn comes."""
        if self.only_starts:
            return iter(self.starts)
        return chain(
            self.drops,
            self.interrupts,
            (resize for resize in self.resizes if resize.nodes < size_of(resize.job)),
            self.starts,
            (resize for resize in self.resizes if resize.nodes > size_of(resize.job)),
        )

    @property
    def only_starts(self) -> bool:
        """Whether jobs start and nothing else happens to any: most plans by far."""
        return not (self.resizes or self.interrupts or self.drops)

    @property
    def jobs(self) -> list[str]:
        """The jobs it speaks of."""
        all_: chain[Drop | Interrupt | Resize | Start]
        all_ = chain(self.drops, self.interrupts, self.resizes, self.starts)
        return [one.job for one in all_]

    def __bool__(self) -> bool:
        levers = self.hold or self.cap or self.release or self.verdict
        loans = self.lend or self.take_back
        return bool(self.starts or self.resizes or self.interrupts or self.drops or levers or loans)
