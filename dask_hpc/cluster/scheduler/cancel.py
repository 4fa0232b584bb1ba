"""Cancelling a job: its tasks are released as by ``Client.cancel``, and so is what still arrives of it."""

from collections.abc import Callable
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob


class Cancelling:
    """Releases tasks, except for what others need: that leaves the job. Results stay."""

    def __init__(self, scheduler: Any, gate: Gate, tell: Callable[..., None]) -> None:
        self._scheduler = scheduler
        self._gate = gate
        self._tell = tell
        self._late: dict[LiveJob, None] = {}

    def cancel(self, job: LiveJob) -> int:
        """How many tasks that were. Not to be called from within Dask's transitions."""
        before = len(job.unfinished)
        clients, reason = job.clients | job.helpers, f"job {job.id} was cancelled"
        compat.cancel(self._scheduler, list(job.unfinished), clients, reason)
        left = list(job.unfinished)
        self._gate.let_go(left, job)
        self._gate.lift(job)
        return before - len(left)

    def arrives(self, job: LiveJob) -> None:
        """More of a cancelled job arrives. It may not start, and is cancelled by ``cancel_late``."""
        job.renew()
        self._late[job] = None

    def cancel_late(self) -> None:
        """Cancel what arrived too late."""
        while self._late:
            job, _ = self._late.popitem()
            count = self.cancel(job)
            self._tell("cancel", job, reason=f"{count} tasks of it arrived after it was cancelled")
