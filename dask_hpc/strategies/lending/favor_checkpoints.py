"""Nodes for those who keep copies come before nodes for jobs."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Lend, Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.lending.wishes import wish_for
from dask_hpc.strategies.malleability.grow_shrink import malleable, shrunk
from dask_hpc.strategies.malleability.performance_aware import by_mtct
from dask_hpc.strategies.strategy import LendingStrategy, Loans


@dataclass(frozen=True, slots=True)
class FavorCheckpoints(LendingStrategy):
    """Nodes for those who keep copies come before nodes for jobs.

    Seed 000, section 7.3.2.2, Algorithm 10: what is urgent gets idle nodes before any job starts, and if
    there are too few, running jobs shrink for it, the least efficient first; what would only serve better
    gets what is idle when nothing else is left to decide.

    Deviations. The listing takes the job with the lowest MTCT, while a high one is bad everywhere else and
    its text takes from the worst: the highest gives first. It shrinks by as many nodes as are asked for: we
    shrink by no more than the job can give. It never says how many nodes a request that is not urgent is for:
    here each says so. Its "final phase" has no length: ``guard`` is that of the other strategies. It hands
    over idle nodes only while a malleable job runs: we always do. What was granted is not granted again.
    """

    name: ClassVar[str] = "favor-checkpoints"

    guard: Annotated[
        float, Parameter("leave a job alone when no more than this is left of its walltime", "s", low=0)
    ] = 60.0
    remember: Annotated[
        float, Parameter("how long a request counts; 0: only in the decision that it comes to", "s", low=0)
    ] = inf

    def first(self, snapshot: Snapshot) -> Loans:
        """What is urgent: idle nodes, or else those of the jobs that use them worst."""
        found = wish_for(snapshot, True, self.remember)
        if found is None:
            return Loans()
        service, wish = found
        if snapshot.idle:
            count = min(wish.count, snapshot.idle)
            return Loans(Lend(service, count, f"is urgent: {wish.reason}"))
        everyone = malleable(snapshot)
        if snapshot.is_resizing or not everyone:  # what is given up just now may do
            return Loans()
        need = wish.count
        jobs = [running for running in everyone if running.expected_end - snapshot.now > self.guard]
        resizes = []
        for running in by_mtct(jobs, snapshot.mtct)[::-1]:
            size = len(running.nodes)
            target = shrunk(running.job, size, need) if need > 0 else size
            if target < size:
                need -= size - target
                given = count_nodes(size - target)
                resizes.append(Resize(running.job.id, target, f"gives {given} to {service}: {wish.reason}"))
        return Loans(resizes=resizes)

    def last(self, snapshot: Snapshot) -> Loans:
        """What is idle, for what is not urgent."""
        found = wish_for(snapshot, False, self.remember)
        if found is None or not snapshot.idle:
            return Loans()
        service, wish = found
        return Loans(Lend(service, min(wish.count, snapshot.idle), f"nobody else needs it: {wish.reason}"))
