"""How many threads workers use, on the scheduler's side; and when a worker will be done with what it has."""

from time import time
from typing import Any

from dask_hpc.live.compat.load import expected_seconds


def worker_threads(scheduler: Any, address: str) -> int:
    """How many tasks the scheduler lets a worker run at once."""
    found: int = scheduler.workers[address].nthreads
    return found


def set_worker_threads(scheduler: Any, address: str, threads: int) -> None:
    """Let the scheduler think that a worker has so many threads; the worker itself is not told. At least
    one: Dask divides by it."""
    worker = scheduler.workers[address]
    change = max(1, threads) - worker.nthreads
    if not change:
        return
    worker.nthreads += change
    scheduler.total_nthreads += change
    scheduler.total_nthreads_history.append((time(), scheduler.total_nthreads))
    scheduler.host_info[worker.host]["nthreads"] += change
    scheduler.check_idle_saturated(worker)
    if change > 0:
        scheduler.stimulus_queue_slots_maybe_opened(stimulus_id="hpc-threads")


def backlog(scheduler: Any, address: str) -> tuple[float, int]:
    """Seconds until a worker has probably ended what it runs, and how many tasks it has been given."""
    worker = scheduler.workers.get(address)
    if worker is None:
        return 0.0, 0
    left = (expected_seconds(scheduler, task) - worker.executing.get(task, 0.0) for task in worker.processing)
    return max(0.0, max(left, default=0.0)), len(worker.processing)
