"""Give way: malleable jobs make room for a job at least as urgent as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running
from dask_hpc.strategies.malleability.grow_shrink import GrowShrink, grow_into, shrink_for


@dataclass(frozen=True, slots=True)
class GiveWay(GrowShrink):
    """Malleable jobs make room for one at least as urgent as they are; ours, in the frame of the published
    strategies, which look at the order of start only.

    For the first waiting job those running jobs shrink that have no higher priority: the least urgent
    first, and of those that are alike the one that started last. Idle nodes go to the most urgent.
    """

    name: ClassVar[str] = "give-way"

    def shrinks(self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Any) -> list[Resize]:
        """Lowest priority first, then latest start."""
        victims = [running for running in jobs if running.job.priority <= head.priority]
        victims.sort(key=lambda running: (running.job.priority, -running.order))
        return shrink_for(victims, need, head)

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Highest priority first, then earliest start."""
        return grow_into(sorted(jobs, key=lambda running: (-running.job.priority, running.order)), idle)
