"""What is kept under a name again and again: carries out what the states of its versions ask for, has them
copied, knows when the next is due at which level, and has agents write their blocks to the store.

A block without a copy is written by the worker that has the result. In the whole cluster only so many blocks
are written at a time, and so many bytes per second.
"""

import asyncio
import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Disks
from dask_hpc.checkpoint.scheduler.context import ControllerContext, WorkerCalls, holders
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper, CopyMaker, Made
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.scheduler.powers import powers
from dask_hpc.checkpoint.scheduler.schedule import Aim, Schedule, SeriesFacts
from dask_hpc.checkpoint.store.cells import VALUE, Sampler
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.items import Described
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.checkpoint.store.versions import Commit, Place, abandon, begin, finish
from dask_hpc.checkpoint.version import DISK, PARTNER, STORE, Changes, KeptVersion, SeriesState
from dask_hpc.checkpoint.worker.loaders import may_be_stored
from dask_hpc.cluster.worker.farewell import in_thread
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.checkpoint.when import Every


class Patience:
    """Of one store. Its threads keep neither the process alive nor other work from its threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hanging = 0

    async def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What it gives. Raises ``Trouble`` if it takes too long, or others hang already."""
        if self._hanging:
            raise Trouble(5, "it hangs")
        done = in_thread(work, *args, late=self._comes_back)
        await asyncio.wait([done], timeout=self._seconds)
        if not done.done():
            done.cancel()
            self._hanging += 1
            raise Trouble(5, f"it did not answer within {self._seconds:g} s")
        return done.result()

    def _comes_back(self) -> None:
        self._hanging -= 1


_PATIENCE = 120.0  # seconds for one file


