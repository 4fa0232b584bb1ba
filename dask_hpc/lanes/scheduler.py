"""I/O lanes: of the tasks that read from one file system, only so many are in flight on the whole cluster.

A file system that serves some readers well and collapses under more gets a limit, a person's
(``hpc.io-lanes``) or one that is found by trying (strategy ``io-lanes``). The tasks that read from it are
restricted to an address that no worker has; ready, they wait in Dask's state ``no-worker``, best first, and
pass as others end. A task that is in flight carries what it would have without lanes.

1. A task reads if ``reads.py`` says so when it is submitted. While it waits, measurements may say
   otherwise: then it passes without being counted.
2. Its file system is the longest configured path that its store lies under; if there is none, for the limit
   "default" and where limits are found by trying, the first folder of the path (or scheme and host of a URL);
   if no path is found in the task, for the limit "default" the collection that is read. All tasks of one
   Dask group are taken to read from the same. (xarray marks arrays that it chunks in memory as producers,
   too: for the limit "default" they read until they are measured.)
3. Lanes do not know of each other: one that is full lets the others go on.
4. Tasks that the user restricted (``workers=``, ``resources=``) and actors are left alone.
   Writes are in no lane: nothing in a task says that it writes, as Dask has no mark for that, and what waits
   to be written stays in memory meanwhile, where a read that waits costs nothing.
5. Another limit applies at once to what waits; which tasks are in a lane is decided when they are submitted.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Samples, Service
from dask_hpc.cluster.scheduler.task_queue import PORTION, Head, KeptTasks, TaskRow
from dask_hpc.config import AUTO
from dask_hpc.lanes.reads import MeasuredCost, file_share, file_system, intensity, reads, rule_of
from dask_hpc.planning.moves.leaving import FreeWorker, place
from dask_hpc.policy import Policy
from dask_hpc.strategies.io.lane_reads import LaneReads, explained
from dask_hpc.strategies.io.lane_view import IoView, Kind, Mix, NodeMix


class Lane(TaskRow, LaneReads):
    """The reads of one file system that are tasks of the cluster."""

    def __init__(self, name: str, rule: str, limit: int | None, is_fixed: bool) -> None:
        TaskRow.__init__(self, name)
        LaneReads.__init__(self, name, limit, is_fixed)
        #: the key of the configuration that limits it
        self.rule = rule
        #: how many reads each worker was given here, and who got the last one
        self.given: dict[str, int] = {}
        self.last: str | None = None

    def departs(self, key: Hashable, address: str | None, now: float) -> None:
        super().departs(key, address, now)
        if address is not None:
            self.given[address] = self.given.get(address, 0) + 1
            self.last = address


_UNKNOWN = 0.5  # seconds of a task nobody has seen
_MOST = 20  # file systems that metrics tell apart


class SlotRoom:
    """The slots of all workers, or of a confined job's, in this turn."""

    def __init__(self, scheduler: Any, job: LiveJob | None) -> None:
        addresses = None if job is None else job.workers
        self.slots = {slot.address: slot for slot in compat.free_slots(scheduler, addresses)}
        self.free = sum(slot.free for slot in self.slots.values())
        #: root tasks that do not read and go first
        self.others = 0

    def use(self, address: str) -> None:
        slot = self.slots[address]
        self.free -= 1
        if slot.free > 1:
            self.slots[address] = slot.used_once()
        else:
            del self.slots[address]


