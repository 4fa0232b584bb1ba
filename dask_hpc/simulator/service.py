"""How a service joins a simulated machine: what it hears, what it shows to policies, and what it does along
with a job. The engine knows nothing else of power, checkpoints or pipelines."""

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from dask_hpc.model.job import Job
from dask_hpc.model.lending import NodeDesk, ToService
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Indices, Running, Snapshot
from dask_hpc.model.story import Story
from dask_hpc.policy import Policy
from dask_hpc.simulator.execution import Execution, Transfer
from dask_hpc.simulator.platform import FileSystem, Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.workload import Arrival

# The order of events within one instant.
STEPS, KILLS, CHANGES, REPAIRS, FAILURES, CANCELS, TICKS = range(7)


class Companion:
    """What a service does along with one job, which may have to wait for it. Of commits, for instance."""

    #: ``woken`` is only called for what was asked for under the version of now
    version = 0

    def begin(self, now: float) -> None:
        """The job begins its work, or begins again."""

    def goes_first(self, now: float) -> bool:
        """Whether a job that would go on waits; it is asked again at each of its steps."""
        return False

    def woken(self, now: float) -> None:
        """What was asked for has come: a time, or the end of a transfer of the companion's own."""

    def interrupted(self, now: float) -> None:
        """The job stands still for a resize: what it waits for is given up."""

    def resized(self) -> None:
        """It has another size now."""

    def last_commit(self, now: float) -> float:
        """The job stands still, to be started again on another size after one more commit: how many seconds
        that takes."""
        return 0.0

    def committed(self, done: float) -> None:
        """That commit is complete, with such a share of the work."""

    def stopped(self, now: float) -> float:
        """The job stops, with all that is on its way; answers the share of its work that is saved."""
        return 0.0

    def keeps_first(self, now: float, at_once: bool) -> bool:
        """The job is to stop. Whether it first keeps its state, as soon as it can or when it does so anyway;
        then ``stop_after`` is called of the site when it has."""
        return False

    def finished(self, now: float) -> None:
        """It is over."""


class Life:
    """A job from its submission to its end."""

    # Most jobs of a large trace run undisturbed and keep these; setting them one by one shows.
    execution: Execution | None = None  # None: one undisturbed stretch
    companion: Companion | None = None
    done = 0.0  # saved before it was stopped
    deadline = inf  # then it is killed; growing does not bring it nearer, shrinking moves it on
    version = 0  # events of an older version are void
    changed = 0.0  # since when it holds the nodes it holds
    at_point = False
    state = ""

    def __init__(self, arrival: Arrival, row: int, place: int) -> None:
        self.arrival = arrival
        self.row = row
        self.place = place  # its arrival in the queue, to go back to


class Site(Protocol):
    """The machine as services see it."""

    platform: Platform
    policy: Policy
    indices: Indices
    snapshot: Snapshot
    story: Story
    record: Record | None
    file_system: FileSystem

    @property
    def desk(self) -> NodeDesk:
        """Where it asks for nodes."""

    def step_at(self, time: float, life: Life) -> None:
        """Let a job go on then."""

    def wake_at(self, time: float, companion: Companion) -> None:
        """Wake a job's companion then, before anything is decided."""

    def decide_at(self, time: float, service: "MachineService") -> None:
        """Wake a service then, after everything else of that instant, and decide whatever the ticks."""

    def stop_after(self, time: float, life: Life) -> None:
        """A job that is to stop has kept its state then."""

    def decide_soon(self) -> None:
        """Something is to be decided about."""

    def work_left(self, job_id: str) -> float:
        """Node-seconds that a running job has still to do, on the nodes that it asked for."""

    def slow_down(self, job_id: str, stretch: float) -> None:
        """A running job takes so many times as long to communicate from now on."""

    def is_at_work(self, job_id: str) -> bool:
        """Whether a running job has not come to its end, or been stopped."""

    def move_job(self, job_id: str, gone: str, instead: str) -> None:
        """A running job goes on on a node that is idle, instead of one of its own."""

    def join_node(self, node: Node, now: float) -> None:
        """A node is there, idle."""

    def lose_node(self, name: str, now: float, survive: bool) -> None:
        """A node is gone. Who holds it stops, or does with the others if that is possible and he may."""


class InnerSite(Site, Protocol):
    """The machine as its own parts see it."""

    #: the jobs that are not over, by id
    lives: dict[str, Life]
    #: whether anything has happened that a policy might want to know
    news: bool

    def push(
        self,
        time: float,
        rank: int,
        call: Callable[[Any, float], None],
        what: Any = None,
        version: int | None = None,
    ) -> None:
        """Then ``call(what, time)``, unless it has another version by then."""

    def proceed(self, life: Life, now: float) -> None:
        """Go on with the next step."""

    def expect_kill(self, life: Life) -> None:
        """It is killed when its walltime is over."""

    def account(self, life: Life, now: float) -> None:
        """Remember the node-seconds up to now of a job whose size changes, or that is stopped."""

    def measure(self, life: Life) -> None:
        """What policies are to know of its time in communication."""

    def execute(self, life: Life) -> Execution:
        """How it does what is left of its work."""

    def abandon(self, life: Life, now: float) -> None:
        """It does not wait for any transfer (any more)."""

    def cleaned(self, life: Life, now: float) -> None:
        """Its nodes are free."""

    def tell_of_nodes(self, running: Running) -> None:
        """Why a job has just got these nodes."""


class MachineService:
    """One service's half on a simulated machine. What it does not override does nothing."""

    #: under which name it asks for nodes of its own, if it does
    borrows = ""
    #: whether ``submitted``, ``look`` and ``carried_out`` are called: they are on the fast path
    follows_decisions = False
    #: whether ``settled`` is called
    follows_instants = False
    site: Site

    def join(self, site: Site) -> None:
        """Before the machine has indices."""
        self.site = site

    def watch(self, indices: Indices) -> Indices:
        """The same indices, or some that know more."""
        return indices

    def begin(self) -> None:
        """The run begins; what policies see can be added to now."""

    def end(self, now: float) -> None:
        """The run is over."""

    def tick(self, now: float) -> None:
        """One of the platform's ticks, before it is decided."""

    def woken(self, now: float) -> None:
        """What ``decide_at`` asked for."""

    def settled(self, now: float) -> None:
        """All that happens at this instant has happened, and all that is decided has begun."""

    def submitted(self, job: Job) -> None:
        """A job joins the queue."""

    def look(self) -> None:
        """The policy is about to be asked."""

    def carried_out(self, plan: Plan) -> None:
        """Starts and resizes of a plan are done."""

    def accompany(self, life: Life) -> Companion | None:
        """A job starts for the first time."""
        return None

    def execution(self, life: Life) -> Execution | None:
        """How a job proceeds whose application is no sequence of phases, if the service knows that."""
        return None

    def hear_of_nodes(self, message: ToService) -> None:
        """It is to use nodes, or to give some back, or hears how many are idle."""

    def reads(self, life: Life, transfer: Transfer, now: float) -> bool:
        """Whether the service sees to what a job is to read now, and lets the job go on when it is read."""
        return False

    def abandoned(self, life: Life, now: float) -> None:
        """A job ends or is stopped, whatever it reads."""

    def node_failed(self, node: str) -> None:
        """With all that was kept on it."""
