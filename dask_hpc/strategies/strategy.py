"""What strategies are: frozen dataclasses whose fields are their parameters, with pure methods.

``memory`` is whatever the strategy answered last time (None at first): all it remembers. A strategy must
not depend on anything but its arguments and its own parameters.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, NamedTuple, Protocol

from dask_hpc.model.cluster_view import ClusterView, SizePlan
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Cap, Drop, Hold, Interrupt, Lend, Release, Resize, Start, TakeBack
from dask_hpc.model.power import Corridor, Verdict
from dask_hpc.model.snapshot import Neighbourhood, Picked, Snapshot
from dask_hpc.model.waiting import Ranking
from dask_hpc.planning.in_situ.back_pressure import SlowWish
from dask_hpc.planning.in_situ.partition import PipelineView, Placement
from dask_hpc.strategies.checkpoint.agents import AgentNode, Direct, GiveBack, ItemAgents, MoreNodes
from dask_hpc.strategies.files.files_view import FilesResize, FilesView
from dask_hpc.strategies.io.lane_view import IoView, LaneLimit, Mix, Next
from dask_hpc.strategies.memory.memory_view import KindMemory, WorkerMemory
from dask_hpc.strategies.tail.tail_view import BackupCopy, TailView
from dask_hpc.strategies.together.neighbours_view import KindLimit, NeighboursView

Starts = Sequence[Start]
Resizes = Sequence[Resize]


class Strategy(Protocol):
    """What all of them have: what they decide about, and what a policy file calls them."""

    concern: ClassVar[str]
    name: ClassVar[str]
    #: parameters that most people change, shown first; none: all are
    essential: ClassVar[tuple[str, ...]] = ()


class QueueStrategy(Strategy, Ranking, Protocol):
    """Which waiting job starts now."""

    concern: ClassVar[str] = "queue"

    @property
    def gives_up(self) -> bool:
        """Whether ``drops`` is to be asked."""
        return False

    @property
    def only_first(self) -> bool:
        """Whether it starts nobody while the first in the queue does not fit, and remembers nothing."""
        return False

    def drops(self, snapshot: Snapshot) -> Sequence[Drop]:
        """The waiting jobs that are given up. Asked before ``decide``."""
        return ()

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """The jobs to start now, in order, and what to remember. Where nothing else decides it is not asked
        while nobody waits and it remembers nothing, or if there is ``only_first`` and that does not fit."""

    def ask_again(self, snapshot: Snapshot, memory: Any) -> float:
        """When it may want something else though nothing has happened; inf: never. Asked after ``decide``
        wants nothing more."""
        return inf


class Outlook(NamedTuple):
    """What will be when the starts of this plan are carried out: the first job that still waits, and the
    nodes still idle. A tuple, because a replay makes one for every decision."""

    head: Job | None
    idle: int


class MalleabilityStrategy(Strategy, Protocol):
    """Which running jobs grow or shrink now. Called after the queue strategy, also when none started."""

    concern: ClassVar[str] = "malleability"

    @property
    def only_in_need(self) -> bool:
        """Whether it does nothing while no node is idle and nobody waits, and then remembers nothing."""
        return False

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """New sizes, and what to remember.

        Only ``snapshot.resizable`` may be resized, within range and constraint; growths together take
        at most ``outlook.idle`` nodes. Where nothing but the queue decides beside it, it is not asked when
        there is no need, if it is ``only_in_need``.
        """

    def ask_again(self, snapshot: Snapshot, memory: Any) -> float:
        """When it may want something else though nothing has happened; inf: never."""
        return inf


class NodesStrategy(Strategy, Protocol):
    """Which nodes a job gets when it starts or grows. Without one it gets the first that are idle."""

    concern: ClassVar[str] = "nodes"

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """So many of the idle ones, for a job that may hold some. What comes first is given back last."""


class FailureStrategy(Strategy, Protocol):
    """What to do for jobs that lost nodes: those that run on and lack some (``snapshot.lacking``), and those
    that have just stopped (``snapshot.failed``). Called when no idle node is left for the former."""

    concern: ClassVar[str] = "failure"

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: Any
    ) -> tuple[Sequence[Interrupt | Resize], Any]:
        """Running jobs that stop or give nodes for their sake, and what to remember."""


class Loans(NamedTuple):
    """What is done for a service that asks for nodes of its own, or about those it has."""

    lend: Lend | None = None
    take_back: TakeBack | None = None
    #: of jobs, for its sake
    resizes: Resizes = ()


class LendingStrategy(Strategy, Protocol):
    """Which nodes services have for themselves. All there is to be known is in ``snapshot.borrowers``, so
    nothing is remembered."""

    concern: ClassVar[str] = "lending"

    def first(self, snapshot: Snapshot) -> Loans:
        """Before anything is decided about jobs. What it answers is carried out alone, and all is asked
        again."""

    def last(self, snapshot: Snapshot) -> Loans:
        """When all others have nothing left to say."""


class Powered(NamedTuple):
    """What is left of starts and resizes once power has had its say, and what else is to be done for it."""

    starts: Starts
    resizes: Resizes
    hold: Hold | None = None
    cap: Cap | None = None
    release: Release | None = None
    verdict: Verdict | None = None


class PowerStrategy(Strategy, Protocol):
    """Keep power where it is to be. Called last, whenever a body knows something about power."""

    concern: ClassVar[str] = "power"
    #: whether ``decide`` takes ``known``
    notes_known: ClassVar[bool] = False

    @property
    def corridor(self) -> Corridor:
        """The corridor as the policy file says it."""

    @property
    def follow(self) -> str:
        """Path of a file that says the corridor, or ``signal:NAME``; bodies follow it. Empty: ``corridor``
        holds."""

    @property
    def looks_ahead(self) -> bool:
        """Whether a forecast of power would be of use."""

    def decide(
        self,
        snapshot: Snapshot,
        starts: Starts,
        resizes: Resizes,
        memory: Any,
        known: dict[Any, Any] | None = None,
    ) -> tuple[Powered, Any]:
        """The starts and resizes that the other strategies would like, made to fit; and what to remember.

        ``snapshot.power`` and ``snapshot.corridor`` are there. Asked again at the same instant after its
        answer was carried out, it must come to want nothing more. Of one snapshot it may be asked twice, for
        other starts and resizes: in ``known``, if it takes that, it may note what it worked out first.
        """


class PlacementStrategy(Strategy, Protocol):
    """Where the analyses of an in situ pipeline run. Asked by each pipeline between two of its iterations."""

    concern: ClassVar[str] = "placement"

    @property
    def warm_up(self) -> int:
        """How many iterations are only measured."""
        return 3

    @property
    def slow(self) -> SlowWish:
        """What it says of analyses that do not keep up, as far as it does."""
        return SlowWish()

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        """Another partition, or None if the one in force stays; and what to remember."""


class IoStrategy(Strategy, Protocol):
    """How many tasks read from each file system, and what runs beside them."""

    concern: ClassVar[str] = "io"

    @property
    def pair(self) -> bool:
        """Whether ``next_of`` is to be asked."""

    @property
    def together(self) -> bool:
        """Whether reads that neighbour each other go to one worker where slots allow."""

    def decide(self, view: IoView, memory: Any) -> tuple[Sequence[LaneLimit], Any]:
        """The limits that change, and what to remember. Asked when reads have ended or file systems came."""

    def next_of(self, mix: Mix) -> Next:
        """Which of two tasks goes next, a read or another, and to which node if it is the read."""


class TailStrategy(Strategy, Protocol):
    """What is done about slow tasks at the end of a stage, and about slow nodes."""

    concern: ClassVar[str] = "tail"

    @property
    def slow(self) -> float:
        """How many times as long as elsewhere tasks take on a node that is named slow."""
        return 2.5

    @property
    def hold(self) -> bool:
        """Whether slow nodes are held."""
        return False

    def decide(self, view: TailView, memory: Any) -> tuple[Sequence[BackupCopy], Any]:
        """The tasks that run a second time elsewhere, and what to remember. Asked again and again while
        threads have nothing to do and no task waits for one."""


class TogetherStrategy(Strategy, Protocol):
    """Which kinds of tasks share a node, and how many of each."""

    concern: ClassVar[str] = "together"

    @property
    def known(self) -> int:
        """Tasks that must be seen beside each kind before that counts."""
        return 30

    def decide(self, view: NeighboursView, memory: Any) -> tuple[Mapping[str, KindLimit], Any]:
        """All limits from now on, by kind, and what to remember. Asked every so often while tasks wait."""


class MemoryStrategy(Strategy, Protocol):
    """Which tasks run at the same time in the memory of one worker. All there is to be known is in what it is
    asked, so nothing is remembered."""

    concern: ClassVar[str] = "memory"

    def need(self, kind: KindMemory, worker: WorkerMemory) -> float:
        """Bytes to count with for a task of this kind there."""

    def keeps(self, kind: KindMemory, worker: WorkerMemory) -> bool:
        """Whether tasks of this kind are let pass one by one, if this is the worker with least room."""

    def fits(self, kind: KindMemory, worker: WorkerMemory) -> bool:
        """Whether one more may begin there now."""

    def at_once(self, kind: KindMemory, worker: WorkerMemory) -> int:
        """How many of them run there at once, if nothing else does."""


class FilesStrategy(Strategy, Protocol):
    """How many nodes keep the blocks of a file system in memory."""

    concern: ClassVar[str] = "files"

    @property
    def window(self) -> int:
        """How many of the newest operations it looks at: a body need not keep more."""
        return 20

    def decide(self, view: FilesView) -> FilesResize | None:
        """Another number of nodes, or None if it stays. Asked when operations have ended or bounds have
        changed; all there is to be known is in the view, so nothing is remembered."""


class CheckpointStrategy(Strategy, Protocol):
    """Which agents keep the copies of protected results, how many, and how many nodes there are for them."""

    concern: ClassVar[str] = "checkpoint"

    @property
    def window(self) -> float:
        """Bytes that may be on their way at a time."""

    def first(self, nodes: int, most: int, seen: Sequence[AgentNode], domains: Collection[str]) -> ItemAgents:
        """What is to be remembered of an item whose data is on so many nodes, in these domains; on the nodes
        ``seen`` there could be ``most`` agents."""

    def resized(self, item: ItemAgents, nodes: int) -> ItemAgents:
        """Its data is on so many nodes now."""

    def committed(
        self, item: ItemAgents, agents: int, seconds: float, most: int, commits_left: float
    ) -> ItemAgents:
        """A commit took so long with so many agents; there could be ``most``. So many more are to come, or
        nobody knows: inf."""

    def tries_again(
        self, known: Direct, now: float, past_agents: float, to_agents: float, commits_left: float
    ) -> bool:
        """Whether a commit tries agents now that could not be reached. One past them and one to them take so
        many seconds."""

    def order(self, nodes: Sequence[AgentNode]) -> Sequence[AgentNode]:
        """The best first."""

    def slots(
        self, count: int, nodes: Sequence[AgentNode], nbytes: float, domains: Collection[str]
    ) -> Sequence[str]:
        """Where the agents of an item are, each of which keeps so many bytes; outside of these domains."""

    def more_nodes(self, nodes: Sequence[AgentNode]) -> MoreNodes | None:
        """Whether another node is needed."""

    def idle_nodes(self, nodes: Sequence[AgentNode]) -> Sequence[GiveBack]:
        """Nodes that nobody uses."""


class SizeStrategy(Strategy, Protocol):
    """How many units the cluster has. Asked only when somebody lets us adapt it."""

    concern: ClassVar[str] = "size"

    def decide(self, view: ClusterView, memory: Any) -> tuple[SizePlan, Any]:
        """What to do now, and what to remember."""


def outlook_after(snapshot: Snapshot, starts: Starts) -> Outlook:
    """The outlook once these starts are carried out."""
    waiting, idle = snapshot.waiting, snapshot.idle
    if not starts:
        return Outlook(waiting.first, idle)
    idle -= sum([start.nodes for start in starts])
    if len(starts) == len(waiting):  # mostly it is all who wait
        return Outlook(None, idle)
    started = {start.job for start in starts}
    return Outlook(next((job for job in waiting if job.id not in started), None), idle)
