"""Workers: who they are, what state they are in, and how they are held and leave."""

import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from time import time
from typing import Any, NamedTuple

import cloudpickle
from distributed import NannyPlugin, Status, Worker, WorkerPlugin, default_client, get_worker
from distributed.scheduler import WorkerState
from distributed.shuffle._core import ShuffleId, barrier_key
from distributed.stealing import WorkStealing
from distributed.worker_state_machine import UnpauseEvent

from dask_hpc.dask.scheduler import expected_seconds, put, unwilling
from dask_hpc.dask.tasks import Wishes, wished_addresses

logger = logging.getLogger(__name__)

_NOWHERE = "tcp://0.0.0.0:0"  # no worker has that address


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


def worker_identities(scheduler: Any) -> Iterator[tuple[str, Any, str]]:
    """Address, name and host of the connected workers, by name."""
    for address in workers_by_name(scheduler):
        yield address, *worker_identity(scheduler, address)


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


class WorkerHealth(NamedTuple):
    """How a worker is, as far as the scheduler has heard. Memory in bytes, no limit is 0."""

    status: str
    threads: int
    limit: int
    memory: int
    #: results that it has written to its disk for want of memory
    spilled: int
    #: seconds since it was heard
    silent: float


def health_of(scheduler: Any, address: str) -> WorkerHealth:
    """Of a connected worker."""
    worker = scheduler.workers[address]
    memory = worker.memory
    return WorkerHealth(
        worker.status.name,
        worker.nthreads,
        worker.memory_limit,
        memory.process,
        memory.spilled,
        max(0.0, time() - worker.last_seen),
    )


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
    theirs, is_on = scheduler.stream_handlers["worker-status-change"], True

    def handler(status: str, worker: str, stimulus_id: str) -> None:
        theirs(seen(worker, status) if is_on else status, worker=worker, stimulus_id=stimulus_id)

    def end() -> None:
        nonlocal is_on
        is_on = False
        put_back()

    put_back = put(scheduler.stream_handlers, "worker-status-change", handler)
    return end


def tell_worker_status(scheduler: Any, address: str, status: str) -> None:
    """Let a worker have this status; it reports that back."""
    if address in scheduler.stream_comms:
        message = {"op": "worker-status-change", "status": status, "stimulus_id": "hpc-hold"}
        scheduler.stream_comms[address].send(message)


def can_answer(scheduler: Any, name: str) -> bool:
    """Whether somebody answers what is asked of the scheduler by this name. Where nobody does, it logs an
    error for who asks."""
    return name in scheduler.handlers


def has_shuffles(scheduler: Any) -> bool:
    """Whether the scheduler has Dask's shuffles (P2P), an extension that one may leave out."""
    return can_answer(scheduler, "shuffle_get_or_create")


def keep_out_of_shuffles(scheduler: Any, held: Callable[[], Iterable[str]]) -> Callable[[], None]:
    """Shuffles (P2P) that begin give no work to held workers; Dask would count them in. Gives a function
    that ends this."""
    name = "shuffle_get_or_create"
    theirs = scheduler.handlers.get(name)
    if theirs is None:  # a scheduler without Dask's shuffles
        return lambda: None

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

    return put(scheduler.handlers, name, handler)


class Scatters:
    """The calls that bring data to workers from outside and are under way. ``home``: the workers that data
    with these keys go to if nobody has named any; none if they may go anywhere. Stops when it is told to."""

    def __init__(self, scheduler: Any, home: Callable[[Iterable[Hashable]], Collection[str]]) -> None:
        self.under_way: set[int] = set()
        self._scheduler = scheduler
        self._home = home
        self._plain = scheduler.handlers["scatter"]
        self._number = 0
        self.stop = put(scheduler.handlers, "scatter", self._scatter)

    async def _scatter(self, **call: Any) -> Any:
        if call.get("workers") is None:
            # Dask would wait for those that do not run, and fail for want of one that is gone
            found = running_workers(self._scheduler).intersection(self._home(call["data"]))
            call["workers"] = list(found) or None
        number = self._number = self._number + 1
        self.under_way.add(number)
        try:
            return await self._plain(**call)
        finally:
            self.under_way.discard(number)


