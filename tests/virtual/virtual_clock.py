"""A loop on which waiting costs nothing, and the clocks and ids of everybody who runs on it.

When nothing is ready, time jumps to the next timer. There are no threads, no sockets and no signals: if there
is no timer either, nothing will ever happen again, and that is an error. What a task does in a thread
elsewhere is done here at once, and what it gave arrives after the seconds it said it sleeps. If it waits for
the loop (Dask's ``sync``), it stands still until that is done: each such thread is a greenlet.

Everything that belongs to one process of a real cluster runs in a context that names it (``PROCESS``). So a
process can be killed: nothing of it happens any more, not even what its code would do to clean up.
"""

import asyncio
import contextlib
import itertools
import random
import secrets
import selectors
import sys
import threading
import time
import uuid
from contextvars import ContextVar, copy_context

from distributed.utils import sync as _real_sync
from distributed.worker import thread_state
from greenlet import GreenletExit, getcurrent, greenlet

#: of which process of the cluster the code that runs is a part
PROCESS = ContextVar("process", default="main")

START = 1.7e9  # seconds since 1970, when a run begins
_IDLE_TURNS = 100_000  # turns of a loop without a moment passing: somebody waits for himself
#: modules of these packages take their time from the loop
_PACKAGES = ("dask", "distributed", "tornado", "zict", "chaos", "test_", "virtual_")


class NothingHappens(Exception):
    """Nobody waits for a moment, so the loop would wait for ever; or time stands still; or it is over."""


class _NoFiles(selectors.SelectSelector):
    """Asks the loop what comes next, instead of the system."""

    def __init__(self):
        super().__init__()
        self.jump = None

    def select(self, timeout=None):
        self.jump(timeout)
        return []


class _Task(asyncio.Task):
    """A task whose place in a set does not depend on where in memory it is."""

    def __init__(self, coro, *, loop, context=None, **kwargs):
        self.number = next(loop.numbers)
        self.process = PROCESS.get() if context is None else context.get(PROCESS, "main")
        super().__init__(coro, loop=loop, context=context, **kwargs)

    def __hash__(self):
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """``until``: the virtual second in which a run that is not over has failed."""

    def __init__(self, until=3600.0):
        self._now = 0.0
        self._until = until
        self._idle = 0
        self.numbers = itertools.count()
        self.dead = set()
        self._remains = []
        #: virtual threads that stand still
        self.still = {}
        selector = _NoFiles()
        selector.jump = self._jump
        super().__init__(selector)
        self.set_task_factory(lambda loop, coro, **kwargs: _Task(coro, loop=loop, **kwargs))

    def time(self):
        return self._now

    def _jump(self, timeout):
        if timeout == 0:
            self._idle += 1
            if self._idle > _IDLE_TURNS:
                raise NothingHappens(f"time stands still at {self._now:.3f} s")
            return
        self._idle = 0
        if timeout is None:
            raise NothingHappens(f"nothing will happen any more after {self._now:.3f} s")
        self._now = max(self._now, self._scheduled[0].when())
        if self._now > self._until:
            raise NothingHappens(f"not over after {self._until:g} s")

    def pass_time(self, seconds):
        """Somebody blocks the loop for so long."""
        self._now += seconds

    def _write_to_self(self):
        """Nobody sleeps who would have to be woken."""

    def call_soon(self, callback, *args, context=None):
        return self._unless_dead(super().call_soon(callback, *args, context=context))

    def call_soon_threadsafe(self, callback, *args, context=None):
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        return self._unless_dead(super().call_at(when, callback, *args, context=context))

    def _unless_dead(self, handle):
        if self.dead and handle._context.get(PROCESS, "main") in self.dead:
            handle.cancel()
        return handle

    def kill(self, process):
        """Nothing of this process happens any more."""
        self.dead.add(process)
        for handle in [*self._ready, *self._scheduled]:
            if handle._context.get(PROCESS, "main") == process:
                handle.cancel()
        gone = sorted(
            (task for task in asyncio.all_tasks(self) if task.process == process),
            key=lambda task: task.number,
        )
        for task in gone:
            task._log_destroy_pending = False
        self._remains += gone  # or their code would clean up when they are collected

    def bury(self):
        """Let go of what killed processes left; their code does not run, but for what threads of theirs that
        stand still do at their end: they would keep all they know for ever."""
        for thread in list(self.still):
            thread.end()
        self._remains.clear()

    def run_in_executor(self, executor, function, *args):
        """Done at once, and known after as long as it says it sleeps."""
        future = self.create_future()
        is_virtual = isinstance(executor, VirtualThreadPoolExecutor)

        def deliver(value, error):
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def ended(thread, value, error):
            if is_virtual:
                executor.busy_until = max(executor.busy_until, self._now + thread.ahead)
            self.call_later(thread.ahead, deliver, value, error)

        _VirtualThread(self, executor.slowness if is_virtual else 1.0, (function, *args), ended).go_on()
        return future


