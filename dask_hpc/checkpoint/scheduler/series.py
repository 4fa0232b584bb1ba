"""What is kept under a name again and again: carries out what the states of its versions ask for, has them
copied, and knows when the next is due at which level."""

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.checkpoint.scheduler.agents import Disks
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper, CopyMaker, Made
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.scheduler.schedule import Schedule
from dask_hpc.checkpoint.scheduler.store_writer import StoreWriter
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.versions import Commit
from dask_hpc.checkpoint.version import Changes, KeptVersion, SeriesState
from dask_hpc.checkpoint.worker.rescue import may_be_stored
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.checkpoint.when import Every

_FIRST, _LONGEST = 1.0, 60.0  # seconds until a store that cannot be used is tried again
_SERIALS = count()


class Series(SeriesState):
    """One name's."""

    def __init__(self, context: ControllerContext, name: str, is_eager: bool = False) -> None:
        super().__init__(name, is_eager)
        self._context = context
        self._placement, self._disks = context.get(CopyPlacement), context.get(Disks)
        self._keeper = context.get(CopyKeeper)
        self._writer = context.get(StoreWriter)
        self._serial = next(_SERIALS)
        self.schedule = Schedule((), {}, 0.0, context.failures)
        #: why copies are not on disk
        self.disk_problem = ""
        #: what was last wrong with the store
        self.store_problem = ""
        self._news = asyncio.Event()

    # what follows from events

    def follow(self, changes: Changes) -> None:
        """Do what is to be done about them."""
        for version in changes.held:
            self.pin(version, version.keys.values())
        for version in changes.freed:
            compat.unpin_all(self._context.scheduler, self._owner(version))
        for version in changes.gone:
            self.drop(version)
        if changes.writes:
            self._context.do("a copy", self._write_all())
        self._news.set()

    def pin(self, version: KeptVersion, keys: Iterable[Hashable]) -> None:
        """Let Dask keep these results of a version, as far as they are there."""
        ready = [key for key in keys if holders(self._context, key)]
        compat.pin(self._context.scheduler, ready, self._owner(version))

    def drop(self, version: KeptVersion) -> None:
        """Nobody needs it any longer."""
        if unneeded := self._context.catalogue.release(version):
            self._context.do("a copy", self._context.get(CopyMaker).drop(unneeded))

    def _owner(self, version: KeptVersion) -> str:
        return f"dask-hpc-checkpoint: {self.name} {self._serial} {version.number}"

    async def settled(self, version: KeptVersion) -> None:
        """Until a version is where it was to be, or cannot be."""
        while not version.is_settled:
            self._news.clear()
            await self._news.wait()

    # copies

    def want(self, levels: Sequence[str], every: Every, keys: Iterable[Hashable]) -> None:
        """To these levels, so often; that is what it is about."""
        if (self.schedule.levels, self.schedule.every) != (tuple(levels), every):
            tasks = (compat.find_task(self._context.scheduler, key) for key in keys)
            nbytes = float(sum(compat.size(task) for task in tasks if task is not None))
            self.schedule = Schedule(levels, every, nbytes, self._context.failures)

    async def plan(self) -> None:
        """Anew, if costs, failures or the number of nodes have changed."""
        if (found := await self.schedule.plan(max(1, len(self._context.nodes)))) is not None:
            self._context.tell("interval", f"{self.name}: {found.reason}")

    async def copy(self, keys: list[Hashable], like: Mapping[Hashable, str] | None = None) -> Made:
        """Have copies made of these keys, as far as there are not enough."""
        wanted = ((key, 1 if self.is_eager else self._placement.wanted(key)) for key in keys)
        of = self.target if self.is_eager else self.newest
        its = of.keys.values() if of is not None else ()
        made = await self._keeper.commit(self.name, wanted, its, like, is_for_wishes=not self.is_eager)
        if made.moved:
            self.schedule.measured(PARTNER, made.seconds)
        await self._keeper.set_apart(keys)
        return made

    async def to_disk(self, keys: Sequence[Hashable], called: str) -> bool:
        """Have agents write their copies to disk, too. Whether all are there; what cannot be is told once."""
        found = await self._disks.keep(keys)
        if found.nbytes:
            self.schedule.measured(DISK, found.seconds)
        is_whole = {self._context.catalogue.where(key)[0] for key in keys} <= found.there
        problem = "" if is_whole else found.problem
        if problem and not self.disk_problem:
            self._context.tell("commit", one_line(f"{called}: {problem}"))
        self.disk_problem = problem
        return is_whole

    # the store

    def need(self, version: KeptVersion, contents: Iterable[str]) -> None:
        """A version needs these contents."""
        catalogue = self._context.catalogue
        for content in set(contents):
            nbytes = catalogue.contents[content].nbytes
            version.nbytes += nbytes
            catalogue.need(version, content, nbytes)

    def store(self, version: KeptVersion) -> None:
        """Write it when its turn comes."""
        self.follow(self.write(version))

    async def _write_all(self) -> None:
        """As long as a version waits. If the store cannot be used, people are told once, and the newest is
        tried again, later and later, until it is there."""
        pause = _FIRST
        while (version := self.next_to_write()) is not None:
            known, self.store_problem = self.store_problem, await self._try(version)
            if not self.store_problem:
                if known:
                    self._context.tell(STORE, f"{self.called(version)} is stored: it works again")
                pause = _FIRST
                self.follow(self.written())
                continue
            if not known:
                said = f"{self.called(version)} is not stored: {self.store_problem}"
                self._context.tell(STORE, one_line(said))
            again = self.again(version) if self.to_write is None else None
            self.follow(self.written(self.store_problem, again))
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    async def _try(self, version: KeptVersion) -> str:
        """Write it. What went wrong, if anything."""
        begun = monotonic()
        try:
            manifest = await self._writer.write(version, partial(self.prepare, version))
            self.stored(version, manifest, monotonic() - begun)
        except (OSError, TimeoutError) as error:  # Trouble is one of these
            return one_line(str(getattr(error, "strerror", None) or error or type(error).__name__))
        except Exception as error:
            self._context.count_error("writing a version", error)
            return one_line(f"{type(error).__name__}: {error}")
        return ""

    def called(self, version: KeptVersion) -> str:
        """A version, as in the story."""
        return f"{self.name} at {version.step}"

    def again(self, version: KeptVersion) -> KeptVersion | None:
        """What to write if this could not be written."""
        return version

    def prepare(self, version: KeptVersion, commit: Commit) -> None:
        """It is about to be written."""

    def stored(self, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        """The store has it, so long after its turn came."""

    def plain_plan(self) -> dict[str, Any]:
        """Seconds between commits by level, and why."""
        planned = self.schedule.planned
        return {
            "levels": list(self.schedule.levels),
            "every": None if planned is None else dict(planned.every),
            "why": "" if planned is None else planned.reason,
        }


def to_copy(version: KeptVersion) -> list[Hashable]:
    """Keys that are copied. Parts of a shuffle do more than their results tell: they are never loaded, so
    they are not copied."""
    return [key for key in version.keys.values() if may_be_stored(key)]
