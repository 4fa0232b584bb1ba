"""Nodes for jobs come before nodes for those who keep copies."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from dask_hpc.model.node import Borrower
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Lend, TakeBack
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.lending.wishes import wish_for
from dask_hpc.strategies.malleability.grow_shrink import grown, leaving, malleable
from dask_hpc.strategies.queue.moldable import smallest_size
from dask_hpc.strategies.strategy import LendingStrategy, Loans


@dataclass(frozen=True, slots=True)
class FavorJobs(LendingStrategy):
    """Nodes for jobs come before nodes for those who keep copies.

    Seed 000, section 7.3.2.2, Algorithm 11: nobody shrinks for a service. Nodes of which it uses next to
    nothing come back for jobs that wait, in the order of the queue, and for malleable ones that could grow;
    what is urgent gets what is idle in the end, and what is not urgent gets nothing. One node always stays.

    The document computes the new sizes with the nodes that are to come: here they come first, and whatever
    strategies are in force then decide about them as about any idle node. While something urgent is looked
    at nothing is taken back. Deviation: a service that gave back fewer nodes than it was told to is left
    alone for a while, or it would be asked again at every decision.
    """

    name: ClassVar[str] = "favor-jobs"

    free: Annotated[
        float, Parameter("nodes of which more than this share is empty may be taken back", low=0, high=1)
    ] = 0.9
    guard: Annotated[
        float, Parameter("leave a job alone when no more than this is left of its walltime", "s", low=0)
    ] = 60.0
    remember: Annotated[
        float, Parameter("how long a request counts; 0: only in the decision that it comes to", "s", low=0)
    ] = 0.0
    pause: Annotated[
        float, Parameter("how long a service that could give back too little is not asked again", "s", low=0)
    ] = 60.0

    def first(self, snapshot: Snapshot) -> Loans:
        """Nodes that services hardly use, for jobs."""
        if not snapshot.borrowers or wish_for(snapshot, True, self.remember) is not None:
            return Loans()
        for service, known in snapshot.borrowers.items():
            count = self._reclaimable(known, snapshot.now)
            need, whom = self._need(snapshot, count) if count else (0, "")
            if need:
                reason = f"uses next to nothing of {count_nodes(count)}, and {whom}"
                return Loans(take_back=TakeBack(service, min(need, count), reason))
        return Loans()

    def last(self, snapshot: Snapshot) -> Loans:
        """What is idle, for what is urgent."""
        found = wish_for(snapshot, True, self.remember)
        if found is None or not snapshot.idle:
            return Loans()
        service, wish = found
        count = min(wish.count, snapshot.idle)
        return Loans(Lend(service, count, f"is urgent, and no job needs it: {wish.reason}"))

    def _reclaimable(self, known: Borrower, now: float) -> int:
        """How many nodes it can be told to give back, beside those it was told to."""
        if now - known.short_at < self.pause:
            return 0
        empty = sum(one.free > self.free for one in known.lent)
        return max(0, min(empty, len(known.lent) - 1) - known.owed)

    def _need(self, snapshot: Snapshot, count: int) -> tuple[int, str]:
        """How many nodes jobs lack, if so many can help, and what for."""
        coming = snapshot.idle + leaving(snapshot)
        need, whom = 0, ""
        for job in snapshot.waiting:
            if need + smallest_size(job) - coming > count or need - coming >= count:
                break  # those behind it would overtake it
            need += job.nodes
            whom = whom or job.id
        if need > coming:
            return need - coming, f"job {whom} waits"
        if coming or len(snapshot.waiting) or snapshot.is_resizing:
            return 0, ""
        jobs = [one for one in malleable(snapshot) if one.expected_end - snapshot.now > self.guard]
        more = {r.job.id: grown(r.job, len(r.nodes), count) - len(r.nodes) for r in jobs}
        whom = next((job for job, nodes in more.items() if nodes), "")
        return sum(more.values()), f"job {whom} could grow"
