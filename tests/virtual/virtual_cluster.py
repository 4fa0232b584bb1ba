"""A real Dask scheduler, workers and clients in one process, in virtual time: one seed, one order of events.

    def test_something(virtual_cluster):
        async def main(cluster):
            client = await cluster.client()
            async with await dask_hpc.manage(client) as manager:
                ...
                cluster.kill("w1")

        virtual_cluster(main, seed=7, workers=4)

A task's length is what it sleeps (``time.sleep``), which costs nothing. Two runs of a seed are the same to
the last message if strings hash alike, that is in processes with ``PYTHONHASHSEED=0``: see ``Record``.

A task may also wait for what the loop does (Dask's ``sync``); then it stands still.

What is not there: threads, real files and sockets, the profiler, spilling, pauses for want of memory, the
dashboard; and what Dask has once in a process is one for all, so tasks have no clients of their own.
"""

import asyncio
import contextlib
import gc
import hashlib
import itertools
import logging
import random
import sys
import threading
import traceback
from unittest import mock

import dask
import dask._task_spec
import distributed
import distributed.client
import distributed.core
import distributed.node
import distributed.scheduler
import distributed.shuffle
import distributed.utils_comm
import distributed.worker
import distributed.worker_state_machine
from distributed import Client, Future, Scheduler, Worker
from distributed.active_memory_manager import ActiveMemoryManagerPolicy
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time as now_of_dask
from virtual_clock import (
    NothingHappens,
    VirtualLoop,
    VirtualThreadPoolExecutor,
    context_of,
    in_virtual_time,
    virtual_clocks,
)
from virtual_network import Network, virtual_network

_CONFIG = {
    "distributed.comm.offload": False,
    "distributed.admin.event-loop": "asyncio",
    "distributed.admin.tick.interval": "1 h",  # how busy the loop is: it is not
    "distributed.admin.tick.cycle": "1 h",
    "distributed.admin.system-monitor.interval": "1 h",
    "distributed.client.scheduler-info-interval": "1 h",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.use-file-locking": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.allowed-failures": 100,
}
_MEMORY = 2**30  # bytes of a worker
_HEARTBEAT = 2.0  # seconds, as of a larger cluster: heartbeats are most of the messages otherwise
_CLOSE = 60.0  # virtual seconds that closing everything may take
#: of our package: they call one function that may block, and end
_SHORT_THREADS = ("dask-hpc-store",)


class Record(SchedulerPlugin):
    """All that happens to tasks and workers, and when, as one sum; the newest of it in words."""

    name = "record"

    def __init__(self, loop, scheduler):
        self._loop, self._scheduler = loop, scheduler
        self._sum = hashlib.md5()
        self.count = 0
        self.rows = []

    def _add(self, *row):
        self.count += 1
        line = f"{self._loop.time():.9f} " + " ".join(map(str, row))
        self._sum.update(line.encode())
        self.rows.append(line)

    def transition(self, key, start, finish, *args, worker=None, stimulus_id="", **kwargs):
        self._add(key, start, finish, worker, stimulus_id)

    def add_worker(self, scheduler, worker):
        self._add("worker", worker)

    def remove_worker(self, scheduler, worker, **kwargs):
        self._add("no worker", worker)

    def digest(self, *more):
        """The sum, together with what else should be equal."""
        whole = self._sum.copy()
        whole.update(repr(more).encode())
        return whole.hexdigest()


class _OneThread(dict):
    """Which task each thread runs: all of them have one thread, while some of them stand still."""

    def __delitem__(self, thread):
        self.pop(thread, None)


