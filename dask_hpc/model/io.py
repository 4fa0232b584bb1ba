"""What an I/O strategy sees: how each file system serves its reads, and what runs where."""

from dataclasses import dataclass
from math import inf

from dask_hpc.model.errors import insist, is_number
from dask_hpc.model.speedup import Speedup


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


@dataclass(frozen=True, slots=True, kw_only=True)
class IoDemand:
    """``compute`` operations and ``data`` bytes of a job, on nodes of ``speed`` operations per second,
    each with a ``link`` to a ``file_system`` (bytes per second)."""

    compute: float
    data: float
    speed: float = 1.0
    link: float = inf
    file_system: float = inf

    def __post_init__(self) -> None:
        for name in ("compute", "data", "speed", "link", "file_system"):
            value, may_be_zero = getattr(self, name), name in ("compute", "data")
            fine = is_number(value, 0, inf) and value != (inf if may_be_zero else 0)
            insist(fine, f"io_intensity.{name}", value, "0 or more" if may_be_zero else "more than 0")

    def intensity(self, nodes: int) -> float:
        """The share of its time that the job spends reading and writing when it has the file system
        to itself; 0 for a job that does nothing."""
        total = self.seconds(nodes)
        return self.data / min(nodes * self.link, self.file_system) / total if total > 0 else 0.0

    def seconds(self, nodes: int) -> float:
        """How long it takes on so many nodes when it has the file system to itself."""
        return self.data / min(nodes * self.link, self.file_system) + self.compute / (nodes * self.speed)


@dataclass(frozen=True, slots=True)
class IoScaling(Speedup):
    """The speed-up that an I/O demand implies: computing scales, the file system has an end."""

    demand: IoDemand

    def factor(self, nodes: int) -> float:
        one = self.demand.seconds(1)
        return one / self.demand.seconds(nodes) if one > 0 else 1.0
