"""Tasks: their state, where they may run, and moving them on."""

from collections.abc import Collection, Iterable, Iterator
from math import ceil
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


def prefix(task: Any) -> str:
    """What a task's name begins with: Dask expects tasks of one prefix to take equally long."""
    found: str = task.prefix.name
    return found


def average_duration(scheduler: Any, name: str) -> float | None:
    """Seconds that a task of that prefix takes, as Dask expects; None if it does not know."""
    found = scheduler.task_prefixes.get(name)
    return None if found is None or found.duration_average < 0 else float(found.duration_average)


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


def priority(task: Any) -> tuple[float, float, float] | None:
    """Small goes first: (minus the user's priority, generation of its graph, order within it)."""
    found: tuple[float, float, float] | None = task.priority
    return found


def set_generation(task: Any, generation: float) -> None:
    """Place a task that has not moved yet among others of the same user priority."""
    user, _, order = task.priority
    task.priority = (user, generation, order)


def generation(scheduler: Any) -> float:
    """That of the graph submitted last."""
    found: float = scheduler.generation
    return found


def raise_generation(scheduler: Any, least: float) -> None:
    """The next graph comes after everything below ``least``."""
    scheduler.generation = max(scheduler.generation, ceil(least))


def client_name(client: str) -> str:
    """The name in ``Client(name=...)``, from the client's id; empty if it has none."""
    return client.removeprefix("Client-")[:-37]