class VirtualCluster:
    """``workers`` are those that live, by name; each is a process of its own, and so are the clients."""

    def __init__(self, loop, network, seed):
        self.loop, self.network, self.seed = loop, network, seed
        self.random = random.Random(f"cluster {seed}")
        self.workers = {}
        self.clients = {}
        self._started = 0

    def time(self):
        """Virtual seconds since the run began."""
        return self.loop.time()

    async def start(self, workers, nthreads):
        """Called once, before anything else."""

        async def make():
            return await Scheduler(port=0, protocol="inproc", dashboard=False, dashboard_address=":0")

        self.scheduler = await self.within("scheduler", make())
        self.record = Record(self.loop, self.scheduler)
        self.scheduler.add_plugin(self.record, name="record")
        for _ in range(workers):
            await self.add_worker(nthreads)

    def within(self, process, work):
        """This coroutine as a part of a process: it dies with it."""
        return self.loop.create_task(work, context=context_of(process))

    async def add_worker(self, nthreads=1, name=None):
        """One more joins. Answers its name."""
        if name is None:
            name, self._started = f"w{self._started}", self._started + 1

        async def make():
            executor = VirtualThreadPoolExecutor(nthreads, self.loop)
            return await Worker(
                self.scheduler.address,
                nthreads=nthreads,
                name=name,
                executor=dict.fromkeys(("default", "actor", "offload"), executor),
                memory_limit=_MEMORY,
                heartbeat_interval=_HEARTBEAT * 1000,
                protocol="inproc",
                dashboard=False,
            )

        self.workers[name] = worker = await self.within(name, make())
        worker.active_threads = _OneThread()
        return name

    async def client(self, name=None):
        """One more connects."""
        name = f"client{len(self.clients)}" if name is None else name

        async def make():
            client = Client(self.scheduler.address, asynchronous=True, set_as_default=False, name=name)
            return await client

        client = self.clients[name] = await self.within(name, make())
        return client

    # what may happen to a worker

    def kill(self, name):
        """It is gone, and says nothing. A client's name will do as well."""
        self.workers.pop(name, None)
        if client := self.clients.pop(name, None):
            client.status = "closed"  # or it would close itself when it is collected
        self.loop.kill(name)
        self.network.kill(name)

    async def close_worker(self, name, *, is_graceful=False, **kwargs):
        """It is told to end, as by its command line: at once, or after it has handed over what it has."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            close = worker.close_gracefully if is_graceful else worker.close
            await self.within(name, close(**kwargs))

    def slow_down(self, name, factor):
        """What it starts from now on takes so much longer; 1 is as before."""
        self.workers[name].executors["default"].slowness = factor

    def delay(self, name, seconds):
        """Messages to and from it take up to so much longer; 0 is as before."""
        if seconds:
            self.network.late[name] = seconds
        else:
            self.network.late.pop(name, None)

    def forget_closed(self):
        """Of workers that closed by themselves, or were told to by the scheduler."""
        for name, worker in list(self.workers.items()):
            if worker.status.name in ("closing", "closed", "failed"):
                del self.workers[name]

    async def close(self):
        """End all of it in order."""
        for name, client in list(self.clients.items()):
            await self.within(name, client.close())
        for name, worker in list(self.workers.items()):
            await self.within(name, worker.close(executor_wait=False))
        await self.within("scheduler", self.scheduler.close())


class _Monitor:
    """What a server knows of its machine: always the same."""

    gpu_name = None
    count = 1

    def __init__(self, **kwargs):
        self.last_time = 0.0

    def recent(self):
        return {
            "cpu": 0.0, "memory": 2**26, "time": now_of_dask(), "host_net_io.read_bps": 0.0,
            "host_net_io.write_bps": 0.0, "host_disk_io.read_bps": 0.0, "host_disk_io.write_bps": 0.0,
            "num_fds": 10,
        }  # fmt: skip

    update = recent

    def range_query(self, start=0):
        return {}

    def get_process_memory(self):
        return 2**26

    def close(self):
        pass


class _NoDirectory:
    """Of a worker that writes nothing."""

    base_dir = dir_path = "virtual-directory"

    def __init__(self, *args, **kwargs):
        pass

    def new_work_dir(self, **kwargs):
        return self

    def release(self):
        pass


def _no_http_server(node, routes, dashboard_address, **kwargs):
    node.http_application = mock.Mock(applications=())
    node.http_server = mock.Mock(port=None)


_thread_start = threading.Thread.start


def _start_thread(thread):
    """A thread that only keeps one call off the loop is virtual, too. Others would bring disorder."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if not isinstance(loop, VirtualLoop):
        _thread_start(thread)
    elif thread.name in _SHORT_THREADS:
        loop.run_in_executor(None, thread._target, *thread._args)
    else:
        raise NothingHappens(f"a thread was started: {thread.name}")


