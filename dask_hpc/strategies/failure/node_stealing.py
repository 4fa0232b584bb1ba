"""Node stealing: a job that lost a node takes one from a smaller job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Interrupt, Moment, Resize
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.strategies.failure.replace import in_need
from dask_hpc.strategies.malleability.grow_shrink import leaving, shrunk
from dask_hpc.strategies.strategy import FailureStrategy, Outlook


@dataclass(frozen=True, slots=True)
class NodeStealing(FailureStrategy):
    """A job that lost a node takes one from a smaller job; SFSJ of seed 002, section 3.1.4.

    When a job that failed cannot restart on idle nodes, the smallest running job gives its place: one
    with fewer nodes than the failed job, but as many as it lacks. Equals: the one submitted latest (the
    protocol) or the one that has run shortest (the contribution list); then the one started latest.
    One victim per failed job, as in the text; if no single one suffices, nobody is stopped. Jobs that
    failed in the same instant are no victims.

    Beyond the text: a job that runs on without the nodes that failed, as a Dask job does, is helped in the
    same way, whenever it lacks nodes and somebody can give them. With ``spare`` the extension that it names
    holds: malleable jobs that can give what is lacking become smaller instead of being stopped, whatever
    their size. ``when`` has its three moments of an interruption; one that keeps nothing stops at once.
    """

    name: ClassVar[str] = "node-stealing"

    tie: Annotated[
        Literal["latest", "shortest-run"],
        Parameter("which of equally small jobs is stopped: the one submitted latest, or run shortest"),
    ] = "latest"
    when: Annotated[
        Moment,
        Parameter(
            "when a job is stopped: at once, after its next commit, or after one that it makes for this"
        ),
    ] = "now"
    spare: Annotated[
        bool, Parameter("whether malleable jobs that can give nodes do so before any job is stopped")
    ] = True

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: tuple[float, frozenset[str]] | None
    ) -> tuple[Sequence[Interrupt | Resize], Any]:
        """Take nodes from one job, for the first that lacks some and could not have them otherwise."""
        now = snapshot.now
        helped = memory[1] if memory is not None and memory[0] == now else frozenset()
        coming = outlook.idle + leaving(snapshot)
        coming += sum(len(snapshot.running[job].nodes) for job in snapshot.stopping)
        for running in in_need(snapshot):
            job, lacks = running.job.id, snapshot.lacking[running.job.id]
            need = lacks - coming
            coming = max(0, coming - lacks)
            if need <= 0 or job in helped:
                continue
            deeds = self._take(snapshot, job, need, len(running.nodes) + lacks)
            if deeds:
                return deeds, (now, helped | {job})
        head = outlook.head
        if head is None or head.id not in snapshot.failed or head.id in helped:
            return (), memory
        need = head.nodes - outlook.idle
        deeds = self._take(snapshot, head.id, need, head.nodes) if need > 0 else ()
        return deeds, (now, helped | {head.id}) if deeds else memory

    def _take(
        self, snapshot: Snapshot, whom: str, need: int, size: int
    ) -> tuple[Interrupt, ...] | tuple[Resize, ...]:
        """From the smallest job that can help one of that size with so many nodes."""
        reason = f"job {whom} lost a node and lacks {need}; this is the smallest job that can help"
        if self.spare:
            resizable = snapshot.resizable
            givers = [
                (len(running.nodes), target, running)
                for running in self._others(snapshot, resizable)
                if running.job.kind == "malleable"
                and len(running.nodes) - (target := shrunk(running.job, len(running.nodes), need)) >= need
            ]
            if givers:
                _, target, running = min(givers, key=lambda giver: self._order(giver[2]))
                return (Resize(running.job.id, target, reason),)
        victims = [
            running
            for running in self._others(snapshot, snapshot.running.values())
            if max(need, 1) <= len(running.nodes) < size
        ]
        if not victims:
            return ()
        return (Interrupt(min(victims, key=self._order).job.id, reason, self.when, whom),)

    def _others(self, snapshot: Snapshot, running: Any) -> Iterator[Running]:
        for one in running:
            job = one.job.id
            if job not in snapshot.failed and job not in snapshot.lacking and job not in snapshot.stopping:
                yield one

    def _order(self, running: Running) -> Any:
        when = running.job.submitted if self.tie == "latest" else running.started
        return len(running.nodes), -when, -running.order
