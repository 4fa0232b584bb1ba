"""All that is protected, by name: what is copied when, and what is not needed any longer.

A name whose keys never change is copied as it becomes ready: at least as often as planned, and at once when
all of it is there. A name that gets new keys again and again (an iterating program) is copied when that is
due: then one of its versions is chosen, its results stay in memory until they are copied, and what was copied
before stays, in memory and as copies, until this version is copied as a whole: one death costs not both. So
never more than what was done since is computed again, however far the program has run ahead of the cluster.

Protected results go to the store, too: see ``stored``.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.scheduler.schedule import Aim, SeriesFacts
from dask_hpc.checkpoint.scheduler.series import Series, to_copy
from dask_hpc.checkpoint.scheduler.stored import StoredResults
from dask_hpc.checkpoint.version import DISK, PARTNER, STORE, KeptVersion
from dask_hpc.cluster.scheduler.service import Timer
from dask_hpc.strategies.checkpoint.when import Every

#: seconds in which what becomes ready is taken together
_TOGETHER = 0.05
#: seconds between commits of one version whose results come one after another
_BATCH = 0.5
#: seconds until copies that were not made are looked at again
_AGAIN = 1.0
_AT_ONCE = 1000  # keys that are looked at before others may work
#: levels are chosen anew after so many seconds, and so much, as a share, of the time of the protection
_SOON, _SHARE = 2.0, 0.5
_WALKED = 10_000  # tasks whose seconds are added up
_PRICELESS = 1e6  # seconds: what cannot be computed again


class Protected(Series):
    """What is protected under one name."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        super().__init__(context, name)
        self._owners = self._placement.wishes
        self._stored = context.get(StoredResults)
        self._timer, self._fires_at = Timer(context, f"copies of {name}", self._fire), inf
        self._looks, self._since = Timer(context, f"levels of {name}", self.look_again), monotonic()
        #: seconds of work in what does not change, by level, once it is there
        self._work: dict[str, float] = {}
        self._is_over = False
        #: one commit at a time, and one change of what the name means
        self._committing, self._changing = asyncio.Lock(), asyncio.Lock()

    async def protect(
        self,
        keys: Iterable[Hashable],
        copies: int,
        levels: Sequence[str],
        every: Every,
        aim: Aim | None = None,
    ) -> None:
        """From now on these keys are copied when they are ready and it is time."""
        async with self._changing:
            chosen = dict.fromkeys(keys)
            self.want(levels, every, chosen, aim)
            self.copies = copies
            if self.keys.keys() != chosen.keys():
                version = KeptVersion(self, {key: key for key in chosen})
                async for key in _by_and_by(chosen):
                    self._owners.setdefault(key, []).append(version)
                    if not holders(self._context, key):
                        version.awaited.add(key)
                self.follow(self.begin(version))

        self._context.do("a copy", self._plan_and_stir())

    async def _plan_and_stir(self) -> None:
        await self.plan()
        self._stir()

    async def plan(self) -> None:
        """Levels that are chosen are chosen anew as time passes, though nothing is copied meanwhile."""
        await super().plan()
        if self.schedule.aim is not None and not self._is_over:
            self._looks.set(_SHARE * (monotonic() - self._since) + _SOON)

    def look_again(self) -> None:
        """Something has changed that levels are chosen by."""
        if self.schedule.aim is not None and not self._is_over:
            self._context.do("a copy", self._plan_and_stir())

    def facts(self) -> SeriesFacts:
        """What is there as a whole, and had no other version before, does not grow."""
        found, version = super().facts(), self.newest
        if self.number > 1:
            self._work = {}
        elif version is not None and not version.awaited and not self._work:
            self._work = self._work_in(version)
        if self._work:
            found.grows, found.work, found.there = False, self._work, self.schedule.has
        return found

    def _work_in(self, version: KeptVersion) -> dict[str, float]:
        """Seconds in which all workers compute it, or their others what was lost with one."""
        scheduler, nodes = self._context.scheduler, len(self._context.nodes)
        todo, seen, seconds = [*version.keys], set[Hashable](), 0.0
        while todo and len(seen) < _WALKED:
            if (key := todo.pop()) in seen or (task := compat.find_task(scheduler, key)) is None:
                continue
            seen.add(key)
            if not compat.has_recipe(task):
                return dict.fromkeys(self.schedule.levels, _PRICELESS)
            seconds += compat.average_duration(scheduler, compat.prefix(task)) or 0.0
            todo += [one for one in compat.dependencies(task) if not holders(self._context, one)]
        whole = seconds / max(1, compat.threads_of(scheduler, compat.running_workers(scheduler)))
        return {one: whole if one == STORE else whole / max(1, nodes - 1) for one in self.schedule.levels}

    async def commit(self) -> None:
        """Copy all that is ready of what the name means now. Returns when the copies are there."""
        if self.newest is not None:
            self.follow(self.aim(self.newest))
        await self._commit()

    def stop(self) -> list[KeptVersion]:
        """Nothing is copied any longer, nor kept in memory. Versions of which there may be copies."""
        self._is_over = True
        self._timer.stop()
        self._looks.stop()
        changes = self.close()
        self.follow(replace(changes, gone=[]))
        return changes.gone

    async def release(self, version: KeptVersion) -> None:
        """Nobody needs it any longer. Tasks go on to ask for copies when they are lost, and are computed
        then."""
        async for key in _by_and_by(list(version.keys)):
            owners = self._owners.get(key)
            if owners is None or version not in owners:
                continue
            owners.remove(version)
            if not owners:
                del self._owners[key]
                self._keeper.release(key)

    def drop(self, version: KeptVersion) -> None:
        self._context.do("a copy", self.release(version))

    def in_memory(self, key: Hashable, version: KeptVersion) -> None:
        version.awaited.discard(key)
        if self.holds(version):
            self.pin(version, [key])
        if version is not self.base:
            self._stir()

    def forgotten(self, key: Hashable, version: KeptVersion) -> None:
        version.keys.pop(key, None)
        version.awaited.discard(key)
        if version in self.pending and (version is not self.newest or not version.keys):
            self.follow(self.end(version))  # it will never be copied as a whole
            self._stir()
        elif version is self.base and not version.keys:
            self.follow(self.lost_base())

    def _stir(self) -> None:
        """Something has changed: commit at once if all that is to be copied is there, or when it is due;
        not if lineage alone is less dear."""
        if self.schedule.aim is not None and PARTNER not in self.schedule.chosen:
            return
        due = self.schedule.copies_due() - monotonic()
        version = self.target or (None if self.is_renewed else self.newest)
        if version is not None and not version.awaited:
            due = 0.0
        elif version is not None and self.is_renewed:
            due = _BATCH
        self._set_timer(max(due, _TOGETHER))

    def _set_timer(self, seconds: float) -> None:
        """Unless it is set to an earlier time."""
        at = monotonic() + seconds
        if not self._is_over and seconds < inf and not (self._timer.is_set and self._fires_at <= at):
            self._fires_at = at
            self._timer.set(seconds)

    def _fire(self) -> None:
        is_due = not self.is_renewed or self.schedule.copies_due() <= monotonic()
        self.follow(self.choose(is_due, self._will_come))
        self._context.do("a copy", self._commit())

    def _will_come(self, key: Hashable) -> bool:
        task = compat.find_task(self._context.scheduler, key)
        return task is None or compat.is_unfinished(task) or compat.is_wanted(task)

    async def _commit(self) -> None:
        """Copy what is ready of the version that is being copied, or of the one that was."""
        async with self._committing:
            version, schedule = self.target or self.base, self.schedule
            if version is None or self._is_over:
                return
            began = monotonic()
            await self.copy(to_copy(version))
            if DISK in schedule.chosen:
                await self.to_disk(to_copy(version), self.name)
            is_whole = self._is_whole(version)
            if version is self.target and (is_whole or not self.is_renewed):
                schedule.done([level for level in schedule.levels if level != STORE])
                if is_whole:
                    for level in {PARTNER, *schedule.chosen} - {STORE}:
                        schedule.kept(level, began)
                    self.follow(self.copied(version))
        self._context.is_kept(self.name)
        await self.plan()
        if (stored := self._stored.names.get(self.name)) is not None:
            stored.look()
        if self.target is version and not version.awaited:
            self._set_timer(_AGAIN)  # somebody had no room, or died
        elif self.pending and self.target is None and schedule.copies_due() > monotonic():
            self._stir()  # else something has to happen first

    def _is_whole(self, version: KeptVersion) -> bool:
        return all(self._context.catalogue.where(key)[1] for key in to_copy(version))

    def as_plain(self) -> dict[str, Any]:
        catalogue = self._context.catalogue
        contents, copied = set(), 0
        for key in self.keys:
            content, where = catalogue.where(key)
            if where:
                contents.add(content)
                copied += 1
        return {
            "name": self.name,
            "keys": len(self.keys),
            "copied": copied,
            "awaited": 0 if self.newest is None else len(self.newest.awaited),
            "nbytes": sum(catalogue.contents[one].nbytes for one in contents),
            "copies": self.copies,
            **self.plain_plan(),
            "next_due": self.schedule.next_due_in() if self.pending else None,
        }


