"""First come, first served: start from the front of the queue, stop at the first that does not fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.model.waiting import FRONT, Hole
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class Fcfs(QueueStrategy):
    """Start jobs strictly in order of arrival; seed 001, section 5.1.1.

    ``pick`` is who is taken from the queue, section 5.1 there: the first, and nobody if that does not fit;
    the first that fits; or who leaves the fewest nodes idle (ours: the seed leaves the criterion open). Only
    the first rule is fair: under the others a large job may wait for ever. ``favour`` is which of the two
    queues of seed 000, section 4.1, goes first: that of rigid jobs, or of those with a range of sizes.
    """

    name: ClassVar[str] = "fcfs"

    pick: Annotated[
        Literal["front", "first-fit", "best-fit"], Parameter("who is next: the first, or one that fits")
    ] = "front"
    favour: Annotated[
        Literal["both", "rigid", "malleable"], Parameter("whose queue goes first, if not that of both alike")
    ] = "both"

    def rank(self, job: Job) -> Any:
        """In order of arrival."""
        return 0 if self.favour == "both" else self.placed(job, 0)

    def placed(self, job: Job, rank: float) -> Any:
        """This rank within its queue, behind the queue that is favoured."""
        if self.favour == "both":
            return rank
        return ((job.kind == "rigid") != (self.favour == "rigid"), rank)

    @property
    def only_first(self) -> bool:
        """Unless it looks further, or somebody made another strategy of it."""
        return self.pick == "front" and type(self).decide is Fcfs.decide

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start who is next, again and again, while there is somebody."""
        if self.pick == "front":
            return from_the_front(snapshot)[0], None
        return picked(snapshot, self.pick == "best-fit"), None


def from_the_front(snapshot: Snapshot) -> tuple[list[Start], Job | None, int]:
    """Starts from the front while they fit; the first job that does not; the nodes then left idle."""
    idle = snapshot.idle
    starts: list[Start] = []
    head = snapshot.waiting.first if idle else None
    if head is None or head.nodes > idle:  # nearly always
        return starts, head, idle
    for job in snapshot.waiting:
        if job.nodes > idle:
            return starts, job, idle
        starts.append(Start(job.id, job.nodes, f"first in the queue, {count_nodes(idle)} idle"))
        idle -= job.nodes
    return starts, None, idle


_nodes = attrgetter("nodes")


def picked(snapshot: Snapshot, best: bool) -> list[Start]:
    """Whoever fits, in the queue's order, or the ``best`` first: the largest. Those that were put ahead of
    the queue go first in any case."""
    waiting, hole = snapshot.waiting, Hole(snapshot.idle)
    fitting: Iterable[Job] = waiting.fitting(FRONT, hole)
    if best:
        fitting = sorted(fitting, key=_nodes, reverse=True)  # of equals, the earlier one
        if waiting.first is not None and waiting.ahead_of(waiting.first.id):
            fitting.sort(key=lambda job: waiting.ahead_of(job.id), reverse=True)
    starts: list[Start] = []
    for job in fitting:
        if job.nodes <= hole.idle:
            hole.idle -= job.nodes
            place = "fits best" if best else "the first that fits"
            starts.append(Start(job.id, job.nodes, f"{place}, leaves {count_nodes(hole.idle)} idle"))
    return starts


def whoever_fits(
    snapshot: Snapshot, why: Callable[[Job], str], key: Callable[[Job], Any] | None = None
) -> list[Start]:
    """Whoever fits, in the queue's order or in that of a ``key`` that changes with time, with a reason. Those
    that were put ahead of the queue go first in any case."""
    waiting, hole = snapshot.waiting, Hole(snapshot.idle)
    fitting: Iterable[Job] = waiting.fitting(FRONT, hole)
    if key is not None:
        fitting = sorted(fitting, key=lambda job: (-waiting.ahead_of(job.id), key(job)))
    starts: list[Start] = []
    for job in fitting:
        if job.nodes <= hole.idle:
            starts.append(Start(job.id, job.nodes, why(job)))
            hole.idle -= job.nodes
    return starts
