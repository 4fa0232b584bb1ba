"""Performance-aware resizing: the least efficient job gives nodes, the most efficient one gets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.strategies.malleability.grow_shrink import GrowShrink, grow_into, shrink_for

#: of each job, the last two different measurements: earlier, latest
Seen = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PerformanceAware(GrowShrink):
    """The least efficient job gives nodes, the most efficient one gets them; seed 000, section 4.2.3,
    Algorithm 3. Ranked by MTCT, communication over compute time.

    The printed nesting grows jobs only if one waits; we grow whenever nodes are idle, as its text says.
    Jobs not measured yet stand in the middle; equals rank as under FPSMA. The 60 s guard, not stated
    there, is kept.

    Seed 001, section 6.2, gates instead of ranking: grow only below a lower threshold, shrink only above
    an upper one, by the latest measurement or the one before, and leave unmeasured jobs alone. Either
    threshold may be set here, and then gates the ranking (0: off; both equal: the single threshold of
    seed 000, section 4.2.2.2). Values are given nowhere.
    """

    name: ClassVar[str] = "performance-aware"
    essential = ("priority", "guard", "lower", "upper")

    lower: Annotated[
        float, Parameter("grow only jobs whose MTCT is below this; 0: any", low=0.0, high=1e6)
    ] = 0.0
    upper: Annotated[
        float, Parameter("shrink only jobs whose MTCT is above this; 0: any", low=0.0, high=1e6)
    ] = 0.0

    def observe(self, snapshot: Snapshot, memory: Seen | None) -> Seen:
        """Keep the last two measurements of each job."""
        seen = {}
        for job, mtct in snapshot.mtct.items():
            earlier, latest = (memory or {}).get(job, (mtct, mtct))
            seen[job] = (latest if latest != mtct else earlier, mtct)
        return seen

    def shrinks(
        self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Seen
    ) -> list[Resize]:
        """Highest MTCT first."""
        if self.upper:
            jobs = [r for r in jobs if r.job.id in memory and max(memory[r.job.id]) > self.upper]
        return shrink_for(by_mtct(jobs, _latest(memory))[::-1], need, head)

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Lowest MTCT first."""
        if self.lower:
            jobs = [r for r in jobs if r.job.id in memory and min(memory[r.job.id]) < self.lower]
        return grow_into(by_mtct(jobs, _latest(memory)), idle)


def by_mtct(jobs: Sequence[Running], mtct: Mapping[str, float]) -> list[Running]:
    """Rising MTCT; equals in order of start."""
    known = {r.job.id: mtct[r.job.id] for r in jobs if r.job.id in mtct}
    middle = median_high(known.values()) if known else 0.0  # where jobs of which nothing is known are put
    return sorted(jobs, key=lambda r: known.get(r.job.id, middle))


def _latest(seen: Seen) -> dict[str, float]:
    return {job: latest for job, (_, latest) in seen.items()}
