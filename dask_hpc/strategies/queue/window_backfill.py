"""Window backfilling: of some jobs that could overtake, those that together leave the fewest nodes idle."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.waiting import Hole, Key, Waiting
from dask_hpc.strategies.queue.easy_backfill import EasyBackfill


@dataclass(frozen=True, slots=True)
class WindowBackfill(EasyBackfill):
    """EASY that fills its hole with the best set of jobs rather than with one after the other.

    Seed 001, section 5.1.1, which asks for the most use of the machine within the reservations and leaves the
    rest open. Ours: a window is the next so many jobs that fit by themselves, the best set has the most
    nodes; of equal sets that one goes which leaves the first job in line more, then the earlier one. Another
    window begins where the last one ended, until nothing fits. A window of one job is EASY.
    """

    name: ClassVar[str] = "window-backfill"

    window: Annotated[
        int, Parameter("how many jobs are weighed against each other", unit="jobs", low=1, high=1000)
    ] = 50

    def candidates(self, waiting: Waiting, asked: Key, hole: Hole) -> Iterable[Job]:
        """Those behind ``asked`` that are let into the hole, window by window."""
        fitting = waiting.fitting(asked, hole)
        while jobs := list(islice(fitting, self.window)):
            yield from best_set(jobs, hole)


def best_set(jobs: Sequence[Job], hole: Hole) -> Iterator[Job]:
    """Those of the jobs that together take most of a hole, in their order.

    For each number of nodes that a set can have, only the one is kept that takes the fewest spare nodes:
    whoever fits beside another such set fits beside that one.
    """
    # nodes: (spare nodes taken, places in ``jobs``)
    sets: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for place, job in enumerate(jobs):
        spare = job.nodes if job.walltime > hole.window else 0
        for nodes, (taken, places) in list(sets.items()):
            total = nodes + job.nodes
            if total > hole.idle or taken + spare > hole.spare:
                continue
            found = (taken + spare, (*places, place))
            if total not in sets or found < sets[total]:
                sets[total] = found
    _, places = sets[max(sets)]
    yield from (jobs[place] for place in places)
