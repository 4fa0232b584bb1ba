"""The worker's half of a farewell: say when this worker will end, and hand over its results before it does.

When Dask's ``teardown`` comes, much is too late already:

1. Without a nanny, ``dask worker`` cuts the connection to the scheduler as soon as SIGTERM arrives, and
   tears down afterwards. The results are lost by then.
2. A batch system that ends a job signals all its processes. Under a nanny the worker's process has no
   handler, and is dead at once.
3. Whoever else closes a worker (its nanny, ``restart_workers``, a cluster object) makes it let go of what
   runs there, which then runs a second time elsewhere.

So in a process that is a worker's own, SIGTERM first starts the farewell; then happens what would have
happened. A second SIGTERM is not waited with. Signals that announce an end or a preemption
(``compat.NOTICES``) do the same; nobody else has handlers for them, and they would end the process at once.
And a worker that is to close says farewell before it begins to, in the time that it is given for closing if
that is less. Its nanny is as patient as both need.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from time import monotonic, time
from typing import Any

import psutil
from distributed import Status, WorkerPlugin

from dask_hpc import dask as compat
from dask_hpc.model.units import show_duration

NAME = "dask-hpc-farewell"
SHARE = 0.8  # of the time between the signal and the worker's death; the rest is for closing
LATE = 0.5  # of the same time, that the answer of a busy scheduler may come late if nobody ends the worker
_ASK_SLURM = 10.0  # seconds that scontrol may take


def patience(seconds: float) -> float:
    """How long whoever closes a worker should wait for it, of which a farewell takes so many seconds."""
    return seconds * (1 + LATE / SHARE)


class FarewellPlugin(WorkerPlugin):
    """Says farewell to the scheduler once, and does what it answers. ``seconds`` is what a worker has
    between the signal and its death; ``store`` is where results go that nobody else can take; with
    ``says_where`` it says on which host of which part of the machine it is.
    """

    name = NAME

    def __init__(self, seconds: float, store: Any = None, says_where: bool = False) -> None:
        self._seconds = seconds
        self._store = store
        self._says_where = says_where
        self._farewell: asyncio.Task[None] | None = None
        self._saying: asyncio.Task[None] | None = None
        self._chained: Any = None
        self._heed_no_notices: Callable[[], None] = lambda: None

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._closing = compat.Closing(worker, self._say_farewell)
        before = signal.getsignal(signal.SIGTERM)
        # Dask's own command line has a handler for SIGTERM; a nanny's child has none.
        is_command = compat.is_worker_command(before)
        is_child = bool(worker.nanny) and before is signal.SIG_DFL
        is_alone = threading.current_thread() is threading.main_thread() and (is_command or is_child)
        if is_alone:
            self._chained = before
            signal.signal(signal.SIGTERM, self._on_signal)
            self._heed_no_notices = compat.heed_notices(self._on_notice)
        lived = time() - psutil.Process().create_time() if is_alone else 0.0
        self._saying = asyncio.ensure_future(self._say_when_it_ends(lived))

    async def teardown(self, worker: Any) -> None:
        """The worker closes, or this plugin is removed."""
        if self._saying is not None:
            self._saying.cancel()
        self._closing.stop()
        if worker.status == Status.closing and self._farewell is None and not self._closing.is_over:
            await self._say_farewell("", self._seconds)
        if self._chained is not None and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._chained)
            self._heed_no_notices()

    # SIGTERM

    def _on_signal(self, signum: int, frame: Any) -> None:
        # Nothing is logged or awaited in a signal's handler. The next signal finds the old handler.
        signal.signal(signum, self._chained)
        self._loop.call_soon_threadsafe(self._start_leaving, signum)

    def _on_notice(self, signum: int, frame: Any) -> None:
        signal.signal(signum, signal.SIG_IGN)  # once is enough, and SIGTERM may follow
        self._loop.call_soon_threadsafe(self._start_leaving, signum)

    def _start_leaving(self, signum: int) -> None:
        self._leaving = asyncio.ensure_future(self._leave(signum))

    async def _leave(self, signum: int) -> None:
        worker, reason = self._worker, f"signal-{signum}"
        if not callable(self._chained):
            await worker.close(
                nanny=False, executor_wait=False, timeout=patience(self._seconds), reason=reason
            )
            return
        try:
            await self._say_farewell(reason, patience(self._seconds))
        finally:
            self._chained(signal.SIGTERM, None)

    # the farewell

    async def _say_farewell(self, reason: str, seconds: float) -> None:
        """Once, whoever asks for it; each waits in his own time. Its errors must not keep the worker from
        closing."""
        if self._farewell is None:
            self._until = monotonic() + SHARE * min(seconds, self._seconds)
            self._farewell = asyncio.ensure_future(self._hand_over(reason))
            self._farewell.add_done_callback(_looked_at)
        await asyncio.wait([self._farewell], timeout=SHARE * seconds)

    async def _hand_over(self, reason: str) -> None:
        stored: list[Any] = []
        problem = ""
        while True:
            left = max(0.0, self._until - monotonic())
            call = self._worker.scheduler.hpc_farewell(
                address=self._worker.address, reason=reason, seconds=left, stored=stored, problem=problem
            )
            answer = await asyncio.wait_for(call, left + LATE * self._seconds)
            keys = answer["store"] if answer else ()
            if not keys:
                return
            stored, problem = await self._write(keys, self._until)

    async def _write(self, keys: Any, deadline: float) -> tuple[list[Any], str]:
        """Write results to the store, in this order, off the event loop. Gives the keys of those that are
        there before the time is over, and what went wrong."""
        stored: list[Any] = []
        try:
            for key in keys:
                if key in self._worker.data:
                    writing = in_thread(self._store.write, key, self._worker.data[key])
                    await asyncio.wait_for(writing, deadline - monotonic())
                    stored.append(key)
        except TimeoutError:
            return stored, "no time left"
        except Exception as error:
            return stored, str(error) or type(error).__name__
        return stored, ""

    # when it ends

    async def _say_when_it_ends(self, lived: float) -> None:
        left = [self._worker.lifetime - lived] if self._worker.lifetime else []
        if (end := await asyncio.to_thread(end_of_slurm_job)) is not None:
            left.append(end - time())
        address = self._worker.address
        if self._says_where:
            switches = os.environ.get("SLURM_TOPOLOGY_ADDR", "")  # from the root down to the host itself
            await self._worker.scheduler.hpc_worker_at(
                address=address, host=socket.gethostname(), place=switches.split(".")[:-1]
            )
        if left:
            await self._worker.scheduler.hpc_worker_ends(address=address, left=min(left))
        grace = await asyncio.to_thread(grace_of_slurm_job)
        if grace is not None and grace < self._seconds:
            words = (
                f"worker {address}: Slurm kills it {show_duration(grace)} after SIGTERM (KillWait), and "
                f"hpc.farewell is {show_duration(self._seconds)}: it hands over what it can by then"
            )
            self._seconds = grace
            await self._worker.scheduler.hpc_told(news=[("warning", words)])


def _looked_at(farewell: "asyncio.Task[None]") -> None:
    """Its error is nobody's, and asyncio would say that it was never retrieved."""
    if not farewell.cancelled():
        farewell.exception()


