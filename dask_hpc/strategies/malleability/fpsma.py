"""FPSMA: favour previously started malleable applications."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running
from dask_hpc.strategies.malleability.grow_shrink import GrowShrink, grow_into, shrink_for


@dataclass(frozen=True, slots=True)
class Fpsma(GrowShrink):
    """The job that started first grows first, the one that started last shrinks first.

    Seed 001, section 5.3.1, Algorithm 2; seed 000, section 4.2.2.1, Algorithm 2. Both subtract target
    sizes where differences are meant; we subtract differences. Seed 001's worked example needs jobs to
    go as far as they can (``max_steps`` 0, our default), seed 000's text moves each by one legal size per
    decision (1).
    """

    name: ClassVar[str] = "fpsma"

    max_steps: Annotated[
        int,
        Parameter(
            "legal sizes a job moves at most in one decision; 0: as far as it can",
            unit="steps",
            low=0,
            high=1_000_000,
        ),
    ] = 0

    def shrinks(self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Any) -> list[Resize]:
        """Latest start first."""
        return shrink_for(reversed(jobs), need, head, self.max_steps)

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Earliest start first."""
        return grow_into(jobs, idle, self.max_steps)