class _VirtualThread:
    """A call off the loop. ``ahead`` are the seconds that it has slept since it last stood still, each
    ``slowness`` times as long as it said; ``ended`` hears what it gave or raised."""

    def __init__(self, loop, slowness, call, ended):
        self.ahead, self.slowness = 0.0, slowness
        self._loop, self._call, self._ended = loop, call, ended
        self._knows, self._is_over = {}, False
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = copy_context()

    def _run(self):
        function, *args = self._call
        value = error = None
        try:
            value = function(*args)
        except BaseException as raised:
            error = raised
        if not self._is_over:
            self._ended(self, value, error)

    def go_on(self):
        """Until it ends, or waits for the loop."""
        self._switch()

    def end(self):
        """Its process was killed."""
        self._is_over = True
        self._switch(GreenletExit)

    def _switch(self, error=None):
        self._loop.still.pop(self, None)
        before, _VIRTUAL.running = _VIRTUAL.running, self
        known = vars(thread_state)  # what Dask knows of a thread: the task that runs there
        of_this_thread = dict(known)
        known.clear()
        known.update(self._knows)
        self._greenlet.parent = getcurrent()
        try:
            self._greenlet.switch() if error is None else self._greenlet.throw(error)
        finally:
            _VIRTUAL.running = before
            self._knows = dict(known)
            known.clear()
            known.update(of_this_thread)

    def wait_for(self, work):
        """What a coroutine function gives, which begins when this has slept."""
        if self._is_over:
            raise GreenletExit

        async def late():
            await asyncio.sleep(self.ahead)
            self.ahead = 0.0
            return await work()

        task = self._loop.create_task(late())
        task.add_done_callback(lambda task: self.go_on())
        self._loop.still[self] = None
        self._greenlet.parent.switch()
        return task.result()


class VirtualThreadPoolExecutor:
    """What a worker has instead of threads: see ``VirtualLoop.run_in_executor``. Dask looks at the name."""

    def __init__(self, nthreads, loop):
        self._max_workers = nthreads
        self.slowness = 1.0
        self.busy_until = 0.0
        self._loop = loop

    def shutdown(self, wait=True, **kwargs):
        """Dask calls this in a thread, which lasts until what runs is done."""
        if wait:
            time.sleep(max(0.0, self.busy_until - self._loop.time()))


class _Virtual:
    """Whose clock is in force: the functions below ask it."""

    def __init__(self):
        self.loop = None
        self.thread = None
        self.seed = 0
        #: by module: where its ids come from
        self.ids = {}
        #: the virtual thread whose function runs, if one does
        self.running = None

    def is_here(self):
        return self.loop is not None and threading.get_ident() == self.thread

    def now(self):
        return self.loop.time() + (0.0 if self.running is None else self.running.ahead)

    def sleep(self, seconds):
        if self.running is None:
            self.loop.pass_time(seconds)
        else:
            self.running.ahead += seconds * self.running.slowness


_VIRTUAL = _Virtual()
_REAL = {
    name: getattr(time, name)
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "sleep", "time_ns")
}
_REAL_UUID4, _REAL_UUID1, _REAL_BYTES = uuid.uuid4, uuid.uuid1, secrets.token_bytes
_REAL_HEX, _REAL_URLSAFE = secrets.token_hex, secrets.token_urlsafe


# These are functions of a module, so that what is pickled with them finds them again.


def virtual_time():
    return START + _VIRTUAL.now() if _VIRTUAL.is_here() else _REAL["time"]()


def virtual_time_ns():
    return int(virtual_time() * 1e9) if _VIRTUAL.is_here() else _REAL["time_ns"]()


def virtual_monotonic():
    return _VIRTUAL.now() if _VIRTUAL.is_here() else _REAL["monotonic"]()


def virtual_perf_counter():
    return _VIRTUAL.now() if _VIRTUAL.is_here() else _REAL["perf_counter"]()