class Lanes(KeptTasks[Lane], Service):
    """Lets reads pass, by the setting ``io-lanes`` and by the policy's ``io`` strategy, which is asked for
    limits and for what goes next."""

    metrics = {
        "io_limit": (False, "Most reads at once of a file system, where there is a limit", "file_system"),
        "io_in_flight": (False, "Reads in flight by file system", "file_system"),
        "io_waiting": (False, "Reads that wait by file system", "file_system"),
        "io_reads": (
            True,
            "Reads that have ended, by file system, since it was first read from",
            "file_system",
        ),
        "io_reads_per_second": (False, "Reads per second by file system, as last measured", "file_system"),
    }
    parts = {"lanes": "lanes"}

    def begin(self) -> None:
        """Nothing is in a lane. At the end the gate closes them."""
        self._waves = self.context.get(Gate).waves
        self.keep_none(self.context, self._waves.queue_wakes)
        self._waves.queues.add(self)
        self._limits: dict[str, int] = {}
        self._strategy: Any = None
        self._memory: Any = None
        self._is_asking = False
        #: how many reads each worker was sent that have not ended
        self._reads_on: Counter[str] = Counter()
        #: what was last said of what goes next, a read or what computes
        self.paired = ""
        self.policy_changes()

    def policy_changes(self) -> None:
        if self.context.is_dry:
            return
        limits, strategy = self._rules(self.context.policy)
        self.set_rules(limits, strategy)
        if limits or strategy is not None or self.row_of:
            self.context.watch(self, self.row_of)
        else:
            self.context.unwatch(self)

    def _rules(self, policy: Policy) -> tuple[Mapping[str, int] | None, Any]:
        """The limits of people under this policy, and the strategy for the others."""
        limits = self.context.settings["io-lanes"]
        return (None, policy.io or Policy.load("io-lanes").io) if limits == AUTO else (limits, policy.io)

    def set_rules(self, limits: Mapping[str, int] | None, strategy: Any) -> None:
        """So many reads in flight: by path, and "default" for every other file system; None for no limits
        of that kind. ``strategy`` says the rest; without it, what has no limit is in no lane."""
        self._limits = {path.rstrip("/") or "/": most for path, most in (limits or {}).items()}
        if strategy != self._strategy:
            self._strategy, self._memory = strategy, None
        for lane in self.by_name.values():
            most = self._limits.get(lane.rule)
            if most is not None and (most != lane.limit or not lane.is_fixed):
                lane.change(most, "set by configuration")
            elif most is None and (lane.is_fixed or (strategy is None and lane.limit is not None)):
                lane.change(None, "no limit")
            lane.is_fixed = most is not None
        if self.by_name:
            self._waves.queue_wakes(None)
            self._ask_soon()

    def _ask_soon(self) -> None:
        """A file system is read from for the first time, or reads have ended."""
        if self._strategy is not None and not self._is_asking:
            self._is_asking = True
            self._scheduler.loop.add_callback(self._ask)

    def _ask(self) -> None:
        """What the strategy says of limits is done, and told."""
        self._is_asking = False
        if self._strategy is None or self.context.is_paused:
            return
        try:
            view, before = self._view(), self._memory
            changes, self._memory = self._strategy.decide(view, before)
            if changes:
                self.context.record(self._strategy, view, before, changes)
            for change in changes:
                self.by_name[change.lane].change(change.limit, change.reason)
                self._waves.queue_wakes(None)
                why = explained(view, change, f"io: {self._strategy.name}")
                self.context.tell("io-limit", str(change), why)
        except Exception as error:
            self._memory = None
            self.context.count_error("tuning of I/O", error)

    def _view(self) -> IoView:
        lanes = tuple(lane.view() for lane in self.by_name.values())
        return IoView(self._scheduler.total_nthreads, lanes)

    def foresees(self, policy: Policy) -> Iterator[tuple[str, str]]:
        _, strategy = self._rules(policy)
        if strategy is not None and not self.context.is_dry:
            before = self._memory if strategy == self._strategy else None
            changes, _ = strategy.decide(self._view(), before)
            yield from (("io-limit", str(change)) for change in changes)

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        """Tasks arrive, none of which has moved yet, and jobs have taken theirs."""
        if not self._limits and self._strategy is None:
            return
        by_group: dict[Any, Lane | None] = {}
        for key in tasks:
            task = compat.find_task(self._scheduler, key)
            if self._waves.queues.keeps(key) or not compat.is_new(task) or not self.may_be_kept(key, task):
                continue
            group = task.group
            if group not in by_group:
                by_group[group] = self._lane(task) if self._is_read(task) else None
            if lane := by_group[group]:
                self.keep_back(key, task, lane)

    def lands(self, lane: Lane, key: Hashable, is_done: bool) -> None:
        address = lane.arrives(key, is_done, monotonic()).address
        if address is not None:
            self._reads_on[address] -= 1
            if not self._reads_on[address]:
                del self._reads_on[address]
        self._ask_soon()

    def tasks_vanish(self) -> None:
        super().tasks_vanish()
        self._reads_on.clear()

    def give_back(self) -> list[Hashable]:
        waiting = super().give_back()
        self._limits = {}
        self._strategy = None
        return waiting

    def _lane(self, task: Any) -> Lane | None:
        path = compat.source(task)
        rule = rule_of(path or "", self._limits)
        if rule not in self._limits and (self._strategy is None or not path):
            return None
        name = rule
        if rule == "default":
            name = file_system(path) if path else f"of {task.group.name}"
        lane = self.by_name.get(name)
        if lane is None:
            lane = self.by_name[name] = Lane(name, rule, self._limits.get(rule), rule in self._limits)
            self._ask_soon()
        return lane

    def _cost(self, task: Any) -> tuple[str, bool, MeasuredCost]:
        """What is known now of tasks like this one: their name, Dask's mark, what was measured."""
        name = compat.prefix(task)
        return name, compat.is_producer(task), MeasuredCost(*compat.measured(self._scheduler, name))

    def file_share(self, name: str, makes_data: bool) -> float:
        """Also where nothing is limited."""
        return file_share(name, makes_data, MeasuredCost(*compat.measured(self.context.scheduler, name)))

    def _is_read(self, task: Any) -> bool:
        return reads(*self._cost(task))

    def let_pass(self, only_before_roots: bool) -> None:
        if not self.by_name:
            return
        rooms: dict[LiveJob | None, SlotRoom] = {}
        is_root = compat.RootRule(self._scheduler, self._scheduler.total_nthreads)
        full: set[LiveJob | None] = set()
        left = PORTION

        def may_pass(lane: Lane, job: LiveJob | None) -> bool:
            return job not in full and not lane.is_full

        while left and (head := self.first(may_pass)):
            left -= 1
            task = compat.find_task(self._scheduler, head.key)
            confined = head.job if head.job is not None and head.job.confined else None
            is_off = self._strategy is None and head.row.limit is None
            if confined is None and (is_off or not is_root(task)):
                self._send(head, task, None)
                continue
            if confined not in rooms:
                rooms[confined] = SlotRoom(self._scheduler, confined)
            address = self._address(head, task, confined, rooms[confined], only_before_roots)
            if address is None:
                full.add(head.job)
                self.queues.wants_look |= confined is None
            else:
                rooms[confined].use(address)
                self._send(head, task, address)
        for lane in self.by_name.values():
            lane.forget_empty()
        if not left:
            self._waves.queue_wakes(None)

    def _address(
        self, head: Head[Lane], task: Any, confined: LiveJob | None, room: SlotRoom, only_before_roots: bool
    ) -> str | None:
        """Where a read goes, if it is its turn."""
        if room.free <= room.others:
            return None
        rival = None
        if only_before_roots and confined is None:
            rival = compat.first_queued(self._scheduler)
        elif only_before_roots and confined is not None and (first := confined.ready.first()):
            rival = compat.find_task(self._scheduler, first[1])
        if rival is not None:
            if self._strategy is not None and self._strategy.pair:
                return self._paired_address(head, task, rival, confined, room)
            if rival.priority < head.priority:
                return None
        together = self._strategy is None or self._strategy.together
        openings = [
            FreeWorker(slot.load, slot.address, slot.threads, self._reads_on[slot.address])
            for slot in room.slots.values()
        ]
        return place(openings, head.row.last if together else None, head.row.given)

    def _send(self, head: Head[Lane], task: Any, address: str | None) -> None:
        """A read passes: to this worker, or to where Dask chooses."""
        lane, job, key = head.row, head.job, head.key
        lane.ready[job].discard(key)
        if self._is_read(task):  # measurements may say by now that it does not: then it is not counted
            lane.departs(key, address, monotonic())
            if address is not None:
                self._reads_on[address] += 1
        is_sent = address is not None and key in compat.send(
            self._scheduler, {key: address}, f"hpc-lane-{job.id}" if job else "hpc-lane"
        )
        compat.restrict(task, job.gate if job else None)
        if not is_sent:
            compat.nudge(self._scheduler, [key], "hpc-lane", plainly=True)

    def _paired_address(
        self, head: Head[Lane], task: Any, rival: Any, confined: LiveJob | None, room: SlotRoom
    ) -> str | None:
        """Where the strategy has the read go, perhaps after some of its rivals; None if all slots are for
        them."""
        scheduler = self._scheduler
        waiting = len(scheduler.queued) if confined is None else len(confined.ready)
        computes = self._kind(rival, waiting)
        reads_ = self._kind(task, head.row.count_waiting())
        is_first = head.priority < rival.priority
        running = compat.count_running(scheduler, None if confined is None else confined.workers)
        there = self._reads_on if confined is None else confined.workers & self._reads_on.keys()
        reading = sum(self._reads_on[address] for address in there)

        def load(tasks: int, reading: int) -> float:
            return reading * reads_.intensity + max(0, tasks - reading) * computes.intensity

        def node(slot: compat.Slot) -> NodeMix:
            tasks = round(slot.load * slot.threads)
            return NodeMix(slot.address, tasks, load(tasks, self._reads_on[slot.address]))

        nodes = tuple(map(node, room.slots.values()))
        while room.free > room.others:
            tasks = running + room.others
            left = Kind(computes.intensity, max(0, waiting - room.others), computes.seconds)
            found = self._strategy.next_of(Mix(tasks, load(tasks, reading), reads_, left, nodes, is_first))
            self.paired = f"{'a read' if found.is_read else 'another task'} goes next: {found.reason}"
            if found.is_read:
                address: str | None = found.node
                return address
            room.others += 1
        return None

    def _kind(self, task: Any, waiting: int) -> Kind:
        cost = self._cost(task)
        seconds = compat.average_duration(self._scheduler, cost[0])
        return Kind(intensity(*cost), waiting, _UNKNOWN if seconds is None else seconds)

    def status(self) -> Mapping[str, Any]:
        """Each file system that is read from, and what was last said of what goes next."""
        return {"io": self.part("lanes"), "io_next": self.paired}

    def part(self, name: str) -> Any:
        return [
            {
                "file_system": lane.name,
                "limit": lane.limit,
                "tuned": not lane.is_fixed and self._strategy is not None,
                "in_flight": len(lane.in_flight),
                "waiting": lane.count_waiting(),
                "done": lane.done,
                "reads_per_second": lane.rate,
                "seconds_per_read": lane.seconds,
                "reason": lane.reason,
            }
            for lane in self.by_name.values()
        ]

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        shown = sorted(status["io"], key=lambda lane: -lane["done"])[:_MOST]
        return {
            name: {lane["file_system"]: lane[key] for lane in shown if lane[key] is not None}
            for name in self.metrics
            for key in ["done" if name == "io_reads" else name.removeprefix("io_")]
        }


SERVICE = Lanes
