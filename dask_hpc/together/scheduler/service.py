"""Kinds of tasks that are let pass one by one, as many at once as a worker's memory has room for.

1. A kind is what Dask calls a prefix: the part of the key that says what a task does. What its tasks need is
   told by workers as soon as the first of them has ended, or has grown (``worker/peaks.py``), and known from
   earlier programs (``hpc.history``).
2. Of which kinds tasks are let pass one by one, and how many may run at once on a worker, is what the
   policy's ``memory`` strategy says. A task of them waits on the scheduler until a worker that may have it
   has room, and goes to the one that has most of what it needs; it stays there, as nobody counts with it
   elsewhere.
3. A kind that turns out to need much is taken out of Dask's queue; what was sent before is counted, and runs.
   One that needs little is left to Dask.
4. Tasks that the user restricted (``workers=``, ``resources=``), actors, and what waits in another queue, are
   left alone.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Timer, WorkerSetting
from dask_hpc.cluster.scheduler.task_queue import PORTION, Head, KeptTasks, TaskRow
from dask_hpc.model.story import Explanation
from dask_hpc.model.units import show_bytes
from dask_hpc.strategies.memory.memory_view import KindMemory, WorkerMemory
from dask_hpc.together.scheduler.peaks import KindPeaks
from dask_hpc.together.scheduler.worker_memory import WorkerMemories, WorkerRooms
from dask_hpc.together.worker.observer import METRIC, TaskObserver
from dask_hpc.together.worker.peaks import TOPIC

_OFTEN = 0.5  # of the time between two heartbeats of a worker: so often it is looked
_AT_REST = 3  # heartbeats after the last task
_SHOWN = 50  # kinds that the status has, those that need most
_UNHEARD = 5.0  # seconds after the end of a kind's first task, when nobody will say what it needed


class KindRow(TaskRow):
    """The tasks of one kind."""

    in_flight: dict[Hashable, str]

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.in_flight = {}
        #: how many of them each worker was sent
        self.on: Counter[str] = Counter()
        #: jobs for whose tasks no worker had room when it was last looked
        self.stuck: set[LiveJob | None] = set()

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
        return address


class KindLanes(KeptTasks[KindRow], Service):
    """Lets tasks pass that need much of a worker's memory."""

    metrics = {
        "memory_kinds": (False, "Kinds of tasks that are let pass one by one for the memory they need"),
        "memory_waiting": (False, "Tasks of them that are ready and wait for memory of a worker"),
    }
    parts = {"memory": "memory"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._observers = WorkerSetting(context, TaskObserver)
        self._timer = Timer(context, "memory of tasks", self._look)

    # its life

    def begin(self) -> None:
        self._waves = self.context.get(Gate).waves
        self.keep_none(self.context, self._waves.queue_wakes)
        self._waves.queues.add(self)
        self.peaks = KindPeaks()
        self.memories = WorkerMemories(self.context.scheduler, self.peaks)
        self._strategy: Any = None
        #: where something has ended since the last look
        self._fresh: set[str] = set()
        #: kinds that tasks have ended of, of which nobody has said what they need, and since when
        self._unheard: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._last_task = 0.0
        self.policy_changes()

    def policy_changes(self) -> None:
        strategy = self.context.policy.memory
        if self.context.is_dry or strategy == self._strategy:
            return
        self._strategy = strategy
        self._observers.set(None if strategy is None else (False, True))
        if strategy is None:
            self._stop()
        else:
            self.context.watch(self, self.row_of)
            self._look()

    def release(self) -> None:
        self._strategy = None
        self._observers.set(None)
        self._stop()

    def _stop(self) -> None:
        self._timer.stop()
        for row in list(self.by_name.values()):
            self._open(row)
        self.context.unwatch(self)

    async def settle(self) -> None:
        await self._observers.settle()

    def cancel(self) -> None:
        self._timer.stop()
        self._observers.cancel()

    # what happens

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        if self._strategy is None:
            return
        self._wake()
        kept: dict[str, bool] = {}
        for key in tasks:
            task = compat.find_task(self._scheduler, key)
            if key in self.row_of or not compat.is_new(task) or not self._may_wait_here(key, task):
                continue
            kind = compat.prefix(task)
            if kind not in kept:
                kept[kind] = kind in self.by_name or self._is_to_be_kept(kind)
            if kept[kind]:
                self.keep_back(key, task, self._row(kind))

    def _may_wait_here(self, key: Hashable, task: Any) -> bool:
        return self.may_be_kept(key, task) and not (
            self._waves.queues.keeps(key) or compat.is_of_shuffle(task)
        )

    def _row(self, kind: str) -> KindRow:
        row = self.by_name.get(kind)
        if row is None:
            row = self.by_name[kind] = KindRow(kind)
        return row

    def lands(self, row: KindRow, key: Hashable, is_done: bool) -> None:
        self._fresh.add(row.arrives(key))
        if is_done and not self.peaks.is_known(row.name):
            self._unheard.setdefault(row.name, self.context.clock())

    def tasks_vanish(self) -> None:
        super().tasks_vanish()
        self._unheard.clear()

    def worker_joins(self, address: str) -> None:
        self._loosen()

    def worker_leaves(self, address: str) -> None:
        self.memories.forget(address)
        self._numbers.pop(address, None)
        self._loosen()

    def log_event(self, topic: str, message: Any) -> None:
        if topic != TOPIC or self._strategy is None:
            return
        worker, now = str(message["worker"]), self.context.clock()
        if kinds := message.get("kinds"):
            self._heed(self.peaks.hear_kinds(worker, kinds))
        if running := message.get("running"):
            self._heed(self.peaks.hear_running(running, now))

    # what is known

    def _heed(self, kinds: list[str]) -> None:
        """More is known of these."""
        for kind in kinds:
            self._unheard.pop(kind, None)
            if self._is_to_be_kept(kind):
                self._gather(kind)
            elif (row := self.by_name.get(kind)) is not None:
                self._open(row)
        if kinds:
            self._loosen()

    def _is_to_be_kept(self, kind: str) -> bool:
        least = self.memories.least()
        return least is not None and self._strategy.keeps(self._known(kind), least)

    def _known(self, kind: str) -> KindMemory:
        return self.peaks.of(kind, self.context.clock())

    def _gather(self, kind: str) -> None:
        """Tasks of that kind that were not sent are let pass one by one from now on; those that were are
        counted."""
        if kind in self.by_name:
            return
        row = KindRow(kind)
        queued = []
        for key in compat.not_sent(self._scheduler, kind):
            task = compat.find_task(self._scheduler, key)
            if self._may_wait_here(key, task):
                if (job := self.context.owner.get(key)) is not None:
                    job.held.pop(key, None)
                    job.ready.discard(key)
                self.keep_back(key, task, row)
                self.changes_hands(key, task)
                queued.append(key)
        if not row.tasks:
            return
        self.by_name[kind] = row
        for key, task in compat.in_flight(self._scheduler):
            if compat.prefix(task) == kind and key not in self.row_of and self.may_be_kept(key, task):
                self.row_of[key] = row
                row.tasks += 1
                row.departs(key, compat.address_of(task))
        compat.release_queued(self._scheduler, queued, "hpc-memory")

    def _open(self, row: KindRow) -> None:
        """Tasks of that kind are Dask's own business from now on."""
        keys = [key for key, its in self.row_of.items() if its is row]
        for key in keys:
            self.leave(key, row)
        self.by_name.pop(row.name, None)
        self.context.get(Gate).free(keys)

    # every so often

    def _wake(self) -> None:
        self._last_task = self.context.clock()
        if self._strategy is not None and not self._timer.is_set:
            self._look()

    def _loosen(self) -> None:
        """Somebody may have room, or more is known of what tasks need."""
        for row in self.by_name.values():
            row.stuck.clear()
        if self.by_name:
            self._waves.queue_wakes(None)

    def _look(self) -> None:
        now, heartbeat = self.context.clock(), compat.heartbeat_seconds(self._scheduler)
        if compat.unfinished(self._scheduler):
            self._last_task = now
        if now - self._last_task < _AT_REST * heartbeat or self.row_of:
            self._timer.set(_OFTEN * heartbeat)
        self.memories.look()
        for address, said in compat.metrics(self._scheduler, METRIC):
            self._listen(address, said)
        for kind, since in list(self._unheard.items()):
            if now - since > _UNHEARD:
                self.peaks.assume(kind, 0.0)
                self._heed([kind])
        for row in list(self.by_name.values()):
            if not self._is_to_be_kept(row.name):
                self._open(row)
        self._loosen()
        self._tell()

    def _listen(self, address: str, said: Any) -> None:
        if not isinstance(said, Mapping) or self._numbers.get(address) == said["number"]:
            return
        self._numbers[address] = said["number"]
        told = said["peaks"]
        if told is None:
            return
        if told["kinds"] is None:
            if address not in self.memories.silent:
                self.memories.silent[address] = str(told["how"])
                self._loosen()
        else:
            self._heed(self.peaks.hear_kinds(address, told["kinds"]))

    def _tell(self) -> None:
        """What has changed since it was told last."""
        least = self.memories.least()
        for kind, row in self.by_name.items():
            if least is None or not self.peaks.is_known(kind):
                continue
            known = self._known(kind)
            count = self._strategy.at_once(known, least)
            words = f"{count} at once on a worker"
            if self._told.get(kind) != words:
                self._told[kind] = words
                need, limit = show_bytes(known.peak or 0.0), show_bytes(least.limit)
                inputs = {"peak": known.peak, "limit": least.limit, "base": least.base, "waiting": row.tasks}
                why = Explanation(f"memory: {self._strategy.name}", inputs, ())
                self.context.tell("memory-lane", f"{kind}: {words}: one needs {need} of {limit}", why)

    # what passes

    def let_pass(self, only_before_roots: bool) -> None:
        self.has_news = self.wants_slots = False
        if self._strategy is None or not self.by_name:
            return
        rooms = WorkerRooms(self._scheduler)
        done: set[tuple[str, LiveJob | None]] = set()
        for _ in range(PORTION):
            head = self.first(lambda row, job: (row.name, job) not in done)
            if head is None:
                break
            address = None if self._is_rivals_turn(head, only_before_roots) else self._place(head, rooms)
            if address is None:
                done.add((head.row.name, head.job))
            else:
                self._send(head, address)
                rooms.forget(address)
        else:
            self._waves.queue_wakes(None)
        self._fresh.clear()
        for row in self.by_name.values():
            row.forget_empty()

    def _is_rivals_turn(self, head: Head[KindRow], only_before_roots: bool) -> bool:
        """Whether another root task that waits for slots goes first."""
        if not only_before_roots:
            return False
        job = head.job
        if job is None or not job.confined:
            rival = compat.first_queued(self._scheduler)
        else:
            first = job.ready.first()
            rival = compat.find_task(self._scheduler, first[1]) if first else None
        if rival is None or head.priority < rival.priority:
            return False
        self.wants_slots |= job is None or not job.confined
        return True

    def _place(self, head: Head[KindRow], rooms: WorkerRooms) -> str | None:
        """The worker for the first task of a row: of those that have room the one that has most of what it
        needs."""
        row, job, now = head.row, head.job, self.context.clock()
        inside = job.workers if job is not None and job.confined else None
        there = compat.bytes_there(compat.find_task(self._scheduler, head.key))
        found: list[tuple[float, float, str]] = []
        for address in self._fresh if job in row.stuck else rooms.addresses() if inside is None else inside:
            room = rooms.of(address) if inside is None or address in inside else None
            if room is None:
                continue
            if not room.free:
                self.wants_slots |= inside is None
            elif self._fits(row, room, now):
                found.append((-there.get(address, 0), room.tasks / room.threads, address))
        if not found:
            row.stuck.add(job)
            return None
        return min(found)[2]

    def _fits(self, row: KindRow, room: compat.WorkerRoom, now: float) -> bool:
        if not self.memories.is_told(room):
            return True
        kept = {name: row.on[room.address] for name, row in self.by_name.items() if row.on[room.address]}
        memory = self.memories.now(room, self._strategy, kept, row.name, now)
        return bool(self._strategy.fits(self._known(row.name), memory))

    def _send(self, head: Head[KindRow], address: str) -> None:
        row, job, key = head.row, head.job, head.key
        row.ready[job].discard(key)
        row.departs(key, address)
        self.peaks.begins(row.name, self.context.clock())
        stimulus = f"hpc-kind-{job.id}" if job else "hpc-kind"
        if key not in compat.send(self._scheduler, {key: address}, stimulus):
            row.arrives(key)
            if (task := compat.find_task(self._scheduler, key)) is not None:
                compat.restrict(task, self._shut)

    # what is shown

    def status(self) -> Mapping[str, Any]:
        """Which kinds are let pass one by one, and what is known of all."""
        return {"memory": self.part("memory")}

    def part(self, name: str) -> Any:
        least = self.memories.least() if self._strategy is not None else None
        return {
            "is_on": self._strategy is not None,
            "why_not": sorted(set(self.memories.silent.values())),
            "kinds": [self._shown(kind, least) for kind in self._kinds()],
        }

    def _kinds(self) -> list[str]:
        known = sorted(self.peaks.known(), key=lambda one: -one[1].bytes)[:_SHOWN]
        return [*dict.fromkeys([*self.by_name, *(kind for kind, _ in known)])][:_SHOWN]

    def _shown(self, kind: str, least: WorkerMemory | None) -> dict[str, Any]:
        row, known = self.by_name.get(kind), self._known(kind)
        return {
            "kind": kind,
            "peak": known.peak,
            "at_once": self._strategy.at_once(known, least) if least is not None and row else None,
            "waiting": row.count_waiting() if row else 0,
            "in_flight": len(row.in_flight) if row else 0,
        }

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        return {
            "memory_kinds": {"": len(self.by_name)},
            "memory_waiting": {"": self.count_waiting()},
        }


SERVICE = KindLanes
