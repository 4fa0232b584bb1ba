"""How much there is to do, and how busy workers are: for the size of the cluster."""

from itertools import islice
from typing import Any, NamedTuple

from distributed.scheduler import heartbeat_interval

from dask_hpc.live.compat.tasks import UNFINISHED


class WorkerLoad(NamedTuple):
    """What a decision about the cluster's size wants to know of one connected worker."""

    address: str
    name: str
    threads: int
    #: bytes it may use (0: no limit), and bytes of results on it
    memory_limit: int
    held: int
    #: tasks it was given, and expected seconds of them
    tasks: int
    work: float
    is_leaving: bool
    #: why Dask would refuse to retire it, if so
    pinned: str


def worker_loads(scheduler: Any) -> list[WorkerLoad]:
    """All connected workers."""
    return [
        WorkerLoad(
            address,
            str(worker.name),
            worker.nthreads,
            worker.memory_limit or 0,
            worker.nbytes,
            len(worker.processing),
            worker.occupancy,
            worker.status.name in ("closing", "closing_gracefully", "closed"),
            _pin(worker),
        )
        for address, worker in scheduler.workers.items()
    ]


def _pin(worker: Any) -> str:
    if worker.actors:
        return "it holds an actor"
    return "a task on it has left the thread pool" if worker.long_running else ""


def unwilling(scheduler: Any) -> dict[str, str]:
    """The workers that a plugin does not want to lose now, as Dask's shuffles while they run: by whom."""
    found: dict[str, str] = {}
    everybody = list(scheduler.workers.values())
    for name, plugin in list(scheduler.plugins.items()):
        try:
            free = {worker.address for worker in plugin.valid_workers_downscaling(scheduler, everybody)}
        except Exception:  # a plugin that cannot say
            continue
        found |= {worker.address: str(name) for worker in everybody if worker.address not in free}
    return found


def steps(scheduler: Any) -> int:
    """How often tasks have changed their state so far."""
    found: int = scheduler.transition_counter
    return found


def unfinished(scheduler: Any) -> int:
    """How many tasks there are that are neither done nor failed nor forgotten."""
    counts = (prefix.states for prefix in scheduler.task_prefixes.values())
    return sum(found[state] for found in counts for state in UNFINISHED)


def key(task: Any) -> Any:
    """The key of a task."""
    return task.key


def expected_seconds(scheduler: Any, task: Any) -> float:
    """How long tasks like this one took on average; a configured guess if none is done."""
    known = task.prefix.duration_average
    found: float = known if known >= 0 else scheduler.UNKNOWN_TASK_DURATION
    return found


def queued(scheduler: Any, most: int) -> tuple[int, list[Any]]:
    """How many root tasks Dask holds back until a worker is free, and the first of them."""
    return len(scheduler.queued), list(islice(scheduler.queued, most))


def given(scheduler: Any, address: str, most: int) -> tuple[int, list[Any]]:
    """How many tasks a worker was given and has not ended, and some of them."""
    processing = scheduler.workers[address].processing
    return len(processing), list(islice(processing, most))


def waiting_for_workers(scheduler: Any, most: int) -> tuple[int, list[Any]]:
    """How many tasks no running worker may run, and the first of them."""
    return len(scheduler.unrunnable), list(islice(scheduler.unrunnable, most))


def is_restricted(task: Any) -> tuple[bool, bool]:
    """Whether a task may run on certain workers only, and whether it needs a resource."""
    places = bool(task.worker_restrictions or task.host_restrictions) and not task.loose_restrictions
    return places, bool(task.resource_restrictions)


class WorkerUse(NamedTuple):
    """How a connected worker is used now, and what it says of itself."""

    address: str
    threads: int
    #: tasks it was given, and those of them that run, as far as the scheduler can know
    tasks: int
    running: int
    #: when it was last heard of (POSIX)
    heard: float
    #: what it said about the metric that was asked for; None if nothing
    said: Any


def worker_uses(scheduler: Any, metric: str) -> list[WorkerUse]:
    """All connected workers, with what they said about this metric in their last heartbeat."""
    return [
        WorkerUse(
            address,
            worker.nthreads,
            len(worker.processing),
            min(worker.nthreads, len(worker.processing) - len(worker.long_running)),
            worker.last_seen,
            worker.metrics.get(metric),
        )
        for address, worker in scheduler.workers.items()
    ]


def heartbeat_seconds(scheduler: Any) -> float:
    """How long after one heartbeat a worker of a cluster of this size sends the next."""
    seconds: float = heartbeat_interval(len(scheduler.workers))
    return seconds
