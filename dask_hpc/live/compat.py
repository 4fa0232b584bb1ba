"""Every private name of Dask that we touch, and nothing else.

Each has a contract test in ``tests/live/test_compat.py`` that fails with the name in its message, so a
new Dask release tells us which of these to look at. ``TaskState`` and ``WorkerState`` are never touched
elsewhere.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, NamedTuple

#: an address that no worker has: a task restricted to it waits in Dask's state ``no-worker``
GATE = "hpc://waiting"

#: Dask's states of a task that somebody still waits for
UNFINISHED = frozenset({"waiting", "no-worker", "queued", "processing"})


class Wishes(NamedTuple):
    """Where the user said a task may run (``workers=``, ``allow_other_workers=``)."""

    workers: set[str] | None
    hosts: set[str] | None
    loose: bool


# --- graphs and tasks


def pop_submitted(scheduler: Any, name: str) -> Any:
    """The annotation that was active around the submission of the graph now being added, or None.

    Annotations of graph layers (active while a collection was *built*) are mixed into those of the
    tasks; only here Dask keeps the ones of the submission apart. Taken out, because the next graph may
    be added to the same ``Computation``.
    """
    if not scheduler.computations:
        return None
    return scheduler.computations[-1].annotations.pop(name, None)


def find_task(scheduler: Any, key: Any) -> Any:
    """The task of that key, or None."""
    return scheduler.tasks.get(key)


def state(task: Any) -> str:
    """Dask's state of a task."""
    found: str = task.state
    return found


def is_settled(task: Any) -> bool:
    """Whether nobody has to run the task any more (it has a result or an error)."""
    return task.state in ("memory", "erred", "forgotten")


def is_unfinished(task: Any) -> bool:
    """Whether somebody waits for the task to run."""
    return task.state in UNFINISHED


def is_new(task: Any) -> bool:
    """Whether the task has not been scheduled yet, or has been released."""
    return task.state == "released"


def dependencies(task: Any) -> Iterator[Any]:
    """Keys of the tasks that a task needs."""
    return (other.key for other in task.dependencies)


def dependents(task: Any) -> Iterator[Any]:
    """Keys of the tasks that need a task."""
    return (other.key for other in task.dependents)


def restrict(task: Any, addresses: set[str] | None) -> None:
    """Let a task run on these workers only. The set is kept, not copied: editing it moves all its tasks.

    An empty set is no restriction.
    """
    task.worker_restrictions = addresses


def restriction(task: Any) -> set[str] | None:
    """Where a task may run."""
    found: set[str] | None = task.worker_restrictions
    return found


def take_wishes(task: Any) -> Wishes | None:
    """The user's own restrictions of a task, lifted from it; None if there are none."""
    workers, hosts, loose = task.worker_restrictions, task.host_restrictions, task.loose_restrictions
    if not workers and not hosts:
        # allow_other_workers alone restricts nothing, but would leave our gate open
        task.loose_restrictions = False
        return None
    task.worker_restrictions = task.host_restrictions = None
    task.loose_restrictions = False
    return Wishes(workers, hosts, bool(loose))


def give_back(task: Any, wishes: Wishes | None) -> None:
    """Restore what ``take_wishes`` lifted; without wishes the task is unrestricted."""
    task.worker_restrictions = wishes.workers if wishes else None
    task.host_restrictions = wishes.hosts if wishes else None
    task.loose_restrictions = wishes.loose if wishes else False


def wished_addresses(scheduler: Any, wishes: Wishes) -> set[str]:
    """The addresses of the connected workers that wishes speak of."""
    found = {address for address in wishes.workers or () if address in scheduler.workers}
    for host in wishes.hosts or ():
        found |= scheduler.host_info.get(scheduler.coerce_hostname(host), {}).get("addresses", set())
    return found


# --- moving tasks on


def nudge(scheduler: Any, keys: Iterable[Any], stimulus_id: str, plainly: bool = False) -> None:
    """Make Dask look again at tasks in ``no-worker``, those of high priority first.

    ``plainly``: go back to ``released``, so that root tasks without restrictions are queued again.
    """
    tasks = [task for key in keys if (task := scheduler.tasks.get(key)) and task.state == "no-worker"]
    # Dask takes recommendations from the end.
    tasks.sort(key=lambda task: task.priority, reverse=True)
    scheduler.transitions(
        # An actor may not go from no-worker to processing: Dask asserts so.
        {task.key: "released" if plainly or task.actor else "processing" for task in tasks},
        stimulus_id,
    )


