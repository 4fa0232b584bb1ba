"""The reads of one file system: which wait, which are in flight, and how they were served."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob, Ready
from dask_hpc.lanes.reads import MeasuredCost, intensity, reads
from dask_hpc.model.io import Kind, LaneView, Mix, NodeMix
from dask_hpc.planning.moves.leaving import FreeWorker, place


class Flight(NamedTuple):
    """A read that was let pass."""

    #: the worker it was sent to, if not Dask chose
    address: str | None
    since: float
    #: how many were in flight with it at first
    company: int
    #: the limit's number it is measured for, if it is
    period: int | None


class Lane:
    """The reads of one file system. A read is measured if others waited all the time, and as many were in
    flight as may be; if there is no limit, as many as there are when some have ended."""

    def __init__(self, name: str, rule: str, limit: int | None, is_fixed: bool) -> None:
        self.name = name
        #: the key of the configuration that limits it
        self.rule = rule
        self.limit = limit
        #: whether a person set the limit
        self.is_fixed = is_fixed
        self.reason = "set by configuration" if is_fixed else "no limit yet"
        #: how many tasks are in it, whatever their state
        self.tasks = 0
        self.in_flight: dict[Hashable, Flight] = {}
        #: what waits, by job; None for what is outside of jobs
        self.ready: dict[LiveJob | None, Ready] = {}
        #: reads that ended
        self.done = 0
        #: how many reads each worker was given here, and who got the last one
        self.given: dict[str, int] = {}
        self.last: str | None = None
        self._period = 0
        self._has_ended = False
        self._measured = 0
        self._company = 0.0
        self._seconds = 0.0
        self._squares = 0.0
        #: reads per second and seconds of a read, when they were last known
        self.rate: float | None = None
        self.seconds: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more may pass now."""
        return self.limit is not None and len(self.in_flight) >= self.limit

    def waiting(self) -> Iterator[Hashable]:
        """Keys of the reads that wait."""
        return (key for ready in self.ready.values() for key in ready)

    def count_waiting(self) -> int:
        """How many reads wait."""
        return sum(map(len, self.ready.values()))

    def change(self, limit: int | None, reason: str) -> None:
        """Another limit from now on; measuring starts anew."""
        self.limit, self.reason = limit, reason
        self._period += 1
        self._has_ended = False
        self._measured, self._company, self._seconds, self._squares = 0, 0.0, 0.0, 0.0

    def departs(self, key: Hashable, address: str | None, now: float) -> None:
        """A read is let pass."""
        company = len(self.in_flight) + 1
        is_typical = self._has_ended if self.limit is None else company >= self.limit
        self.in_flight[key] = Flight(address, now, company, self._period if is_typical else None)
        if address is not None:
            self.given[address] = self.given.get(address, 0) + 1
            self.last = address

    def arrives(self, key: Hashable, is_done: bool, now: float) -> Flight:
        """A read is not in flight any more. ``is_done``: it has a result."""
        company = len(self.in_flight)
        flight = self.in_flight.pop(key)
        if not is_done:
            return flight
        self.done += 1
        self._has_ended = True
        if flight.period == self._period and self.count_waiting():
            self._measured += 1
            self._company += (flight.company + company) / 2
            self._seconds += now - flight.since
            self._squares += (now - flight.since) ** 2
            if self._seconds > 0:
                self.rate, self.seconds = self._company / self._seconds, self._seconds / self._measured
        return flight

    def view(self) -> LaneView:
        """As strategies see it."""
        return LaneView(
            self.name, self.limit, self.is_fixed, len(self.in_flight), self.count_waiting(), self.done,
            self._measured, self._company, self._seconds, self._squares,
        )  # fmt: skip


_UNKNOWN = 0.5  # seconds of a task nobody has seen


class Head(NamedTuple):
    """The first read that waits of a job in a lane."""

    priority: Any
    #: of the lane: priorities may be equal
    number: int
    lane: Lane
    job: LiveJob | None
    key: Hashable


class SlotRoom:
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


def is_read(scheduler: Any, task: Any) -> bool:
    """Whether a task reads, by what is known now."""
    name = compat.prefix(task)
    return reads(name, compat.is_producer(task), MeasuredCost(*compat.measured(scheduler, name)))


#: tasks that pass in one turn of the event loop
PORTION = 500