def veto(scheduler: Any, address: str) -> str | None:
    """The plugin that does not want to lose this worker now, as Dask's shuffles while they use it."""
    return unwilling(scheduler, [address]).get(address)


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
        victim, tasks = self._not_started(address, keys)
        others = running_workers(self._scheduler) - {address} if tasks else set()
        asked = 0
        for task in tasks:
            thieves = permitted(self._scheduler, task, others)
            if thieves and task not in self._stealing.in_flight:
                thief = min(thieves, key=partial(self._begin, task))
                self._stealing.move_task_request(task, victim, self._scheduler.workers[thief])
                asked += 1
        return asked

    def recall(self, address: str, keys: Collection[Any]) -> int:
        """Ask a worker for those of these tasks that it has not started, for nobody: Dask then places them
        anew, where they may run by then. How many it was asked for."""
        victim, tasks = self._not_started(address, keys)
        nobody = WorkerState(
            address=_NOWHERE, status=Status.closed, pid=0, name=_NOWHERE, nthreads=1, memory_limit=0,
            local_directory="", nanny="", server_id="", scheduler=self._scheduler,
        )  # fmt: skip
        tasks = [task for task in tasks if task not in self._stealing.in_flight]
        for task in tasks:
            self._stealing.move_task_request(task, victim, nobody)
        return len(tasks)

    def _not_started(self, address: str, keys: Collection[Any] | None) -> tuple[Any, list[Any]]:
        """As far as the scheduler knows."""
        victim = self._scheduler.workers.get(address)
        tasks = [
            task
            for task in (() if victim is None else victim.processing)
            if not (task.actor or task in victim.long_running or task in victim.executing)
            and task.processing_on is victim  # else it stands for a run that Dask does not know of
            and (keys is None or task.key in keys)
        ]
        return victim, tasks

    def is_expecting(self, address: str) -> bool:
        """Whether the worker may still be sent a task that another one was asked for and has not answered."""
        return any(info["thief"].address == address for info in self._stealing.in_flight.values())

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


def idle_workers(scheduler: Any) -> list[str]:
    """Those for which Dask looks for tasks that others could give them."""
    return list(scheduler.idle)


def stealable(scheduler: Any) -> Iterator[Any]:
    """Keys of the tasks that Dask would take from the workers they were sent to."""
    found = scheduler.extensions["stealing"].stealable.values()
    return (task.key for levels in found for level in levels for task in level)


def hide_from_stealing(scheduler: Any, hidden: Callable[[], Iterable[str]]) -> Callable[[], None]:
    """Ten times a second Dask asks of each task that it has sent which of the idle workers may take it, 10 us
    for each. Of these workers it does not ask. Gives a function that ends this."""
    clock = scheduler.periodic_callbacks.get("stealing")
    if clock is None:
        return lambda: None
    plain = clock.callback

    def balance() -> Any:
        away = {address: scheduler.idle.pop(address) for address in hidden()}
        try:
            return plain()
        finally:
            scheduler.idle.update(away)

    def end() -> None:
        if clock.callback is balance:
            clock.callback = plain

    clock.callback = balance
    return end


