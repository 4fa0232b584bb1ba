"""Copies of results, and moving them."""

import gc
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from itertools import islice
from math import inf
from typing import Any

from distributed import Future
from distributed.active_memory_manager import ReduceReplicas
from distributed.client import _wait
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol import pickle
from distributed.spill import SpillBuffer
from distributed.worker_state_machine import UpdateDataEvent

from dask_hpc.dask.scheduler import put


def keys_on(scheduler: Any, address: str) -> list[Any]:
    """Keys of the results that a worker holds; an actor is no result, it cannot be moved."""
    worker = scheduler.workers.get(address)
    return [task.key for task in worker.has_what if not task.actor] if worker else []


def tasks_on(scheduler: Any, address: str) -> Iterator[Any]:
    """The tasks whose results a worker holds, actors too. It may get and lose results meanwhile: then some
    come twice. A list of very many would take longer to make than the scheduler has at once."""
    worker = scheduler.workers.get(address)
    try:
        yield from worker.has_what if worker else ()
    except RuntimeError:  # it has changed
        yield from list(worker.has_what)


def key_of(task: Any) -> Hashable:
    """The key of a task."""
    found: Hashable = task.key
    return found


def holders(task: Any) -> tuple[str, ...]:
    """The workers that hold a task's result."""
    there: Collection[Any] = task.who_has or ()
    if len(there) == 1:  # nearly always, and asked of very many
        (worker,) = there
        return (worker.address,)
    return tuple([worker.address for worker in there])


_MOST_NEEDS = 100  # of what a task needs, that is looked at


def bytes_there(task: Any) -> dict[str, int]:
    """How much of what a task needs each worker has, of those that have any."""
    found: dict[str, int] = {}
    for need in islice(task.dependencies, _MOST_NEEDS):
        for worker in need.who_has or ():
            found[worker.address] = found.get(worker.address, 0) + need.get_nbytes()
    return found


def address_of(task: Any) -> str:
    """The worker that was told to compute a task."""
    address: str = task.processing_on.address
    return address


def size(task: Any) -> int:
    """Bytes of a task's result."""
    return max(0, task.nbytes)


def is_actor(task: Any) -> bool:
    """Whether the task's result is an actor."""
    return bool(task.actor)


def announce_scatters(client: Any, announce: Callable[[Iterable[Hashable]], Awaitable[None]]) -> None:
    """``announce`` is awaited with their keys before this client's data go to no worker in particular."""
    calls = client.scheduler
    if calls is None or "scatter" in vars(calls):  # it is not connected yet, or it does so already
        return
    plain = calls.scatter

    async def scatter(**call: Any) -> Any:
        if call.get("workers") is None:
            await announce(call["data"])
        return await plain(**call)

    put(vars(calls), "scatter", scatter)


class _AtClose:
    """Stands where a preload of a client does, which is torn down when the client closes."""

    name = "dask-hpc"

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    async def teardown(self) -> None:
        self._act()


def at_close(client: Any, act: Callable[[], None]) -> None:
    """Do this when the client closes, before anything else of it ends, on its loop."""
    preloads = getattr(client, "preloads", None)
    if preloads is not None:
        preloads._preloads.append(_AtClose(act))


def is_wanted(task: Any) -> bool:
    """Whether a client has a future of the task."""
    return bool(task.who_wants)


def is_used_on(task: Any, address: str) -> bool:
    """Whether a task that was sent to this worker needs the result: its copy there may not be dropped."""
    return bool(task.waiters) and any(  # asked of very many, for which mostly nobody waits
        waiter.processing_on is not None and waiter.processing_on.address == address
        for waiter in task.waiters
    )


def is_running(scheduler: Any, address: str) -> bool:
    """Whether a worker is connected and takes tasks and data: not paused, held or leaving."""
    return scheduler.workers.get(address) in scheduler.running