class Protections:
    """Has everything copied that is protected, when it is time."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.names: dict[str, Protected] = {}
        self._owners: dict[Hashable, list[Any]] = context.get(CopyPlacement).wishes

    def __contains__(self, key: Hashable) -> bool:
        return key in self._owners

    def named(self, name: str) -> Protected:
        """What is protected under a name, or will be."""
        if name not in self.names:
            self.names[name] = Protected(self._context, name)
        return self.names[name]

    async def unprotect(self, name: str) -> None:
        gone = self.names.pop(name)
        for version in gone.stop():
            await gone.release(version)

    def moves(self, key: Hashable, state: str) -> None:
        if key not in self._owners:
            return
        for version in self._owners.pop(key) if state == "forgotten" else self._owners[key]:
            if state == "memory":
                version.series.in_memory(key, version)
            elif state == "released":  # lost, or not needed
                version.awaited.add(key)
            elif state == "forgotten":
                version.series.forgotten(key, version)

    def restart(self) -> None:
        self.close()
        self.names.clear()
        self._owners.clear()

    def close(self) -> None:
        for one in self.names.values():
            one.stop()


async def _by_and_by(keys: Iterable[Hashable]) -> AsyncIterator[Hashable]:
    """One after the other, and now and then others may work."""
    for number, key in enumerate(keys):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        yield key
