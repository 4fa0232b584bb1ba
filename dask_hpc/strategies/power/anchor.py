"""The job that keeps a lower bound reachable until everything else is done.

A job bears a lower bound if the machine reaches it with that job alone. Where some do and others do not, the
last of those that do must not end before the others, nor before a coming bound is there: when only weak jobs
are left, power falls below the bound and nothing can be done.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from math import inf

from dask_hpc.model.constraint import largest_legal, next_legal_down
from dask_hpc.model.corridor import Corridor
from dask_hpc.model.indices import Running
from dask_hpc.model.job import Job, stretch
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.elastic_room import scaling, work_of
from dask_hpc.strategies.power.balance import TINY, Balance
from dask_hpc.strategies.power.bounds import Bounds
from dask_hpc.strategies.resizing import left, malleable


class Anchor:
    """Which job that is, if there must be one, and how long it is needed."""

    def __init__(self, snapshot: Snapshot, balance: Balance, corridor: Corridor, until: float, depth: int):
        self._now = snapshot.now
        self._snapshot, self._balance = snapshot, balance
        self._job: Job | None = None
        #: until when it is needed, and the weak job that runs longest
        self.needed = 0.0
        self._weak: Running | None = None
        steps = [(snapshot.now, *corridor.at(snapshot.now)), *corridor.coming(snapshot.now, until)]
        when, self._lower, _ = max(steps, key=lambda step: (step[1], -step[0]))
        base = snapshot.size * balance.view.idle + balance.bias - balance.extra.least
        if self._lower <= base + TINY:
            return
        running = list(snapshot.running.values())
        waiting = list(islice(snapshot.waiting, depth))
        work = {one.job.id: left(one, self._now) * scaling(one.job).factor(len(one.nodes)) for one in running}
        work |= {job.id: work_of(job) for job in waiting}
        jobs = [one.job for one in running] + waiting
        strong = [job for job in jobs if self._bears(job, base)]
        weak = {job.id for job in jobs} - {job.id for job in strong}
        if not strong or not weak or max(work.values()) == inf:
            return
        self._job = max(strong, key=lambda job: work[job.id])
        weak_running = [one for one in running if one.job.id in weak]
        self._weak = max(weak_running, key=lambda one: one.expected_end, default=None)
        ends = [one.expected_end for one in weak_running]
        ends += [self._now + job.walltime_on(job.min_nodes) for job in waiting if job.id in weak]
        self.needed = max(when, *ends)

    def _bears(self, job: Job, base: float) -> bool:
        most = job.nodes if job.kind in ("rigid", "evolving") else min(job.max_nodes, self._balance.size)
        power = self._balance.per_node(job.id).least - self._balance.view.idle
        return base + most * power >= self._lower - TINY

    def may_start(self, job: Job, nodes: int) -> bool:
        """Whether it is still there when it is needed; a machine that does nothing else need not wait."""
        if self._job is None or job.id != self._job.id or not self._snapshot.running:
            return True
        return self._now + job.walltime_on(nodes) >= self.needed

    def limit(self, running: Running, resize: Resize) -> Resize:
        """The growth, or as much of it as leaves it there for so long."""
        job, held, size = running.job, len(running.nodes), resize.nodes
        if self._job is None or job.id != self._job.id:
            return resize
        while size > held and self._end(running, size) < self.needed:
            size = next_legal_down(job.constraint, size, held) or held
        if size == resize.nodes:
            return resize
        less = f"{count_nodes(resize.nodes - size)} less than that, to be there when others have ended"
        return replace(resize, nodes=size, reason=f"{resize.reason}; {less}")

    def shift(self, bounds: Bounds) -> Mapping[str, int]:
        """New sizes of it and of the weak job that runs longest, so that it is not the first to end."""
        one = None if self._job is None else self._snapshot.running.get(self._job.id)
        movable = {running.job.id for running in malleable(self._snapshot)}
        weak = self._weak
        if one is None or weak is None or not {one.job.id, weak.job.id} <= movable:
            return {}
        power = {job.job.id: self._balance.per_node(job.job.id).least for job in (one, weak)}
        size, found = len(one.nodes), {}
        idle = self._snapshot.idle
        grown = len(weak.nodes)
        while self._end(one, size) < self._end(weak, grown):
            smaller = next_legal_down(one.job.constraint, size, one.job.min_nodes)
            if smaller is None:
                break
            high = min(weak.job.max_nodes, len(weak.nodes) + idle + len(one.nodes) - smaller)
            larger = largest_legal(weak.job.constraint, len(weak.nodes), high) or grown
            least = self._balance.planned.least - (len(one.nodes) - smaller) * (
                power[one.job.id] - self._balance.view.idle
            )
            least += (larger - len(weak.nodes)) * (power[weak.job.id] - self._balance.view.idle)
            if larger <= grown or least < bounds.floor - TINY:
                break
            size, grown = smaller, larger
            found = {one.job.id: size, weak.job.id: grown}
        return found

    def _end(self, running: Running, size: int) -> float:
        return self._now + left(running, self._now) * stretch(running.job, len(running.nodes), size)
