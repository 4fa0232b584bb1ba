"""What a tail strategy sees: who has nothing to do, what runs and for how long; what it answers."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spare:
    """A worker with threads that have nothing to do."""

    address: str
    node: str
    threads: int


@dataclass(frozen=True, slots=True)
class TailTask:
    """A task that runs, or was sent to a worker that has not begun it."""

    key: Hashable
    kind: str
    #: the node it was sent to
    node: str
    #: for how long, at least
    seconds: float
    #: the only workers that may have it; None for all
    allowed: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Usual:
    """How many tasks of a kind have ended, and their mean time."""

    tasks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TailView:
    """The end of a stage: no task waits for a thread, and some threads wait for tasks."""

    #: of all workers
    threads: int
    #: second runs under way, wanted or not
    copies: int
    spare: tuple[Spare, ...]
    #: without those that run twice already, or must not
    tasks: tuple[TailTask, ...]
    usual: Mapping[str, Usual]
    #: nodes that are known to be slow: how many times as long as others they take
    slow: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BackupCopy:
    """A task runs there as well."""

    key: Hashable
    kind: str
    node: str
    address: str
    reason: str