def is_shuffling(scheduler: Any) -> bool:
    """Whether one of Dask's own shuffles is under way."""
    plugin, workers = scheduler.plugins.get("shuffle"), list(scheduler.workers.values())
    return plugin is not None and len(plugin.valid_workers_downscaling(scheduler, workers)) < len(workers)


def copy_to(scheduler: Any, address: str, keys: Iterable[Any], stimulus_id: str) -> None:
    """Ask a worker to fetch copies. Asking twice does no harm; nobody says when they are there.

    The message of Dask's ``request_acquire_replicas``, which makes a list of the holders for each result.
    """
    if address in scheduler.stream_comms:
        tasks = [scheduler.tasks[key] for key in keys]
        message = {
            "op": "acquire-replicas",
            "who_has": {task.key: holders(task) for task in tasks},
            "nbytes": {task.key: task.nbytes for task in tasks},
            "stimulus_id": stimulus_id,
        }
        scheduler.stream_comms[address].send(message)


async def bring_together(scheduler: Any, address: str, source: str, keys: Collection[Any]) -> Collection[Any]:
    """Have a worker fetch copies of these small results of another one. Gives those that it leaves to Dask;
    raises where nothing is fetched together. Other than ``copy_to`` this overtakes what the worker is told of
    tasks, so it fetches only what it does not know of."""
    left: Collection[Any] | None = await scheduler.rpc(address).hpc_fetch(source=source, keys=list(keys))
    if left is None:  # what Dask answers where nobody listens to that
        raise LookupError(f"{address} fetches nothing together")
    return left


def drop_from(scheduler: Any, address: str, keys: Iterable[Any], stimulus_id: str) -> None:
    """Drop copies, each neither the last one nor used there. The scheduler knows them no more at once."""
    if address in scheduler.stream_comms:
        scheduler.request_remove_replicas(address, list(keys), stimulus_id=stimulus_id)


def forget_copies(scheduler: Any, address: str, keys: Iterable[Any]) -> None:
    """The same, but the worker is not told: it leaves."""
    worker = scheduler.workers[address]
    for key in keys:
        scheduler.remove_replica(scheduler.tasks[key], worker)


def remind_of_drops(scheduler: Any, address: str, keys: Iterable[Any]) -> None:
    """It stays after all: it is told of copies that the scheduler forgot, if it has not got them again."""
    worker = scheduler.workers.get(address)
    known = {task.key for task in worker.has_what} if worker and keys else ()
    if worker and (keys := [key for key in keys if key not in known]):
        message = {"op": "remove-replicas", "keys": keys, "stimulus_id": "hpc-stay"}
        scheduler.stream_comms[address].send(message)


def has_spilled(scheduler: Any, address: str) -> bool:
    """Whether a worker keeps results on its disk, for want of memory."""
    worker = scheduler.workers.get(address)
    return worker is not None and worker.metrics.get("spilled_bytes", {}).get("memory", 0) > 0


def pack_results(worker: Any, keys: Iterable[Any]) -> bytes:
    """On a worker: those of these results that are there, for ``enter_results`` on another one."""
    data = worker.data
    fast = getattr(data, "fast", data)  # what has not been spilled, without an account of each access
    found = {key: fast[key] if key in fast else data[key] for key in keys if key in data}
    packed: bytes = pickle.dumps(found)
    return packed


def is_known_here(worker: Any, key: Any) -> bool:
    """On a worker: whether it has heard of a task."""
    return key in worker.state.tasks


