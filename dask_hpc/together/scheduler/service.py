"""Kinds of tasks that are let pass one by one: as many at once on a worker as its memory has room for, and as
many on a node as do not slow each other.

1. A kind is what Dask calls a prefix: the part of the key that says what a task does. What is known of kinds
   is told by workers (``worker/observer.py``), by the way in heartbeats, and at once where memory is meant.
2. Two rules say of which kinds tasks are let pass one by one, and where one more may begin: that of memory
   (``memory_rule.py``, the policy's ``memory`` strategy), and that of neighbours (``neighbours.py``, its
   ``together`` strategy). With neither strategy nothing is done and nothing is told.
3. A task of such a kind waits on the scheduler until a worker that may have it has room, and goes to the one
   that has most of what it needs. It stays there, as nobody counts with it elsewhere. A neighbour's place is
   given away when the task that has it has nearly ended, if such tasks take about as long as each other.
4. A kind that comes under a rule is taken out of Dask's queue; what was sent before is counted, and runs; for
   memory results are of it, too. One that comes under none any more is left to Dask.
5. Tasks that the user restricted (``workers=``, ``resources=``), actors, those of Dask's shuffles, and what
   waits in another queue, are left alone.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Timer, WorkerSetting
from dask_hpc.cluster.scheduler.task_queue import PORTION, Head, KeptTasks
from dask_hpc.strategies.together.neighbours_view import KindLimit
from dask_hpc.together.scheduler.memory_rule import MemoryRule
from dask_hpc.together.scheduler.neighbours import Neighbours
from dask_hpc.together.scheduler.openings import KindRow, Openings, TurnFacts
from dask_hpc.together.scheduler.worker_memory import WorkerRooms
from dask_hpc.together.worker.observer import METRIC, TaskObserver
from dask_hpc.together.worker.peaks import TOPIC

_OFTEN = 0.5  # of the time between two heartbeats of a worker: so often it is looked
_AT_REST = 3  # heartbeats after the last task, what was to be heard of it has been
_AHEAD = 0.005  # seconds before a task ends when the next one is sent: about what a word to a worker takes


class KindLanes(KeptTasks[KindRow], Service):
    """Lets tasks pass whose kind needs much memory, or slows its neighbours."""

    metrics = {
        "kinds_kept": (False, "Kinds of tasks that are let pass one by one, for memory or their neighbours"),
        "kinds_waiting": (False, "Tasks of them that are ready and wait for room on a worker"),
    }
    parts = {"together": "together"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._observers = WorkerSetting(context, TaskObserver)
        self._timer = Timer(context, "neighbours", self._look)
        self._next_end = Timer(context, "tasks that nearly end", self._some_nearly_end)

    # its life

    def begin(self) -> None:
        self._waves = self.context.get(Gate).waves
        self.keep_none(self.context, self._waves.queue_wakes)
        self._waves.queues.add(self)
        self._strategies: tuple[Any, Any] = None, None
        self.memory: MemoryRule | None = None
        self.neighbours: Neighbours | None = None
        self._numbers: dict[str, int] = {}
        #: when tasks will nearly have ended, the first one first
        self._ends: list[tuple[float, int, Hashable]] = []
        self._sent = count()
        self._last_task = 0.0
        #: whether anything has changed since the strategy of neighbours was asked
        self._has_news = False
        self._is_released = False
        self.policy_changes()

    def policy_changes(self) -> None:
        strategies = memory, together = self.context.policy.memory, self.context.policy.together
        if self.context.is_dry or strategies == self._strategies:
            return
        before, self._strategies = self._strategies, strategies
        self._has_news = True
        is_off = strategies == (None, None)
        self._observers.set(None if is_off else (together is not None, memory is not None))
        if self.neighbours is not None and together is not None:
            self.neighbours.becomes(together)
        elif together != before[1]:
            self.neighbours = None if together is None else Neighbours(self.context, together)
        if self.memory is not None and memory is not None:
            self.memory.becomes(memory)
            self._heed(kind for kind, _ in list(self.memory.peaks.known()))
        elif memory != before[0]:
            if self.memory is not None:
                self.memory.write()
            self.memory = None if memory is None else MemoryRule(self.context, memory)
            if self.memory is not None:
                self.context.do("the history of kinds", self._recall(self.memory))
        if is_off:
            self._stop()
        else:
            self._look()

    def release(self) -> None:
        if self.memory is not None:
            self.memory.write()
        self._observers.set(None)
        self._is_released = True
        self._stop()

    def _stop(self) -> None:
        self._timer.stop()
        self._next_end.stop()
        self._ends.clear()
        for row in list(self.by_name.values()):
            self._open(row)
        self.context.unwatch(self)

    async def settle(self) -> None:
        await self._observers.settle()
        if self.memory is not None:
            await self.memory.settle()

    def cancel(self) -> None:
        self._timer.stop()
        self._next_end.stop()
        self._observers.cancel()
        if self.memory is not None:
            self.memory.write()

    async def _recall(self, memory: MemoryRule) -> None:
        """Of a rule that may not be in force any more when the disk has answered."""
        known = await memory.recall()
        if memory is self.memory and not self._is_released:
            self._heed(known)

    # what happens

    @property
    def _is_on(self) -> bool:
        return self.memory is not None or self.neighbours is not None

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        if not self._is_on:
            return
        self._has_news = True
        self._wake()
        kept: dict[str, bool] = {}
        new: Counter[str] | None = None
        for key in tasks:  # thousands, of a few kinds that nearly always are left to Dask
            task = compat.find_task(self._scheduler, key)
            kind = compat.prefix(task)
            if (is_kept := kept.get(kind)) is None:
                is_kept = kept[kind] = kind in self.by_name or self._is_to_be_kept(kind)
                if is_kept and kind not in self.by_name:
                    new = compat.count_new(self._scheduler, tasks) if new is None else new
                    if compat.count_of_kind(self._scheduler, kind) > new[kind]:
                        self._gather(kind)  # some came before this rule
                said = compat.annotation(task, "mem_class")
                if said is not None and self.neighbours is not None:
                    self.neighbours.hear_class(kind, said)
            if is_kept and key not in self.row_of and compat.is_new(task) and self._may_wait_here(key, task):
                self.keep_back(key, task, self._row(kind))

    def _may_wait_here(self, key: Hashable, task: Any) -> bool:
        is_free = self.may_be_kept(key, task) and not self._waves.queues.keeps(key)
        return is_free and not compat.is_of_shuffle(task)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        row = self.row_of[key]
        if finish == "processing" and key not in row.in_flight:  # somebody else sent it
            row.departs(key, compat.address_of(compat.find_task(self._scheduler, key)))
        super().task_moves(key, start, finish)

    def lands(self, row: KindRow, key: Hashable, is_done: bool) -> None:
        address = row.arrives(key)
        workers = [address]
        if self.neighbours is not None:
            workers = list(self.context.nodes.workers(self.context.nodes.node_of(address)))
        for one in self.by_name.values():
            one.loosen(workers)
        if is_done and self.memory is not None and (news := self.memory.ended(row.name)):
            self._scheduler.loop.add_callback(self._heed, news)  # not inside of a transition

    def worker_joins(self, address: str) -> None:
        self._has_news = True
        if self.memory is not None and self.memory.worker_joins():
            self._heed(compat.kinds_left(self._scheduler))
        self._loosen()

    def worker_leaves(self, address: str) -> None:
        self._has_news = True
        self._numbers.pop(address, None)
        if self.memory is not None:
            self.memory.worker_leaves(address)
        if self.neighbours is not None:
            self.neighbours.worker_leaves(address)
        if self.by_name:
            self._wake()  # what it had is computed again
        self._loosen()

    def job_ends(self, job: LiveJob) -> None:
        self._has_news = True
        if self.neighbours is not None:
            self.neighbours.job_ends(job)

    def log_event(self, topic: str, message: Any) -> None:
        if topic == TOPIC and self.memory is not None:
            self._heed(self.memory.hear(message))
        elif self.by_name and _is_change_of_status(message):
            self._scheduler.loop.add_callback(self._loosen)  # when Dask has noted that it goes on

    def worker_dies(self, address: str, tasks: list[Hashable]) -> None:
        if self.memory is not None:
            found = (compat.find_task(self._scheduler, key) for key in tasks)
            kinds = Counter(compat.prefix(task) for task in found if task is not None)
            # Dask has not placed them anew yet
            self._scheduler.loop.add_callback(self._heed, self.memory.worker_died(address, kinds))

    # which kinds

    def _heed(self, kinds: Iterable[str]) -> None:
        """More is known of these."""
        known = list(kinds)
        for kind in known:
            if self._is_to_be_kept(kind):
                self._gather(kind)
            elif (row := self.by_name.get(kind)) is not None:
                self._open(row)
        if known:
            self._loosen()

    def _is_to_be_kept(self, kind: str) -> bool:
        if self.memory is not None and self.memory.keeps(kind):
            return True
        return self.neighbours is not None and kind in self.neighbours.limited()

    def _gather(self, kind: str) -> None:
        """Tasks of that kind that were not sent are let pass one by one from now on; those that were are
        counted. Where it is for memory, that holds for results, too: they go with their worker, and are
        computed again."""
        if kind in self.by_name:
            return
        is_for_memory = self.memory is not None and self.memory.keeps(kind)
        queued = []
        for key in compat.of_kind(self._scheduler, kind, even_ended=is_for_memory):
            task = compat.find_task(self._scheduler, key)
            if not self._may_wait_here(key, task):
                continue
            row = self._row(kind)
            if key in row.in_flight:
                continue
            if (job := self.context.owner.get(key)) is not None:
                job.held.pop(key, None)
                job.ready.discard(key)
            self.keep_back(key, task, row)
            self.changes_hands(key, task)
            if compat.is_queued(task):
                queued.append(task)
        self._waves.take_out([task.key for task in sorted(queued, key=lambda task: task.priority)])

    def _row(self, kind: str) -> KindRow:
        """That of a kind; if it is new, with those that are in flight already."""
        row = self.by_name.get(kind)
        if row is None:
            if not self.by_name:
                self.context.watch(self, self.row_of)
            row = self.by_name[kind] = KindRow(kind)
            for key, task in compat.in_flight_of(self._scheduler, kind):
                if self._may_wait_here(key, task):
                    if (job := self.context.owner.get(key)) is not None:
                        job.passed.discard(key)
                    self.row_of[key] = row
                    row.tasks += 1
                    row.departs(key, compat.address_of(task))
        return row

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
        if not self._timer.is_set:
            self._look()

    def _loosen(self) -> None:
        """Somebody may have room, or more is known of what tasks need."""
        for row in self.by_name.values():
            row.loosen()
        if self.by_name:
            self._waves.queue_wakes(None)

    def _look(self) -> None:
        now, heartbeat = self.context.clock(), compat.heartbeat_seconds(self._scheduler)
        if compat.unfinished(self._scheduler):
            self._last_task = now
        if now - self._last_task < _AT_REST * heartbeat:
            self._timer.set(_OFTEN * heartbeat)
        if not self.by_name:  # each move of each task of the cluster would ask for it
            self.context.unwatch(self)
        for address, said in compat.metrics(self._scheduler, METRIC):
            self._listen(address, said)
        changed: set[str] = set(self.by_name)
        if self.memory is not None:
            changed.update(self.memory.look())
        if self.neighbours is not None:
            if self._has_news and not self.context.is_paused:
                self._has_news = False
                self.neighbours.ask()
            changed |= self.neighbours.limited()
        self._heed(changed)
        if self.memory is not None:
            self.memory.tell(self.by_name)

    def _listen(self, address: str, said: Any) -> None:
        if not isinstance(said, Mapping) or self._numbers.get(address) == said["number"]:
            return
        self._numbers[address] = said["number"]
        self._has_news = True
        if self.memory is not None:
            self._heed(self.memory.hear_heartbeat(address, said["peaks"]))
        if self.neighbours is not None:
            self.neighbours.hear(address, said)

    # what passes

    def let_pass(self, only_before_roots: bool) -> None:
        if not self.by_name:
            return
        turn = TurnFacts(
            self.context.nodes,
            WorkerRooms(self._scheduler),
            self.memory,
            self.by_name,
            compat.open_workers(self._scheduler),
        )
        known: dict[tuple[str, LiveJob | None], Openings] = {}
        done: set[tuple[str, LiveJob | None]] = set()

        def may_pass(row: KindRow, job: LiveJob | None) -> bool:
            return (row.name, job) not in done

        for _ in range(PORTION):
            head = self.first(may_pass)
            if head is None:
                break
            pair = head.row.name, head.job
            limit = self.neighbours.limit(head.job, head.row.name) if self.neighbours is not None else None
            if only_before_roots and self._goes_later(head, limit):
                done.add(pair)
                self.queues.wants_look |= not _is_confined(head.job)
                continue
            if pair not in known:
                others = limit is not None and self._others_wait(head.row, head.job)
                known[pair] = Openings(turn, head.row, head.job, limit, others)
            task = compat.find_task(self._scheduler, head.key)
            address = known[pair].best(compat.bytes_there(task))
            if address is None:
                done.add(pair)
                self.queues.wants_look |= not _is_confined(head.job) and head.row.lacks_slot(head.job)
            elif self._send(head, address):
                if limit is not None:
                    self._look_at_its_end(head, address)
                known[pair].was_sent(address)
            else:
                known[pair].was_refused(address)
        else:
            self._waves.queue_wakes(None)
        for row in self.by_name.values():
            row.forget_empty()

    def _goes_later(self, head: Head[KindRow], limit: KindLimit | None) -> bool:
        """Whether another root task that waits for the same slots goes first."""
        if _is_confined(head.job):
            first = head.job.ready.first() if head.job is not None else None
            rival = compat.find_task(self._scheduler, first[1]) if first else None
        else:
            rival = compat.first_queued(self._scheduler)
        if rival is None or rival.priority >= head.priority:
            return False
        return limit is None or compat.prefix(rival) == head.row.name

    def _others_wait(self, row: KindRow, job: LiveJob | None) -> bool:
        """Whether tasks of another kind wait for the threads of the same nodes."""
        if any(other is not row and other.ready.get(job) for other in self.by_name.values()):
            return True
        if job is not None and job.confined:
            return bool(job.ready)
        return compat.first_queued(self._scheduler) is not None

    def _send(self, head: Head[KindRow], address: str) -> bool:
        """Whether it is on its way."""
        row, job, key = head.row, head.job, head.key
        row.ready[job].discard(key)
        row.departs(key, address)
        stimulus = f"hpc-kind-{job.id}" if job else "hpc-kind"
        if key in compat.send(self._scheduler, {key: address}, stimulus):
            return True
        if key in row.in_flight:
            row.arrives(key)
        task = compat.find_task(self._scheduler, key)
        if task is not None and key in self.row_of:
            compat.restrict(task, self._shut)
            if compat.is_held(task):
                self._waits(key, task, row)
        return False

    # one task after the other

    def _look_at_its_end(self, head: Head[KindRow], address: str) -> None:
        """Where so many of a kind may run and no more, a worker would wait for the next one each time: for as
        long as two words take, which is much of a short task. It is sent when one has nearly ended."""
        seconds = self.neighbours.usual(head.row.name) if self.neighbours is not None else None
        if seconds is None:
            return
        ahead = min(_AHEAD, seconds / 10)
        waits = ahead if address in head.row.ending else 0.0  # for the one that has nearly ended
        end = self.context.clock() + waits + seconds - ahead
        heappush(self._ends, (end, next(self._sent), head.key))
        if self._ends[0][0] == end:
            self._wait_for_an_end()

    def _wait_for_an_end(self) -> None:
        if self._ends:
            self._next_end.set(self._ends[0][0] - self.context.clock())

    def _some_nearly_end(self) -> None:
        now = self.context.clock()
        while self._ends and self._ends[0][0] <= now:
            _, _, key = heappop(self._ends)
            if (row := self.row_of.get(key)) is not None:
                row.nearly_ends(key)
        self._wait_for_an_end()
        self._waves.queue_wakes(None)

    # what is shown

    def status(self) -> Mapping[str, Any]:
        """Which kinds are let pass one by one, and what is known of kinds; None with neither strategy."""
        return {"together": self.part("together")}

    def part(self, name: str) -> Any:
        if self.memory is None and self.neighbours is None:
            return None
        return {
            "kept": [
                {"kind": kind, "waiting": row.count_waiting(), "in_flight": len(row.in_flight)}
                for kind, row in self.by_name.items()
            ],
            "memory": self.memory.status() if self.memory is not None else None,
            "neighbours": self.neighbours.status() if self.neighbours is not None else None,
        }

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        return {"kinds_kept": {"": len(self.by_name)}, "kinds_waiting": {"": self.count_waiting()}}


def _is_change_of_status(message: Any) -> bool:
    """Whether a worker has been paused, or goes on."""
    return isinstance(message, Mapping) and message.get("action") == "worker-status-change"


def _is_confined(job: LiveJob | None) -> bool:
    """Whether it has workers of its own."""
    return job is not None and job.confined


SERVICE = KindLanes
