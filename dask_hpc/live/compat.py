"""Every private name of Dask that we touch, and nothing else.

Each has a contract test in ``tests/live/test_compat.py`` that fails with the name in its message, so a
new Dask release tells us which of these to look at. ``TaskState`` and ``WorkerState`` are never touched
elsewhere.
"""

import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from itertools import islice
from math import ceil, isinf
from pathlib import PurePath
from sys import maxsize
from time import monotonic
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import cloudpickle
from dask._task_spec import Alias, DataNode, Task
from distributed import Status
from distributed.shuffle._core import ShuffleId, barrier_key
from distributed.stealing import WorkStealing

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


def prefix(task: Any) -> str:
    """What a task's name begins with: Dask expects tasks of one prefix to take equally long."""
    found: str = task.prefix.name
    return found


def average_duration(scheduler: Any, name: str) -> float | None:
    """Seconds that a task of that prefix takes, as Dask expects; None if it does not know."""
    found = scheduler.task_prefixes.get(name)
    return None if found is None or found.duration_average < 0 else float(found.duration_average)


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


# --- waves: slots of workers, root tasks, Dask's queue


#: the prefix of the tasks between the two halves of Dask's shuffles
BARRIER = "shuffle-barrier"


class RootRule:
    """Dask's own rule which tasks it would queue if they were not restricted, for so many threads.

    Of one graph: what it finds out about a group of tasks it does not look up again. Outputs of Dask's
    shuffles are never queued, and what may not be shared among workers (actors, resources) is not either.
    """

    def __init__(self, scheduler: Any, threads: float) -> None:
        self._scheduler = scheduler
        self._threads = threads
        self._is_on = not isinf(scheduler.WORKER_SATURATION)
        self._groups: dict[Any, tuple[bool, bool]] = {}

    def __call__(self, task: Any) -> bool:
        """Whether the task is a root task. It must not be restricted by its user."""
        if not self._is_on or task.actor or task.resource_restrictions or not task._queueable:
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


def free_slots(scheduler: Any, addresses: set[str]) -> list[Slot]:
    """Those of the workers that Dask would send root tasks to, by its own count of slots."""
    saturation = scheduler.WORKER_SATURATION
    if len(scheduler.idle_task_count) <= len(addresses):
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


def all_threads(scheduler: Any) -> int:
    """How many threads all workers have together."""
    found: int = scheduler.total_nthreads
    return found


def holds_all_workers(scheduler: Any, addresses: set[str]) -> bool:
    """Whether there is no worker but these."""
    return all(address in addresses for address in scheduler.workers)


def is_unplaced(task: Any) -> bool:
    """Whether the task is ready, and Dask can place it nowhere."""
    found: bool = task.state == "no-worker"
    return found


def send(scheduler: Any, places: Mapping[Any, str], stimulus_id: str) -> dict[Any, Any]:
    """Send tasks in ``no-worker``, best first, each to its worker. Those that are on their way, by key.

    Their restriction is then this one worker: the caller sets another. (With one candidate Dask does
    not score workers, which takes time for each of them.)
    """
    tasks = {key: task for key in places if (task := scheduler.tasks.get(key)) and task.state == "no-worker"}
    for key, task in tasks.items():
        task.worker_restrictions = {places[key]}
    # Dask takes recommendations from the end.
    scheduler.transitions(dict.fromkeys(reversed(tasks), "processing"), stimulus_id)
    return {key: task for key, task in tasks.items() if task.state == "processing"}


def in_flight(scheduler: Any) -> Iterator[tuple[Any, Any]]:
    """Every task that has been sent to a worker, with its key."""
    return ((task.key, task) for worker in scheduler.workers.values() for task in worker.processing)


def queue_order(scheduler: Any) -> list[Any]:
    """Keys of the tasks in Dask's queue, best first."""
    return [task.key for task in scheduler.queued.sorted()]


def has_queued(scheduler: Any) -> bool:
    """Whether tasks are in Dask's queue."""
    return bool(scheduler.queued)


