"""Slots of workers, root tasks, and Dask's own queue."""

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import ceil, isinf
from sys import maxsize
from typing import Any, NamedTuple

from dask_hpc.dask.scheduler import put
from dask_hpc.dask.tasks import GATE

#: the prefix of the tasks between the two halves of Dask's shuffles
BARRIER = "shuffle-barrier"


class RootRule:
    """Dask's own rule which tasks it would queue if they were not restricted, for so many threads.

    Of one graph: what it finds out about a group of tasks it does not look up again. Outputs of Dask's
    shuffles are never queued, and what may not be shared among workers (actors, resources) is not either.
    ``has_room``: all of the graph may start now, and what needs nothing else does.
    """

    def __init__(self, scheduler: Any, threads: float, has_room: bool = False) -> None:
        self._scheduler = scheduler
        self._threads = threads
        self._has_room = has_room
        self._is_on = not isinf(scheduler.WORKER_SATURATION)
        self._groups: dict[Any, tuple[bool, bool]] = {}

    def __call__(self, task: Any) -> bool:
        """Whether the task is a root task. It must not be restricted by its user."""
        if not self._is_on or task.actor or task.resource_restrictions or not task._queueable:
            return False
        if self._has_room and not task.dependencies:
            return False
        group = task.group
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = self._look_up(group)
        is_output, is_root = found
        return not is_output and (is_root or bool(task.run_spec and task.run_spec.data_producer))

    def _look_up(self, group: Any) -> tuple[bool, bool]:
        needs = group.dependencies
        return any(other.prefix.name == BARRIER for other in needs), (
            len(group) > self._threads * 2
            and len(needs) < self._scheduler.rootish_tg_threshold
            and sum(map(len, needs)) < self._scheduler.rootish_tg_dependencies_threshold
        )


class Slot(NamedTuple):
    """A worker that can take tasks: its load per thread, how many more it can take, and its threads."""

    load: float
    address: str
    free: int
    threads: int

    def used_once(self) -> "Slot":
        """After one more task."""
        return Slot(self.load + 1 / self.threads, self.address, self.free - 1, self.threads)


def free_slots(scheduler: Any, addresses: Collection[str] | None) -> list[Slot]:
    """Those of the workers (None: of all) that Dask would send root tasks to, by its own count of slots."""
    saturation = scheduler.WORKER_SATURATION
    if addresses is None:
        idle = list(scheduler.idle_task_count)
    elif len(scheduler.idle_task_count) <= len(addresses):
        idle = [worker for worker in scheduler.idle_task_count if worker.address in addresses]
    else:
        some = (scheduler.workers.get(address) for address in addresses)
        idle = [worker for worker in some if worker in scheduler.idle_task_count]
    found = []
    for worker in idle:
        threads = worker.nthreads
        most = maxsize if isinf(saturation) else max(ceil(saturation * threads), 1)
        busy = len(worker.processing)
        free = most - busy + len(worker.long_running)
        if free > 0:
            found.append(Slot(busy / threads, worker.address, free, threads))
    return found


class WorkerRoom(NamedTuple):
    """A worker that runs: what it was given, and its memory as last heard of. Bytes."""

    address: str
    threads: int
    #: tasks it was given and has not ended, without those that left their thread
    tasks: int
    #: how many more it can take, by Dask's own count of slots
    free: int
    #: of its memory; 0: none is set
    limit: int
    #: results that are in memory there, and all that its process had at the last heartbeat
    results: int
    process: int


def worker_rooms(scheduler: Any, addresses: Collection[str] | None) -> Iterator[WorkerRoom]:
    """Those of the workers (None: of all) that may start tasks."""
    saturation = scheduler.WORKER_SATURATION
    some = scheduler.running if addresses is None else map(scheduler.workers.get, addresses)
    for worker in some:
        if worker is not None and worker in scheduler.running:
            yield _room(worker, saturation)


def all_worker_rooms(scheduler: Any) -> Iterator[WorkerRoom]:
    """Those of all connected workers, also of those that are paused."""
    return (_room(worker, scheduler.WORKER_SATURATION) for worker in scheduler.workers.values())


