"""A second run of a task that was sent already, on another worker: the first that ends is the one.

Dask knows one run of a task. Another one is a message to a worker like Dask's own, with a run id of its own;
who has it counts as busy with something that is no task. Where it ends

1. before the run that Dask knows of, that is said to have been its worker's all along, as when a task is
   stolen, and Dask takes the result. What it believed in until then is the other run now.
2. after it, its worker has a replica, as if it had fetched the result, and is told to drop what nobody needs
   there. Dask refuses what it has lost by then, or never wanted, by the run id, as ever.
3. with an error, nothing is said: the run that Dask knows of goes on.

A run that is not wanted any more is asked for back as by a thief: what has not begun does not begin. What
has cannot be stopped, so its worker counts as busy until it says that it is over. If nobody listens any more,
Dask refuses by itself what comes too late: nothing has to be waited for.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from distributed.metrics import time
from distributed.scheduler import TaskGroup, TaskPrefix, TaskState

from dask_hpc.dask.queue import BARRIER
from dask_hpc.dask.scheduler import put
from dask_hpc.dask.workers import permitted

_STIMULUS = "hpc-copy"
_GOES_ON = ("executing", "long-running")  # what a worker says of a run that it cannot give back
_MOST_DEPENDENTS = 100  # that are asked where they may run


class SentTask(NamedTuple):
    """A task that was sent to a worker and has not ended."""

    key: Hashable
    prefix: str
    address: str
    #: for how many seconds it runs, as its worker said; None if it did not run when that last spoke
    seconds: float | None
    #: how many seconds ago that was
    silence: float
    #: it may be one that waits: its worker was sent more than it has threads, and did not say that it runs
    may_wait: bool


class ExtraRun:
    """One that Dask knows nothing of."""

    def __init__(self, task: Any, worker: Any, run_id: int) -> None:
        self.run_id = run_id
        self.run_spec = task.run_spec
        self._worker = worker
        group = TaskGroup(task.prefix.name, TaskPrefix(task.prefix.name))
        group.prefix.duration_average = task.prefix.duration_average
        #: a task of no group that others know, so nothing is counted, but by whoever counts what a worker has
        self._stand_in: Any = TaskState((_STIMULUS, task.key), None, "processing", group, False)
        worker.add_to_processing(self._stand_in)

    def leave(self) -> None:
        """Its thread is free."""
        if self._stand_in is not None:
            self._worker.remove_from_processing(self._stand_in)
            self._stand_in = None


class ExtraRuns:
    """All of them. ``won(key, address, loser)`` is called when the one there was first, and ``failed`` with
    errors of ours."""

    def __init__(
        self,
        scheduler: Any,
        won: Callable[[Hashable, str, str], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self._won = won
        self._failed = failed
        #: the runs of each task, by worker
        self.by_key: dict[Hashable, dict[str, ExtraRun]] = {}
        self._put_back: list[Callable[[], None]] = []
        self._numbers = count()

    def begin(self, key: Hashable, address: str) -> bool:
        """A task that was sent runs there, too. Whether that could be."""
        task, worker = self._scheduler.tasks.get(key), self._scheduler.workers.get(address)
        if task is None or worker not in self._scheduler.running or task.state != "processing":
            return False
        if task.processing_on is worker or address in self.by_key.get(key, ()):
            return False
        run_id = task.run_id
        message = self._scheduler._task_to_msg(task)  # gives it another id
        task.run_id = run_id
        self._add(task, worker, message["run_id"])
        self._scheduler.worker_send(address, message)
        return True

    def withdraw(self, key: Hashable) -> None:
        """Nobody needs another run of a task."""
        for address in self.by_key.get(key, ()):
            self._ask_back(key, address)

    def task_moves(self, key: Hashable, finish: str) -> None:
        """A task that has extra runs is in another state: Dask may have sent it to where one of them is, and
        that is Dask's then; else nobody needs them."""
        if finish != "processing":
            self.withdraw(key)
        for address in [one for one in self.by_key.get(key, ()) if self._is_sent_there(key, one)]:
            self._end(key, address)

    def worker_leaves(self, address: str) -> None:
        """A worker is gone."""
        for key in [key for key, runs in self.by_key.items() if address in runs]:
            self._end(key, address)

    def clear(self) -> None:
        """All are forgotten."""
        for key, runs in list(self.by_key.items()):
            for address in list(runs):
                self._end(key, address)

    def _add(self, task: Any, worker: Any, run_id: int) -> None:
        if not self.by_key:
            self._listen()
        self.by_key.setdefault(task.key, {})[worker.address] = ExtraRun(task, worker, run_id)
        self._scheduler.check_idle_saturated(worker)

    def _end(self, key: Hashable, address: str) -> ExtraRun:
        runs = self.by_key[key]
        run = runs.pop(address)
        if not runs:
            del self.by_key[key]
        run.leave()
        worker = self._scheduler.workers.get(address)
        if worker is not None:
            self._scheduler.check_idle_saturated(worker)
        if not self.by_key:
            for put_back in self._put_back:
                put_back()
        return run

    def _ask_back(self, key: Hashable, address: str) -> None:
        stimulus_id = f"{_STIMULUS}-{next(self._numbers)}"
        message = {"op": "steal-request", "key": key, "stimulus_id": stimulus_id}
        self._scheduler.worker_send(address, message)

    # what workers say

    def _listen(self) -> None:
        """Only while there are extra runs: to hear of every task that ends costs a little."""
        handlers = self._scheduler.stream_handlers
        ours: dict[str, Callable[..., None]] = {
            "task-finished": self._finished,
            "task-erred": self._erred,
            "reschedule": self._given_back,
            "long-running": self._seceded,
            "steal-response": self._answered,
        }
        self._put_back = [
            put(handlers, name, partial(self._hear, hear, handlers[name]))
            for name, hear in ours.items()
            if name in handlers
        ]

    def _hear(self, ours: Callable[..., None], plain: Callable[..., None], **message: Any) -> None:
        """An error of ours would close the connection to the worker, and what it said would be lost."""
        is_heard = False

        def once(**message: Any) -> None:
            nonlocal is_heard
            is_heard = True
            plain(**message)

        try:
            ours(once, **message)
        except Exception as error:
            if is_heard:
                raise
            self._failed(error)
            plain(**message)

    def _is_sent_there(self, key: Hashable, worker: str) -> bool:
        """Whether Dask knows by now of the run there: it sent the task to where it ran already."""
        task = self._scheduler.tasks.get(key)
        return task is not None and task.processing_on is not None and task.processing_on.address == worker

    def _finished(self, plain: Any, key: Hashable, worker: str, **message: Any) -> None:
        if worker not in self.by_key.get(key, ()):
            plain(key=key, worker=worker, **message)
            return
        run = self._end(key, worker)
        task, there = self._scheduler.tasks.get(key), self._scheduler.workers.get(worker)
        is_result = (
            task is not None and there is not None
            and task.run_spec is run.run_spec and message.get("run_id") == run.run_id
        )  # fmt: skip
        if is_result and task.state == "processing" and task.processing_on is not there:
            self._take(plain, task, there, run.run_id, message)
        elif is_result and task.state == "memory":
            plain(key=key, worker=worker, **message | {"run_id": task.run_id})
            if len(task.who_has) > 1:
                self._scheduler.request_remove_replicas(worker, [key], stimulus_id=_STIMULUS)
        else:
            plain(key=key, worker=worker, **message)

    def _take(self, plain: Any, task: Any, winner: Any, run_id: int, message: dict[str, Any]) -> None:
        scheduler, loser = self._scheduler, task.processing_on
        stealing = scheduler.extensions.get("stealing")
        if stealing is not None:
            stealing.remove_key_from_stealable(task)
        loser.remove_from_processing(task)
        task.processing_on = winner
        winner.add_to_processing(task)
        self._add(task, loser, task.run_id)
        task.run_id = run_id
        self._ask_back(task.key, loser.address)
        # What waits for the result would wait there until the vain run is over.
        is_avoided = loser in scheduler.running and self._can_avoid(task, loser)
        if is_avoided:
            scheduler.running.discard(loser)
        try:
            plain(key=task.key, worker=winner.address, **message)
        finally:
            if (
                is_avoided
                and scheduler.workers.get(loser.address) is loser
                and loser.status.name == "running"
            ):
                scheduler.running.add(loser)
        self._won(task.key, winner.address, loser.address)

    def _can_avoid(self, task: Any, loser: Any) -> bool:
        others = {worker.address for worker in self._scheduler.running if worker is not loser}
        return (
            bool(others)
            and len(task.dependents) <= _MOST_DEPENDENTS
            and all(permitted(self._scheduler, other, others) for other in task.dependents)
        )

    def _erred(self, plain: Any, key: Hashable, worker: str, **message: Any) -> None:
        if worker in self.by_key.get(key, ()):
            self._end(key, worker)
            if not self._is_sent_there(key, worker):
                free = {"op": "free-keys", "keys": [key], "stimulus_id": _STIMULUS}
                self._scheduler.worker_send(worker, free)
                return
        plain(key=key, worker=worker, **message)

    def _given_back(self, plain: Any, key: Hashable, worker: str, **message: Any) -> None:
        if worker in self.by_key.get(key, ()):
            self._end(key, worker)
        plain(key=key, worker=worker, **message)  # Dask looks whose it is

    def _seceded(self, plain: Any, key: Hashable, worker: str, **message: Any) -> None:
        if worker in self.by_key.get(key, ()):
            self.by_key[key][worker].leave()
            self._scheduler.check_idle_saturated(self._scheduler.workers[worker])
        plain(key=key, worker=worker, **message)

    def _answered(
        self, plain: Any, key: Hashable, state: Any, stimulus_id: str, worker: str = "", **rest: Any
    ) -> None:
        if not stimulus_id.startswith(_STIMULUS):
            plain(key=key, state=state, stimulus_id=stimulus_id, worker=worker, **rest)
        elif state not in _GOES_ON and worker in self.by_key.get(key, ()):
            self._end(key, worker)