def replace_retirement(
    scheduler: Any, ours: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Whoever retires workers, by a remote call or on the scheduler, asks ours. Gives Dask's own, and a
    function that puts it back."""
    theirs = scheduler.handlers["retire_workers"]
    ways = [put(table, "retire_workers", ours) for table in (scheduler.handlers, vars(scheduler))]

    def end() -> None:
        for put_back in ways:
            put_back()

    return theirs, end


def processing(scheduler: Any, address: str) -> list[Any]:
    """Keys of the tasks that were sent to a worker and have not ended: waiting, running or seceded."""
    worker = scheduler.workers.get(address)
    return [task.key for task in worker.processing if task.processing_on] if worker else []


def has_actors(scheduler: Any, address: str) -> bool:
    """Whether a worker is bound by actors."""
    worker = scheduler.workers.get(address)
    return worker is not None and bool(worker.actors)


def is_closing(scheduler: Any) -> bool:
    """Whether the scheduler itself is going."""
    return scheduler.status != Status.running


class Closing:
    """The end of a worker, whoever wants it: ``before(reason, seconds)`` comes first, once, in the time that
    is given, while the worker is as it ever was: connected, and its tasks run.

    Dask itself lets go of what runs when it begins to close, and asks its plugins afterwards.
    """

    _OVER = ("scheduler-close", "scheduler-remove-worker")  # a "scheduler-close-worker" is still known there

    _AS_EVER = 4.0  # seconds that a nanny leaves its worker for closing, if nobody says another time

    def __init__(self, worker: Any, before: Callable[[str, float], Awaitable[None]]) -> None:
        self._worker = worker
        self._before = before
        self._plain = worker.close
        self._is_told = False
        #: how the first who wanted it wanted it: a second must not close a nanny that was to go on, as a
        #: heartbeat after the farewell would, by its answer
        self._how: dict[str, Any] | None = None
        tables = (worker.stream_handlers, worker.handlers)
        places = zip(tables, ("close", "terminate"), strict=True)
        self._put_back = [put(vars(worker), "close", self.close)]
        self._put_back += [put(table, name, self._hear) for table, name in places]

    def stop(self) -> None:
        """It closes as Dask does."""
        for put_back in self._put_back:
            put_back()

    async def close(self, timeout: float = 30, **how: Any) -> Any:
        """In the place of the worker's own."""
        worker = self._worker
        if self._how is not None or (worker.status.name in ("running", "paused") and not self.is_over):
            self._how = self._how or how
            try:
                await self._before(how.get("reason", "it closes"), timeout)
            except Exception:  # it closes all the same
                logger.exception("dask-hpc: a worker closes without a farewell")
            how = self._how
        if worker.nanny and not how.get("nanny", True):
            timeout = min(timeout, self._AS_EVER)  # nannies are more patient for the sake of what came before
        return await self._plain(timeout=timeout, **how)

    async def _hear(self, **how: Any) -> Any:
        self._is_told = how.get("reason") in self._OVER
        return await self.close(**how)

    @property
    def is_over(self) -> bool:
        """Nobody at the scheduler's hears this worker any more: it has closed, or removed it already. Asking
        all the same ends in attempts to connect, for as long as one waits."""
        return self._is_told or bool(self._worker.batched_stream.closed())


def pickled(thing: Any) -> bytes:
    """What travels to workers, which have dask_hpc as well."""
    found: bytes = cloudpickle.dumps(thing)
    return found


async def add_worker_plugin(scheduler: Any, name: str, plugin: bytes) -> None:
    """Give this plugin to all workers, now and later."""
    with suppress(OSError):  # one that was told has gone meanwhile
        await scheduler.register_worker_plugin(None, plugin, name, idempotent=True)


def has_worker_plugin(scheduler: Any, name: str) -> bool:
    """Whether all workers are given a plugin of that name; one that has just joined may not have it yet."""
    return name in scheduler.worker_plugins


async def replace_worker_plugin(scheduler: Any, plugin: WorkerPlugin | NannyPlugin) -> None:
    """Give this plugin to all workers, or nannies, now and later, in the place of the one of that name."""
    register = scheduler.register_worker_plugin
    if isinstance(plugin, NannyPlugin):
        await remove_worker_plugin(scheduler, plugin.name)  # a nanny would only forget the one it has
        register = scheduler.register_nanny_plugin
    await register(None, pickled(plugin), plugin.name, idempotent=False)


async def remove_worker_plugin(scheduler: Any, name: str) -> None:
    """Take it from them."""
    with suppress(OSError):  # as above
        if name in scheduler.worker_plugins:
            await scheduler.unregister_worker_plugin(None, name)
        elif name in scheduler.nanny_plugins:
            await scheduler.unregister_nanny_plugin(None, name)


#: by which batch systems say beforehand that they will end, preempt or suspend a job, where a site or a user
#: wants it (Slurm's --signal, Grid Engine's -notify, LSF, OAR's --checkpoint). Who has no handler is ended.
NOTICES = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def is_worker_command(handler: Any) -> bool:
    """Whether this handler of SIGTERM is that of Dask's own command line: the process is a worker's or a
    nanny's."""
    return getattr(handler, "__module__", "") == "distributed._signals"


def heed_notices(handler: Callable[[int, Any], None]) -> Callable[[], None]:
    """Call this when a notice comes for which nobody else has a handler. Gives what undoes it."""
    ours = [one for one in NOTICES if signal.getsignal(one) is signal.SIG_DFL]
    for one in ours:
        signal.signal(one, handler)

    def undo() -> None:
        for one in ours:
            if signal.getsignal(one) == handler:
                signal.signal(one, signal.SIG_DFL)

    return undo


class NannyPatience(NannyPlugin):
    """A nanny that is to end its worker waits for so many seconds at least before it kills it. It ends it at
    a notice as at SIGTERM.
    """

    name = "dask-hpc-patience"
    _SHARE = 0.8  # of the time it is given it waits before it kills

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def setup(self, nanny: Any) -> None:
        """From now on."""
        plain, least = nanny.kill, self._seconds / self._SHARE

        async def kill(timeout: float = least, reason: str = "nanny-kill") -> None:
            await plain(timeout=max(timeout, least), reason=reason)

        self._put_back = [put(table, "kill", kill) for table in (vars(nanny), nanny.handlers)]
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and is_worker_command(signal.getsignal(signal.SIGTERM)):
            self._put_back.append(heed_notices(_end_as_at_sigterm))

    def teardown(self, nanny: Any) -> None:
        """As before, unless it is about to end its worker: Dask removes plugins first."""
        if nanny.status.name != "closing":
            for put_back in self._put_back:
                put_back()


def _end_as_at_sigterm(signum: int, frame: Any) -> None:
    signal.signal(signum, signal.SIG_IGN)  # once is enough
    os.kill(os.getpid(), signal.SIGTERM)


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
    """Forget a worker that leaves on purpose: the tasks it had are not suspected of having killed it. Each
    time it is another stimulus: Dask's shuffles remember for which they began anew, and would do so again."""
    await scheduler.remove_worker(address, stimulus_id=f"hpc-farewell-{time()}", expected=True, close=False)


def metrics(scheduler: Any, name: str) -> list[tuple[str, Any]]:
    """Address and last word of each connected worker that tells something of that name in its heartbeats."""
    found = scheduler.workers.items()
    return [(address, worker.metrics[name]) for address, worker in found if name in worker.metrics]


def forget_old_needs(worker: Any) -> Callable[[], None]:
    """A task that has another recipe than the last time waits for what that needs, and for nothing else.

    A worker remembers what a task of which it has no result any more needed, and would add to that. Gives a
    function that ends this.
    """
    plain = worker.stream_handlers["compute-task"]

    def compute(key: Any, nbytes: Mapping[Any, int], **rest: Any) -> Any:
        task = worker.state.tasks.get(key)
        if task is not None and task.state in ("released", "fetch", "flight", "missing", "error"):
            try:
                _unlink(worker, task, [need for need in task.dependencies if need.key not in nbytes])
            except Exception:  # an error here would end the worker
                logger.exception("dask-hpc: %r goes on with what it needed before", key)
        return plain(key=key, nbytes=nbytes, **rest)

    return put(worker.stream_handlers, "compute-task", compute)


def _unlink(worker: Any, task: Any, needs: list[Any]) -> None:
    for need in needs:
        task.dependencies.discard(need)
        task.waiting_for_data.discard(need)
        need.dependents.discard(task)
        need.waiters.discard(task)
    unneeded = [need for need in needs if need.state == "released" and not need.dependents]
    while unneeded:
        need = unneeded.pop()
        theirs, _ = worker.state._transition(need, "forgotten", stimulus_id="hpc-needs")
        worker.state.task_counter.transitions({need: "released"})
        unneeded.extend(theirs)


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


def server_here() -> Any:
    """By what this process is part of Dask: the worker that runs this task, its client, or any worker in it.
    None if by nothing."""
    try:
        return get_worker()
    except ValueError:
        pass
    try:
        return default_client()
    except ValueError:
        pass
    alive = (Status.running, Status.paused, Status.closing_gracefully)
    return next((worker for worker in Worker._instances if worker.status in alive), None)