def release_queued(scheduler: Any, keys: Iterable[Any], stimulus_id: str) -> None:
    """Take tasks out of Dask's queue, for Dask to place them anew."""
    tasks = [task for key in keys if (task := scheduler.tasks.get(key)) and task.state == "queued"]
    scheduler.transitions({task.key: "released" for task in tasks}, stimulus_id)


_QUEUE_EXIT = "stimulus_queue_slots_maybe_opened"


def stop_queue(scheduler: Any) -> None:
    """Let nothing out of Dask's queue, which does not look at restrictions, until ``resume_queue``."""
    setattr(scheduler, _QUEUE_EXIT, lambda *, stimulus_id: None)


def resume_queue(scheduler: Any) -> None:
    """Dask's queue goes on, if it was stopped."""
    if vars(scheduler).pop(_QUEUE_EXIT, None) is not None:
        scheduler.stimulus_queue_slots_maybe_opened(stimulus_id="hpc-queue-resumed")


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

    setattr(scheduler, _FOR_NEW_WORKER, sparing)

    def end() -> None:
        if vars(scheduler).get(_FOR_NEW_WORKER) is sparing:
            delattr(scheduler, _FOR_NEW_WORKER)

    return end


def watch_seceding(scheduler: Any, callback: Callable[[], None]) -> Callable[[], None]:
    """Call back when a task has left its worker's thread pool. Answers what ends that."""
    handlers = scheduler.stream_handlers
    plain = handlers["long-running"]

    def watched(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        callback()

    handlers["long-running"] = watched

    def unwatch() -> None:
        if handlers.get("long-running") is watched:
            handlers["long-running"] = plain

    return unwatch


# --- what tasks read


def group(task: Any) -> Any:
    """What tasks of one collection share."""
    return task.group


def group_name(task: Any) -> str:
    """The name of the collection a task is of."""
    found: str = task.group.name
    return found


def is_producer(task: Any) -> bool:
    """Whether Dask marks the task as one that makes data, such as by reading a file."""
    return bool(task.run_spec and task.run_spec.data_producer)


def is_computed(task: Any) -> bool:
    """Whether there is something to run, other than to pass on data of the graph or another task's result."""
    return task.run_spec is not None and not isinstance(task.run_spec, Alias | DataNode)


def measured(scheduler: Any, name: str) -> tuple[int, float, float]:
    """How many tasks of that prefix have ended, and how long their threads computed and waited."""
    found = scheduler.task_prefixes.get(name)
    metrics = scheduler.cumulative_worker_metrics
    return (
        found.state_counts["memory"] if found else 0,
        metrics.get(("execute", name, "thread-cpu", "seconds"), 0.0),
        metrics.get(("execute", name, "thread-noncpu", "seconds"), 0.0),
    )


_LOOKED_AT = 1000  # objects of a task that are looked through for a path
_NO_STORE = (type, FunctionType, ModuleType, bytes, int, float)
_DESCRIPTIONS = frozenset({"attributes", "attrs", "encoding", "metadata", "_metadata"})


def source(task: Any) -> str | None:
    """The first path or URL among what the task, or a task it needs, is made of, such as the store of an
    array; None if there is none. Looks through attributes and never calls anything."""
    needs = islice(task.dependencies, 20)
    todo, seen = deque([task.run_spec, *(other.run_spec for other in needs)]), set[int]()
    while todo and len(seen) < _LOOKED_AT:
        one = todo.popleft()
        if isinstance(one, PurePath):
            one = str(one)
        if isinstance(one, str):
            if len(one) < 4096 and (one.startswith("/") or "://" in one) and one.isprintable():
                return one.removeprefix("file://")
        elif id(one) not in seen and not isinstance(
            one, type | FunctionType | ModuleType | bytes | int | float
        ):
            seen.add(id(one))
            todo.extend(_parts(one))
    return None


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, Mapping):
        yield from list(one.values())[:100] if type(one) is dict else ()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from list(one)[:100]
    else:
        known = getattr(one, "__dict__", {})
        names = {*known, *(name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))}
        for name in sorted(names - _DESCRIPTIONS):
            if name in known:
                yield known[name]
            elif isinstance(getattr(type(one), name, None), MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never filled
                    yield getattr(one, name)


# --- tasks that can be placed nowhere


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


# --- what clients say about jobs

_submitter: ContextVar[Any] = ContextVar("hpc_submitter", default=None)


def follow_submitters(scheduler: Any) -> Callable[[], None]:
    """From now on ``submitter`` knows which task submits a graph. Gives what ends it again.

    Clients in tasks say whose they are, but Dask does not pass that on to plugins: we listen in.
    """
    plain = scheduler.stream_handlers["update-graph"]

    async def update_graph(**message: Any) -> None:
        token = _submitter.set(message.get("submitting_task"))
        try:
            await plain(**message)
        finally:
            _submitter.reset(token)

    def end() -> None:
        if scheduler.stream_handlers.get("update-graph") is update_graph:
            scheduler.stream_handlers["update-graph"] = plain

    scheduler.stream_handlers["update-graph"] = update_graph
    return end


def submitter() -> Any:
    """Inside of ``update_graph``: the key of the task that submits the graph, or None."""
    return _submitter.get()


def cancel(scheduler: Any, keys: Iterable[Any], clients: Collection[str], reason: str) -> None:
    """Cancel tasks for these clients (and those fired and forgotten), as ``Client.cancel`` does for its own.

    What others want or need lives on.
    """
    wanted: dict[str, list[Any]] = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        for client in task.who_wants or () if task is not None else ():
            if client.client_key in clients or client.client_key == "fire-and-forget":
                wanted.setdefault(client.client_key, []).append(key)
    for client_key, found in wanted.items():
        scheduler.client_releases_keys(keys=found, client=client_key, stimulus_id="hpc-cancel")
        if client_key in scheduler.client_comms:
            message = {"op": "cancelled-keys", "keys": found, "reason": reason, "msg": reason}
            scheduler.report(message, client=client_key)


# --- the order of tasks


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


# --- the size of the cluster: what the scheduler knows


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


def waiting_for_workers(scheduler: Any, most: int) -> tuple[int, list[Any]]:
    """How many tasks no running worker may run, and the first of them."""
    return len(scheduler.unrunnable), list(islice(scheduler.unrunnable, most))


def is_restricted(task: Any) -> tuple[bool, bool]:
    """Whether a task may run on certain workers only, and whether it needs a resource."""
    places = bool(task.worker_restrictions or task.host_restrictions) and not task.loose_restrictions
    return places, bool(task.resource_restrictions)


# --- cluster objects


def has_units(cluster: Any) -> bool:
    """Whether a cluster object keeps a specification of its workers, as Dask's own do."""
    names = ("_correct_state_internal", "worker_spec", "workers", "new_worker_spec", "new_spec")
    return all(hasattr(cluster, name) for name in names)


async def correct_plainly(cluster: Any) -> None:
    """Dask's own way to bring the workers in line with the specification."""
    await type(cluster)._correct_state_internal(cluster)


def correct_by(cluster: Any, way: Callable[[], Awaitable[None]] | None) -> None:
    """Let a cluster object use another way, or None for its own again."""
    attach(cluster, "_correct_state_internal", way)


def attach(cluster: Any, name: str, thing: Any) -> None:
    """Give this one cluster object an attribute or a method of its own, or with None take it away."""
    if thing is None:
        vars(cluster).pop(name, None)
    else:
        setattr(cluster, name, thing)


def correct_soon(cluster: Any) -> Any:
    """Start to bring the workers in line with the specification. Gives a task, shared by all who call before
    it begins. Only on the cluster's event loop."""
    return cluster._correct_state()


def next_name(cluster: Any) -> None:
    """Let the next unit have a name that no earlier one had."""
    cluster._i += 1


def batch_job_of(cluster: Any) -> Any:
    """A batch job as dask-jobqueue would submit it now, or None of other clusters."""
    return getattr(cluster, "_dummy_job", None)


def threads_per_worker(cluster: Any) -> int | None:
    """Threads of a new worker, if the specification says."""
    try:
        return int(cluster._threads_per_worker())
    except (RuntimeError, TypeError, ValueError):
        return None


def memory_per_worker(cluster: Any) -> int | None:
    """Bytes of a new worker, if the specification says."""
    try:
        return int(cluster._memory_per_worker())
    except (TypeError, ValueError, AttributeError):
        return None


def adaptive_of(cluster: Any) -> Any:
    """Who adapts the size of the cluster object, or None."""
    return cluster._adaptive


def adapted_by(cluster: Any, adaptive: Any) -> None:
    """From now on this one does. Nothing that an earlier call of ``adapt`` was given is remembered."""
    forget_adaptive_options(cluster)
    cluster._adaptive = adaptive


def forget_adaptive_options(cluster: Any) -> None:
    """Dask would give them to the next call of ``adapt``, whatever class that names."""
    vars(cluster).pop("_adaptive_options", None)


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


def is_shuffling(scheduler: Any) -> bool:
    """Whether one of Dask's own shuffles is under way."""
    plugin, workers = scheduler.plugins.get("shuffle"), list(scheduler.workers.values())
    return plugin is not None and len(plugin.valid_workers_downscaling(scheduler, workers)) < len(workers)


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


# --- holding workers


def named_workers(scheduler: Any, given: Iterable[Any]) -> dict[Any, list[str]]:
    """Addresses of the connected workers that each of these names or addresses means, perhaps none.

    A number and its text are the same name. A batch job that starts several workers calls them by its own
    name with a number behind; its name alone means all of them.
    """
    by_name = {str(worker.name): address for address, worker in scheduler.workers.items()}
    found: dict[Any, list[str]] = {}
    for name in given:
        text = str(name)
        if text in scheduler.workers:
            found[name] = [text]
        elif text in by_name:
            found[name] = [by_name[text]]
        else:
            found[name] = [
                address
                for other, address in by_name.items()
                if other.startswith(f"{text}-") and other[len(text) + 1 :].isdecimal()
            ]
    return found


def running_workers(scheduler: Any) -> set[str]:
    """Addresses of the workers that are given tasks."""
    return {worker.address for worker in scheduler.running}


def worker_status(scheduler: Any, address: str) -> str | None:
    """What Dask's scheduler thinks a worker does, or None if it is not connected."""
    worker = scheduler.workers.get(address)
    return None if worker is None else str(worker.status.name)


def set_worker_status(scheduler: Any, address: str, status: str) -> None:
    """Let Dask's scheduler think so; the worker itself is not told."""
    scheduler.handle_worker_status_change(status, address, "hpc-hold")


def filter_worker_status(scheduler: Any, seen: Callable[[str, str], str]) -> Callable[[], None]:
    """What a worker reports of itself goes through ``seen(address, status)`` first, which answers what
    Dask is to hear. Gives a function that ends this.

    Dask's own event of a change does not serve: there is none when a worker that we hold pauses itself.
    """
    name = "worker-status-change"
    theirs = scheduler.stream_handlers[name]
    is_on = True

    def handler(status: str, worker: str, stimulus_id: str) -> None:
        theirs(seen(worker, status) if is_on else status, worker=worker, stimulus_id=stimulus_id)

    def end() -> None:
        nonlocal is_on
        is_on = False
        if scheduler.stream_handlers.get(name) is handler:
            scheduler.stream_handlers[name] = theirs

    scheduler.stream_handlers[name] = handler
    return end


def tell_worker_status(scheduler: Any, address: str, status: str) -> None:
    """Let a worker have this status; it reports that back."""
    if address in scheduler.stream_comms:
        message = {"op": "worker-status-change", "status": status, "stimulus_id": "hpc-hold"}
        scheduler.stream_comms[address].send(message)


def keep_out_of_shuffles(scheduler: Any, held: Callable[[], Iterable[str]]) -> Callable[[], None]:
    """Shuffles (P2P) that begin give no work to held workers; Dask would count them in. Gives a function
    that ends this."""
    name = "shuffle_get_or_create"
    theirs = scheduler.handlers[name]

    def handler(shuffle_id: str, **rest: Any) -> Any:
        barrier = scheduler.tasks.get(barrier_key(ShuffleId(shuffle_id)))
        before = barrier.worker_restrictions if barrier else None
        stay = set(before or scheduler.workers) - set(held())
        if barrier is None or not stay:
            return theirs(shuffle_id=shuffle_id, **rest)
        barrier.worker_restrictions = stay
        try:
            return theirs(shuffle_id=shuffle_id, **rest)
        finally:
            barrier.worker_restrictions = before

    def end() -> None:
        if scheduler.handlers.get(name) is handler:
            scheduler.handlers[name] = theirs

    scheduler.handlers[name] = handler
    return end


def veto(scheduler: Any, address: str) -> str | None:
    """The plugin that does not want to lose this worker now, as Dask's shuffles while they use it."""
    worker = scheduler.workers[address]
    for name, plugin in scheduler.plugins.items():
        try:
            if worker not in plugin.valid_workers_downscaling(scheduler, [worker]):
                return str(name)
        except Exception:  # a plugin that cannot say
            continue
    return None


def permitted(scheduler: Any, task: Any, among: set[str]) -> set[str]:
    """Those of these workers where a task may run."""
    workers, hosts, loose = task.worker_restrictions, task.host_restrictions, task.loose_restrictions
    found = wished_addresses(scheduler, Wishes(workers, hosts, loose)) if workers or hosts else None
    for resource, amount in (task.resource_restrictions or {}).items():
        supply = scheduler.resources.get(resource, {})
        having = {address for address, there in supply.items() if there >= amount}
        found = having if found is None else found & having
    if found is None:
        return among
    return found & among or (among if loose else set())


class TaskMover:
    """Gives tasks that a worker has not started to other workers, through Dask's stealing, which asks the
    worker first: a task runs once, whatever the worker answers.

    Where stealing is switched off there is a mover of our own that only moves what it is told to.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._stealing = scheduler.extensions.get("stealing")
        self._is_ours = self._stealing is None
        if self._is_ours:
            self._stealing = WorkStealing(scheduler)

    def drain(self, address: str, keys: Collection[Any] | None = None) -> int:
        """Ask a worker for all tasks it has not started, or those of these keys, each for the worker that
        can start it soonest. How many it was asked for. A task that nobody else may run stays.
        """
        victim = self._scheduler.workers[address]
        others = running_workers(self._scheduler) - {address}
        asked = 0
        for task in list(victim.processing):
            if task.actor or task in victim.long_running or task in victim.executing:
                continue
            if keys is not None and task.key not in keys:
                continue
            thieves = permitted(self._scheduler, task, others)
            if thieves and task not in self._stealing.in_flight:
                thief = min(thieves, key=partial(self._begin, task))
                self._stealing.move_task_request(task, victim, self._scheduler.workers[thief])
                asked += 1
        return asked

    def is_moving(self, address: str) -> bool:
        """Whether the worker has been asked and not answered."""
        return any(info["victim"].address == address for info in self._stealing.in_flight.values())

    def close(self) -> None:
        """Leave nothing of ours behind, once all answers are in."""
        if not self._is_ours:
            return
        if self._stealing.in_flight:
            self._scheduler.loop.call_later(0.05, self.close)
            return
        self._is_ours = False
        del self._scheduler.stream_handlers["steal-response"]
        for name, plugin in list(self._scheduler.plugins.items()):
            if plugin is self._stealing:
                self._scheduler.remove_plugin(name)

    def _begin(self, task: Any, address: str) -> tuple[float, int, str]:
        worker = self._scheduler.workers[address]
        occupancy = worker.occupancy + self._stealing.in_flight_occupancy.get(worker, 0.0)
        return (
            occupancy / worker.nthreads + self._scheduler.get_comm_cost(task, worker),
            len(worker.processing) + self._stealing.in_flight_tasks.get(worker, 0),
            address,
        )


# --- leaving


def replace_retirement(
    scheduler: Any, ours: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Whoever retires workers, by a remote call or on the scheduler, asks ours. Gives Dask's own, and a
    function that puts it back."""
    name = "retire_workers"
    theirs = scheduler.handlers[name]
    before = vars(scheduler).get(name)

    def end() -> None:
        if scheduler.handlers.get(name) == ours:
            scheduler.handlers[name] = theirs
        if vars(scheduler).get(name) == ours:
            del scheduler.retire_workers
            if before is not None:
                scheduler.retire_workers = before

    scheduler.handlers[name] = scheduler.retire_workers = ours
    return theirs, end


def processing(scheduler: Any, address: str) -> list[Any]:
    """Keys of the tasks that were sent to a worker and have not ended: waiting, running or seceded."""
    worker = scheduler.workers.get(address)
    return [task.key for task in worker.processing] if worker else []


def has_actors(scheduler: Any, address: str) -> bool:
    """Whether a worker is bound by actors."""
    worker = scheduler.workers.get(address)
    return worker is not None and bool(worker.actors)


def is_closing(scheduler: Any) -> bool:
    """Whether the scheduler itself is going."""
    return scheduler.status != Status.running


# --- dashboard


def dashboard_of(scheduler: Any) -> Any:
    """The Bokeh application that serves Dask's own pages; None if the dashboard is off."""
    for application in scheduler.http_application.applications:
        if hasattr(application, "app_paths") and hasattr(application, "applications"):
            return application
    return None


def add_pages(scheduler: Any, pages: Mapping[str, Callable[..., None]]) -> Any:
    """Serve these Bokeh documents, by path, beside Dask's own, and list them as Dask's own are listed.

    A page is called with scheduler, template variables and document. Answers what ``remove_pages`` needs;
    None if the dashboard is off. Needs Bokeh, which is there if the dashboard is on.
    """
    dask_pages = dashboard_of(scheduler)
    if dask_pages is None:
        return None
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables

    variables = template_variables(scheduler)
    ours = BokehApplication(pages, scheduler, prefix=dask_pages.prefix, template_variables=variables)
    scheduler.http_application.add_application(ours)
    ours.initialize(scheduler.loop)
    ours.start()
    for path, context in ours.applications.items():
        # Only looked at for lists of what there is, such as individual-plots.json.
        dask_pages.applications[path] = context
        word = path.strip("/")
        if word.startswith("individual-"):
            name = word.removeprefix("individual-").replace("-", " ").title()
            variables["plots"].append({"url": word, "name": name.replace("Hpc", "HPC")})
        else:
            variables["pages"].append(word)
    return ours


def remove_pages(scheduler: Any, ours: Any) -> None:
    """Serve and list them no more."""
    from distributed.dashboard.scheduler import template_variables

    variables, dask_pages = template_variables(scheduler), dashboard_of(scheduler)
    words = {path.strip("/") for path in ours.applications}
    variables["pages"][:] = [page for page in variables["pages"] if page not in words]
    variables["plots"][:] = [plot for plot in variables["plots"] if plot["url"] not in words]
    for path in ours.applications:
        dask_pages.applications.pop(path, None)
    ours.stop()
    scheduler.http_application.applications.remove(ours)


def page_template() -> tuple[Any, Any]:
    """Template and theme of Dask's own pages."""
    from distributed.dashboard.components.scheduler import BOKEH_THEME, env

    return env.get_template("simple.html"), BOKEH_THEME


# --- workers that leave


def by_value(thing: Any, *parts: Any) -> bytes:
    """A pickle that needs nothing of ours where it is read, if the modules of ``thing`` and of its ``parts``
    import nothing of ours."""
    names = {type(one).__module__ for one in (thing, *parts) if one is not None}
    modules = [import_module(name) for name in names - cloudpickle.list_registry_pickle_by_value()]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        found: bytes = cloudpickle.dumps(thing)
        return found
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def scheduler_id(scheduler: Any) -> str:
    """What tells this scheduler from all others."""
    return str(scheduler.id)


async def add_worker_plugin(scheduler: Any, name: str, plugin: bytes) -> None:
    """Give this plugin to all workers, now and later."""
    await scheduler.register_worker_plugin(None, plugin, name, idempotent=True)


async def remove_worker_plugin(scheduler: Any, name: str) -> None:
    """Take it from them."""
    if name in scheduler.worker_plugins:
        await scheduler.unregister_worker_plugin(None, name)


def leaving_workers(scheduler: Any) -> set[str]:
    """Addresses of the connected workers that will soon be gone."""
    return {
        address
        for address, worker in scheduler.workers.items()
        if worker.status.name not in ("init", "running", "paused")
    }


def kinds(scheduler: Any, states: Iterable[str]) -> set[str]:
    """The prefixes of which there are tasks in one of these states."""
    wanted = tuple(states)
    prefixes = scheduler.task_prefixes.items()
    return {name for name, found in prefixes if any(found.states[state] for state in wanted)}


async def let_worker_go(scheduler: Any, address: str) -> None:
    """Forget a worker that leaves on purpose: the tasks it had are not suspected of having killed it."""
    await scheduler.remove_worker(address, stimulus_id="hpc-farewell", expected=True, close=False)


# --- recipes that load instead of compute


class Recipe(NamedTuple):
    """How a task was to be computed, with all it needs, kept outside of Dask's state."""

    key: Any
    run_spec: Any
    priority: Any
    limits: tuple[Any, ...]
    needs: "tuple[Recipe, ...]"


_LIMITS = (
    "worker_restrictions", "host_restrictions", "resource_restrictions", "loose_restrictions", "retries",
    "annotations",
)  # fmt: skip


class Portable:
    """A callable that is unpickled from these bytes where it is called."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    def __call__(self, *args: Any) -> Any:
        return pickle.loads(self._blob)(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._blob,)


def can_be_replaced(task: Any) -> bool:
    """Whether a task's recipe may become another: nobody is about to follow it, and it is no actor."""
    return task.state in ("released", "memory") and not task.actor


def has_recipe(task: Any) -> bool:
    """Whether a task can be computed at all; scattered data cannot."""
    return task.run_spec is not None


def recipe(task: Any, known: dict[Any, Recipe]) -> Recipe:
    """A task's recipe and those of all its ancestors; ``known`` saves repeating those of earlier calls."""
    todo = [task]
    while todo:
        one = todo[-1]
        missing = [other for other in one.dependencies if other.key not in known]
        if missing:
            todo.extend(missing)
            continue
        todo.pop()
        limits = tuple(getattr(one, name) for name in _LIMITS)
        needs = tuple(known[other.key] for other in one.dependencies)
        known[one.key] = Recipe(one.key, one.run_spec, one.priority, limits, needs)
    return known[task.key]


def load_instead(task: Any, load: Callable[[Any], Any]) -> list[Any]:
    """From now on a task is computed by calling this with its key. Gives the keys of the tasks that it
    needed so far, for ``forget_unneeded``."""
    needs = list(task.dependencies)
    for other in needs:
        other.dependents.discard(task)
        if other.waiters:
            other.waiters.discard(task)
    task.dependencies.clear()
    task.run_spec = Task(task.key, load, task.key)
    if task.priority is None:  # scattered data
        task.priority = (0, 0, 0)
    return [other.key for other in needs]


def forget_unneeded(scheduler: Any, keys: Iterable[Any]) -> None:
    """Let Dask forget those of the tasks that no task and no client needs, and then what they needed."""
    unneeded = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is not None and task.state == "released" and not task.dependents and not task.who_wants:
            unneeded[key] = "forgotten"
    scheduler.transitions(unneeded, "hpc-rescue")


def give_recipe_back(scheduler: Any, kept: Recipe) -> None:
    """A task is computed as it was to be, and so is what it needs, even if Dask has forgotten that."""
    task = scheduler.tasks[kept.key]
    task.run_spec = kept.run_spec
    todo = [(task, need) for need in kept.needs]
    while todo:
        dependent, need = todo.pop()
        other = scheduler.tasks.get(need.key)
        if other is None:
            other = scheduler.new_task(need.key, need.run_spec, "released")
            other.priority = need.priority
            for name, value in zip(_LIMITS, need.limits, strict=True):
                setattr(other, name, value)
            todo += [(other, deeper) for deeper in need.needs]
        dependent.add_dependency(other)
