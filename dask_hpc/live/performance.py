"""What a job's tasks cost so far, from what Dask measures anyway, and what that says about the rest."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from dask_hpc.model.indices import Indices

#: so many tasks must have ended since the last change of size before anything is concluded from them
ENOUGH = 10
#: and this share of the work must be done before an end is expected
ENOUGH_DONE = 0.05
#: an end that is expected is corrected if it is off by more than this share of the time that is left
_OFF = 0.1


class Work:
    """Tasks of one prefix in one job: how many are left, how many are done, and their compute seconds."""

    __slots__ = ("done", "left", "prefix", "seconds")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.left = 0
        self.done = 0
        self.seconds = 0.0


class Performance:
    """Of one job. Seconds are sums over all tasks; transfers may overlap with computing."""

    __slots__ = (
        "_compute_before", "_noted", "_since", "_tasks_before", "_telling", "_transfer_before",
        "compute", "disk", "nbytes", "tasks", "transfer", "works",
    )  # fmt: skip

    def __init__(self) -> None:
        #: by prefix of the task names
        self.works: dict[str, Work] = {}
        self.compute = 0.0
        self.transfer = 0.0
        self.disk = 0.0
        #: results, and their bytes
        self.tasks = 0
        self.nbytes = 0
        # at how many results somebody should look
        self._telling = ENOUGH
        # what there was when the job came to its present size, and when that was
        self._since = 0.0
        self._tasks_before = 0
        self._compute_before = 0.0
        self._transfer_before = 0.0
        self._noted = 0

    def work(self, prefix: str) -> Work:
        """The tasks of that prefix."""
        work = self.works.get(prefix)
        if work is None:
            work = self.works[prefix] = Work(prefix)
        return work

    def add(self, work: Work, startstops: Iterable[Mapping[str, Any]], nbytes: int) -> bool:
        """A task has a result, and Dask says what its worker spent on it. Whether it is time to look:
        there is enough evidence about this size now, or twice as much as the last time."""
        self.tasks += 1
        self.nbytes += nbytes
        work.done += 1
        for one in startstops:
            action, seconds = one["action"], one["stop"] - one["start"]
            if action == "compute":
                self.compute += seconds
                work.seconds += seconds
            elif action == "transfer":
                self.transfer += seconds
            elif action in ("disk-read", "disk-write"):
                self.disk += seconds
        if self.tasks < self._telling:
            return False
        self._telling = 2 * self.tasks - self._tasks_before
        return True

    def resized(self, now: float) -> None:
        """The job has another size from now on: what was seen before says nothing about it."""
        self._telling = self.tasks + ENOUGH
        self._tasks_before = self.tasks
        self._since = now
        self._compute_before = self.compute
        self._transfer_before = self.transfer

    @property
    def _is_enough(self) -> bool:
        return self.tasks - self._tasks_before >= ENOUGH

    @property
    def mtct(self) -> float | None:
        """Communication over compute time since the last change of size; None without enough evidence."""
        compute = self.compute - self._compute_before
        if not self._is_enough or compute <= 0:
            return None
        return (self.transfer - self._transfer_before) / compute

    def seconds_left(self, expected: Callable[[str], float | None]) -> float:
        """Compute seconds of the tasks that are left, by the mean of their prefix: in this job, else as
        ``expected`` anywhere, else by the mean of all that are done."""
        mean = self.compute / self.tasks if self.tasks else 0.0
        total = 0.0
        for work in self.works.values():
            if work.left:
                if work.done:
                    one = work.seconds / work.done
                else:
                    known = expected(work.prefix)
                    one = mean if known is None else known
                total += work.left * one
        return total

    def progress(self, expected: Callable[[str], float | None]) -> float | None:
        """The share of the known work that is done; None if nothing is known yet."""
        if not self.tasks:
            return None
        left = self.seconds_left(expected)
        if self.compute + left > 0:
            return self.compute / (self.compute + left)
        return self.tasks / (self.tasks + sum(work.left for work in self.works.values()))

    def time_left(self, now: float, expected: Callable[[str], float | None]) -> float | None:
        """Seconds until the known work is done, at the pace since the last change of size; None unless
        ``ENOUGH`` tasks have ended since then and ``ENOUGH_DONE`` of the work is done."""
        pace = (self.compute - self._compute_before) / max(now - self._since, 1e-3)
        if not self._is_enough or pace <= 0 or (self.progress(expected) or 0.0) < ENOUGH_DONE:
            return None
        return self.seconds_left(expected) / pace

    def note(
        self, job_id: str, mtct: float | None, indices: Indices, expected: Callable[[str], float | None]
    ) -> None:
        """Tell the indices what is new of a running job. A walltime stays the user's word."""
        if mtct is not None:
            indices.mtct[job_id] = mtct
        if self.tasks == self._noted:
            return
        self._noted = self.tasks
        progress = self.progress(expected)
        if progress is not None:
            indices.progress[job_id] = progress
        running = indices.running[job_id]
        if running.job.walltime < inf:
            return
        left = self.time_left(indices.now, expected)
        if left is not None and not abs(indices.now + left - running.expected_end) <= _OFF * left:
            indices.expect_end(job_id, indices.now + left)
