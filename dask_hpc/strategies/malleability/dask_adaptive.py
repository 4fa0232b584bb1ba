"""Dask's adaptive scaling, applied to each job: as many nodes as finish the work left in a target time."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal
from dask_hpc.strategies.malleability.grow_shrink import left, malleable
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, Resizes

#: when decided, and how often in a row each job was to be smaller
Counts = tuple[float, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class DaskAdaptive(MalleabilityStrategy):
    """Each job has as many nodes as finish the work left in a target time: Dask's adaptive scaling.

    Its target is ``ceil(work / target_duration)`` within the job's range; it grows at once and shrinks
    after ``wait_count`` decisions in a row that ask for less. A simulated job stands in for its task
    queue: the work left is the time left times its nodes. Decisions come with events, not every second;
    several in one instant count once. Waiting jobs are not looked at, as there. Dask's target of 5 s is
    meant for interactive work.
    """

    name: ClassVar[str] = "dask-adaptive"

    target_duration: Annotated[
        float, Parameter("time in which the work left should be done", unit="s", low=0.001, high=1e9)
    ] = 5.0
    wait_count: Annotated[
        int, Parameter("decisions in a row before a job shrinks", unit="decisions", low=1, high=1_000_000)
    ] = 3

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Counts | None) -> tuple[Resizes, Counts]:
        """Bring each job towards its target, in order of start."""
        now, idle = snapshot.now, outlook.idle
        again = memory is not None and memory[0] == now
        before = memory[1] if memory is not None else {}
        counts: dict[str, int] = {}
        resizes = []
        for running in malleable(snapshot):
            job, size = running.job, len(running.nodes)
            work = left(running, now) * size
            target = ceil(work / self.target_duration) if work < inf else job.max_nodes
            target = max(job.min_nodes, min(target, job.max_nodes))
            if target > size:
                target = largest_legal(job.constraint, size, min(target, size + idle)) or size
            elif target < size:
                counts[job.id] = before.get(job.id, 0) + (0 if again else 1)
                if counts[job.id] < self.wait_count:
                    continue
                target = largest_legal(job.constraint, job.min_nodes, target) or size
            if target != size:
                idle -= max(0, target - size)
                reason = (
                    f"the work left takes {target} nodes {self.target_duration:g} s, or as near as can be"
                )
                resizes.append(Resize(job.id, target, reason))
        return resizes, (now, counts)
