"""All that is protected, by name: what is copied when, and what is not needed any longer.

A name whose keys never change is copied as it becomes ready: at least as often as planned, and at once when
all of it is there. A name that gets new keys again and again (an iterating program) is copied when that is
due: then one of its versions is chosen, its results stay in memory until they are copied, and what was copied
before stays, in memory and as copies, until this version is copied as a whole: one death costs not both. So
never more than what was done since is computed again, however far the program has run ahead of the cluster.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.copies import Copying, Made
from dask_hpc.checkpoint.scheduler.keeping import Disks
from dask_hpc.checkpoint.scheduler.schedule import MTBF, STORE, Failures, Schedule
from dask_hpc.checkpoint.worker.rescue import may_be_stored
from dask_hpc.strategies.checkpoint.when import Every


class Version:
    """The keys that a name had at one time. ``awaited`` are those that are not in memory."""

    def __init__(self, protected: "Protected", keys: Iterable[Hashable]) -> None:
        self.protected = protected
        self.keys = dict.fromkeys(keys)
        self.awaited: set[Hashable] = set()

    @property
    def is_held(self) -> bool:
        """Whether its results are kept in memory: while it is copied, and while the next one is awaited."""
        protected = self.protected
        if self is protected.base:
            return bool(protected.pending)
        return protected.is_renewed and self is protected.target

    def to_copy(self) -> list[Hashable]:
        """Keys that are copied. Parts of a shuffle do more than their results tell: they are never loaded,
        so they are not copied."""
        return [key for key in self.keys if may_be_stored(key)]

    def is_whole(self, catalogue: Catalogue) -> bool:
        """Whether somebody has a copy of each."""
        return all(catalogue.where(key)[1] for key in self.to_copy())


@dataclass
class Protected:
    """``copies`` is how many agents have each block."""

    name: str
    schedule: Schedule
    copies: int = 1
    #: why the last copies are not on disks
    disk_problem: str = ""
    #: not copied as a whole, oldest first
    pending: list[Version] = field(default_factory=list)
    #: the one of these that is being copied
    target: Version | None = None
    #: the newest that was copied as a whole
    base: Version | None = None

    @property
    def newest(self) -> Version | None:
        """What the name means now."""
        return self.pending[-1] if self.pending else self.base

    @property
    def keys(self) -> dict[Hashable, None]:
        """Of what the name means now."""
        return self.newest.keys if self.newest is not None else {}

    @property
    def is_renewed(self) -> bool:
        """Whether the name has meant something else before: then copies are made when they are due, not when
        all is ready."""
        return self.base is not None or len(self.pending) > 1

    def versions(self) -> list[Version]:
        """All that are kept."""
        return [*([self.base] if self.base is not None else []), *self.pending]

    def choose(self, will_come: Callable[[Hashable], bool]) -> Version | None:
        """Which version is copied next: the newest that is there as a whole, or the oldest that can still
        get there."""
        for version in reversed(self.pending):
            if not version.awaited:
                return version
        return next((one for one in self.pending if all(map(will_come, one.awaited))), None)

    def as_plain(self, catalogue: Catalogue) -> dict[str, Any]:
        """How much of it is copied."""
        contents, copied = set(), 0
        for key in self.keys:
            content, where = catalogue.where(key)
            if where:
                contents.add(content)
                copied += 1
        planned = self.schedule.planned
        return {
            "name": self.name,
            "keys": len(self.keys),
            "copied": copied,
            "awaited": 0 if self.newest is None else len(self.newest.awaited),
            "nbytes": sum(catalogue.contents[one].nbytes for one in contents),
            "copies": self.copies,
            "levels": list(self.schedule.levels),
            "every": None if planned is None else dict(planned.every),
            "why": "" if planned is None else planned.reason,
            "next_due": self.schedule.next_due_in() if self.pending else None,
        }


#: seconds in which what becomes ready is taken together
_TOGETHER = 0.05
#: seconds between commits of one version whose results come one after another
_BATCH = 0.5
#: seconds until copies that were not made are looked at again
_AGAIN = 1.0
_AT_ONCE = 1000  # keys that are looked at before others may work
_PINS = "dask-hpc-protect"


class Protections:
    """``committed`` is told what came of each commit; ``set_apart`` sees that copies are not only where the
    result is; ``release`` is told which keys nobody protects any longer, and ``copied`` each time a name was
    looked at. ``start`` runs something in the background; ``nodes`` says how many there are."""

    def __init__(
        self,
        scheduler: Any,
        catalogue: Catalogue,
        copying: Copying,
        disks: Disks,
        committed: Callable[[str, Made], None],
        set_apart: Callable[[Iterable[Hashable]], Coroutine[Any, Any, None]],
        release: Callable[[Hashable], None],
        start: Callable[[Coroutine[Any, Any, Any]], None],
        tell: Callable[[str, str], None],
        nodes: Callable[[], int],
        mtbf: Mapping[str, float] = MTBF,
        copied: Callable[[Protected], None] = lambda protected: None,
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._copying = copying
        self._disks = disks
        self._tell_committed = committed
        self._set_apart = set_apart
        self._tell_released = release
        self._start = start
        self._tell = tell
        self._nodes = nodes
        self._tell_copied = copied
        self.names: dict[str, Protected] = {}
        self.failures = Failures(mtbf)
        self._owners: dict[Hashable, list[Version]] = {}
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        #: of each name, one commit at a time, and one change of what it means
        self._commits: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._changes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._owners

    def copies_of(self, key: Hashable) -> int:
        """On how many agents somebody wants a key to be."""
        return max((version.protected.copies for version in self._owners.get(key, ())), default=0)

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
                version = Version(protected, chosen)
                async for key in _by_and_by(chosen):
                    self._owners.setdefault(key, []).append(version)
                    if not self._copying.holders(key):
                        version.awaited.add(key)
                protected.pending.append(version)
                self._hold(protected)
        self._start(self._begin(protected))

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
                compat.pin(self._scheduler, [key], _PINS)
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
        compat.unpin_all(self._scheduler, _PINS)

    # when

    async def _begin(self, protected: Protected) -> None:
        await self._plan(protected)
        self._stir(protected)

    async def _plan(self, protected: Protected) -> None:
        found = await protected.schedule.plan(self._nodes())
        if found is not None:
            self._tell("interval", f"{protected.name}: {found.reason}")

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
        self._start(self._commit(protected))

    def _aim(self, protected: Protected, version: Version) -> None:
        """This version is copied next; its results stay until they are."""
        if protected.target is not None and protected.target is not version:
            self._unpin(protected.target)
        protected.target = version
        self._hold(protected)

    def _hold(self, protected: Protected) -> None:
        for version in (protected.base, protected.target):
            if version is not None and version.is_held:
                ready = [key for key in version.keys if self._copying.holders(key)]
                compat.pin(self._scheduler, ready, _PINS)

    # deeds

    async def _commit(self, protected: Protected) -> None:
        """Copy what is ready of the version that is being copied, or of the one that was."""
        async with self._commits[protected.name]:
            version, schedule = protected.target or protected.base, protected.schedule
            if version is None or self.names.get(protected.name) is not protected:
                return
            orders = self._copying.orders(version.to_copy(), self.copies_of)
            made = await self._copying.make(orders, protected.name, self.__contains__)
            self._tell_committed(protected.name, made)
            if made.copies:
                schedule.measured("partner", made.seconds, made.moved)
            await self._set_apart(version.to_copy())
            if "disk" in schedule.levels:
                await self._to_disk(protected, version)
            self._committed(protected, version)
        await self._plan(protected)
        self._tell_copied(protected)
        if protected.target is version and not version.awaited:
            self._set_timer(protected, _AGAIN)  # somebody had no room, or died
        elif protected.pending and protected.target is None and schedule.copies_due() > monotonic():
            self._stir(protected)  # else something has to happen first

    async def _to_disk(self, protected: Protected, version: Version) -> None:
        """Have agents write the copies of a version to their disks, too. What they cannot is told once."""
        found = await self._disks.keep(version.to_copy())
        if found.nbytes:
            protected.schedule.measured("disk", found.seconds, found.nbytes)
        if found.problem and not protected.disk_problem:
            self._tell("commit", f"{protected.name}: {found.problem}")
        protected.disk_problem = found.problem

    def _committed(self, protected: Protected, version: Version) -> None:
        """If all of it is copied, what was copied before is not needed any longer."""
        is_whole = version.is_whole(self._catalogue)
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
            self._start(self._release(one))

    def _give_up(self, version: Version) -> None:
        """It will never be copied as a whole."""
        protected = version.protected
        protected.pending.remove(version)
        if protected.target is version:
            protected.target = None
        if protected.base is not None and not protected.base.is_held:
            self._unpin(protected.base)
        self._start(self._release(version))
        self._stir(protected)

    async def _release(self, version: Version) -> None:
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
                self._tell_released(key)

    def _unpin(self, version: Version) -> None:
        """Its results stay only where another version needs them to."""
        free = [
            key
            for key in version.keys
            if not any(one.is_held for one in self._owners.get(key, ()) if one is not version)
        ]
        compat.unpin(self._scheduler, free, _PINS)

    # facts

    def _schedule(self, keys: Iterable[Hashable], levels: Sequence[str], every: Every) -> Schedule:
        tasks = (compat.find_task(self._scheduler, key) for key in keys)
        nbytes = float(sum(compat.size(task) for task in tasks if task is not None))
        return Schedule(levels, every, nbytes, self.failures)

    def _will_come(self, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        return task is None or compat.is_unfinished(task) or compat.is_wanted(task)


async def _by_and_by(keys: Iterable[Hashable]) -> AsyncIterator[Hashable]:
    """One after the other, and now and then others may work."""
    for number, key in enumerate(keys):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        yield key
