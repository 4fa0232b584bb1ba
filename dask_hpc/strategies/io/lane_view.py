"""What an I/O strategy sees: how each file system serves its reads, and what runs where; what it answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneView:
    """The reads of one file system. Sums are over reads that were let pass, and have ended, since the limit
    was last changed, all while others waited."""

    name: str
    #: so many may be in flight; None for as many as workers take
    limit: int | None
    #: whether a person has set it
    is_fixed: bool
    in_flight: int
    waiting: int
    #: reads that have ended, whatever the limit was
    done: int
    #: how many reads were measured under this limit
    tasks: int
    #: sum over them: how many were in flight with each, itself included
    company: float
    #: sum over them: seconds from being let pass to the end
    seconds: float
    #: sum over them: the squares of these
    squares: float


@dataclass(frozen=True, slots=True)
class IoView:
    """All file systems that tasks read from, and the threads of the cluster."""

    threads: int
    lanes: tuple[LaneView, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Tasks of one kind: reads, or what computes."""

    #: the part of its time that such a task does not compute
    intensity: float
    #: how many wait, ready
    waiting: int
    #: how long one takes
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeMix:
    """What runs on a node that can take another task."""

    name: str
    tasks: int
    #: sum of their I/O intensities
    load: float


@dataclass(frozen=True, slots=True)
class Mix:
    """What runs and what waits when slots are open: ``tasks`` and ``load`` of all nodes together."""

    tasks: int
    load: float
    reads: Kind
    computes: Kind
    nodes: tuple[NodeMix, ...]
    #: whether the first read goes before the first of the others in Dask's order
    read_is_first: bool


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """From now on so many reads of one file system are in flight (None: as many as workers take)."""

    lane: str
    limit: int | None
    reason: str
    #: what was not chosen, and why
    rejected: tuple[str, ...] = ()

    def __str__(self) -> str:
        most = "no limit" if self.limit is None else f"{self.limit} at once"
        return f"reads of {self.lane}: {most}; {self.reason}"


@dataclass(frozen=True, slots=True)
class Next:
    """What goes next into an open slot: a read, to this node, or what computes."""

    is_read: bool
    node: str
    reason: str
