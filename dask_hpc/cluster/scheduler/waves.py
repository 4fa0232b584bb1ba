"""Waves: root tasks of a restricted job start as slots open on its workers, never all at once.

Dask keeps root tasks back on the scheduler until a worker has a free slot, so that what depends on them
goes first and memory stays low. It does not do so for restricted tasks. Here the root tasks of a job are
restricted to a set of their own, the job's *wave*, that no worker is in: once ready they wait in Dask's
state ``no-worker``, and pass when slots open on the job's workers, by Dask's own count of slots and choice
of worker. A root task carries the job's gate while it is in flight, so that Dask may move it, and the wave
at all other times: lost, retried and rescheduled it comes through here again.

1. Slots are looked at when the turn of the event loop is over in which Dask has looked whether its own queue
   can go on: once, however many tasks have ended meanwhile. What became ready by then has gone first, and
   nothing here runs inside a transition. So it is when tasks become ready while slots are open, or workers
   come. For what a service keeps back slots are looked at where Dask does, before its queue and after it.
2. Where Dask's queue of tasks outside of jobs takes every slot first, the job still gets as many tasks in
   flight as its workers have threads.
3. A job that holds all workers is not restricted: its gate and its wave are empty, and Dask queues its
   root tasks itself. Those that wait here are handed to Dask first. When it is restricted again, what Dask
   has queued of it is taken back before anything leaves Dask's queue.
4. Work is done in portions, so that no turn of the event loop takes long.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from heapq import heapify, heappop, heapreplace
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.scheduler.task_queue import TaskQueues

_PORTION = 500  # tasks moved in one turn of the event loop


class Waves(compat.QueueExit):
    """Lets root tasks pass, and what services keep back beside them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.scheduler)
        self._context = context
        self._scheduler = context.scheduler
        self._owner = context.owner
        #: the tasks that services keep back
        self.queues = TaskQueues()
        #: running jobs with root tasks that are ready; if there is none, no slot is of interest
        self.pending: dict[LiveJob, None] = {}
        #: these, and jobs that wait
        self._holding: dict[LiveJob, None] = {}
        #: what Dask has queued of jobs that are restricted again, the best last
        self._to_take_back: dict[LiveJob, list[Hashable]] = {}
        #: what it has queued of that which services keep back, each the best last
        self._to_take_out: list[list[Hashable]] = []
        #: who holds a worker
        self._holder: dict[str, LiveJob] = {}
        #: whether all that is pending is looked at, or, as tasks have ended somewhere, who has a slot
        self._looks_at_all = False
        self._is_scheduled = False
        self._is_working = False
        self._is_closed = False
        self._end_sparing = compat.spare_gated(self._scheduler, self._waiting)
        self._end_places: Callable[[], None] | None = None

    # what happens

    def root_waits(self, key: Hashable, task: Any, job: LiveJob) -> None:
        """A root task is ready."""
        job.ready.add(task.priority, key)
        self._holding[job] = None
        if job.state == "running":
            self.look_at(job)

    def root_ends(self, key: Hashable, job: LiveJob) -> None:
        """A root task is no longer in flight."""
        job.passed.discard(key)
        task = compat.find_task(self._scheduler, key)
        if task is not None:
            compat.restrict(task, job.wave)

    # what the gate asks for

    def hold(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """The job holds these workers now."""
        for address in job.workers:
            if self._holder.get(address) is job:
                del self._holder[address]
        job.workers = set(addresses)
        self._holder.update(dict.fromkeys(job.workers, job))

    def holder(self, address: str) -> LiveJob | None:
        """The job that holds a worker."""
        return self._holder.get(address)

    def remember_places(self) -> None:
        """From now on there are jobs on some of the workers only."""
        if self._end_places is None and not self._is_closed:
            self._end_places = compat.remember_places(self._scheduler)

    def look_at(self, job: LiveJob) -> None:
        """The job's workers or its ready tasks are others than before."""
        if job.ready or self.queues.is_awaited(job):
            self.pending[job] = None
            self.wake()

    def queue_wakes(self, job: LiveJob | None) -> None:
        """Tasks of a queue may pass, those of this job when slots open on its workers."""
        if job is not None:
            self.pending[job] = None
        self.wake()

    def forget(self, job: LiveJob) -> None:
        """The job does not run (any more). One that waits keeps its ready tasks."""
        self.pending.pop(job, None)
        if not job.ready:
            self._holding.pop(job, None)

    def take_back(self, job: LiveJob) -> None:
        """The job is restricted again, after Dask placed its tasks. What Dask has queued comes here."""
        for key, task in compat.in_flight(self._scheduler):
            if self._owner.get(key) is job and compat.restriction(task) is job.wave:
                compat.restrict(task, job.gate)
                job.passed.add(key)
        queued = [
            key
            for key in compat.queue_order(self._scheduler)
            if self._owner.get(key) is job and not self.queues.keeps(key)
        ]
        if queued:
            queued.reverse()
            self._to_take_back[job] = queued
            self.is_shut = True
            self.wake()

    def take_out(self, keys: list[Hashable]) -> None:
        """A service keeps these tasks back from now on, the best first; Dask may have queued some of them.
        They come out in portions, and until then nothing leaves Dask's queue, which does not look who keeps
        what."""
        if keys:
            keys.reverse()
            self._to_take_out.append(keys)
            self.is_shut = True
            self.wake()

    def close(self) -> list[Hashable]:
        """Leave nothing in the scheduler. The keys of tasks outside of jobs that Dask has to look at."""
        self._is_closed = True
        self.pending.clear()
        self._to_take_back.clear()
        self._to_take_out.clear()
        self._end_sparing()
        if self._end_places is not None:
            self._end_places()
            self._end_places = None
        self.remove()
        return self.queues.give_back()

    def _waiting(self) -> int:
        """How many tasks are ready and wait."""
        self._holding = {job: None for job in self._holding if job.ready}
        return sum(len(job.ready) for job in self._holding) + self.queues.count_waiting()

    # what follows

    def wake(self) -> None:
        """Look at slots when this turn of the event loop is over."""
        self._looks_at_all = True
        self._look_later()

    def _look_later(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.loop.add_callback(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self.attempt(self._work)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for slots, or the queue is shut. Who begins to wait as Dask's queue goes on
        wakes us."""
        return bool(self.pending) or self.is_shut or self.queues.wants_look

    def after_queue(self) -> None:
        """Somewhere a worker may be able to take one more task: one look for all that end in this turn."""
        if self.is_shut or self.queues.wants_look:
            self._work()
        elif self.pending:
            self._look_later()

    def before_queue(self) -> None:
        """What goes before Dask's queue, goes."""
        queues = self.queues
        if queues.wants_look and not self._is_working and self._scheduler.queued:
            self._is_working = True
            try:
                self.queues.let_pass(only_before_roots=True)
            finally:
                self._is_working = False

    def failed(self, error: Exception) -> None:
        """Somebody may be waiting for what was not done. A lasting error switches control off."""
        self._context.count_error("a wave", error)
        self.wake()

    def _work(self) -> None:
        if self._is_working:
            return
        self._is_working = True
        try:
            self._take_back_portion()
            self.queues.let_pass(only_before_roots=True)
            if self.pending:
                self._let_jobs_pass()
                self.queues.let_pass(only_before_roots=False)
        finally:
            self._is_working = False

    def _let_jobs_pass(self) -> None:
        slots: dict[LiveJob, list[compat.Slot]] = {}
        addresses: Collection[str] = self._holder
        idle = compat.count_open(self._scheduler)
        if len(self.pending) < idle > sum(len(job.workers) for job in self.pending):
            addresses = [a for job in self.pending for a in job.workers if a in self._holder]
        for slot in compat.free_slots(self._scheduler, addresses):
            slots.setdefault(self._holder[slot.address], []).append(slot)
        is_crowded = bool(self._scheduler.queued)
        if self._looks_at_all or is_crowded:
            jobs = list(self.pending)
        else:
            jobs = [job for job in slots if job in self.pending]
        self._looks_at_all = False
        places: dict[Hashable, str] = {}
        try:
            for job in jobs:
                if not job.confined:
                    self._hand_over(job)
                elif job in slots:
                    self._choose(job, slots[job], places)
                elif is_crowded:
                    self._choose(job, self._owed(job), places)
        finally:
            if places:  # they are not among those that wait any more
                self._send(places)
        for job in jobs:
            if not job.ready and not self.queues.is_awaited(job):
                self.pending.pop(job, None)

    def _choose(self, job: LiveJob, slots: list[compat.Slot], places: dict[Hashable, str]) -> None:
        """As many of the job's ready root tasks as its workers have slots, one for each."""
        heapify(slots)
        most = len(places) + _PORTION
        while slots and len(places) < most and (key := job.ready.pop()) is not None:
            slot = slots[0]
            places[key] = slot.address
            if slot.free > 1:
                heapreplace(slots, slot.used_once())
            else:
                heappop(slots)
        if slots and job.ready:
            self.wake()

    def _send(self, places: dict[Hashable, str]) -> None:
        """Root tasks of whatever jobs to their workers."""
        sent = compat.send(self._scheduler, places, "hpc-wave")
        for key in places:
            job, task = self._owner.get(key), sent.get(key)
            if job is not None and task is not None:
                compat.restrict(task, job.gate)
                job.passed.add(key)
            elif job is not None:
                self._wait_again(key, job)

    def _owed(self, job: LiveJob) -> list[compat.Slot]:
        return compat.owed_slots(self._scheduler, job.workers, lambda key: self._owner.get(key) is job)

    def _wait_again(self, key: Hashable, job: LiveJob) -> None:
        job.held.pop(key, None)
        task = compat.find_task(self._scheduler, key)
        if task is not None:
            compat.restrict(task, job.wave)
            if task.state == "no-worker":
                self.root_waits(key, task, job)

    def _hand_over(self, job: LiveJob) -> None:
        """The job is not restricted: Dask queues its root tasks, as it would without us."""
        keys: list[Hashable] = []
        while len(keys) < _PORTION and (key := job.ready.pop()) is not None:
            keys.append(key)
            task = compat.find_task(self._scheduler, key)
            if task is not None:
                compat.restrict(task, job.gate)
        compat.nudge(self._scheduler, keys, f"hpc-wave-{job.id}", plainly=True)
        job.passed.update(key for key in keys if key in self._owner)
        if job.ready:
            self.wake()
        else:
            job.wave.clear()

    def _take_back_portion(self) -> None:
        """Out of Dask's queue, the best first; they come back as ready root tasks. Dask's queue stands still
        until nothing is left to be taken back."""
        if not self._to_take_back:
            self._take_out_portion()
            return
        job, queued = next(iter(self._to_take_back.items()))
        keys, queued[-_PORTION:] = queued[-_PORTION:], []
        if not job.confined or not queued:  # not restricted any more, or the last portion
            del self._to_take_back[job]
        if job.confined:
            for key in keys:
                if self._owner.get(key) is job:
                    compat.restrict(compat.find_task(self._scheduler, key), job.wave)
            compat.release_queued(self._scheduler, keys, f"hpc-take-back-{job.id}")
        self._go_on()

    def _take_out_portion(self) -> None:
        if self._to_take_out:
            queued = self._to_take_out[0]
            keys, queued[-_PORTION:] = queued[-_PORTION:], []
            if not queued:
                del self._to_take_out[0]
            kept = [key for key in reversed(keys) if self.queues.keeps(key)]
            compat.release_queued(self._scheduler, kept, "hpc-take-out")
            self._go_on()

    def _go_on(self) -> None:
        if self._to_take_back or self._to_take_out:
            self.wake()
        else:
            self.open()