def _room(worker: Any, saturation: float) -> WorkerRoom:
    threads, memory = worker.nthreads, worker.memory
    tasks = len(worker.processing) - len(worker.long_running)
    most = threads if isinf(saturation) else max(ceil(saturation * threads), 1)
    free, limit = max(0, most - tasks), worker.memory_limit or 0
    return WorkerRoom(worker.address, threads, tasks, free, limit, memory.managed, memory.process)


def count_open(scheduler: Any) -> int:
    """How many workers have a slot, by Dask's own count."""
    return len(scheduler.idle_task_count)


def open_workers(scheduler: Any) -> set[str]:
    """Addresses of those that have a slot, by Dask's own count."""
    return {worker.address for worker in scheduler.idle_task_count}


def kinds_on(scheduler: Any, address: str) -> dict[str, int]:
    """How many tasks of each prefix a worker was given and has not ended."""
    found: dict[str, int] = {}
    for task in scheduler.workers[address].processing:
        name = task.prefix.name
        found[name] = found.get(name, 0) + 1
    return found


def owed_slots(scheduler: Any, addresses: set[str], is_own: Callable[[Any], bool]) -> list[Slot]:
    """Those of the workers that have fewer of somebody's own tasks than threads, whatever else they have."""
    found = []
    for address in addresses:
        worker = scheduler.workers.get(address)
        if worker in scheduler.running:
            own = sum(is_own(task.key) for task in worker.processing if task not in worker.long_running)
            if own < worker.nthreads:
                threads = worker.nthreads
                found.append(Slot(len(worker.processing) / threads, address, threads - own, threads))
    return found


def threads_of(scheduler: Any, addresses: Iterable[str]) -> int:
    """How many threads these workers have together."""
    return sum(scheduler.workers[address].nthreads for address in addresses if address in scheduler.workers)


def is_connected(scheduler: Any, addresses: Collection[str] | None) -> bool:
    """Whether one of these workers is there."""
    return not scheduler.workers.keys().isdisjoint(addresses or ())


def holds_all_workers(scheduler: Any, addresses: set[str]) -> bool:
    """Whether there is no worker but these."""
    return all(address in addresses for address in scheduler.workers)


def send(scheduler: Any, places: Mapping[Any, str], stimulus_id: str) -> dict[Any, Any]:
    """Send tasks in ``no-worker``, best first, each to its worker. Those that are on their way, by key.

    Their restriction is then this one worker: the caller sets another. (With one candidate Dask does
    not score workers, which takes time for each of them.)
    """
    tasks = {}
    for key, address in places.items():
        task = scheduler.tasks.get(key)
        if task is not None and task.state == "no-worker":
            tasks[key] = task
            task.worker_restrictions = {address}
    # Dask takes recommendations from the end.
    scheduler.transitions(dict.fromkeys(reversed(tasks), "processing"), stimulus_id)
    return {key: task for key, task in tasks.items() if task.state == "processing"}


def fail(scheduler: Any, errors: Mapping[Any, Exception], stimulus_id: str) -> None:
    """Let tasks in ``no-worker`` fail with these errors, as Dask does with those that wait for too long."""
    follows = {}
    for key, error in errors.items():
        follows.update(
            scheduler.transition(
                key,
                "erred",
                stimulus_id,
                exception=pickle.dumps(error),
                cause=key,
                exception_text=repr(error),
            )
        )
    scheduler.transitions(follows, stimulus_id)


def in_flight(scheduler: Any) -> Iterator[tuple[Any, Any]]:
    """Every task that has been sent to a worker, with its key."""
    workers = scheduler.workers.values()
    return ((task.key, task) for worker in workers for task in worker.processing if task.processing_on)


