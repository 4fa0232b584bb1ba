"""Versions that are in memory go to the store in the background: agents write the blocks that they have.

A block without a copy is written by the worker that has the result. In the whole cluster only so many blocks
are written at a time, and so many bytes per second.
"""

import asyncio
import pickle
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.scheduler.context import ControllerContext, WorkerCalls, holders
from dask_hpc.checkpoint.store.cells import VALUE, Sampler
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.items import Described, HeldItem
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.checkpoint.store.versions import Commit, Place, abandon, begin, finish
from dask_hpc.checkpoint.version import KeptVersion
from dask_hpc.cluster.worker.farewell import in_thread


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
        keys: dict[str, dict[str, Any]] = {label: {} for label in version.items}
        for (label, place), key in version.keys.items():
            keys[label][place] = HeldItem(key)
        items = version.items.items()
        described = [Described(label, item["kind"], item["meta"], keys[label]) for label, item in items]
        patience = self.patience(store)
        commit = await patience.call(begin, store, version.name, described, services)
        try:
            prepare(commit)
            # Whether it pays to compress is looked at where the blocks are.
            samples, sampler = commit.samples(), Sampler(commit.services)
            asked = (self._ask_holder(commit, one, version.keys[one], sampler) for one in samples.values())
            commit.decide(dict(zip(samples, await asyncio.gather(*asked), strict=True)))
            blocks = await self._write_blocks(commit, version)
            rules = {label: item["on_resize"] for label, item in items}
            told = {"step": version.step, "nodes": version.nodes, "token": version.token, "keep": keep}
            manifest: Manifest = await patience.call(partial(finish, commit, blocks, rules=rules, **told))
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
