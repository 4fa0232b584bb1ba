"""The workers that have room for tasks of a kind, found once in a turn of the event loop, not for each task.

1. In one turn workers are only given more, so who has no room has none until it is over.
2. Who had none is not looked at again before something of ours ends on his node, or he lacked a slot and has
   one, or it is forgotten who had none (``KindRow.loosen``): time passes, or more is known of kinds.
"""

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.task_queue import TaskRow
from dask_hpc.model.node import Nodes
from dask_hpc.strategies.together.neighbours_view import KindLimit
from dask_hpc.together.scheduler.memory_rule import MemoryRule
from dask_hpc.together.scheduler.worker_memory import WorkerRooms


class KindRow(TaskRow):
    """The tasks of one kind."""

    in_flight: dict[Hashable, str]

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.in_flight = {}
        #: how many of them each worker was sent
        self.on: Counter[str] = Counter()
        #: of each worker, one of these that has nearly ended: the next one is to be there when it has
        self.ending: dict[str, Hashable] = {}
        #: of jobs with tasks that wait: the workers that had no room when one last looked, and whether what
        #: they lacked was a slot
        self.full: dict[LiveJob | None, dict[str, bool]] = {}

    def departs(self, key: Hashable, address: str) -> None:
        """A task was sent."""
        self.in_flight[key] = address
        self.on[address] += 1

    def arrives(self, key: Hashable) -> str:
        """It is not there any more. Where it was."""
        address = self.in_flight.pop(key)
        self.on[address] -= 1
        if not self.on[address]:
            del self.on[address]
        if self.ending.get(address) == key:
            del self.ending[address]
        return address

    def nearly_ends(self, key: Hashable) -> None:
        """A task will have ended by the time another one gets there."""
        address = self.in_flight.get(key)
        if address is not None:
            self.ending[address] = key
            self.loosen([address])

    def loosen(self, addresses: Iterable[str] | None = None) -> None:
        """These workers (None: all) may have room."""
        if addresses is None:
            self.full.clear()
            return
        for address in addresses:
            for full in self.full.values():
                full.pop(address, None)

    def lacks_slot(self, job: LiveJob | None) -> bool:
        """Whether a slot that opens may be what its tasks wait for."""
        return any(self.full.get(job, {}).values())

    def forget_empty(self) -> None:
        super().forget_empty()
        self.full = {job: full for job, full in self.full.items() if job in self.ready}


class TurnFacts(NamedTuple):
    """What is the same for all tasks that are looked at in one turn."""

    nodes: Nodes
    rooms: WorkerRooms
    memory: MemoryRule | None
    rows: Mapping[str, KindRow]
    #: workers with a slot
    open: Container[str]


class Openings:
    """Those for the tasks of one row and job. ``limit``: what holds for the kind beside others, and whether
    ``others`` wait."""

    def __init__(
        self,
        turn: TurnFacts,
        row: KindRow,
        job: LiveJob | None,
        limit: KindLimit | None = None,
        others: bool = False,
    ) -> None:
        self._turn = turn
        self._row = row
        self._limit = limit
        self._others = others
        self._full = row.full.setdefault(job, {})
        is_inside = job is not None and job.confined
        addresses: Iterable[str] = job.workers if job is not None and is_inside else turn.rooms.addresses()
        #: tasks for each thread, of the workers that have room
        self._loads: dict[str, float] = {}
        for address in addresses:
            lacked_slot = self._full.get(address)
            if lacked_slot is None or (lacked_slot and address in turn.open):
                self._look(address)
        self._heap = [(load, address) for address, load in self._loads.items()]
        heapify(self._heap)

    def best(self, there: Mapping[str, int]) -> str | None:
        """Of those with room the worker that has most of what a task needs (bytes ``there``), then the one
        that has least to do; None if there is none."""
        near = sorted(
            (-size, self._loads[address], address)
            for address, size in there.items()
            if size and address in self._loads
        )
        for _, _, address in near:
            if self._look(address):
                return address
        while self._heap:
            load, address = self._heap[0]
            if self._loads.get(address) == load and self._look(address):
                now = self._loads[address]
                if now == load:
                    return address
                heappush(self._heap, (now, address))
            heappop(self._heap)
        return None

    def was_sent(self, address: str) -> None:
        """One of them is on its way there."""
        self._turn.rooms.forget(address)
        if self._look(address):
            heappush(self._heap, (self._loads[address], address))

    def was_refused(self, address: str) -> None:
        """Dask did not send it there."""
        self._loads.pop(address, None)
        self._full[address] = False

    def _look(self, address: str) -> bool:
        """Whether one more may begin there, which is noted."""
        room = self._turn.rooms.of(address)
        if room is not None:
            has_seat = room.free > 0 if self._limit is None else self._has_seat(room, self._limit)
            if has_seat and self._fits(room):
                self._loads[address] = room.tasks / room.threads
                return True
            self._full[address] = not has_seat and not room.free
        self._loads.pop(address, None)
        return False

    def _has_seat(self, room: compat.WorkerRoom, limit: KindLimit) -> bool:
        """Whether one more of the kind may run on the node of that worker: beside others, or alone."""
        nodes, rooms, on = self._turn.nodes, self._turn.rooms, self._row.on
        workers = nodes.workers(nodes.node_of(room.address))
        ending = room.address in self._row.ending
        here = sum(on[address] for address in workers) - ending
        if here < limit.beside and on[room.address] - ending < room.threads:
            return True  # whatever waits for a slot: it comes before that
        if not room.free:
            return False
        known = [found for address in workers if (found := rooms.of(address)) is not None]
        busy = sum(found.tasks for found in known)
        if self._others and busy:
            return False
        threads = sum(found.threads for found in known)
        return busy - ending < threads and here < (threads if limit.alone is None else max(1, limit.alone))

    def _fits(self, room: compat.WorkerRoom) -> bool:
        memory, rows = self._turn.memory, self._turn.rows
        if memory is None:
            return True
        there = self._turn.rooms.kinds(room.address)
        rows_there = ((name, rows[name]) for name in there if name in rows)
        kept = {name: count for name, row in rows_there if (count := row.on.get(room.address, 0))}
        return memory.fits(room, self._row.name, kept, there)
