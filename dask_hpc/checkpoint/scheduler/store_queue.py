"""Versions that are in memory go to the store in the background: agents write the blocks that they have.

A block without a copy is written by the worker that has the result. In the whole cluster only so many blocks
are written at a time, and so many bytes per second. Of one name one version is written and one waits; the
newest that waits is the next. If the store cannot be used, memory goes on as it was, people are told
once, and the newest version is tried again, later and later, until it is there.
"""

import asyncio
import pickle
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.context import ControllerContext, WorkerCalls, holders
from dask_hpc.checkpoint.scheduler.copies import CopyMaker
from dask_hpc.checkpoint.scheduler.versions import WRITING, KeptVersion
from dask_hpc.checkpoint.store.cells import VALUE, Sampler
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.items import Described, HeldItem
from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.checkpoint.store.versions import Commit, Place, abandon, begin, finish
from dask_hpc.model.errors import one_line


class Patience:
    """Of one store. Its threads keep neither the process alive nor other work from its threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hanging = 0

    async def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What it gives. Raises ``Trouble`` if it takes too long, or others hang already."""
        if self._hanging:
            raise Trouble(5, "it hangs")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def tell(setter: Callable[[Any], None], found: Any) -> None:
            if done.done():
                self._hanging -= 1
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
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(done)
        except TimeoutError:
            if not done.done():
                done.cancel()
                self._hanging += 1
                raise Trouble(5, f"it did not answer within {self._seconds:g} s") from None
            raise


_PATIENCE = 120.0  # seconds for one file
_FIRST, _LONGEST = 1.0, 60.0  # seconds until a store that cannot be used is tried again


@dataclass
class _Queue:
    """The versions of one name that are to be written."""

    writing: KeptVersion | None = None
    waiting: KeptVersion | None = None
    is_running: bool = False
    #: what was last wrong with the store
    problem: str = ""


