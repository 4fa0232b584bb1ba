"""Jobs on whatever is idle, as without a strategy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Neighbourhood, Picked
from dask_hpc.strategies.strategy import NodesStrategy


@dataclass(frozen=True, slots=True)
class First(NodesStrategy):
    """The first that are idle, wherever they are."""

    name: ClassVar[str] = "first"

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """The nodes to take, in order."""
        return Picked(idle[:count])