def enter_results(worker: Any, packed: bytes, stimulus_id: str) -> list[Any]:
    """On a worker: results of another one are here now, and the scheduler is told. Not entered is what a
    task here has come to need meanwhile. Gives the keys of those that are here."""
    found = pickle.loads(packed)
    data = {key: result for key, result in found.items() if key not in worker.state.tasks}
    with _without_garbage_collection(), _spilling_later(worker.state):
        worker.handle_stimulus(UpdateDataEvent(data=data, stimulus_id=stimulus_id))
    here = [key for key in found if key in worker.data]
    worker.batched_send({"op": "add-keys", "keys": here, "stimulus_id": stimulus_id})
    return here


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """For what makes very many lasting objects: looking through them again and again takes a third of it."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


@contextmanager
def _spilling_later(state: Any) -> Iterator[None]:
    """What comes meanwhile is in memory, and at the end too much of it is spilled: Dask's look at each result
    takes a quarter of what it takes to enter it."""
    data = state.data
    if not isinstance(data, SpillBuffer):
        yield
        return
    state.data = _AllInMemory(data)
    try:
        yield
    finally:
        state.data = data
        while data.fast.total_weight > data.n and data.evict() >= 0:
            pass


class _AllInMemory(MutableMapping[Any, Any]):
    """A worker's results, of which none is spilled for a new one."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __setitem__(self, key: Any, result: Any) -> None:
        self._data.set_noevict(key, result)

    def __getitem__(self, key: Any) -> Any:
        return self._data[key]

    def __delitem__(self, key: Any) -> None:
        del self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def follow_replicas(scheduler: Any, arrived: Callable[[str, Iterable[Any]], None]) -> Callable[[], None]:
    """``arrived(address, keys)`` is called when a worker has fetched results of others; Dask tells no plugin.
    Gives a function that ends this."""
    theirs, is_on = scheduler.stream_handlers["add-keys"], True

    def handler(worker: str, keys: Collection[Any] = (), **rest: Any) -> Any:
        answer = theirs(worker=worker, keys=keys, **rest)
        if is_on:
            arrived(worker, keys)
        return answer

    def end() -> None:
        nonlocal is_on
        is_on = False
        put_back()

    put_back = put(scheduler.stream_handlers, "add-keys", handler)
    return end


class ReceivedLog:
    """What a worker has written down anyway of the results that it fetched from others."""

    def __init__(self, worker: Any) -> None:
        self._log = worker.transfer_incoming_log
        self._last: Any = self._log[-1] if self._log else None

    def read(self) -> dict[str, int]:
        """Bytes by the address of who had them, since the last call."""
        found: dict[str, int] = {}
        for one in reversed(self._log):
            if one is self._last:
                break
            found[one["who"]] = found.get(one["who"], 0) + one["total"]
        self._last = self._log[-1] if self._log else None
        return found


def memory_of(scheduler: Any, address: str, at_worst: bool = False) -> tuple[int, int]:
    """A worker's memory limit (0 for none) and what of it is in use, in bytes; ``at_worst``: if all its
    results have come since its process was measured."""
    worker = scheduler.workers[address]
    memory, said = worker.memory, worker.metrics
    held = worker.nbytes - memory.spilled
    if at_worst:
        return worker.memory_limit, memory.process + held
    # The process was measured some time before the last heartbeat; results may have come since. What it
    # needs beside them is what it said then: Dask's own figure takes later results off what was measured
    # before.
    on_disk = said.get("spilled_bytes", {}).get("memory", 0)
    beside = said.get("memory", 0) - (said.get("managed_bytes", 0) - on_disk)
    return worker.memory_limit, max(memory.process, held + max(beside, memory.unmanaged_old))


_EACH = 30e-6  # seconds that Dask takes to enter a result, however small


def seconds_to_move(scheduler: Any, address: str) -> float:
    """How long it takes to bring elsewhere what a worker holds, by the bandwidth that Dask has measured."""
    worker = scheduler.workers[address]
    return float(worker.nbytes / scheduler.bandwidth + len(worker.has_what) * _EACH)


def measured_at(scheduler: Any, address: str) -> float:
    """When a worker's process was measured, by the scheduler's clock; what we know came with a later
    heartbeat."""
    worker = scheduler.workers.get(address)
    return worker.metrics.get("time", 0.0) + worker.time_delay if worker else inf


async def who_holds(client: Any, keys: Iterable[Hashable]) -> Mapping[Hashable, Sequence[str]]:
    """The addresses that hold these results. As ``Client.who_has``, which refuses futures that are lost."""
    found: Mapping[Hashable, Sequence[str]] = await client.scheduler.who_has(keys=list(keys))
    return found


