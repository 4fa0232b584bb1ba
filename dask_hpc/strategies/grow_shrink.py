"""The frame of the published malleability strategies: shrink for the job that waits, or else grow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.indices import Running
from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.resizing import leaving, malleable
from dask_hpc.strategies.strategy import Outlook, Resizes


@dataclass(frozen=True, slots=True)
class GrowShrink:
    """Job management of seed 001, section 5.3.1, and seed 000, section 4.2; subclasses say who and how far.

    With priority ``waiting`` (PWMA) running jobs shrink if that lets the first waiting job start, all or
    nobody; otherwise they grow. With ``running`` (PRMA) nobody ever shrinks. Only the head counts; it
    starts in a later decision, once the nodes are free indeed. Nodes that are about to come free count
    as idle for the head, and while the head only waits for those nobody grows.
    """

    concern: ClassVar[str] = "malleability"

    priority: Annotated[
        Literal["waiting", "running"],
        Parameter("waiting: shrink jobs so that the first waiting one can start; running: never shrink"),
    ] = "waiting"
    guard: Annotated[
        float,
        Parameter("leave a job alone when no more than this is left of its walltime", unit="s", low=0.0),
    ] = 60.0
    max_growths: Annotated[
        int,
        Parameter("how often one job may be given nodes; 0: no limit", unit="times", low=0, high=1_000_000),
    ] = 0
    barrier: Annotated[bool, Parameter("decide nothing while any job is changing its size")] = True

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """Shrinks for the head, or growths, or nothing."""
        if outlook.head is None and not outlook.idle:
            return (), memory
        everyone = malleable(snapshot)
        if not everyone or (self.barrier and snapshot.is_resizing):
            return (), memory
        memory = self.observe(snapshot, memory)
        now = snapshot.now
        jobs = [running for running in everyone if running.expected_end - now > self.guard]
        head = outlook.head
        if head is not None and self.priority == "waiting":
            need = head.nodes - outlook.idle - leaving(snapshot)
            if need <= 0:
                return (), memory
            shrinks = self.shrinks(jobs, len(everyone), need, head, memory)
            if shrinks:
                return shrinks, memory
        if not outlook.idle or outlook.idle < snapshot.idle:
            return (), memory  # who starts now is to share what is left, in the decision that follows
        if self.max_growths:
            jobs = [running for running in jobs if running.growths < self.max_growths]
        return self.growths(jobs, len(everyone), outlook.idle, memory), memory

    def observe(self, snapshot: Snapshot, memory: Any) -> Any:
        """What to remember of this snapshot."""
        return memory

    def shrinks(self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Any) -> list[Resize]:
        """Shrinks that free at least ``need`` nodes for ``head``, or none. ``jobs`` are in order of start;
        ``count`` is how many there are with those about to end."""
        raise NotImplementedError

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Growths into at most ``idle`` nodes."""
        raise NotImplementedError