def is_overfull(scheduler: Any, address: str) -> bool:
    """Whether a worker was sent more than it has threads."""
    worker = scheduler.workers.get(address)
    return worker is not None and len(worker.processing) - len(worker.long_running) > worker.nthreads


def is_queue_used(scheduler: Any) -> bool:
    """Whether root tasks wait in Dask's queue."""
    return bool(scheduler.queued)


def allowed(scheduler: Any, key: Hashable, among: Collection[str]) -> frozenset[str] | None:
    """Those of these workers where a task may run; None if it may run anywhere."""
    task = scheduler.tasks[key]
    if not (task.worker_restrictions or task.host_restrictions):
        return None
    return frozenset(permitted(scheduler, task, set(among)))


def is_extra(task: Any) -> bool:
    """Whether it only stands for an extra run."""
    return task.processing_on is None


def spare_threads(scheduler: Any) -> dict[str, int]:
    """The threads of running workers for which they have been sent nothing, by address."""
    found = {}
    for worker in scheduler.running:
        free = worker.nthreads - len(worker.processing) + len(worker.long_running)
        if free > 0:
            found[worker.address] = free
    return found


def sent_tasks(scheduler: Any) -> Iterator[SentTask]:
    """Those that might run twice: not what Dask's shuffles are made of, actors, what needs a resource, and
    what left the thread pool."""
    now = time()
    for address, worker in scheduler.workers.items():
        is_full = is_overfull(scheduler, address)
        for task in worker.processing:
            if (
                is_extra(task)
                or task in worker.long_running
                or task.actor
                or task.resource_restrictions
                or is_of_shuffle(task)
            ):
                continue
            said, silence = worker.executing.get(task), max(0.0, now - worker.last_seen)
            seconds = None if said is None else said + silence
            yield SentTask(task.key, task.prefix.name, address, seconds, silence, is_full and seconds is None)


