"""How reads pass: best first, as limits and slots allow, beside what computes, neighbours together.

A read that Dask would queue if it were not in a lane waits here until a slot opens, and goes to the worker
that is chosen for it; so does that of a confined job, on the job's own workers. In both cases it meets root
tasks that wait for the same slots, in Dask's queue or in the job's wave: Dask's order says who goes first,
or the strategy, if it pairs what reads with what computes. Other reads go back to Dask.
"""

from collections.abc import Collection, Hashable, Iterable
from time import monotonic
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.lane import Lane
from dask_hpc.live.pairing import Head, Pairing, Room, is_read
from dask_hpc.planning.neighbours import Opening, place

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
        self._pairing = Pairing(scheduler)

    @property
    def paired(self) -> str:
        """What was last said of what goes next, a read or what computes."""
        return self._pairing.said

    def arrives(self, lane: Lane, key: Hashable, is_done: bool) -> None:
        """A read is not in flight any more."""
        address = lane.arrives(key, is_done, monotonic()).address
        if address is not None:
            self._pairing.read_ends(address)

    def vanish(self) -> None:
        """All tasks are gone."""
        self._pairing.vanish()
        self.wants_slots = False

    def let_pass(self, lanes: Collection[Lane], only_before_roots: bool) -> bool:
        """As many reads as limits and slots allow; whether it is to be called again, as there are so many.
        ``only_before_roots``: not after root tasks that wait for the same slots."""
        self.wants_slots = False
        rooms: dict[LiveJob | None, Room] = {}
        is_root = compat.RootRule(self._scheduler, compat.all_threads(self._scheduler))
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
                rooms[confined] = Room(self._scheduler, confined)
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
        self, head: Head, task: Any, confined: LiveJob | None, room: Room, only_before_roots: bool
    ) -> str | None:
        """Where a read goes, if it is its turn."""
        if room.free <= room.others:
            return None
        rival = self._rival(confined) if only_before_roots else None
        if rival is not None:
            if self.strategy is not None and self.strategy.pair:
                return self._pairing.address(self.strategy, head, task, rival, confined, room)
            if compat.priority(rival) < head.priority:
                return None
        together = self.strategy is None or self.strategy.together
        openings = [Opening(slot.load, slot.address, slot.threads) for slot in room.slots.values()]
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
                self._pairing.read_starts(address)


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
