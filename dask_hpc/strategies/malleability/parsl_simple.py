"""Parsl's "simple" scaling, applied to each job: enough nodes for a share of its outstanding tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal, smallest_legal
from dask_hpc.strategies.malleability.grow_shrink import left, malleable
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, Resizes


@dataclass(frozen=True, slots=True)
class ParslSimple(MalleabilityStrategy):
    """Each job has nodes for a share of its outstanding tasks. The five cases of Parsl's strategy.

    A block is one node with one slot.

    1. No tasks: back to the minimum, once idle for ``max_idletime``. 2. Fewer slots per task than
    ``parallelism``: grow to ``tasks * parallelism`` slots, up to the maximum. 3. Tasks but no slots: one
    block (cannot happen here: a running job has nodes). 4. More slots than tasks: nothing under
    "simple"; with ``scale_in`` (Parsl's ``htex_auto_scale``) the superfluous ones are given back, once
    idle for ``max_idletime``. 5. Else nothing.

    A simulated job stands in for its task queue: the tasks left are its node-seconds left over ``task``.
    Waiting jobs are not looked at, as there. From the documentation and source of Parsl, as remembered.
    """

    name: ClassVar[str] = "parsl-simple"

    parallelism: Annotated[float, Parameter("slots wanted per outstanding task", low=0.0, high=1.0)] = 1.0
    task: Annotated[float, Parameter("how long one task is", unit="s", low=0.001, high=1e9)] = 60.0
    max_idletime: Annotated[float, Parameter("how long nodes may be idle", unit="s", low=0.0)] = 120.0
    scale_in: Annotated[bool, Parameter("give back superfluous nodes while tasks are left")] = True

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: Mapping[str, float] | None
    ) -> tuple[Resizes, Mapping[str, float]]:
        """Bring each job to what its tasks can use, in order of start."""
        now, idle = snapshot.now, outlook.idle
        idle_since: dict[str, float] = {}
        resizes = []
        for running in malleable(snapshot):
            job, slots = running.job, len(running.nodes)
            work = left(running, now) * slots
            tasks = ceil(work / self.task) if work < inf else inf
            target = slots
            if tasks > 0 and slots / tasks < self.parallelism:
                wanted = ceil(min(tasks * self.parallelism, job.max_nodes))
                target = largest_legal(job.constraint, slots, min(wanted, slots + idle)) or slots
                reason = f"{tasks:g} tasks are left for {slots} slots"
            elif tasks == 0 or (self.scale_in and slots > tasks):
                idle_since[job.id] = (memory or {}).get(job.id, now)
                if idle_since[job.id] + self.max_idletime <= now:
                    least = max(job.min_nodes, int(min(tasks, slots)))
                    target = smallest_legal(job.constraint, least, slots) or slots
                reason = f"only {tasks:g} tasks are left for {slots} slots"
            if target != slots:
                idle -= max(0, target - slots)
                resizes.append(Resize(job.id, target, reason))
        return resizes, idle_since

    def ask_again(self, snapshot: Snapshot, memory: Mapping[str, float] | None) -> float:
        """When nodes will have been idle for long enough."""
        ends = (since + self.max_idletime for since in (memory or {}).values())
        return min((time for time in ends if time > snapshot.now), default=inf)
