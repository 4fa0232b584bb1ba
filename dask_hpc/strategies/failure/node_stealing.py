"""Node stealing: a small job is stopped so that a larger one, which lost a node, can go on at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Interrupt
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.strategies.strategy import FailureStrategy, Outlook


@dataclass(frozen=True, slots=True)
class NodeStealing(FailureStrategy):
    """SFSJ, steal from small jobs; seed 002, section 3.1.4.

    When a job that failed cannot restart on idle nodes, the smallest running job gives its place: one
    with fewer nodes than the failed job, but as many as it lacks. Equals: the one submitted latest (the
    protocol) or the one that has run shortest (the contribution list); then the one started latest.
    One victim per failed job, as in the text; if no single one suffices, nobody is stopped. Jobs that
    failed in the same instant are no victims.
    """

    name: ClassVar[str] = "node-stealing"

    tie: Annotated[
        Literal["latest", "shortest-run"],
        Parameter("which of equally small jobs is stopped: the one submitted latest, or run shortest"),
    ] = "latest"

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: tuple[float, frozenset[str]] | None
    ) -> tuple[Sequence[Interrupt], Any]:
        """Stop one job for the first failed one that could not restart."""
        head, now = outlook.head, snapshot.now
        helped = memory[1] if memory is not None and memory[0] == now else frozenset()
        if head is None or head.id not in snapshot.failed or head.id in helped:
            return (), memory
        need = head.nodes - outlook.idle
        victims = [
            running
            for running in snapshot.running.values()
            if max(need, 1) <= len(running.nodes) < head.nodes and running.job.id not in snapshot.failed
        ]
        if need <= 0 or not victims:
            return (), memory
        victim = min(victims, key=self._order)
        reason = f"job {head.id} lost a node and lacks {need}; this is the smallest job that can help"
        return [Interrupt(victim.job.id, reason)], (now, helped | {head.id})

    def _order(self, running: Running) -> Any:
        when = running.job.submitted if self.tie == "latest" else running.started
        return len(running.nodes), -when, -running.order