def in_flight_of(scheduler: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Those of that prefix."""
    found = scheduler.task_prefixes.get(name)
    if found is None or not found.states["processing"]:
        return iter(())
    return ((key, task) for key, task in in_flight(scheduler) if task.prefix is found)


def queue_order(scheduler: Any) -> list[Any]:
    """Keys of the tasks in Dask's queue, best first."""
    return [task.key for task in scheduler.queued.sorted()]


def first_queued(scheduler: Any) -> Any:
    """The task that leaves Dask's queue next, or None."""
    return scheduler.queued.peek() if scheduler.queued else None


def count_running(scheduler: Any, addresses: Collection[str] | None) -> int:
    """How many tasks were sent to these workers, or to all, and have not ended."""
    workers = scheduler.workers
    some = workers.values() if addresses is None else map(workers.get, addresses)
    return sum(len(worker.processing) for worker in some if worker is not None)


def release_queued(scheduler: Any, keys: Iterable[Any], stimulus_id: str) -> None:
    """Take tasks out of Dask's queue, for Dask to place them anew."""
    tasks = [task for key in keys if (task := scheduler.tasks.get(key)) and task.state == "queued"]
    scheduler.transitions({task.key: "released" for task in tasks}, stimulus_id)


_QUEUE_EXIT = "stimulus_queue_slots_maybe_opened"


def queue_goes_on(scheduler: Any) -> None:
    """Dask's queue looks whether workers have room. When a worker gives a task back (``Reschedule``) it does
    not: where nothing else runs, what waits in the queue would wait for ever."""
    getattr(scheduler, _QUEUE_EXIT)(stimulus_id="hpc-given-back")


class QueueExit:
    """Where Dask lets tasks out of its queue: called whenever slots of workers may have opened, and all that
    follows from that has been done. Dask is in the middle of a worker's message: an error would close the
    connection to that worker."""

    def __init__(self, scheduler: Any) -> None:
        self._plain = getattr(scheduler, _QUEUE_EXIT)
        self._loop = scheduler.loop
        #: whether nothing leaves the queue, which does not look at restrictions
        self.is_shut = False
        self._put_back = put(vars(scheduler), _QUEUE_EXIT, self._slots_open)

    @property
    def is_awaited(self) -> bool:
        """Whether something is to be done before Dask's queue or after it: asked with each task that ends. It
        must not fail."""
        return True

    def _slots_open(self, *, stimulus_id: str) -> None:
        """Dask says so."""
        if not self.is_awaited:
            self._plain(stimulus_id=stimulus_id)
            return
        if not self.is_shut:
            self.attempt(self.before_queue)
            self._plain(stimulus_id=stimulus_id)
        self.attempt(self.after_queue)

    def attempt(self, step: Callable[[], None]) -> None:
        """Do it; whatever goes wrong stays here."""
        try:
            step()
        except Exception as error:
            try:
                self.failed(error)
            except Exception:  # then it hears of it where no worker's message waits for it
                self._loop.add_callback(self.failed, error)

    def failed(self, error: Exception) -> None:
        """A step raised that."""

    def before_queue(self) -> None:
        """Slots may have opened, and Dask's queue has not gone on yet."""

    def after_queue(self) -> None:
        """It has, if it could."""

    def open(self) -> None:
        """Dask's queue goes on, if it was shut."""
        if self.is_shut:
            self.is_shut = False
            self._plain(stimulus_id="hpc-queue-opens")

    def remove(self) -> None:
        """As if we had never been here."""
        self._put_back()
        self.open()


_FOR_NEW_WORKER = "bulk_schedule_unrunnable_after_adding_worker"


def spare_gated(scheduler: Any, count: Callable[[], int]) -> Callable[[], None]:
    """When a worker joins or goes on, Dask asks of every task in ``no-worker`` whether it may run there,
    2 us for each. Not of those that our gate holds; and if it holds so many, there are no others. Answers
    what ends that."""
    plain = getattr(scheduler, _FOR_NEW_WORKER)

    def sparing(worker: Any) -> Any:
        unplaced = scheduler.unrunnable
        if len(unplaced) == count():
            return {}
        scheduler.unrunnable = {
            task: since
            for task, since in unplaced.items()
            if not (addresses := task.worker_restrictions) or GATE not in addresses
        }
        try:
            return plain(worker)
        finally:
            scheduler.unrunnable = unplaced

    return put(vars(scheduler), _FOR_NEW_WORKER, sparing)