def is_of_shuffle(task: Any) -> bool:
    """Whether a task is a part of one of Dask's shuffles, or next to one."""
    if task.prefix.name == BARRIER:
        return True
    # of those that have many neighbours, which no part of a shuffle before the barrier has, a few are enough
    return any(
        other.prefix.name == BARRIER
        for some in (task.dependencies, task.dependents)
        for _, other in zip(range(_MOST_DEPENDENTS), some, strict=False)
    )


def annotation(task: Any, name: str) -> Any:
    """What the user said of a task by ``dask.annotate``; None if nothing."""
    return (task.annotations or {}).get(name)


def usual_seconds(scheduler: Any, name: str) -> tuple[int, float]:
    """How many tasks of that prefix have ended, and how long they computed on average."""
    found = scheduler.task_prefixes.get(name)
    ended = found.state_counts["memory"] if found else 0
    return ended, found.all_durations["compute"] / ended if ended else 0.0


class DurationLog:
    """What a worker has written down anyway of the tasks that it ran: nothing is done for each of them."""

    def __init__(self, worker: Any) -> None:
        self._events = worker.state.stimulus_log
        self._seen = time()

    def read(self, most: int) -> list[tuple[Hashable, float]]:
        """The newest that ended well since the last call, up to so many: key and seconds."""
        found: list[tuple[Hashable, float]] = []
        latest = self._seen
        for event in reversed(self._events):
            handled = event.handled or 0.0
            if handled <= self._seen or len(found) >= most:
                break
            latest = max(latest, handled)
            if type(event).__name__ == "ExecuteSuccessEvent":
                found.append((event.key, event.stop - event.start))
        self._seen = latest
        return found
