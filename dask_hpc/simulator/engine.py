"""The simulated machine: an event loop around the same policies that run live.

What happens at one instant happens in this order, which is part of the definition:

1. jobs that end, in the order in which they started (a job that reaches its walltime and its end at the
   same instant has ended, not been killed);
2. jobs that are submitted, in the order of the workload;
3. one decision of the policy, whose starts take effect at once.

A job of no length started in step 3 ends in a new round of the same instant.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.indices import Indices
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.story import Story
from dask_hpc.policy import Policy
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.workload import Arrival

_BETWEEN_REPORTS = 8192


class Machine:
    """A simulated machine under one policy. Memory grows with live jobs only, unless recorded."""

    def __init__(self, nodes: int, policy: Policy, record: Record | None = None) -> None:
        self.indices = Indices((Node(str(i)) for i in range(nodes)), policy.queue.rank)
        self.snapshot = Snapshot(self.indices)
        self.policy = policy
        self.story = Story()
        self.record = record
        self._memory: Any = None
        self._live: dict[str, tuple[float, int]] = {}  # job -> true runtime, row of the record
        self._ends: list[tuple[float, int, str, str]] = []  # time, order of start, job, state

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[int], None] | None = None) -> int:
        """Play the whole workload; answers the number of jobs seen."""
        stream = iter(arrivals)
        arrival = next(stream, None)
        ends, indices = self._ends, self.indices
        seen = rounds = 0
        while True:
            now = ends[0][0] if ends else inf
            if arrival is not None and arrival.job.submitted < now:
                now = arrival.job.submitted
            elif not ends:
                break
            if now < indices.now:
                assert arrival is not None
                raise InputError(f"job {shown(arrival.job.id)}: submit", f"{now:g} s is out of order")
            indices.now = now
            while ends and ends[0][0] == now:
                _, _, job_id, state = heappop(ends)
                self._end(job_id, state)
            while arrival is not None and arrival.job.submitted == now:
                self._submit(arrival, seen)
                seen += 1
                arrival = next(stream, None)
            self._decide()
            rounds += 1
            if progress is not None and rounds % _BETWEEN_REPORTS == 0:
                progress(seen)
        return seen

    def _submit(self, arrival: Arrival, row: int) -> None:
        job = arrival.job
        if self.record is not None:
            self.record.submitted(job)
        if job.nodes > len(self.indices.nodes):
            if self.record is not None:
                self.record.rejected(row)
            return
        if job.id in self._live:
            raise InputError(f"job {shown(job.id)}", "is submitted again before it has ended")
        self._live[job.id] = (arrival.runtime, row)
        self.indices.waiting.add(job)

    def _decide(self) -> None:
        plan, self._memory = self.policy.decide(self.snapshot, self._memory)
        if plan is None:
            return
        self.story.add(plan)
        indices, record = self.indices, self.record
        for start in plan.starts:
            running = indices.start(start.job, start.nodes)
            runtime, row = self._live[start.job]
            walltime = running.job.walltime
            if runtime <= walltime:
                end = (running.started + runtime, running.order, start.job, "completed")
            else:
                end = (running.started + walltime, running.order, start.job, "killed")
            heappush(self._ends, end)
            if record is not None:
                record.started(row, running.started, running.nodes)

    def _end(self, job_id: str, state: str) -> None:
        self.indices.end(job_id)
        _, row = self._live.pop(job_id)
        if self.record is not None:
            self.record.ended(row, self.indices.now, state)