def in_thread(
    work: Callable[..., Any], *args: Any, late: Callable[[], None] = lambda: None
) -> "asyncio.Future[Any]":
    """Call it in a thread that does not keep the process alive, however long a file system stalls. Gives a
    future of what it answers; ``late`` is called if nobody waits for that any more."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def tell(setter: Any, found: Any) -> None:
        if done.done():
            late()
        else:
            setter(found)

    def run() -> None:
        try:
            setter, found = done.set_result, work(*args)
        except BaseException as error:
            setter, found = done.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, setter, found)

    threading.Thread(target=run, name="dask-hpc-store", daemon=True).start()
    return done


def end_of_slurm_job() -> float | None:
    """When Slurm ends the job that this process belongs to, by the system's clock; None if it belongs to
    none, or nobody knows. Takes a while: Slurm may be asked."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    job = os.environ.get("SLURM_JOB_ID", "")
    if end.isdecimal() or not job:
        return float(end) if end.isdecimal() else None
    words = dict(word.partition("=")[::2] for word in _scontrol("job", "-o", job).split())
    try:
        return datetime.fromisoformat(words["EndTime"]).timestamp()
    except (KeyError, ValueError):
        return None  # no answer, or no end ("Unknown")


def grace_of_slurm_job() -> float | None:
    """Seconds between SIGTERM and SIGKILL where Slurm ends the job that this process belongs to; None if it
    belongs to none, or nobody knows. Takes a while: Slurm is asked."""
    if not os.environ.get("SLURM_JOB_ID"):
        return None
    found = re.search(r"^KillWait\s*=\s*(\d+)", _scontrol("config"), re.MULTILINE)
    return float(found[1]) if found else None


def _scontrol(*what: str) -> str:
    """What Slurm shows of this; nothing if there is no such command, or no answer."""
    try:
        command = ["scontrol", "show", *what]
        return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SLURM).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
