"""How a program hears that the nodes of its job change, and adapts itself: ``dask_hpc.job(on_resize=...)``.

The scheduler opens a window (``cluster.scheduler.window``) and says so to the client in which the job was
entered. There, in this order: the values of the job follow (``job.values``), its arrays are laid out on the
nodes that it has then, and ``on_resize`` is called, in a thread of its own (a coroutine function on the
client's event loop). Then the scheduler hears that the program is done. Changes of one job come one after the
other, however long each takes.

Failure conditions:

1. ``on_resize`` raises: the error is logged here and told in the story, and the change goes on.
2. It takes longer than the window, or for ever: the change goes on without it; what comes next waits in
   line here, but not on the scheduler for longer than its own window.
3. An array cannot be laid out, or not in half of the window: it stays where it is, that is told, and Dask or
   the hand-over moves what has to move. ``on_resize`` has the other half.
4. The client dies: the scheduler waits for nobody.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from inspect import iscoroutinefunction
from threading import Thread
from time import monotonic
from typing import Any

from distributed import Client

from dask_hpc.cluster.client.values import JobValues
from dask_hpc.cluster.request import ask, window_topic
from dask_hpc.model.adaptation import Adaptation
from dask_hpc.model.errors import one_line

logger = logging.getLogger(__name__)

OnChange = Callable[[Adaptation], object]
_FOR_DATA = 0.5  # of a window at most


@dataclass
class JobProgram:
    """The program of one job, as far as it has to hear of changes."""

    client: Client
    job_id: str
    on_resize: OnChange | None
    values: JobValues
    #: in which what it does belongs to the job
    variables: Context
    #: so long a change waits for it; None: ``hpc.drain``
    seconds: float | None = None
    _last: "asyncio.Task[None] | None" = None

    async def listen(self) -> None:
        """From now on it hears of changes, if somebody manages this cluster."""
        Adaptations.of(self.client).add(self)
        given = {"id": self.job_id, "listener": self.client.id, "seconds": self.seconds}
        try:
            await ask(self.client, "hpc_listen", **given)
        except Exception as error:  # plain Dask, a client that closes: nobody tells of changes
            logger.info("dask-hpc: job %s hears of no changes: %s", self.job_id, error)

    def hear(self, message: Mapping[str, Any]) -> None:
        """Called on the event loop, for each change."""
        until = monotonic() + message["seconds"]
        self._last = asyncio.ensure_future(self._adapt(self._last, message, until))

    async def _adapt(
        self, before: "asyncio.Task[None] | None", message: Mapping[str, Any], until: float
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        staying, leaving, joining = (_workers(message[one]) for one in ("staying", "leaving", "joining"))
        change = Adaptation(staying, leaving, joining, until)
        problems: list[str] = []
        placed: list[str] = []
        try:
            if self.values:
                problems += await self._beside(self.values.follow, change)
                problems += await self._lay_out(change, placed)
            if self.on_resize is not None:
                await self._call(self.on_resize, change)
        except BaseException as error:
            logger.error("dask-hpc: on_resize of job %s", self.job_id, exc_info=error)
            problems.append(f"on_resize raised {type(error).__name__}: {error}")
            if isinstance(error, asyncio.CancelledError):  # the client closes
                raise
        given = {"id": self.job_id, "number": message["number"], "placed": placed}
        with suppress(Exception):  # else the scheduler finds out by itself
            await ask(self.client, "hpc_adapted", problems=[one_line(one) for one in problems], **given)

    async def _lay_out(self, change: Adaptation, placed: list[str]) -> list[str]:
        # Of what nobody waits for, or comes late, there is no haste.
        left = change.deadline - monotonic()
        seconds = _FOR_DATA * left if left > 0 else None
        work = self.values.lay_out(change, seconds, placed, self.client)
        return await asyncio.get_running_loop().create_task(work, context=self.variables.copy())

    async def _call(self, function: OnChange, change: Adaptation) -> None:
        if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
            work: Any = function(change)
            await asyncio.get_running_loop().create_task(work, context=self.variables.copy())
        else:
            await self._beside(function, change)

    async def _beside(self, function: Callable[[Adaptation], Any], change: Adaptation) -> Any:
        """What it gives, called in a thread that keeps no process from ending."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                settle: Any = (done.set_result, self.variables.copy().run(function, change))
            except BaseException as error:
                settle = (done.set_exception, _for_a_future(error))
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_settle, done, *settle)

        Thread(target=run, name=f"dask-hpc-on-resize-{self.job_id}", daemon=True).start()
        return await done


def _settle(done: "asyncio.Future[Any]", act: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        act(outcome)


def _for_a_future(error: BaseException) -> BaseException:
    """A future does not take this one."""
    return RuntimeError(f"StopIteration: {error}") if isinstance(error, StopIteration) else error


def _workers(found: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(workers) for name, workers in found.items()}


class Adaptations:
    """What one client hears of its jobs' changes. It goes with the client."""

    def __init__(self, client: Client) -> None:
        self._programs: dict[str, JobProgram] = {}
        client.subscribe_topic(window_topic(client.id), self._hear)

    @classmethod
    def of(cls, client: Client) -> "Adaptations":
        """The one of this client."""
        found = vars(client).get("dask_hpc_adaptations")
        if found is None:
            found = vars(client)["dask_hpc_adaptations"] = cls(client)
        return found

    def add(self, program: JobProgram) -> None:
        """One more job."""
        self._programs[program.job_id] = program

    def _hear(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, message = event
        program = self._programs.get(message["job"])
        if program is not None and message.get("over"):
            del self._programs[message["job"]]
        elif program is not None:
            program.hear(message)
