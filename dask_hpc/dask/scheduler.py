"""What we put into a scheduler: remote calls, plugins, pages of the dashboard."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from contextvars import ContextVar
from functools import partial
from inspect import signature
from itertools import islice
from typing import Any, NamedTuple

from dask._task_spec import Task
from distributed.core import error_message, send_recv
from distributed.deploy.cluster import Cluster
from distributed.scheduler import heartbeat_interval
from tornado.web import Application, RequestHandler

from dask_hpc.dask.tasks import UNFINISHED


def put(table: MutableMapping[str, Any], name: str, ours: Any) -> Callable[[], None]:
    """Put ours in the place of what has that name, if anything. Gives a function that puts that back, unless
    somebody else has replaced ours by then. ``table`` is a dictionary of Dask's, or ``vars`` of an object."""
    theirs = table.get(name)
    table[name] = ours

    def end() -> None:
        if table.get(name) == ours:
            if theirs is None:
                del table[name]
            else:
                table[name] = theirs

    return end


class RemovableCall:
    """Answers a remote call, until it is removed. Dask remembers each handler for as long as its process
    lives, and would remember with our calls all that belongs to them."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.__name__ = name
        self.__signature__ = signature(call)  # Dask looks whether it begins with a comm
        self.call: Callable[..., Any] | None = call

    def __call__(self, *comm: Any, **arguments: Any) -> Any:
        return None if self.call is None else self.call(*comm, **arguments)


def add_calls(server: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Let a scheduler or a worker answer these remote calls."""
    server.handlers.update({name: RemovableCall(name, call) for name, call in calls.items()})


def refusal(error: Exception) -> Any:
    """The answer of a remote call that raises this where it was asked. What the call itself raises is logged,
    too, with its traceback, and a notebook whose kernel has the scheduler shows that."""
    return error_message(error, status="uncaught-error")


