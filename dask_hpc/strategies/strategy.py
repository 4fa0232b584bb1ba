"""What every strategy is: a frozen dataclass whose fields are its parameters, and pure methods."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Start
from dask_hpc.model.snapshot import Snapshot

Starts = Sequence[Start]


class QueueStrategy(Protocol):
    """Which waiting job starts now.

    ``memory`` is whatever the strategy answered last time (None at first): all it remembers.
    It must not depend on anything but its arguments and its own parameters.
    """

    concern: ClassVar[str]
    name: ClassVar[str]

    def rank(self, job: Job) -> Any:
        """Sort key of a waiting job; equal ranks keep their order of arrival. Must never change."""

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """The jobs to start now, in order, and what to remember."""