class StoreQueue:
    """Writes versions. ``rate`` is in bytes per second, or None."""

    def __init__(
        self,
        context: ControllerContext,
        maker: CopyMaker,
        calls: WorkerCalls,
        writers: int = 4,
        rate: float | None = None,
    ) -> None:
        self._context = context
        self._maker = maker
        self._calls = calls
        self._writers = asyncio.Semaphore(writers)
        self._rate = rate
        self._free_at = 0.0
        self._queues: dict[str, _Queue] = {}
        self._patience: dict[str, Patience] = {}
        #: bytes that were given to the store, since the start
        self.written = 0

    def flush(self, version: KeptVersion) -> None:
        """Write it when its turn comes, unless a newer one comes first."""
        queue = self._queues.setdefault(version.name, _Queue())
        if queue.waiting is not None:
            self._done(queue.waiting, "a newer one came before it was written")
        queue.waiting = version
        if not queue.is_running:
            queue.is_running = True
            self._context.do(self._run(queue))

    def let_go(self, version: KeptVersion, hold: str) -> None:
        """One less needs it in memory."""
        version.holds.discard(hold)
        if not version.holds:
            compat.unpin_all(self._context.scheduler, version.pins)
            if unneeded := self._context.catalogue.release(version.owner):
                self._context.do(self._maker.drop(unneeded))

    def problem(self, name: str) -> str:
        """What is wrong with the store of a name, if anything is."""
        queue = self._queues.get(name)
        return queue.problem if queue else ""

    def as_plain(self) -> dict[str, Any]:
        """Bytes that wait for the store or are being written, those that were, and what is wrong with it."""
        queues = self._queues.values()
        coming = [one for queue in queues for one in {queue.writing, queue.waiting} if one is not None]
        return {
            "waiting": sum(version.nbytes for version in coming),
            "written": self.written,
            "problem": next((queue.problem for queue in queues if queue.problem), ""),
        }

    def patience(self, store: str) -> Patience:
        """With which to call that store."""
        return self._patience.setdefault(store, Patience(_PATIENCE))

    async def _run(self, queue: _Queue) -> None:
        pause = _FIRST
        try:
            while (version := queue.waiting) is not None:
                queue.writing, queue.waiting = version, None
                problem = await self._try(version)
                queue.writing = None
                if problem:
                    self._failed(queue, version, problem)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST)
                    continue
                if queue.problem:
                    self._context.tell("store", f"{version.origin.called(version)} is stored: it works again")
                queue.problem, pause = "", _FIRST
                self._done(version, "")
        finally:
            queue.is_running = False

    def _failed(self, queue: _Queue, version: KeptVersion, problem: str) -> None:
        """Try again later, unless a newer one has come; whoever waits hears of it now."""
        if not queue.problem:
            self._context.tell(
                "store", one_line(f"{version.origin.called(version)} is not stored: {problem}")
            )
        queue.problem = version.problem = problem
        version.settled.set()
        if queue.waiting is None:
            queue.waiting = version.origin.again(version)
        if queue.waiting is not version:
            self._done(version, problem)

    def _done(self, version: KeptVersion, problem: str) -> None:
        version.problem = problem
        version.settled.set()
        self.let_go(version, WRITING)

    async def _try(self, version: KeptVersion) -> str:
        """Write it. What went wrong, if anything."""
        try:
            await self._write(version)
        except (OSError, TimeoutError) as error:  # Trouble is one of these
            return one_line(str(getattr(error, "strerror", None) or error or type(error).__name__))
        except Exception as error:
            self._context.count_error("writing a version", error)
            return one_line(f"{type(error).__name__}: {error}")
        return ""

    async def _write(self, version: KeptVersion) -> None:
        assert version.store is not None
        begun = monotonic()
        store, keep = version.store["root"], version.store["keep"]
        secret = version.store["secret"]
        services = Services(version.store["compress"], key=Key(secret) if secret else None)
        described = [
            Described(
                label,
                item["kind"],
                item["meta"],
                {place: HeldItem(key) for (its, place), key in version.keys.items() if its == label},
            )
            for label, item in version.items.items()
        ]
        patience = self.patience(store)
        commit = await patience.call(begin, store, version.name, described, services)
        try:
            version.origin.prepare(version, commit)
            await self._sample(commit, version)
            blocks = await self._write_blocks(commit, version)
            rules = {label: item["on_resize"] for label, item in version.items.items()}
            told = {"step": version.step, "nodes": version.nodes, "token": version.token, "keep": keep}
            manifest = await patience.call(lambda: finish(commit, blocks, rules=rules, **told))
        except* Exception as errors:
            with suppress(OSError):
                await patience.call(abandon, commit)
            raise _first(errors) from None
        version.origin.stored(version, manifest, monotonic() - begun)

    async def _sample(self, commit: Commit, version: KeptVersion) -> None:
        """Have looked whether it pays to compress, where the blocks are."""
        samples, sampler = commit.samples(), Sampler(commit.services)
        asked = (self._ask_holder(commit, one, version.keys[one], sampler) for one in samples.values())
        commit.decide(dict(zip(samples, await asyncio.gather(*asked), strict=True)))

    async def _write_blocks(self, commit: Commit, version: KeptVersion) -> dict[Place, dict[str, Any]]:
        async with asyncio.TaskGroup() as group:
            writing: dict[Place, asyncio.Task[dict[str, Any]]] = {}
            one_of: dict[Hashable, asyncio.Task[dict[str, Any]]] = {}
            for place, spec in commit.specs.items():
                same = self._same(spec, place, version.keys[place])
                if same not in one_of:
                    one_of[same] = group.create_task(self._write_block(commit, place, version.keys[place]))
                writing[place] = one_of[same]
        return {place: task.result() for place, task in writing.items()}

    def _same(self, spec: Mapping[str, Any], place: Place, key: Hashable) -> Hashable:
        """What has the same contents is one file, unless Zarr wants it to be a cell of an array."""
        content = self._context.catalogue.where(key)[0]
        return content if content and spec["form"] == VALUE else place

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
