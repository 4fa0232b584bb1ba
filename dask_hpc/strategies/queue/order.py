"""Other orders of the first-come-first-served procedure: only the rank differs.

Seed 001, section 5.1, names arrival, area, duration and weight as sort criteria. Whichever comes first
and does not fit blocks the queue, unless ``pick`` says otherwise; equal ranks keep their order of arrival.
Without walltimes, durations are all the same (infinite). The parameters are those of ``fcfs``.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.strategies.queue.fcfs import Fcfs


@dataclass(frozen=True, slots=True)
class Sjf(Fcfs):
    """Shortest job first, by walltime; seed 001, section 5.1. Long jobs may starve."""

    name: ClassVar[str] = "sjf"

    def rank(self, job: Job) -> Any:
        """Shorter walltimes first."""
        return self.placed(job, job.walltime)


@dataclass(frozen=True, slots=True)
class Ljf(Fcfs):
    """Longest job first, by walltime; seed 001, section 5.1. Ends with short jobs, which pack well."""

    name: ClassVar[str] = "ljf"

    def rank(self, job: Job) -> Any:
        """Longer walltimes first."""
        return self.placed(job, -job.walltime)


@dataclass(frozen=True, slots=True)
class Area(Fcfs):
    """Smallest area, nodes times walltime, first; seed 001, section 5.1, which leaves the direction open."""

    name: ClassVar[str] = "area"

    def rank(self, job: Job) -> Any:
        """Smaller areas first."""
        return self.placed(job, job.nodes * job.walltime)


@dataclass(frozen=True, slots=True)
class Priority(Fcfs):
    """Higher ``priority`` first; seed 001, section 5.1, "weight"."""

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> Any:
        """Higher priorities first."""
        return self.placed(job, -job.priority)
