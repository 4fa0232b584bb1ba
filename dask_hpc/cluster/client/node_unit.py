"""One unit of an ``AllocationCluster``: workers on a node, or on a part of one.

It is there at once, waits until a place is free, starts its workers there, and is gone when they end. Then it
stays gone: the cluster object, or whoever adapts it, asks for another one.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic, time

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from dask_hpc.batch.job_state import JobState
from dask_hpc.cluster.client.places import UnitPlace, UnitPlaces
from dask_hpc.cluster.client.steps import StepMaker, StepProcess
from dask_hpc.cluster.worker import until_stdin_ends
from dask_hpc.planning.allocation import AllocatedNode

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0  # seconds until a node that rests is looked at again
_PATIENCE = 30.0  # seconds that workers have to end before they are made to
_FOR_WORKERS = 0.95  # of a node's memory: nannies and, on one node, scheduler and script need some, too


@dataclass(frozen=True, slots=True)
class WorkerWords:
    """The command that starts the workers of a unit, but for where and who."""

    processes: int = 1
    parts: int = 1
    nanny: bool = True
    host: str | None = None
    interface: str | None = None
    local_directory: str | None = None
    python: str = sys.executable
    more: tuple[str, ...] = ()

    def threads(self, node: AllocatedNode) -> int:
        """Of one worker on this node."""
        return max(1, node.cores // (self.parts * self.processes))

    def memory(self, node: AllocatedNode) -> int | None:
        """Bytes of one worker on this node; None if nobody knows how much the node gives us."""
        if node.memory == inf:
            return None
        return int(_FOR_WORKERS * node.memory / (self.parts * self.processes))

    def tied(self, scheduler: str, name: str, node: AllocatedNode) -> list[str]:
        """For this node, of workers that end when their standard input does."""
        preload = ["--preload-nanny" if self.nanny else "--preload", until_stdin_ends.__name__]
        return [*self.command(scheduler, node), "--name", name, *preload]

    def command(self, scheduler: str, node: AllocatedNode) -> list[str]:
        """For a node like this one, but for the name."""
        memory = self.memory(node)
        words = [self.python, "-m", "distributed.cli.dask_worker", scheduler]
        words += ["--nthreads", str(self.threads(node)), "--nworkers", str(self.processes)]
        words += ["--memory-limit", "auto" if memory is None else str(memory), "--death-timeout", "60"]
        words += ["--nanny" if self.nanny else "--no-nanny"]
        words += ["--host", self.host] if self.host else []
        words += ["--interface", self.interface] if self.interface else []
        words += ["--local-directory", self.local_directory] if self.local_directory else []
        return [*words, *self.more]


@dataclass
class AllocationDesk:
    """What the units of one cluster object share: the account of places, how workers are started."""

    steps: StepMaker
    places: UnitPlaces
    words: WorkerWords
    #: variables that workers get beyond those of this program
    variables: dict[str, str]
    logs: Path
    #: called when a unit has ended and its cluster object did not ask for it: who, and why
    when_gone: Callable[["NodeUnit", str], None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self) -> None:
        """A place may be free now."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    async def place(self, who: str) -> UnitPlace:
        """A place for this unit, as soon as there is one."""
        while (place := self.places.take(who, monotonic())) is None:
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([changed], timeout=_LOOK_AGAIN)
            changed.cancel()
        return place

    async def start(self, scheduler: str, who: str, place: UnitPlace) -> StepProcess:
        """Start the workers of a unit."""
        command = self.words.tied(scheduler, who, place.node)
        words: Sequence[str] = self.steps.words(place.node, command)
        return await StepProcess.start(
            words, self.steps.environment() | self.variables, self.logs / f"{who}.log"
        )

    def give(self, who: str) -> None:
        """This unit has left its place."""
        self.places.give(who)
        self.changed()

    async def ended(self, place: UnitPlace, lived: float, why: str) -> None:
        """A unit ended unasked: what of its node?"""
        name = place.node.name
        if lost := await self.steps.why_lost(place.node):
            told = self.places.lose(name, lost)
        else:
            told = self.places.ended(name, lived, monotonic(), why)
        if told:
            logger.warning("dask-hpc: %s", told)


class NodeUnit(ProcessInterface):
    """Workers on one node, or on a part of it. ``nthreads`` and ``memory_limit`` say what one of them has,
    for those who count in cores or memory."""

    def __init__(
        self,
        scheduler: str,
        name: str,
        desk: AllocationDesk,
        nthreads: int = 1,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.name = name
        self._scheduler = scheduler
        self._desk = desk
        self.status: Status = Status.created
        self._life: asyncio.Task[None] | None = None
        self._began: float | None = None
        self.place: UnitPlace | None = None
        self.step: StepProcess | None = None
        #: why it is gone, if it went by itself
        self.why = ""

    def __repr__(self) -> str:
        where = f" on {self.place.node.name}" if self.place else ""
        return f"<NodeUnit {self.name}{where}: {self.state_now().state}>"

    async def start(self) -> None:
        """Ask for it; it may have to wait for a place."""
        self._life = asyncio.ensure_future(self._live())
        await super().start()

    async def _live(self) -> None:
        desk = self._desk
        try:
            self.place = await desk.place(self.name)
            begun = monotonic()
            try:
                self.step = await desk.start(self._scheduler, self.name, self.place)
                self._began = begun
                self.why = await self.step.wait()
            except OSError as error:  # no srun, no Python, no room for its log
                self.why = f"cannot be started: {error}"
            if self.status == Status.running:
                await desk.ended(self.place, monotonic() - begun, self.why)
        finally:
            desk.give(self.name)
        if self.status == Status.running:
            await super().close()
            desk.when_gone(self, self.why)

    async def close(self) -> None:
        """End its workers, and give its place back."""
        if self.status not in (Status.closing, Status.closed):
            self.status = Status.closing
            if self.step is not None:
                await self.step.end(_PATIENCE)
            if self._life is not None:
                if self.step is None:
                    self._life.cancel()
                await asyncio.wait([self._life])
            await super().close()
            self._desk.when_gone(self, "its workers were away for too long")
        await self.finished()

    def state_now(self) -> JobState:
        """What can be said of it without asking anybody."""
        if self.status in (Status.closing, Status.closed, Status.failed):
            return JobState("gone", self.why)
        if self._began is None:
            return JobState("queued", self._desk.places.why_none(monotonic()) if not self.place else "")
        left = self._desk.steps.allocation.end - time()
        return JobState("running", "", monotonic() - self._began, left)
