"""A batch system's queue as anybody who may submit can see it. All times are seconds of one clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf


@dataclass(frozen=True, slots=True)
class QueueNode:
    """One node: what it has, what of it nobody has now, and whether it takes jobs."""

    name: str
    cores: int
    memory: float = inf
    free_cores: int = 0
    free_memory: float = inf
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """One partition (queue): its nodes and limits. Who has the higher ``tier`` goes first."""

    name: str
    nodes: tuple[str, ...]
    max_time: float = inf
    min_nodes: int = 1
    max_nodes: float = inf
    tier: int = 1
    is_up: bool = True
    is_default: bool = False
    #: whether we may submit there, as far as we know
    is_open: bool = True
    #: nodes are given as a whole
    is_exclusive: bool = False
    #: the only qualities of service that may be named; empty: any
    qos: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueQos:
    """One quality of service: its limits for a job and for a user."""

    name: str
    priority: float = 0.0
    max_time: float = inf
    max_nodes: float = inf
    user_jobs: float = inf
    user_nodes: float = inf


@dataclass(frozen=True, slots=True)
class RunningAsk:
    """A batch job that runs: on which nodes, and when it is over at the latest."""

    id: str
    nodes: tuple[str, ...]
    started: float
    limit: float
    cores: int = 0
    user: str = ""
    partition: str = ""
    submitted: float = -inf
    memory: float = 0.0  # of each node

    @property
    def ends(self) -> float:
        """The end of its walltime."""
        return self.started + self.limit


@dataclass(frozen=True, slots=True)
class PendingAsk:
    """A batch job that waits. ``cores`` are those of the whole job; with none it wants whole nodes."""

    id: str
    partitions: tuple[str, ...]
    nodes: int
    limit: float
    cores: int = 0
    memory: float = 0.0  # of each node
    priority: float = 0.0
    submitted: float = -inf
    not_before: float = -inf
    user: str = ""
    qos: str = ""
    is_exclusive: bool = False
    #: somebody or something other than a lack of nodes keeps it from starting
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes that are reserved for others, or for nobody, for a time."""

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue at one instant. ``pending`` is in the order in which it is served. ``unknown`` says what
    could not be found out, one line each."""

    now: float
    nodes: Mapping[str, QueueNode]
    partitions: Mapping[str, QueuePartition]
    running: tuple[RunningAsk, ...] = ()
    pending: tuple[PendingAsk, ...] = ()
    reserved: tuple[Maintenance, ...] = ()
    qos: Mapping[str, QueueQos] = field(default_factory=dict)
    me: str = ""
    unknown: tuple[str, ...] = ()

    def without(self, ids: Iterable[str]) -> "QueueView":
        """The same queue, had these jobs never been submitted."""
        gone = set(ids)
        return replace(self, pending=tuple(ask for ask in self.pending if ask.id not in gone))

    def tier(self, ask: PendingAsk) -> int:
        """Of the best partition that a waiting job may run in."""
        return max(
            (self.partitions[name].tier for name in ask.partitions if name in self.partitions), default=0
        )


def in_order(view: QueueView) -> QueueView:
    """The same view, its waiting jobs in the order in which Slurm looks at them: by tier of their partition,
    then priority, then age."""
    order = sorted(view.pending, key=lambda ask: (-view.tier(ask), -ask.priority, ask.submitted))
    return replace(view, pending=tuple(order))


def share_ahead(view: QueueView) -> float:
    """How often somebody who came later is ahead of somebody who came earlier, among those who wait: what to
    expect of those who are still to come. 0 where all are served as they come."""
    waiting = [ask for ask in view.pending if not ask.is_held and ask.submitted > -inf][:200]
    pairs = ahead = 0
    for at, first in enumerate(waiting):
        for second in waiting[at + 1 :]:
            if first.submitted != second.submitted and view.tier(first) == view.tier(second):
                pairs += 1
                ahead += first.submitted > second.submitted
    return ahead / pairs if pairs else 0.0