def virtual_process_time():
    """Whoever sleeps does not work."""
    return 0.0 if _VIRTUAL.is_here() else _REAL["process_time"]()


def virtual_thread_time():
    return 0.0 if _VIRTUAL.is_here() else _REAL["thread_time"]()


def virtual_sleep(seconds):
    if _VIRTUAL.is_here():
        _VIRTUAL.sleep(seconds)
    else:
        _REAL["sleep"](seconds)


def virtual_sync(loop, function, *args, callback_timeout=None, **kwargs):
    if not _VIRTUAL.is_here() or _VIRTUAL.running is None:
        return _real_sync(loop, function, *args, callback_timeout=callback_timeout, **kwargs)

    async def work():
        return await asyncio.wait_for(function(*args, **kwargs), callback_timeout)

    return _VIRTUAL.running.wait_for(work)


def _ids():
    """For the module that asks: what one of them keeps from an earlier run does not change the others'."""
    name = sys._getframe(2).f_globals["__name__"]
    found = _VIRTUAL.ids.get(name)
    if found is None:
        found = _VIRTUAL.ids[name] = random.Random(f"{_VIRTUAL.seed} {name}")
    return found


def seeded_uuid4():
    if not _VIRTUAL.is_here():
        return _REAL_UUID4()
    return uuid.UUID(int=_ids().getrandbits(128), version=4)


def seeded_uuid1(node=None, clock_seq=None):
    if not _VIRTUAL.is_here():
        return _REAL_UUID1(node, clock_seq)
    return uuid.UUID(int=_ids().getrandbits(128), version=1)


def seeded_bytes(nbytes=None):
    return _ids().randbytes(nbytes or 32) if _VIRTUAL.is_here() else _REAL_BYTES(nbytes)


def seeded_hex(nbytes=None):
    return _ids().randbytes(nbytes or 32).hex() if _VIRTUAL.is_here() else _REAL_HEX(nbytes)


def seeded_urlsafe(nbytes=None):
    return _ids().randbytes(nbytes or 32).hex() if _VIRTUAL.is_here() else _REAL_URLSAFE(nbytes)


_REPLACED = {
    _REAL["time"]: virtual_time,
    _REAL["time_ns"]: virtual_time_ns,
    _REAL["monotonic"]: virtual_monotonic,
    _REAL["perf_counter"]: virtual_perf_counter,
    _REAL["process_time"]: virtual_process_time,
    _REAL["thread_time"]: virtual_thread_time,
    _REAL["sleep"]: virtual_sleep,
    _real_sync: virtual_sync,
    _REAL_UUID4: seeded_uuid4,
    _REAL_UUID1: seeded_uuid1,
    _REAL_BYTES: seeded_bytes,
    _REAL_HEX: seeded_hex,
    _REAL_URLSAFE: seeded_urlsafe,
}


def _replace(table):
    """In all modules that took one of these functions, also as the default of an argument."""
    by_id = {id(old): new for old, new in table.items()}
    here = sys.modules[__name__]
    for module in [time, uuid, secrets, *list(sys.modules.values())]:
        name = getattr(module, "__name__", None) or ""
        is_ours = name in ("time", "uuid", "secrets", "__main__") or name.startswith(_PACKAGES)
        if module is here or not is_ours or not hasattr(module, "__dict__"):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in by_id:
                setattr(module, attribute, by_id[id(value)])
    from distributed import metrics  # its meters take a clock by default, which they have bound

    for function in (metrics.meter.__wrapped__, metrics.DelayedMetricsLedger.__init__):
        function.__defaults__ = tuple(by_id.get(id(value), value) for value in function.__defaults__)


@contextlib.contextmanager
def virtual_clocks():
    """Everybody asks the clocks of the loop that runs in ``in_virtual_time``, if one does."""
    _replace(_REPLACED)
    try:
        yield
    finally:
        _replace({new: old for old, new in _REPLACED.items()})  # also in modules that came meanwhile


@contextlib.contextmanager
def in_virtual_time(loop, seed):
    """In this thread, time is that of the loop, and ids and random numbers are those of the seed."""
    before = random.getstate()
    random.seed(seed)
    _VIRTUAL.loop, _VIRTUAL.thread = loop, threading.get_ident()
    _VIRTUAL.seed, _VIRTUAL.ids = seed, {}
    _VIRTUAL.running = None
    try:
        yield
    finally:
        _VIRTUAL.loop = _VIRTUAL.thread = None
        random.setstate(before)


def context_of(process):
    """Where the code of a process runs."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context