class Passage:
    """Lets reads of all lanes pass."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: asked what goes next, if there is one
        self.strategy: Any = None
        #: whether reads outside of confined jobs wait for slots
        self.wants_slots = False
        #: what was last said of what goes next, a read or what computes
        self.paired = ""
        #: how many reads each worker was sent that have not ended
        self._reads_on: Counter[str] = Counter()

    def arrives(self, lane: Lane, key: Hashable, is_done: bool) -> None:
        """A read is not in flight any more."""
        address = lane.arrives(key, is_done, monotonic()).address
        if address is not None:
            self._reads_on[address] -= 1
            if not self._reads_on[address]:
                del self._reads_on[address]

    def vanish(self) -> None:
        """All tasks are gone."""
        self._reads_on.clear()
        self.wants_slots = False

    def let_pass(self, lanes: Collection[Lane], only_before_roots: bool) -> bool:
        """As many reads as limits and slots allow; whether it is to be called again, as there are so many.
        ``only_before_roots``: not after root tasks that wait for the same slots."""
        self.wants_slots = False
        rooms: dict[LiveJob | None, SlotRoom] = {}
        is_root = compat.RootRule(self._scheduler, self._scheduler.total_nthreads)
        full: set[LiveJob | None] = set()
        left = PORTION
        while left and (head := _best(lanes, full)):
            left -= 1
            task = compat.find_task(self._scheduler, head.key)
            confined = head.job if head.job is not None and head.job.confined else None
            is_off = self.strategy is None and head.lane.limit is None
            if confined is None and (is_off or not is_root(task)):
                self._back_to_dask(head, task)
                continue
            if confined not in rooms:
                rooms[confined] = SlotRoom(self._scheduler, confined)
            address = self._address(head, task, confined, rooms[confined], only_before_roots)
            if address is None:
                full.add(head.job)
                self.wants_slots |= confined is None
            else:
                rooms[confined].use(address)
                self._send(head, task, address)
        for lane in lanes:
            lane.ready = {job: ready for job, ready in lane.ready.items() if ready}
        return not left

    def _address(
        self, head: Head, task: Any, confined: LiveJob | None, room: SlotRoom, only_before_roots: bool
    ) -> str | None:
        """Where a read goes, if it is its turn."""
        if room.free <= room.others:
            return None
        rival = self._rival(confined) if only_before_roots else None
        if rival is not None:
            if self.strategy is not None and self.strategy.pair:
                return self._paired_address(head, task, rival, confined, room)
            if rival.priority < head.priority:
                return None
        together = self.strategy is None or self.strategy.together
        openings = [FreeWorker(slot.load, slot.address, slot.threads) for slot in room.slots.values()]
        return place(openings, head.lane.last if together else None, head.lane.given)

    def _rival(self, confined: LiveJob | None) -> Any:
        """The first root task that waits for the same slots."""
        if confined is None:
            return compat.first_queued(self._scheduler)
        first = confined.ready.first()
        return None if first is None else compat.find_task(self._scheduler, first[1])

    def _send(self, head: Head, task: Any, address: str) -> None:
        lane, job, key = head.lane, head.job, head.key
        lane.ready[job].discard(key)
        self._departs(lane, key, task, address)
        sent = compat.send(self._scheduler, {key: address}, f"hpc-lane-{job.id}" if job else "hpc-lane")
        compat.restrict(task, job.gate if job else None)
        if key not in sent:
            compat.nudge(self._scheduler, [key], "hpc-lane", plainly=True)

    def _back_to_dask(self, head: Head, task: Any) -> None:
        lane, job, key = head.lane, head.job, head.key
        lane.ready[job].discard(key)
        compat.restrict(task, job.gate if job else None)
        self._departs(lane, key, task, None)
        compat.nudge(self._scheduler, [key], "hpc-lane", plainly=True)

    def _departs(self, lane: Lane, key: Hashable, task: Any, address: str | None) -> None:
        """Measurements may say by now that it does not read: then it is not counted."""
        if is_read(self._scheduler, task):
            lane.departs(key, address, monotonic())
            if address is not None:
                self._reads_on[address] += 1

    def _paired_address(
        self, head: Head, task: Any, rival: Any, confined: LiveJob | None, room: SlotRoom
    ) -> str | None:
        """Where the strategy has the read go, perhaps after some of its rivals; None if all slots are for
        them."""
        scheduler = self._scheduler
        waiting = len(scheduler.queued) if confined is None else len(confined.ready)
        computes = self._kind(rival, waiting)
        reads_ = self._kind(task, head.lane.count_waiting())
        is_first = head.priority < rival.priority
        running = compat.count_running(scheduler, None if confined is None else confined.workers)
        while room.free > room.others:
            there = self._reads_on if confined is None else confined.workers & self._reads_on.keys()
            reading = sum(self._reads_on[address] for address in there)
            tasks = running + room.others
            found = self.strategy.next_of(
                Mix(
                    tasks,
                    self._load(tasks, reading, reads_, computes),
                    reads_,
                    Kind(computes.intensity, max(0, waiting - room.others), computes.seconds),
                    tuple(self._node(slot, reads_, computes) for slot in room.slots.values()),
                    is_first,
                )
            )
            self.paired = f"{'a read' if found.is_read else 'another task'} goes next: {found.reason}"
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
        measured = MeasuredCost(*compat.measured(self._scheduler, name))
        share = intensity(name, compat.is_producer(task), measured)
        seconds = compat.average_duration(self._scheduler, name)
        return Kind(share, waiting, _UNKNOWN if seconds is None else seconds)


def _best(lanes: Iterable[Lane], full: set[LiveJob | None]) -> Head | None:
    """The first of all reads that may pass."""
    return min(
        (
            Head(first[0], number, lane, job, first[1])
            for number, lane in enumerate(lanes)
            if lane.ready and not lane.is_full
            for job, ready in lane.ready.items()
            if job not in full and (job is None or job.state != "waiting") and (first := ready.first())
        ),
        key=lambda head: head[:2],
        default=None,
    )
