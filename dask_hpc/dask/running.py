"""What a worker runs and has run, as it notes it itself."""

import logging
from collections.abc import Callable, Hashable, Iterator
from time import time
from typing import Any, NamedTuple

from distributed import Scheduler, Status, Worker

logger = logging.getLogger(__name__)

_MOST_WAITING = 20_000  # tasks that a worker was sent and has not ended, of which it is known what they need


def now_there(worker: Any) -> float:
    """By the scheduler's clock, as far as a worker knows it."""
    return float(time() + worker.scheduler_delay)


class EndedTask(NamedTuple):
    """A task that ended well. Times in seconds of the scheduler's clock, sizes in bytes."""

    key: Hashable
    start: float
    stop: float
    output: int
    #: what it needed; None if that is not known any more
    inputs: int | None


class TaskLog:
    """What a worker has written down anyway of the tasks that it ran: nothing is done for each of them."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._events = worker.state.stimulus_log
        self._seen = time()
        self._needs: dict[Hashable, int] = {}
        #: since when nothing is missing in what is read, in the scheduler's clock
        self.complete_since = self.now()

    def now(self) -> float:
        """By the clock of what is told of tasks."""
        return now_there(self._worker)

    def read(self) -> list[EndedTask]:
        """Those that ended well since the last call, oldest first."""
        news: list[Any] = []
        for event in reversed(self._events):
            if (event.handled or 0.0) <= self._seen:
                break
            news.append(event)
        if news:
            if len(news) == self._events.maxlen:  # Dask has thrown away what was before
                self.complete_since = news[-1].handled + self._worker.scheduler_delay
            self._seen = news[0].handled
        return list(self._ended(reversed(news)))

    def _ended(self, events: Iterator[Any]) -> Iterator[EndedTask]:
        for event in events:
            what = type(event).__name__
            if what == "ExecuteSuccessEvent":
                inputs = self._needs.pop(event.key, None)
                yield EndedTask(event.key, event.start, event.stop, event.nbytes, inputs)
            elif what == "ComputeTaskEvent":
                self._needs[event.key] = sum(event.nbytes.values())
                if len(self._needs) > _MOST_WAITING:
                    del self._needs[next(iter(self._needs))]


def running_tasks(worker: Any) -> list[tuple[Hashable, float]]:
    """What a worker runs, whoever runs it there, and since when, in the scheduler's clock."""
    tasks, delay = worker.state.tasks, worker.scheduler_delay
    found = ((key, tasks.get(key)) for key in list(worker.active_keys))
    return [(key, task.start_time + delay) for key, task in found if task is not None and task.start_time]


class _Threads(dict[int, Hashable]):
    """Which task each thread runs: Dask writes that down in the thread itself, before the task's first line
    and after its last."""

    def __init__(self, before: dict[int, Hashable]) -> None:
        super().__init__()
        self._before = before
        self.begins: Callable[[Hashable], None] | None = None
        self.ends: Callable[[Hashable], None] | None = None

    def __missing__(self, thread: int) -> Hashable:
        return self._before[thread]  # it began when there was another dictionary

    def __setitem__(self, thread: int, key: Hashable) -> None:
        super().__setitem__(thread, key)
        if self.begins is not None:
            self._call(self.begins, key)

    def __delitem__(self, thread: int) -> None:
        key = self[thread]
        if self.ends is not None:
            self._call(self.ends, key)
        super().__delitem__(thread)

    def _call(self, hear: Callable[[Hashable], None], key: Hashable) -> None:
        try:
            hear(key)
        except Exception:  # it would be the task's
            logger.exception("dask-hpc: nobody looks at a worker's threads any more")
            self.begins = self.ends = None


def watch_threads(
    worker: Any, begins: Callable[[Hashable], None], ends: Callable[[Hashable], None]
) -> Callable[[], None]:
    """Be called in a worker's threads with the key of each task that begins or ends there, one at a time.
    Tasks that run already are not told of, nor those that run in other processes or on the event loop. Gives
    a function that ends this; by then nobody else may watch."""
    with worker.active_threads_lock:
        threads = worker.active_threads
        if not isinstance(threads, _Threads):
            threads = worker.active_threads = _Threads(threads)
        threads.begins, threads.ends = begins, ends

    def end() -> None:
        with worker.active_threads_lock:
            if threads.begins != begins:
                return  # somebody else's turn
            threads.begins = threads.ends = None
            if worker.active_threads is threads and not threads:
                worker.active_threads = {}  # what runs would be looked for in vain there

    return end


def managed_bytes(worker: Any) -> int:
    """Of the results that a worker has in memory, as Dask reckons them."""
    try:
        spilled = worker.data.spilled_total.memory
    except AttributeError:  # it does not spill
        spilled = 0
    return max(0, int(worker.state.nbytes - spilled))


def arriving_bytes(worker: Any) -> int:
    """Of results that a worker is being sent; some of it may have come."""
    return int(worker.state.transfer_incoming_bytes)


def sizes_of(worker: Any, key: Hashable) -> tuple[int, int]:
    """Bytes of a task's result, if that is there, and of what was brought to the worker for it."""
    task = worker.state.tasks.get(key)
    if task is None:
        return 0, 0
    brought = (need.nbytes or 0 for need in tuple(task.dependencies) if need.run_spec is None)
    return task.nbytes or 0, sum(brought)


def process_mates(worker: Any) -> str:
    """Who else of Dask lives in a worker's process, in words; empty if nobody."""
    alive = (Status.running, Status.paused, Status.closing_gracefully, Status.init)
    if any(one is not worker and one.status in alive for one in list(Worker._instances)):
        return "several workers share a process"
    if any(one.status in alive for one in list(Scheduler._instances)):
        return "the scheduler runs in the worker's process"
    return ""
