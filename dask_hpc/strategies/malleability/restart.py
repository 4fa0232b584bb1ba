"""Jobs that cannot change their size while they run change it by being stopped and started again."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize, RestartKind
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.units import count_nodes, show_duration
from dask_hpc.strategies.malleability.grow_shrink import grown, leaving, left, shrunk
from dask_hpc.strategies.malleability.performance_aware import PerformanceAware
from dask_hpc.strategies.strategy import Outlook, Resizes


@dataclass(frozen=True, slots=True)
class Restart(PerformanceAware):
    """Jobs that cannot change their size while they run are stopped and started again on another.

    Seed 000, section 7.4.4: a job that commits and is moldable is announced as flexible; to resize it, it
    is stopped and launched again, and its checkpoint is read into the other number of nodes. Malleable jobs
    are resized as performance-aware resizing would; only when that has nothing to say somebody is restarted.

    The document has the idea only. Ours is when it pays. A restart costs every node of the job the seconds of
    a commit, the launch and reading back, and what was done since the last commit if it does not commit
    first. For the first waiting job it pays if the nodes of those restarted stand still for fewer node
    seconds than that job waits less; for the job itself if its growth saves more time than it costs. No job
    is restarted again for a while. On a live cluster what is protected of it is committed first, too; then
    its tasks go to its new nodes as those of any job do: they need no launch, and what runs is not stopped.
    """

    name: ClassVar[str] = "restart"
    essential = ("priority", "guard", "commit", "cost")

    commit: Annotated[
        Literal["first", "last"],
        Parameter("first: it commits before it is stopped; last: it goes on from the commit it has"),
    ] = "first"
    cost: Annotated[
        float, Parameter("what commit and reading back are expected to take, beside the launch", "s", low=0)
    ] = 60.0
    lost: Annotated[
        float, Parameter("work that is expected to be done again if it does not commit first", "s", low=0)
    ] = 300.0
    pause: Annotated[float, Parameter("how long a job that was started is left alone", "s", low=0)] = 1800.0

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """What malleable jobs can do, or else restarts."""
        resizes, memory = PerformanceAware.decide(self, snapshot, outlook, memory)
        if resizes or snapshot.is_resizing or (outlook.head is None and not outlook.idle):
            return resizes, memory
        jobs = [r for r in snapshot.restartable if self._rested(r) <= snapshot.now]
        if outlook.head is not None:
            if self.priority != "waiting":
                return (), memory
            return self._for(outlook.head, jobs, snapshot, outlook), memory
        return self._growth(jobs, snapshot, outlook), memory

    def ask_again(self, snapshot: Snapshot, memory: Any) -> float:
        """When another job will have been left alone for long enough."""
        return min((t for r in snapshot.restartable if (t := self._rested(r)) > snapshot.now), default=inf)

    def _rested(self, running: Running) -> float:
        return max(running.started, running.resized_at) + self.pause

    def _for(self, head: Job, jobs: Sequence[Running], snapshot: Snapshot, outlook: Outlook) -> list[Resize]:
        """Restarts that let the head start earlier, if they pay; those first that cost least for a node."""
        need = head.nodes - outlook.idle - leaving(snapshot)
        wait = _wait(snapshot, need)
        stall = self._stall(snapshot)
        able = [r for r in jobs if shrunk(r.job, len(r.nodes), need) < len(r.nodes)]
        able.sort(key=lambda r: len(r.nodes) / (len(r.nodes) - shrunk(r.job, len(r.nodes), need)))
        resizes, still = list[Resize](), 0.0
        for running in able:
            size = len(running.nodes)
            target = shrunk(running.job, size, need) if need > 0 else size
            if target < size:
                need -= size - target
                still += target * stall
                why = f"gives {count_nodes(size - target)} so that job {head.id} can start"
                sooner = f", {show_duration(wait)} earlier" if wait < inf else ""
                resizes.append(self._again(running, target, why + sooner))
        return resizes if need <= 0 and still < head.nodes * (wait - stall) else []

    def _growth(self, jobs: Sequence[Running], snapshot: Snapshot, outlook: Outlook) -> list[Resize]:
        """The one that gains most by more nodes."""
        stall, best = self._stall(snapshot), (0.0, "")
        found: list[Resize] = []
        for running in jobs if outlook.idle == snapshot.idle else ():
            size = len(running.nodes)
            target = grown(running.job, size, outlook.idle)
            rest = left(running, snapshot.now)
            if target == size or rest == inf:  # of one that may run for ever nobody knows what it gains
                continue
            gain = rest * (1 - stretch(running.job, size, target)) - stall
            if gain > best[0]:
                best = gain, running.job.id
                why = f"grows into {count_nodes(target - size, 'idle')}, to end {show_duration(gain)} earlier"
                found = [self._again(running, target, why)]
        return found

    def _stall(self, snapshot: Snapshot) -> float:
        return snapshot.overhead + self.cost + (self.lost if self.commit == "last" else 0.0)

    def _again(self, running: Running, target: int, reason: str) -> Resize:
        how: RestartKind = "after a commit" if self.commit == "first" else "at once"
        return Resize(running.job.id, target, f"restarted {how}: {reason}", how)


def _wait(snapshot: Snapshot, need: int) -> float:
    """Seconds until so many nodes come free by themselves."""
    for running in snapshot.by_expected_end():
        need -= len(running.nodes)
        if need <= 0:
            return left(running, snapshot.now)
    return inf
