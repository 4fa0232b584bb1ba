"""EGS, equi-grow-shrink: what is idle is given, and what is needed is taken, in equal shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heapreplace
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running
from dask_hpc.model.speedup import next_legal_down, smallest_legal
from dask_hpc.strategies.malleability.grow_shrink import GrowShrink, gives, grown, takes


@dataclass(frozen=True, slots=True)
class Egs(GrowShrink):
    """What is idle is given, and what is needed is taken, in equal shares; seed 001, section 5.3.1,
    Algorithm 3; seed 000, section 4.2.2.2.

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
            targets = _in_steps(jobs[::-1], need, down=True)
        else:
            targets = {}
            share, extra = divmod(need, count)
            for running in reversed(jobs):
                size, job = len(running.nodes), running.job
                least = size - share - (extra > 0)
                if size > least >= job.min_nodes:
                    targets[job.id] = smallest_legal(job.constraint, least, size) or size
                    extra -= extra > 0
        sizes = [(running, targets.get(running.job.id, len(running.nodes))) for running in jobs]
        if sum(len(running.nodes) - target for running, target in sizes) < need:
            return []
        return [gives(running, target, head) for running, target in sizes if target < len(running.nodes)]

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Equal shares of what is idle, the oldest first."""
        if self.shares == "capped":
            targets = _in_steps(jobs, idle, down=False)
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


def _in_steps(jobs: Sequence[Running], amount: int, down: bool) -> dict[str, int]:
    """Targets when whoever has moved least takes the next legal step, until ``amount`` nodes have moved
    (``down``: or a few more) or nobody can."""
    targets = {running.job.id: len(running.nodes) for running in jobs}
    heap = [(0, place) for place in range(len(jobs))]
    while heap and amount > 0:
        moved, place = heap[0]
        job = jobs[place].job
        size = targets[job.id]
        if down:
            target = next_legal_down(job.constraint, size, job.min_nodes)
        else:
            target = smallest_legal(job.constraint, size + 1, job.max_nodes)
        if target is None or (not down and target - size > amount):
            heappop(heap)
            continue
        targets[job.id] = target
        amount -= abs(target - size)
        heapreplace(heap, (moved + abs(target - size), place))
    return targets
