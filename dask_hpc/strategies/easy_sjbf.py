"""EASY backfilling whose candidates are tried shortest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.waiting import Key, Waiting
from dask_hpc.strategies.easy_backfill import EasyBackfill, Hole


@dataclass(frozen=True, slots=True)
class EasySjbf(EasyBackfill):
    """EASY with shortest-job backfilling: the head keeps its reservation, and among those that may
    overtake, shorter walltimes go first, then earlier arrivals.

    Known in the literature as EASY-SJBF; no seed names it. All but the order of the candidates is that
    of ``easy-backfill`` (seed 001, section 5.1.1).
    """

    name: ClassVar[str] = "easy-sjbf"

    def candidates(self, waiting: Waiting, asked: Key, hole: Hole) -> Iterator[Job]:
        """Those behind ``asked`` who fit into the hole, the shortest first."""
        found = []
        while (job := waiting.next_fitting(asked, hole.idle, hole.window, hole.spare)) is not None:
            found.append(job)
            asked = waiting.key(job.id)
        for job in sorted(found, key=lambda job: job.walltime):
            if job.nodes <= hole.idle and (job.walltime <= hole.window or job.nodes <= hole.spare):
                yield job
