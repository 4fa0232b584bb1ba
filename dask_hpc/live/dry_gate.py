"""The gate of a dry run: it knows which task belongs to which job, and lets all run as in plain Dask."""

from collections.abc import Hashable, Iterable
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.gate import Gate
from dask_hpc.live.jobs import LiveJob


class DryGate(Gate):
    """Stands where a gate stands. Decisions are made and told; no task is kept, moved or restricted."""

    def submit(self, keys: Iterable[Hashable], job: LiveJob | None) -> bool:
        """New tasks belong to the job; nothing else follows from that."""
        for key in keys:
            if job is not None and key not in self.owner and compat.is_new(self._find(key)):
                self.owner[key] = job
        return False

    def take_over(self, keys: Iterable[Hashable], job: LiveJob | None) -> bool:
        """Nobody waits, so there is nothing to be taken over."""
        return False

    def let_go(self, keys: Iterable[Hashable], job: LiveJob) -> None:
        """These tasks leave their job."""
        for key in keys:
            if self.owner.get(key) is job:
                self._drop(key, self.owner.pop(key))

    def open(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """Only noted."""
        job.workers = set(addresses)

    def move(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """Only noted."""
        job.workers = set(addresses)

    def confine(self, job: LiveJob) -> None:
        """Nothing."""

    def extend(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """Only noted."""
        job.workers.update(addresses)

    def shut(self, job: LiveJob) -> None:
        """Only noted."""
        job.workers.clear()

    def lift_all(self) -> None:
        """Nothing is restricted, so nothing is to be lifted."""
        self.owner.clear()
        self.waves.close()

    def _find(self, key: Hashable) -> Any:
        return compat.find_task(self._scheduler, key)
