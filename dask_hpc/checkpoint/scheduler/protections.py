"""All that is protected, by name: what is copied when, and what is not needed any longer.

A name whose keys never change is copied as it becomes ready: at least as often as planned, and at once when
all of it is there. A name that gets new keys again and again (an iterating program) is copied when that is
due: then one of its versions is chosen, its results stay in memory until they are copied, and what was copied
before stays, in memory and as copies, until this version is copied as a whole: one death costs not both. So
never more than what was done since is computed again, however far the program has run ahead of the cluster.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from math import inf
from time import monotonic

from dask_hpc import dask as compat
from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.checkpoint.scheduler.agents import Disks
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts, Schedule
from dask_hpc.checkpoint.scheduler.stored_results import StoredResults
from dask_hpc.checkpoint.scheduler.versions import Protected, ProtectedVersion
from dask_hpc.strategies.checkpoint.when import Every

#: seconds in which what becomes ready is taken together
_TOGETHER = 0.05
#: seconds between commits of one version whose results come one after another
_BATCH = 0.5
#: seconds until copies that were not made are looked at again
_AGAIN = 1.0
_AT_ONCE = 1000  # keys that are looked at before others may work
_PINS = "dask-hpc-protect"


class Protections:
    """Has everything copied that is protected, when it is time."""

    def __init__(
        self,
        context: ControllerContext,
        placement: CopyPlacement,
        keeper: CopyKeeper,
        disks: Disks,
        stored: StoredResults,
        failures: FailureCounts,
    ) -> None:
        self._context = context
        self._placement = placement
        self._keeper = keeper
        self._disks = disks
        self._stored = stored
        self._failures = failures
        self.names: dict[str, Protected] = {}
        self._owners: dict[Hashable, list[ProtectedVersion]] = placement.wishes
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        #: of each name, one commit at a time, and one change of what it means
        self._commits: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._changes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._owners

    # what users ask

    async def protect(
        self, name: str, keys: Iterable[Hashable], copies: int, levels: Sequence[str], every: Every
    ) -> None:
        """From now on these keys are copied when they are ready and it is time."""
        async with self._changes[name]:
            chosen = dict.fromkeys(keys)
            protected = self.names.get(name)
            if protected is None:
                schedule = self._schedule(chosen, levels, every)
                protected = self.names[name] = Protected(name, schedule, copies)
            elif (protected.schedule.levels, protected.schedule.every) != (tuple(levels), every):
                protected.schedule = self._schedule(chosen, levels, every)
            protected.copies = copies
            if protected.keys.keys() != chosen.keys():
                version = ProtectedVersion(protected, chosen)
                async for key in _by_and_by(chosen):
                    self._owners.setdefault(key, []).append(version)
                    if not holders(self._context, key):
                        version.awaited.add(key)
                protected.pending.append(version)
                self._hold(protected)
        self._context.do(self._begin(protected))

    async def unprotect(self, name: str) -> None:
        """They are plain results again."""
        gone = self.names.pop(name, None)
        if (timer := self._timers.pop(name, None)) is not None:
            timer[1].cancel()
        for version in gone.versions() if gone is not None else ():
            await self._release(version)

    async def commit(self, name: str) -> None:
        """Copy all that is ready of what the name means now. Returns when the copies are there."""
        protected = self.names.get(name)
        if protected is None:
            return
        newest = protected.newest
        if newest is not None and newest is not protected.base:
            self._aim(protected, newest)
        await self._commit(protected)

    # what happens

    def moves(self, key: Hashable, state: str) -> None:
        """A task changed its state."""
        if key not in self._owners:
            return
        if state == "memory":
            self._is_in_memory(key)
        elif state == "released":  # lost, or not needed
            for version in self._owners[key]:
                version.awaited.add(key)
        elif state == "forgotten":
            self._is_forgotten(key)

    def _is_in_memory(self, key: Hashable) -> None:
        for version in self._owners[key]:
            protected = version.protected
            version.awaited.discard(key)
            if version.is_held:
                compat.pin(self._context.scheduler, [key], _PINS)
            if version is not protected.base:
                self._stir(protected)

    def _is_forgotten(self, key: Hashable) -> None:
        for version in self._owners.pop(key):
            protected = version.protected
            version.keys.pop(key, None)
            version.awaited.discard(key)
            if version in protected.pending and (version is not protected.newest or not version.keys):
                self._give_up(version)
            elif version is protected.base and not version.keys:
                protected.base = None

    def restart(self) -> None:
        """Dask has forgotten everything."""
        self.close()
        self.names.clear()
        self._owners.clear()

    def close(self) -> None:
        """Nothing is copied any longer."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        compat.unpin_all(self._context.scheduler, _PINS)

    # when

    async def _begin(self, protected: Protected) -> None:
        await self._plan(protected)
        self._stir(protected)

    async def _plan(self, protected: Protected) -> None:
        found = await protected.schedule.plan(len(self._context.nodes))
        if found is not None:
            self._context.tell("interval", f"{protected.name}: {found.reason}")

    def _stir(self, protected: Protected) -> None:
        """Something has changed: commit at once if all that is to be copied is there, or when it is due."""
        due = protected.schedule.copies_due() - monotonic()
        version = protected.target or (None if protected.is_renewed else protected.newest)
        if version is not None and not version.awaited:
            due = 0.0
        elif version is not None and protected.is_renewed:
            due = _BATCH
        self._set_timer(protected, max(due, _TOGETHER))

    def _set_timer(self, protected: Protected, seconds: float) -> None:
        """Unless it is set to an earlier time."""
        if self.names.get(protected.name) is not protected:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if (before := self._timers.get(protected.name)) is not None:
            if before[0] <= at:
                return
            before[1].cancel()
        if seconds < inf:
            self._timers[protected.name] = (at, loop.call_later(seconds, self._fire, protected))

    def _fire(self, protected: Protected) -> None:
        self._timers.pop(protected.name, None)
        target = protected.target
        if target is not None and not all(map(self._will_come, target.awaited)):
            self._unpin(target)
            protected.target = None
        is_due = not protected.is_renewed or protected.schedule.copies_due() <= monotonic()
        if protected.target is None and is_due:
            chosen = protected.choose(self._will_come)
            if chosen is not None:
                self._aim(protected, chosen)
        self._context.do(self._commit(protected))

    def _aim(self, protected: Protected, version: ProtectedVersion) -> None:
        """This version is copied next; its results stay until they are."""
        if protected.target is not None and protected.target is not version:
            self._unpin(protected.target)
        protected.target = version
        self._hold(protected)

    def _hold(self, protected: Protected) -> None:
        for version in (protected.base, protected.target):
            if version is not None and version.is_held:
                ready = [key for key in version.keys if holders(self._context, key)]
                compat.pin(self._context.scheduler, ready, _PINS)

    # deeds

    async def _commit(self, protected: Protected) -> None:
        """Copy what is ready of the version that is being copied, or of the one that was."""
        async with self._commits[protected.name]:
            version, schedule = protected.target or protected.base, protected.schedule
            if version is None or self.names.get(protected.name) is not protected:
                return
            wanted = ((key, self._placement.wanted(key)) for key in version.to_copy())
            made = await self._keeper.commit(protected.name, wanted, protected.keys, is_for_wishes=True)
            if made.copies:
                schedule.measured(PARTNER, made.seconds, made.moved)
            await self._keeper.set_apart(version.to_copy())
            if DISK in schedule.levels:
                await self._to_disk(protected, version)
            self._committed(protected, version)
        await self._plan(protected)
        self._stored.copied(protected)
        if protected.target is version and not version.awaited:
            self._set_timer(protected, _AGAIN)  # somebody had no room, or died
        elif protected.pending and protected.target is None and schedule.copies_due() > monotonic():
            self._stir(protected)  # else something has to happen first

    async def _to_disk(self, protected: Protected, version: ProtectedVersion) -> None:
        """Have agents write the copies of a version to their disks, too. What they cannot is told once."""
        found = await self._disks.keep(version.to_copy())
        if found.nbytes:
            protected.schedule.measured(DISK, found.seconds, found.nbytes)
        if found.problem and not protected.disk_problem:
            self._context.tell("commit", f"{protected.name}: {found.problem}")
        protected.disk_problem = found.problem

    def _committed(self, protected: Protected, version: ProtectedVersion) -> None:
        """If all of it is copied, what was copied before is not needed any longer."""
        is_whole = version.is_whole(self._context.catalogue)
        if version is not protected.target or not (is_whole or not protected.is_renewed):
            return
        schedule = protected.schedule
        schedule.done([level for level in schedule.levels if level != STORE])
        if not is_whole:
            return
        place = protected.pending.index(version)
        older = protected.pending[:place]
        if protected.base is not None:
            older.append(protected.base)
        del protected.pending[: place + 1]
        protected.target, protected.base = None, version
        if not version.is_held:
            self._unpin(version)
        for one in older:
            self._context.do(self._release(one))

    def _give_up(self, version: ProtectedVersion) -> None:
        """It will never be copied as a whole."""
        protected = version.protected
        protected.pending.remove(version)
        if protected.target is version:
            protected.target = None
        if protected.base is not None and not protected.base.is_held:
            self._unpin(protected.base)
        self._context.do(self._release(version))
        self._stir(protected)

    async def _release(self, version: ProtectedVersion) -> None:
        """Nobody needs this version any longer. Tasks go on to ask for copies when they are lost, and are
        computed then."""
        self._unpin(version)
        async for key in _by_and_by(list(version.keys)):
            owners = self._owners.get(key)
            if owners is None or version not in owners:
                continue
            owners.remove(version)
            if not owners:
                del self._owners[key]
                self._keeper.release(key)

    def _unpin(self, version: ProtectedVersion) -> None:
        """Its results stay only where another version needs them to."""
        free = [
            key
            for key in version.keys
            if not any(one.is_held for one in self._owners.get(key, ()) if one is not version)
        ]
        compat.unpin(self._context.scheduler, free, _PINS)

    # facts

    def _schedule(self, keys: Iterable[Hashable], levels: Sequence[str], every: Every) -> Schedule:
        tasks = (compat.find_task(self._context.scheduler, key) for key in keys)
        nbytes = float(sum(compat.size(task) for task in tasks if task is not None))
        return Schedule(levels, every, nbytes, self._failures)

    def _will_come(self, key: Hashable) -> bool:
        task = compat.find_task(self._context.scheduler, key)
        return task is None or compat.is_unfinished(task) or compat.is_wanted(task)


async def _by_and_by(keys: Iterable[Hashable]) -> AsyncIterator[Hashable]:
    """One after the other, and now and then others may work."""
    for number, key in enumerate(keys):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        yield key