def unrunnable(scheduler: Any) -> Collection[Any]:
    """Keys of the tasks in ``no-worker``."""
    return [task.key for task in scheduler.unrunnable]


def restart_no_worker_clock(scheduler: Any, keys: Iterable[Any]) -> None:
    """Let ``no-workers-timeout`` count from now for tasks that our gate holds."""
    now = monotonic()
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is not None and task in scheduler.unrunnable:
            # Dask relies on the order: last come, last in the dictionary.
            del scheduler.unrunnable[task]
            scheduler.unrunnable[task] = now


def no_workers_timeout(scheduler: Any) -> float | None:
    """After how many seconds in ``no-worker`` Dask fails a task; None for never."""
    found: float | None = scheduler.no_workers_timeout
    return found


# --- remote calls and plugins


def add_handlers(scheduler: Any, handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer these remote calls."""
    scheduler.handlers.update(handlers)


def remove_handlers(scheduler: Any, names: Iterable[str]) -> None:
    """Answer them no more."""
    for name in names:
        scheduler.handlers.pop(name, None)


# --- workers


def workers_by_name(scheduler: Any) -> list[str]:
    """Addresses of the connected workers: 2 before 10, and "b" after both."""
    names = {address: worker.name for address, worker in scheduler.workers.items()}

    def order(address: str) -> tuple[bool, int, str]:
        name = names[address]
        return (False, name, "") if isinstance(name, int) else (True, 0, str(name))

    return sorted(names, key=order)


def worker_identity(scheduler: Any, address: str) -> tuple[Any, str]:
    """Name and host of a connected worker."""
    worker = scheduler.workers[address]
    return worker.name, worker.host


# --- moving data


def keys_on(scheduler: Any, address: str) -> list[Any]:
    """Keys of the results that a worker holds; an actor is no result, it cannot be moved."""
    worker = scheduler.workers.get(address)
    return [task.key for task in worker.has_what if not task.actor] if worker else []


def holders(task: Any) -> tuple[str, ...]:
    """The workers that hold a task's result."""
    return tuple(worker.address for worker in task.who_has or ())


def size(task: Any) -> int:
    """Bytes of a task's result."""
    return max(0, task.nbytes)


def is_actor(task: Any) -> bool:
    """Whether the task's result is an actor."""
    return bool(task.actor)


def is_wanted(task: Any) -> bool:
    """Whether a client has a future of the task."""
    return bool(task.who_wants)


def is_used_on(task: Any, address: str) -> bool:
    """Whether a task that was sent to this worker needs the result: its copy there may not be dropped."""
    return any(
        waiter.processing_on is not None and waiter.processing_on.address == address
        for waiter in task.waiters or ()
    )


def is_running(scheduler: Any, address: str) -> bool:
    """Whether a worker is connected and takes tasks and data: not paused, held or leaving."""
    return scheduler.workers.get(address) in scheduler.running


def copy_to(scheduler: Any, address: str, keys: Iterable[Any], stimulus_id: str) -> None:
    """Ask a worker to fetch copies. Asking twice does no harm; nobody says when they are there."""
    if address in scheduler.stream_comms:
        scheduler.request_acquire_replicas(address, list(keys), stimulus_id=stimulus_id)


def drop_from(scheduler: Any, address: str, keys: Iterable[Any], stimulus_id: str) -> None:
    """Drop copies, each neither the last one nor used there. The scheduler knows them no more at once."""
    if address in scheduler.stream_comms:
        scheduler.request_remove_replicas(address, list(keys), stimulus_id=stimulus_id)


def memory_of(scheduler: Any, address: str) -> tuple[int, int]:
    """A worker's memory limit (0 for none) and what of it is in use, in bytes."""
    worker = scheduler.workers[address]
    memory = worker.memory
    # The process was measured at the last heartbeat; results may have come since.
    return worker.memory_limit, max(memory.process, worker.nbytes - memory.spilled + memory.unmanaged_old)
