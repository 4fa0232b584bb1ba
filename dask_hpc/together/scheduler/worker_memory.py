"""The memory of workers: what is there beside results and tasks, and what the tasks they have are counted
with."""

from collections.abc import Collection, Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.strategies.memory.memory_view import WorkerMemory
from dask_hpc.strategies.strategy import MemoryStrategy
from dask_hpc.together.scheduler.peaks import KindPeaks


class WorkerRooms:
    """Workers as they are in one turn of the event loop: asked for once, and again when they are sent
    something."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._known: dict[str, compat.WorkerRoom | None] = {}
        self._kinds: dict[str, Mapping[str, int]] = {}
        self._all: Collection[str] | None = None

    def addresses(self) -> Collection[str]:
        """Of all that may start tasks."""
        if self._all is None:
            self._all = compat.running_workers(self._scheduler)
        return self._all

    def of(self, address: str) -> compat.WorkerRoom | None:
        """That of this worker; None if it may start nothing."""
        if address not in self._known:
            self._known[address] = next(compat.worker_rooms(self._scheduler, [address]), None)
        return self._known[address]

    def kinds(self, address: str) -> Mapping[str, int]:
        """How many tasks of each kind it was given and has not ended."""
        found = self._kinds.get(address)
        if found is None:
            found = self._kinds[address] = compat.kinds_on(self._scheduler, address)
        return found

    def forget(self, address: str) -> None:
        """It was sent something."""
        self._known.pop(address, None)
        self._kinds.pop(address, None)


class WorkerMemories:
    """Of all workers, as memory strategies see them."""

    def __init__(self, scheduler: Any, peaks: KindPeaks) -> None:
        self._scheduler = scheduler
        self._peaks = peaks
        #: what each worker has that is neither a result nor a task's; and who has told that himself
        self._quiet: dict[str, float] = {}
        self._told: set[str] = set()
        #: workers that cannot tell what their tasks need, and why
        self.silent: dict[str, str] = {}
        self._least: WorkerMemory | None = None
        self._is_known = False

    def forget(self, address: str) -> None:
        """It is gone."""
        self._quiet.pop(address, None)
        self._told.discard(address)
        self.silent.pop(address, None)
        self._is_known = False

    def at_rest(self, address: str, size: float) -> None:
        """A worker says what it has when nothing runs."""
        self._quiet[address] = size
        self._told.add(address)
        self._is_known = False

    def look(self) -> None:
        """What workers that have not said it have beside results: all of it where nothing runs, else what was
        there before. By the last heartbeat, which may be of a time when something ran."""
        for room in compat.all_worker_rooms(self._scheduler):
            if room.address in self._told:
                continue
            beside = max(0.0, room.process - room.results)
            known = self._quiet.get(room.address, beside)
            self._quiet[room.address] = beside if not room.tasks else min(known, beside)
        self._is_known = False

    @property
    def nobody_told(self) -> bool:
        """Whether there was no worker that can, when it was last asked."""
        return self._least is None

    def changed(self) -> None:
        """There are others."""
        self._is_known = False

    def cannot_tell(self, address: str, why: str) -> None:
        """What tasks need there nobody knows."""
        if self.silent.get(address) != why:
            self.silent[address] = why
            self._is_known = False

    def can_tell(self, address: str) -> None:
        """It is known there, perhaps from now on."""
        if self.silent.pop(address, None) is not None:
            self._is_known = False

    def is_told(self, room: compat.WorkerRoom) -> bool:
        """Whether it has a limit, and can tell what its tasks need."""
        return bool(room.limit) and room.address not in self.silent

    def least(self) -> WorkerMemory | None:
        """The worker that has the least for each thread; None if nobody can tell what tasks need. One that is
        paused for want of memory counts; and if all are gone, who was there before, as they may be started
        anew."""
        if not self._is_known:
            rooms = list(compat.all_worker_rooms(self._scheduler))
            told = [self.plain(room) for room in rooms if self.is_told(room)]
            if rooms:
                self._least = min(told, key=lambda one: (one.limit - one.base) / one.threads, default=None)
            self._is_known = True
        return self._least

    def plain(self, room: compat.WorkerRoom) -> WorkerMemory:
        """Without its tasks."""
        return WorkerMemory(room.limit, room.threads, room.results + self._quiet.get(room.address, 0.0))

    def now(
        self,
        room: compat.WorkerRoom,
        by: MemoryStrategy,
        kept: Mapping[str, int],
        there: Mapping[str, int],
        kind: str,
    ) -> WorkerMemory:
        """For a task of that kind. ``there``: how many tasks of each kind it has; ``kept``: of those that are
        let pass one by one. Of the others as many run as it has threads left, at worst those that need
        most."""
        plain, left = self.plain(room), room.threads
        needed = 0.0
        for name, count in kept.items():
            needed += by.need(self._peaks.of(name), plain) * count
            left -= count
        others = [
            (by.need(self._peaks.of(name), plain), count)
            for name, all_of_it in there.items()
            if (count := all_of_it - kept.get(name, 0)) > 0 and self._peaks.is_known(name)
        ]
        for need, count in sorted(others, reverse=True):
            running = max(0, min(left, count))
            needed += running * need
            left -= running
        return WorkerMemory(
            plain.limit, plain.threads, plain.base, needed, sum(kept.values()), kept.get(kind, 0)
        )
