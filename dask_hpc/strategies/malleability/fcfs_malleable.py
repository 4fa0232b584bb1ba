"""FCFSm: malleable jobs grow into whatever is idle, and never shrink."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.malleability.grow_shrink import grow_into, malleable
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, Resizes


@dataclass(frozen=True, slots=True)
class FcfsMalleable(MalleabilityStrategy):
    """Malleable jobs grow into whatever is idle, and never shrink. The baseline of seed 002, section 4.2.5.1.

    It goes beside the queue strategy ``fcfs``: growth instead of backfilling. The source grows a job at its
    own scheduling point; where several are at theirs, the one that started first goes first. With ``hold``
    (ours) idle nodes are given to a job at once, and it holds them until it comes to its next point.
    """

    name: ClassVar[str] = "fcfs-malleable"

    hold: Annotated[
        bool, Parameter("whether jobs hold nodes that they will use from their next scheduling point on")
    ] = True

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """Greedy growth."""
        if not outlook.idle:
            return (), memory
        jobs = malleable(snapshot)
        if not self.hold:
            jobs = [running for running in jobs if running.job.id not in snapshot.in_phase]
        return grow_into(jobs, outlook.idle), memory