@contextlib.contextmanager
def virtual_machine():
    """What all runs have in common. Afterwards everything is as it was before."""
    levels = {
        name: logging.getLogger(name).level for name in ("distributed", "dask_hpc", "asyncio", "tornado")
    }
    patches = (
        mock.patch.object(distributed.core, "SystemMonitor", _Monitor),
        mock.patch.object(distributed.core, "WorkSpace", _NoDirectory),
        mock.patch.object(distributed.node.ServerNode, "start_http_server", _no_http_server),
        mock.patch.object(distributed.worker, "setproctitle", lambda title: None),
        mock.patch.object(distributed.scheduler, "heartbeat_interval", lambda n: _HEARTBEAT),
        # By default by address in memory, and sets of them are iterated.
        mock.patch.object(
            distributed.worker_state_machine.TaskState, "__hash__", lambda self: hash(self.key)
        ),
        mock.patch.object(ActiveMemoryManagerPolicy, "__hash__", lambda self: hash(repr(self))),
        mock.patch.object(threading.Thread, "start", _start_thread),
        # A killed worker would never end it.
        mock.patch.object(distributed.worker, "enable_gc_diagnosis", lambda: None),
        mock.patch.object(distributed.worker, "disable_gc_diagnosis", lambda: None),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(_CONFIG))
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(virtual_clocks())
        for name in levels:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        was_enabled = gc.isenabled()
        gc.disable()  # or what is collected, and when, would depend on what was there before
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def run(main, seed=0, *, workers=4, nthreads=1, latency=0.0005, until=3600.0, config=None):
    """What ``main(cluster)`` gives. Within ``virtual_machine()``."""
    paths, hook = list(sys.path), sys.unraisablehook
    sys.unraisablehook = lambda found: None  # what is left of a run ends without a word
    gc.collect()  # what the run before was still in use for has its end here
    gc.freeze()  # all tests are in memory: to look through them once more would take two seconds
    try:
        with dask.config.set(config or {}):
            return _run(main, seed, workers, nthreads, latency, until)
    except BaseException as error:
        _forget_frames(error)
        raise
    finally:
        distributed.core._expects_comm.cache_clear()  # it keeps whole schedulers
        while gc.collect():  # what is collected may close something, which ends in the next round
            pass
        sys.unraisablehook = hook
        sys.path[:] = paths


def _run(main, seed, workers, nthreads, latency, until):
    loop = VirtualLoop(until)
    network = Network(loop, random.Random(f"network {seed}"), latency)
    with (
        in_virtual_time(loop, seed),
        virtual_network(network),
        _counted_anew(seed),
    ):
        asyncio.set_event_loop(loop)
        cluster = VirtualCluster(loop, network, seed)
        try:
            return loop.run_until_complete(_whole(main, cluster, workers, nthreads))
        finally:
            for name in list(cluster.clients):
                cluster.kill(name)
            _end(loop)


@contextlib.contextmanager
def _counted_anew(seed):
    """What Dask counts for all clusters of a process begins anew."""
    with (
        mock.patch.multiple(Future, _uid=f"uid-{seed}", _counter=itertools.count()),
        mock.patch.object(distributed.client, "_global_client_index", [0]),
        mock.patch.object(distributed.scheduler.TaskState, "_run_id_iterator", itertools.count()),
        mock.patch.object(distributed.utils_comm, "_round_robin_counter", [0]),
        mock.patch.object(dask._task_spec, "_anom_count", itertools.count()),
    ):
        yield


def _forget_frames(error):
    """They hold on to the loop and all that waits on it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


async def _whole(main, cluster, workers, nthreads):
    await cluster.start(workers, nthreads)
    found = await main(cluster)
    async with asyncio.timeout(_CLOSE):
        await cluster.close()
    return found


def _end(loop):
    left = sorted(asyncio.all_tasks(loop), key=lambda task: task.number)
    for task in left:
        task._log_destroy_pending = False
        task.cancel()
    loop.set_exception_handler(lambda loop, context: None)
    with contextlib.suppress(NothingHappens):
        loop.run_until_complete(asyncio.wait(left, timeout=_CLOSE) if left else asyncio.sleep(0))
    loop.bury()
    asyncio.set_event_loop(None)
    loop.close()
