"""The versions of iterating programs in memory: what a program commits is pinned at once, copied beside the
computation, and then replaces the version before it.

A version is all or nothing: it counts when every block has a copy on an agent. Its results stay in memory,
too, until the next version counts, so that one death at any time costs neither. Their recipes become "load a
copy", so the graph of a program does not grow with its iterations.

Of one name at most one version is on its way and one waits; the newest that waits is the one to be next.
"""

import asyncio
import json
from collections.abc import Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.checkpoint.scheduler.agents import Disks
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders, node_names
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts
from dask_hpc.checkpoint.scheduler.store_queue import StoreQueue
from dask_hpc.checkpoint.scheduler.versions import COMING, NEWEST, WRITING, KeptVersion, Series
from dask_hpc.checkpoint.store.versions import leave_note
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.strategies.checkpoint.when import Every

_LOOK, _LOOKS = 5.0, 6  # seconds between looks whether a result that does not come is lost, and how many


@dataclass(eq=False)
class _Wait:
    missing: set[Hashable]
    event: asyncio.Event = field(default_factory=asyncio.Event)


class AwaitedResults:
    """All that somebody waits for. Hears of every task's moves, so a look here costs next to nothing."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._waits: dict[Hashable, list[_Wait]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._waits

    def moves(self, key: Hashable, finish: str) -> None:
        """A task changed its state."""
        for wait in self._waits.get(key, ()):
            if finish == "memory":
                wait.missing.discard(key)
                if not wait.missing:
                    wait.event.set()
            elif finish in ("erred", "forgotten"):
                wait.event.set()

    async def problem(self, keys: Collection[Hashable]) -> str:
        """Until all are in memory: nothing. Or why they will not be."""
        wait = _Wait({key for key in keys if not self._is_there(key)})
        awaited = list(wait.missing)
        for key in awaited:
            self._waits.setdefault(key, []).append(wait)
        looks = dict.fromkeys(awaited, 0)
        try:
            while wait.missing:
                gone = []
                for key in wait.missing:
                    task = compat.find_task(self._scheduler, key)
                    if task is not None and task.state == "erred":
                        return f"{key!r} failed"
                    if task is None or (task.state == "released" and not compat.has_recipe(task)):
                        gone.append(key)
                wait.event.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await wait.event.wait()
                        continue
                for key in gone:  # its graph may come after the commit does, but not that late
                    looks[key] += 1
                    if looks[key] >= _LOOKS:
                        return f"{key!r} is lost"
        finally:
            for key in awaited:
                self._waits[key].remove(wait)
                if not self._waits[key]:
                    del self._waits[key]
        return ""

    def _is_there(self, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        return task is not None and bool(compat.holders(task))


_NO_COPY = "no copy on another node"
_TRIES = 3  # at copying what agents did not take


class Commits:
    """All series of versions that programs commit."""

    def __init__(
        self,
        context: ControllerContext,
        keeper: CopyKeeper,
        disks: Disks,
        queue: StoreQueue,
        failures: FailureCounts,
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._disks = disks
        self._queue = queue
        self._failures = failures
        self.series: dict[str, Series] = {}
        self.awaiting = AwaitedResults(context.scheduler)
        #: results whose graph has not come yet, and the versions that they are to be pinned for
        self._unknown: dict[Hashable, list[KeptVersion]] = {}

    # remote calls

    async def open(self, name: str, client: str) -> dict[str, Any]:
        """A program begins or goes on. Answers what is in memory, if anything."""
        series = self.series.get(name)
        if series is None:
            series = Series(self._context, self._failures, name, client)
            self.series[name] = series
        elif series.client not in ("", client) and series.client in self._context.scheduler.client_comms:
            raise InputError("name", f"{shown(name)} is in use by another program", "another name")
        series.client = client
        there = series.complete
        answer: dict[str, Any] = {"nodes": node_names(self._context), "version": None}
        if there is not None and self._is_whole(there):
            blocks = [[label, place, key] for (label, place), key in there.keys.items()]
            answer["version"] = there.as_plain() | {
                "token": there.token,
                "nodes": list(there.nodes),
                "items": json.dumps(there.items),
                "blocks": blocks,
            }
        return answer

    async def commit(
        self,
        name: str,
        step: int,
        token: str,
        items: str,
        blocks: list[Any],
        levels: Sequence[str] = (PARTNER,),
        every: Every | None = None,
        store: Any = None,
    ) -> dict[str, Any]:
        """Keep these results as one version. Answers as soon as nothing can take them away. Each version goes
        to all levels, or if it is said how often, to those that are due."""
        series = self.series[name]
        series.number += 1
        keys = {(label, place): key for label, place, key in blocks}
        nodes = tuple(node_names(self._context))
        version = KeptVersion(series, name, series.number, step, token, nodes, json.loads(items), keys, store)
        version.holds.add(COMING)
        series.unsettled = {n: one for n, one in series.unsettled.items() if not one.settled.is_set()}
        series.unsettled[version.number] = version
        self._pin(version, set(keys.values()))
        tasks = [compat.find_task(self._context.scheduler, key) for key in keys.values()]
        nbytes = sum(compat.size(task) for task in tasks if task is not None)
        series.said(levels, every, nbytes)
        series.done(PARTNER)
        if series.coming is None:
            self._begin(series, version)
        else:
            if series.waiting is not None:
                series.superseded += 1
                series.waiting.problem = "a newer one came before it was begun"
                series.waiting.settled.set()
                self._queue.let_go(series.waiting, COMING)
            series.waiting = version
        await series.plan()
        return {"number": version.number, "stats": self._plain(series)}

    async def settled(self, name: str, number: int) -> dict[str, Any]:
        """Answers when a version is where it was to be, or cannot be."""
        series = self.series[name]
        if (version := series.unsettled.get(number) or series.complete) is None or version.number < number:
            return {"number": number, "levels": [], "problem": "it made room for a newer one"}
        await version.settled.wait()
        is_left = version.store is not None and STORE not in version.levels
        if is_left and version.holds == {NEWEST}:  # it was not due, but somebody waits for it
            self._write(version)
            await version.settled.wait()
        return version.as_plain()

    async def stats(self, name: str) -> dict[str, Any]:
        """Plain data."""
        return self._plain(self.series[name])

    async def close(self, name: str, forget: bool) -> dict[str, Any]:
        """The program ends. What is on its way arrives first, the newest in the store, too; then, if asked
        to, memory is free again, unless what is there could not be stored. Answers the statistics."""
        series = self.series[name]
        for version in list(series.unsettled.values()):
            await version.settled.wait()
        if series.complete is not None:
            await self.settled(name, series.complete.number)
        series.client = ""
        told = self._plain(series)
        there = series.complete
        if forget and (there is None or there.store is None or STORE in there.levels):
            self.series.pop(name, None)
            if there is not None:
                self._queue.let_go(there, NEWEST)
        return told

    # what happens

    def graph_arrives(self, keys: Iterable[Hashable]) -> None:
        """Tasks were submitted. A commit may have come before the graph of its results."""
        if not self._unknown:
            return
        arrived: dict[int, tuple[KeptVersion, set[Hashable]]] = {}
        for key in keys:
            for version in self._unknown.pop(key, ()):
                arrived.setdefault(id(version), (version, set()))[1].add(key)
        for version, theirs in arrived.values():
            if version.holds:
                self._pin(version, theirs)

    def room_comes(self) -> None:
        """There is another agent."""
        for series in self.series.values():
            series.room_comes()

    def as_plain(self) -> list[dict[str, Any]]:
        """All series."""
        return [self._plain(series) for series in self.series.values()]

    # one version

    def _pin(self, version: KeptVersion, keys: set[Hashable]) -> None:
        known = {key for key in keys if compat.find_task(self._context.scheduler, key) is not None}
        compat.pin(self._context.scheduler, known, version.pins)
        for key in keys - known:
            self._unknown.setdefault(key, []).append(version)

    def _begin(self, series: Series, version: KeptVersion) -> None:
        series.coming = version
        self._context.do(self._run(series, version))

    async def _run(self, series: Series, version: KeptVersion) -> None:
        try:
            version.problem = await self._copied(series, version)
            if not version.problem or version.problem.startswith(_NO_COPY):
                if PARTNER in version.levels:
                    self._replace(series, version)
                    if version.store is not None:
                        self._context.do(self._note(version))
                if version.store is not None and self._is_due(series, version):
                    series.done(STORE)
                    self._write(version)
                if PARTNER in version.levels and series.is_due(DISK):
                    series.done(DISK)
                    await self._to_disk(series, version)
        except Exception as error:
            version.problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            if not version.holds > {COMING}:
                series.failed += 1
                self._context.tell("commit", one_line(f"{series.called(version)}: {version.problem}"))
            if WRITING not in version.holds:
                version.settled.set()
            self._queue.let_go(version, COMING)
            series.coming = None
            self._context.do(series.plan())
            if series.waiting is not None:
                following, series.waiting = series.waiting, None
                self._begin(series, following)

    async def _copied(self, series: Series, version: KeptVersion) -> str:
        """Wait for all results and have them copied. What is wrong, if that cannot be."""
        keys = list(dict.fromkeys(version.keys.values()))
        before = series.complete.keys if series.complete is not None else {}
        like = {}
        for place, key in version.keys.items():
            if (old := before.get(place)) in self._context.catalogue.content_of:
                like[key] = self._context.catalogue.content_of[old]
        missing: list[Hashable] = keys
        is_direct, took = series.is_direct, 0.0
        why = series.why_direct
        for _ in range(_TRIES):  # who had results or took copies may die meanwhile
            problem = await self.awaiting.problem(keys)
            for key in keys:
                self._unknown.pop(key, None)
            if problem:
                return problem
            missing = [key for key in keys if not self._context.catalogue.where(key)[1]]
            if not missing or is_direct:
                break
            wanted = ((key, 1) for key in missing)
            made = await self._keeper.commit(version.name, wanted, version.keys.values(), like)
            await self._keeper.set_apart(missing)
            series.measured(PARTNER, made.seconds, made.moved)
            version.moved, took = version.moved + made.moved, took + made.seconds
            why = next(iter(made.failed), why)
            missing = [key for key in missing if not self._context.catalogue.where(key)[1]]
        self._count(series, version, keys)
        if PARTNER not in series.levels:
            series.commits += 1
            series.seconds += version.seconds
            return ""
        if missing:
            problem = f"{_NO_COPY}: {len(missing)} of {len(keys)} blocks{why and ': ' + why}"
            if not is_direct:
                series.no_copy(problem)
            return problem
        series.copied()
        series.has(version, PARTNER)
        series.commits += 1
        series.seconds += version.seconds
        return ""

    def _count(self, series: Series, version: KeptVersion, keys: list[Hashable]) -> None:
        """What the copies are, and that the version needs them."""
        contents = {
            self._context.catalogue.content_of[key]
            for key in keys
            if key in self._context.catalogue.content_of
        }
        for content in contents:
            nbytes = self._context.catalogue.contents[content].nbytes
            version.nbytes += nbytes
            self._context.catalogue.need(version.owner, content, nbytes)
        version.seconds = monotonic() - version.begun
        series.moved += version.moved
        series.unchanged += max(0, version.nbytes - version.moved)

    def _is_due(self, series: Series, version: KeptVersion) -> bool:
        """Whether it goes to the store: if that is due, if it was when the store could not be used, or if it
        is nowhere else."""
        if PARTNER not in version.levels or self._queue.problem(series.name):
            return True
        return series.is_due(STORE)

    async def _to_disk(self, series: Series, version: KeptVersion) -> None:
        """Have agents write their copies to disk, too. What they cannot write is told once."""
        found = await self._disks.keep(version.keys.values())
        series.measured(DISK, found.seconds, found.nbytes)
        contents = {self._context.catalogue.where(key)[0] for key in version.keys.values()}
        if contents <= found.there:
            series.has(version, DISK)
            found.problem = ""
        if found.problem and not series.disk_problem:
            self._context.tell("commit", one_line(f"{series.called(version)}: {found.problem}"))
        series.disk_problem = found.problem

    def _write(self, version: KeptVersion) -> None:
        version.holds.add(WRITING)
        version.settled.clear()
        self._queue.flush(version)

    def _replace(self, series: Series, version: KeptVersion) -> None:
        before, series.complete = series.complete, version
        version.holds.add(NEWEST)
        if before is not None:
            self._queue.let_go(before, NEWEST)

    async def _note(self, version: KeptVersion) -> None:
        """Leave a note on the store. That it cannot be is no news: the version itself is to come there."""
        assert version.store is not None
        where = sorted(
            {agent for key in version.keys.values() for agent in self._context.catalogue.where(key)[1]}
        )
        with suppress(OSError):
            root = version.store["root"]
            await self._queue.patience(root).call(leave_note, root, version.name, version.as_plain(), where)

    def _is_whole(self, version: KeptVersion) -> bool:
        return all(
            holders(self._context, key) or self._context.catalogue.where(key)[1]
            for key in version.keys.values()
        )

    def _plain(self, series: Series) -> dict[str, Any]:
        return series.as_plain(self._queue.problem(series.name))