class StoreWriter:
    """``rate`` is in bytes per second, or None."""

    def __init__(self, context: ControllerContext, writers: int = 4, rate: float | None = None) -> None:
        self._context = context
        self._calls = context.get(WorkerCalls)
        self._writers = asyncio.Semaphore(writers)
        self._rate = rate
        self._free_at = 0.0
        self._patience: dict[str, Patience] = {}
        #: bytes that were given to stores, since the start
        self.written = 0

    def patience(self, store: str) -> Patience:
        """With which to call that store."""
        return self._patience.setdefault(store, Patience(_PATIENCE))

    async def write(self, version: KeptVersion, prepare: Callable[[Commit], None]) -> Manifest:
        """Write a version that says where to; ``prepare`` sees it once it is begun. May raise anything."""
        assert version.store is not None
        store, keep, secret = (version.store[one] for one in ("root", "keep", "secret"))
        services = Services(version.store["compress"], key=Key(secret) if secret else None)
        described = [
            Described(label, item["kind"], item["meta"], {}, on_resize=item["on_resize"])
            for label, item in version.items.items()
        ]
        patience = self.patience(store)
        commit = await patience.call(begin, store, version.name, described, services)
        try:
            prepare(commit)
            # Whether it pays to compress is looked at where the blocks are.
            samples, sampler = commit.samples(), Sampler(commit.services)
            asked = (self._ask_holder(commit, one, version.keys[one], sampler) for one in samples.values())
            commit.decide(dict(zip(samples, await asyncio.gather(*asked), strict=True)))
            blocks = await self._write_blocks(commit, version)
            told = {"step": version.step, "nodes": version.nodes, "token": version.token, "keep": keep}
            manifest: Manifest = await patience.call(partial(finish, commit, blocks, **told))
        except* Exception as errors:
            with suppress(OSError):
                await patience.call(abandon, commit)
            raise _first(errors) from None
        return manifest

    async def _write_blocks(self, commit: Commit, version: KeptVersion) -> dict[Place, dict[str, Any]]:
        async with asyncio.TaskGroup() as group:
            writing: dict[Place, asyncio.Task[dict[str, Any]]] = {}
            one_of: dict[Hashable, asyncio.Task[dict[str, Any]]] = {}
            for place, spec in commit.specs.items():
                key = version.keys[place]
                content = self._context.catalogue.where(key)[0]
                # What has the same contents is one file, unless Zarr wants it to be a cell of an array.
                same = content if content and spec["form"] == VALUE else place
                if same not in one_of:
                    one_of[same] = group.create_task(self._write_block(commit, place, key))
                writing[place] = one_of[same]
        return {place: task.result() for place, task in writing.items()}

    async def _write_block(self, commit: Commit, place: Place, key: Hashable) -> dict[str, Any]:
        content = self._context.catalogue.where(key)[0]
        nbytes = self._context.catalogue.contents[content].nbytes if content else 0
        async with self._writers:
            await self._pace(nbytes)
            block: dict[str, Any] = await self._ask_holder(commit, place, key, commit.writer)
            self.written += nbytes
            return block

    async def _ask_holder(self, commit: Commit, place: Place, key: Hashable, work: Any) -> Any:
        """What ``work`` gives for a block, where it is."""
        call = pickle.dumps(partial(work, commit.specs[place]))
        content, agents = self._context.catalogue.where(key)
        asked: list[tuple[str, dict[str, Any]]] = [(agent, {"content": content}) for agent in agents]
        asked += [(holder, {"key": key}) for holder in holders(self._context, key)]
        why: OSError = Trouble(5, f"nobody has {place[0]}[{place[1]}] any more")
        for address, what in asked:
            try:
                async with asyncio.timeout(_PATIENCE):
                    found = await self._calls.call(address, "hpc_agent_run", call=call, **what)
            except OSError as error:
                why = error
                continue
            if found is None or "gone" in found:  # None: its agent has gone
                continue
            if "error" in found:
                raise Trouble(5, found["error"])
            return found["result"]
        raise why

    async def _pace(self, nbytes: int) -> None:
        if self._rate:
            now = monotonic()
            begin_at = max(now, self._free_at)
            self._free_at = begin_at + nbytes / self._rate
            await asyncio.sleep(begin_at - now)


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    found: BaseException = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


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
        #: how often it will be copied yet, as far as somebody knows
        self.commits_left = inf
        #: why copies are not on disk
        self.disk_problem = ""
        #: what was last wrong with the store
        self.store_problem = ""
        self._news = asyncio.Event()

    def follow(self, changes: Changes) -> None:
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

    def want(
        self,
        levels: Sequence[str],
        every: Every,
        keys: Iterable[Hashable],
        aim: Aim | None = None,
        nbytes: float = 0.0,
    ) -> None:
        """To these levels, so often; that is what it is about, or it has so many bytes."""
        schedule = self.schedule
        if (schedule.levels, schedule.every, schedule.aim) != (tuple(levels), every, aim):
            tasks = (compat.find_task(self._context.scheduler, key) for key in keys)
            nbytes += sum(compat.size(task) for task in tasks if task is not None)
            # A program's version may be in the store alone: what is protected is written when it is copied.
            self.schedule = Schedule(levels, every, nbytes, self._context.failures, aim, self.is_eager)

    def facts(self) -> SeriesFacts:
        """What is known of it now."""
        weights, note = powers(self._context)
        known = self._context.recoveries
        return SeriesFacts(weights=weights, note=note, speed=known.speed, restore=known.restore)

    async def plan(self) -> None:
        """Anew, if costs, failures or the number of nodes have changed."""
        if self.schedule.aim is not None:
            self.schedule.facts = self.facts()
        if (found := await self.schedule.plan(max(1, len(self._context.nodes)))) is not None:
            self._context.tell("interval", f"{self.name}: {found.reason}")

    async def copy(self, keys: list[Hashable], like: Mapping[Hashable, str] | None = None) -> Made:
        """Have copies made of these keys, as far as there are not enough."""
        wanted = ((key, 1 if self.is_eager else self._placement.wanted(key)) for key in keys)
        of = self.target if self.is_eager else self.newest
        its = of.keys.values() if of is not None else ()
        made = await self._keeper.commit(
            self.name, wanted, its, like, is_for_wishes=not self.is_eager, commits_left=self.commits_left
        )
        if made.moved and not made.is_hindered:
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

    def need(self, version: KeptVersion, contents: Iterable[str]) -> None:
        catalogue = self._context.catalogue
        for content in set(contents):
            nbytes = catalogue.contents[content].nbytes
            version.nbytes += nbytes
            catalogue.need(version, content, nbytes)

    def store(self, version: KeptVersion) -> None:
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
