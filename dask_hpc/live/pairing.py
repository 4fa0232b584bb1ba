"""What goes next into open slots, a read or another root task: what the strategy sees of it, and its answer.

A worker stands for its node: what is paired on each worker of a node is paired on the node. Of the root
tasks that compute, the first one stands for all.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any, NamedTuple

from dask_hpc.live import compat
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.lane import Lane
from dask_hpc.model.io_view import Kind, Mix, NodeMix
from dask_hpc.planning.reads import Measured, intensity, reads

_UNKNOWN = 0.5  # seconds of a task nobody has seen


class Head(NamedTuple):
    """The first read that waits of a job in a lane."""

    priority: Any
    #: of the lane: priorities may be equal
    number: int
    lane: Lane
    job: LiveJob | None
    key: Hashable


class Room:
    """The slots of all workers, or of a confined job's, in this turn."""

    def __init__(self, scheduler: Any, job: LiveJob | None) -> None:
        addresses = None if job is None else job.workers
        self.slots = {slot.address: slot for slot in compat.free_slots(scheduler, addresses)}
        self.free = sum(slot.free for slot in self.slots.values())
        #: root tasks that do not read and go first
        self.others = 0

    def use(self, address: str) -> None:
        """One slot less."""
        slot = self.slots[address]
        self.free -= 1
        if slot.free > 1:
            self.slots[address] = slot.used_once()
        else:
            del self.slots[address]


class Pairing:
    """Asks the strategy."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: the last answer, in words
        self.said = ""
        self._reads_on: Counter[str] = Counter()

    def read_starts(self, address: str) -> None:
        """A read was sent to this worker."""
        self._reads_on[address] += 1

    def read_ends(self, address: str) -> None:
        """It is there no more."""
        self._reads_on[address] -= 1
        if not self._reads_on[address]:
            del self._reads_on[address]

    def vanish(self) -> None:
        """All tasks are gone."""
        self._reads_on.clear()

    def address(
        self, strategy: Any, head: Head, task: Any, rival: Any, confined: LiveJob | None, room: Room
    ) -> str | None:
        """Where the read goes, perhaps after some of its rivals; None if all slots are for them."""
        scheduler = self._scheduler
        waiting = compat.count_queued(scheduler) if confined is None else len(confined.ready)
        computes = self._kind(rival, waiting)
        reads_ = self._kind(task, head.lane.count_waiting())
        is_first = head.priority < compat.priority(rival)
        running = compat.count_running(scheduler, None if confined is None else confined.workers)
        while room.free > room.others:
            there = self._reads_on if confined is None else confined.workers & self._reads_on.keys()
            reading = sum(self._reads_on[address] for address in there)
            tasks = running + room.others
            found = strategy.next_of(
                Mix(
                    tasks,
                    self._load(tasks, reading, reads_, computes),
                    reads_,
                    Kind(computes.intensity, max(0, waiting - room.others), computes.seconds),
                    tuple(self._node(slot, reads_, computes) for slot in room.slots.values()),
                    is_first,
                )
            )
            self.said = f"{'a read' if found.is_read else 'another task'} goes next: {found.reason}"
            if found.is_read:
                return found.node
            room.others += 1
        return None

    def _node(self, slot: compat.Slot, reads_: Kind, computes: Kind) -> NodeMix:
        tasks = round(slot.load * slot.threads)
        load = self._load(tasks, self._reads_on.get(slot.address, 0), reads_, computes)
        return NodeMix(slot.address, tasks, load)

    def _load(self, tasks: int, reading: int, reads_: Kind, computes: Kind) -> float:
        return reading * reads_.intensity + max(0, tasks - reading) * computes.intensity

    def _kind(self, task: Any, waiting: int) -> Kind:
        name = compat.prefix(task)
        measured = Measured(*compat.measured(self._scheduler, name))
        share = intensity(name, compat.is_producer(task), measured)
        seconds = compat.average_duration(self._scheduler, name)
        return Kind(share, waiting, _UNKNOWN if seconds is None else seconds)


def is_read(scheduler: Any, task: Any) -> bool:
    """Whether a task reads, by what is known now."""
    name = compat.prefix(task)
    return reads(name, compat.is_producer(task), Measured(*compat.measured(scheduler, name)))
