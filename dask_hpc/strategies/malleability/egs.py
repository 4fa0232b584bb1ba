"""EGS, equi-grow-shrink: what is idle is given, and what is needed is taken, in equal shares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running
from dask_hpc.model.speedup import next_legal_down, smallest_legal
from dask_hpc.strategies.malleability.grow_shrink import GrowShrink, gives, grown, takes


@dataclass(frozen=True, slots=True)
class Egs(GrowShrink):
    """Seed 001, section 5.3.1, Algorithm 3; seed 000, section 4.2.2.2.

    Seed 001 prints ceilings plus a remainder, which hands out too much; shares here are floors, and the
    remainder goes node by node to the oldest (from the youngest). Its worked example refuses to shrink
    when one job cannot give its full share: ``shares: equal``. Read as in seed 000, shares are capped
    by each job's range and the rest is shared by the others: ``shares: capped``.

    Both ignore size constraints; bodies refuse illegal sizes. So an equal share is rounded to a legal
    size towards the present one, and capped shares are handed out in legal steps. An equal share that
    would pass a job's maximum is cut to it, where the seed prints no bound at all.
    """

    name: ClassVar[str] = "egs"

    shares: Annotated[
        Literal["equal", "capped"],
        Parameter("equal: who cannot give a full share gives nothing; capped: others make up for it"),
    ] = "equal"

    def shrinks(self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Any) -> list[Resize]:
        """Equal shares of what the head needs, the youngest first; all or nobody."""
        if self.shares == "capped":
            targets = _in_steps(jobs[::-1], need, _step_down, overshoot=True)
        else:
            targets = {}
            share, extra = divmod(need, count)
            for running in reversed(jobs):
                size, job = len(running.nodes), running.job
                least = size - share - (extra > 0)
                if size > least >= job.min_nodes:
                    targets[job.id] = smallest_legal(job.constraint, least, size) or size
                    extra -= extra > 0
        changed = [
            running
            for running in jobs
            if targets.get(running.job.id, len(running.nodes)) < len(running.nodes)
        ]
        if sum(len(running.nodes) - targets[running.job.id] for running in changed) < need:
            return []
        return [gives(running, targets[running.job.id], head) for running in changed]

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Equal shares of what is idle, the oldest first."""
        if self.shares == "capped":
            targets = _in_steps(jobs, idle, _step_up, overshoot=False)
        else:
            targets = {}
            share, extra = divmod(idle, count)
            for running in jobs:
                size = len(running.nodes)
                if size < running.job.max_nodes:
                    targets[running.job.id] = grown(running.job, size, share + (extra > 0))
                    extra -= extra > 0
        return [
            takes(running, target)
            for running in jobs
            if (target := targets.get(running.job.id, 0)) > len(running.nodes)
        ]


def _step_down(job: Job, size: int) -> int | None:
    return next_legal_down(job.constraint, size, job.min_nodes)


def _step_up(job: Job, size: int) -> int | None:
    return smallest_legal(job.constraint, size + 1, job.max_nodes)


def _in_steps(
    jobs: Sequence[Running], amount: int, step: Callable[[Job, int], int | None], overshoot: bool
) -> dict[str, int]:
    """Targets when whoever has moved least takes the next legal step, until ``amount`` nodes have moved
    (``overshoot``: or a few more) or nobody can."""
    targets = {running.job.id: len(running.nodes) for running in jobs}
    heap = [(0, place) for place in range(len(jobs))]
    heapify(heap)
    while heap and amount > 0:
        moved, place = heap[0]
        job = jobs[place].job
        size = targets[job.id]
        target = step(job, size)
        if target is None or (not overshoot and abs(target - size) > amount):
            heappop(heap)
            continue
        targets[job.id] = target
        amount -= abs(target - size)
        heapreplace(heap, (moved + abs(target - size), place))
    return targets