async def settled(futures: Iterable[Any], seconds: float) -> bool:
    """Wait until these futures are no longer pending, so long at most; whether that is so. As
    ``distributed.wait``, which asks for the default client."""
    try:
        await _wait(list(futures), timeout=seconds)
    except TimeoutError:
        return False
    return True


def spare_copies(scheduler: Any, is_spared: Callable[[Hashable], bool]) -> Callable[[], None]:
    """Dask's ReduceReplicas drops no copies of these keys. Gives a function that ends this.

    Dask has no word yet for how many copies are wanted. Policies that somebody adds later are not asked.
    """
    manager = scheduler.extensions.get("amm")
    policies = (
        [policy for policy in manager.policies if isinstance(policy, ReduceReplicas)] if manager else []
    )

    def sparing(theirs: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
        # ReduceReplicas does not look at the answers to what it suggests.
        return lambda: (one for one in theirs() if not is_spared(one.ts.key))

    for policy in policies:
        policy.run = sparing(policy.run)

    def end() -> None:
        for policy in policies:
            vars(policy).pop("run", None)

    return end


class SparedCopies(SchedulerPlugin):
    """Results of which several copies are wanted: Dask's ReduceReplicas leaves those alone. One for a
    scheduler, from the first such result until none is left.
    """

    name = "dask-hpc-spared-copies"

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._keys: set[Hashable] = set()
        self._end_sparing = spare_copies(scheduler, self._keys.__contains__)
        scheduler.add_plugin(self)

    @classmethod
    def of(cls, scheduler: Any) -> "SparedCopies | None":
        """Those of this scheduler, if there are any."""
        found: SparedCopies | None = scheduler.plugins.get(cls.name)
        return found

    @classmethod
    def spare(cls, scheduler: Any, keys: Iterable[Hashable]) -> None:
        """All copies of these results stay, until somebody gives them up or they are forgotten."""
        if keys := set(keys):
            (cls.of(scheduler) or cls(scheduler))._keys.update(keys)

    @classmethod
    def give_up(cls, scheduler: Any, keys: Iterable[Hashable]) -> None:
        """One copy of each of these is enough."""
        if found := cls.of(scheduler):
            found._keys.difference_update(keys)
            found._end_if_empty()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task changed its state: what is forgotten has no copies."""
        if finish == "forgotten" and key in self._keys:
            self._keys.discard(key)
            if not self._keys:  # not in the middle of a transition
                self._scheduler.loop.add_callback(self._end_if_empty)

    def _end_if_empty(self) -> None:
        if not self._keys and self._scheduler.plugins.get(self.name) is self:
            self._end_sparing()
            self._scheduler.remove_plugin(self.name)


def futures_for(client: Any, keys: Iterable[Hashable]) -> dict[Hashable, Future]:
    """Results that the scheduler has, as this client's own."""
    found = {key: Future(key, client) for key in keys}
    client._send_to_scheduler({"op": "client-desires-keys", "keys": list(found), "client": client.id})
    return found


def pin(scheduler: Any, keys: Iterable[Any], owner: str) -> None:
    """Let Dask keep these results for this owner."""
    scheduler.client_desires_keys(keys=list(keys), client=owner)


def unpin(scheduler: Any, keys: Iterable[Any], owner: str) -> None:
    """They need not be kept for it any longer."""
    if owner in scheduler.clients:
        scheduler.client_releases_keys(keys=list(keys), client=owner, stimulus_id="hpc-unpin")


def unpin_all_of(scheduler: Any, beginning: str) -> None:
    """All owners whose names begin so are gone."""
    for owner in [name for name in scheduler.clients if name.startswith(beginning)]:
        unpin_all(scheduler, owner)


def unpin_all(scheduler: Any, owner: str) -> None:
    """The owner is gone."""
    client = scheduler.clients.get(owner)
    if client is not None:
        unpin(scheduler, [task.key for task in client.wants_what], owner)
        scheduler.clients.pop(owner, None)