def remove_calls(server: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """It answers them no more, unless somebody else does by now."""
    for name, call in calls.items():
        found = server.handlers.get(name)
        if isinstance(found, RemovableCall) and found.call == call:
            del server.handlers[name]
            found.call = None


class _Letter:
    """A connection that says when what was written is on its way."""

    def __init__(self, comm: Any, is_sent: asyncio.Event) -> None:
        self._comm = comm
        self._is_sent = is_sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        found = await self._comm.write(*args, **kwargs)
        self._is_sent.set()
        return found


async def posted(client: Any, call: str, /, **what: Any) -> "asyncio.Task[Any]":
    """Ask the scheduler something, and go on as soon as the question is on its way. Gives what waits for the
    answer, or has the error."""
    rpc, is_sent = client.scheduler, asyncio.Event()

    async def ask() -> Any:
        comm = await rpc.pool.connect(rpc.address)
        try:
            return await send_recv(_Letter(comm, is_sent), op=call, **what)
        finally:
            rpc.pool.reuse(rpc.address, comm)

    answer, sent = asyncio.ensure_future(ask()), asyncio.ensure_future(is_sent.wait())
    try:
        await asyncio.wait([answer, sent], return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        answer.cancel()
        raise
    finally:
        sent.cancel()
    return answer


def subscribe(scheduler: Any, topic: str, client: str) -> None:
    """From now on this client is sent the events of a topic. Its own word for that takes another way than its
    calls, and may come later."""
    scheduler.subscribe_topic(topic, client)


def dashboard_of(scheduler: Any) -> Any:
    """The Bokeh application that serves Dask's own pages; None if the dashboard is off."""
    for application in scheduler.http_application.applications:
        if hasattr(application, "app_paths") and hasattr(application, "applications"):
            return application
    return None


def add_pages(
    scheduler: Any,
    pages: Mapping[str, tuple[type[RequestHandler], Mapping[str, Any]]],
    listed: Iterable[str],
) -> Any:
    """Serve these pages, by path, beside Dask's own: what answers, and what it is initialized with. Those
    that are ``listed`` are so as Dask's own are: in its menus, and for the JupyterLab extension.

    Answers what ``remove_pages`` needs; None if the dashboard is off. Listing needs Bokeh, which is there if
    the dashboard is on.
    """
    dask_pages = dashboard_of(scheduler)
    if dask_pages is None:
        return None
    from bokeh.application import Application as Document
    from bokeh.server.contexts import ApplicationContext
    from distributed.dashboard.scheduler import template_variables

    prefix = dask_pages.prefix.rstrip("/")
    ours = Application([(prefix + path, handler, given) for path, (handler, given) in pages.items()])
    ours.listed = tuple(listed)
    variables = template_variables(scheduler)
    for path in ours.listed:
        # An empty document: only looked at for lists of what there is, such as individual-plots.json.
        dask_pages.applications[path] = ApplicationContext(Document(), url=path)
        word = path.strip("/")
        if word.startswith("individual-"):
            name = word.removeprefix("individual-").replace("-", " ").title()
            variables["plots"].append({"url": word, "name": name.replace("Hpc", "HPC")})
        else:
            variables["pages"].append(word)
    scheduler.http_application.add_application(ours)
    return ours


def remove_pages(scheduler: Any, ours: Any) -> None:
    """Serve and list them no more."""
    from distributed.dashboard.scheduler import template_variables

    variables, dask_pages = template_variables(scheduler), dashboard_of(scheduler)
    words = {path.strip("/") for path in ours.listed}
    variables["pages"][:] = [page for page in variables["pages"] if page not in words]
    variables["plots"][:] = [plot for plot in variables["plots"] if plot["url"] not in words]
    for path in ours.listed:
        dask_pages.applications.pop(path, None)
    scheduler.http_application.applications.remove(ours)


def listed_pages(scheduler: Any) -> list[str]:
    """The pages of the dashboard's menu, as they are called in an address."""
    from distributed.dashboard.scheduler import template_variables

    return list(template_variables(scheduler)["pages"])


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

    return put(scheduler.stream_handlers, "update-graph", update_graph)


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


class _Arrived(Task):
    """A task that Dask's optimization does not fuse with others, so that its key arrives as it is: on the
    scheduler, which optimizes. To workers it goes as an ordinary one."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self.key, self.func, *self.args)


class _Alone(_Arrived):
    """The same on the client."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Arrived, (self.key, self.func, *self.args)


def alone(key: Any, work: Callable[..., Any], *args: Any) -> Task:
    """A task of a collection that keeps its key."""
    return _Alone(key, work, *args)


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


def unwilling(scheduler: Any, addresses: Iterable[str] | None = None) -> dict[str, str]:
    """The workers, of these or of all, that a plugin does not want to lose now, as Dask's shuffles while they
    run: by whom."""
    found: dict[str, str] = {}
    workers = scheduler.workers
    everybody = list(workers.values() if addresses is None else map(workers.__getitem__, addresses))
    for name, plugin in list(scheduler.plugins.items()):
        try:
            free = {worker.address for worker in plugin.valid_workers_downscaling(scheduler, everybody)}
        except Exception:  # a plugin that cannot say
            continue
        found = {worker.address: str(name) for worker in everybody if worker.address not in free} | found
    return found


def unfinished(scheduler: Any) -> int:
    """How many tasks there are that are neither done nor failed nor forgotten."""
    counts = (prefix.states for prefix in scheduler.task_prefixes.values())
    return sum(found[state] for found in counts for state in UNFINISHED)


def kinds_left(scheduler: Any) -> dict[str, tuple[int, int]]:
    """Of each prefix of which tasks have not ended: how many, and how many of them are ready and wait. In the
    order in which prefixes were first seen."""
    found = {}
    for name, prefix in scheduler.task_prefixes.items():
        states = prefix.states
        waiting = states["queued"] + states["no-worker"]
        if left := waiting + states["waiting"] + states["processing"]:
            found[name] = left, waiting
    return found


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


def is_loose(task: Any) -> bool:
    """Whether the user allowed other workers than those that he named, if he named any: then Dask looks at no
    restriction that nobody meets."""
    return bool(task.loose_restrictions)


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


def keep_lost_units(cluster: Any, is_so: bool) -> None:
    """Whether a cluster object keeps a unit whose workers are gone: Dask closes it 15 s later by itself, also
    one that its batch system has put back into the queue."""
    way = partial(Cluster._update_worker_status, weakref.proxy(cluster)) if is_so else None
    attach(cluster, "_update_worker_status", way)


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
