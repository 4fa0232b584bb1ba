"""The worker's half of a cap of threads: it runs fewer tasks at once.

Travels by value, to workers that cannot import dask_hpc: imports nothing but the standard library and
distributed.
"""

from typing import Any

from distributed import WorkerPlugin
from distributed.worker_state_machine import UnpauseEvent

NAME = "dask-hpc-threads"


def share_of(threads: int, share: float) -> int:
    """So many threads are left of a worker's own: at least one, or nobody would ever run its tasks."""
    return max(1, int(threads * share + 1e-9))


class ThreadsPlugin(WorkerPlugin):
    """Lets a worker use this share of its threads while it is there. What runs is not interrupted."""

    name = NAME

    def __init__(self, share: float) -> None:
        self._share = share

    def setup(self, worker: Any) -> None:
        """From now on fewer."""
        self._own = worker.state.nthreads
        worker.state.nthreads = share_of(self._own, self._share)

    def teardown(self, worker: Any) -> None:
        """As many as it came with, unless another cap comes at once in the place of this one."""
        worker.state.nthreads = self._own
        worker.loop.add_callback(_start_what_is_ready, worker)


def _start_what_is_ready(worker: Any) -> None:
    """A worker looks for work when a task ends; with more threads than before, it need not wait for that."""
    if worker.state.running and worker.status.name == "running":
        worker.handle_stimulus(UnpauseEvent(stimulus_id="hpc-threads"))
