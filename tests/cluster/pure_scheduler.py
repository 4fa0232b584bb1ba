"""Dask's own state of a scheduler without its server: no event loop, no clock, no messages."""

from collections import deque

from distributed import Status
from distributed.collections import HeapSet
from distributed.scheduler import ClientState, Scheduler, SchedulerState, WorkerState
from sortedcontainers import SortedDict

THREADS = 1


def work(*needs):
    """What no task here really does."""


class Turns:
    """In place of the event loop: what is to be called when a turn is over."""

    def __init__(self):
        self.calls = deque()

    def add_callback(self, call, *args):
        self.calls.append((call, args))

    def end(self):
        """All that was asked for, and what that asks for."""
        while self.calls:
            call, args = self.calls.popleft()
            call(*args)


class PureScheduler(SchedulerState):
    """Does with tasks and workers what a scheduler does when it is told; ``moved`` hears of transitions."""

    stimulus_queue_slots_maybe_opened = Scheduler.stimulus_queue_slots_maybe_opened

    def __init__(self, moved):
        self.loop = Turns()
        queued = HeapSet(key=lambda task: task.priority)
        super().__init__({}, {}, SortedDict(), {}, {}, {}, {}, queued, True, [self])
        self.plugins = {"test": self}
        self._moved = moved
        self.errors = []
        self.client = self.clients["c"] = ClientState("c")
        self.made = 0
        self.periodic_callbacks = {}

    def transition(self, key, start, finish, **kwargs):  # as Dask calls plugins
        try:
            self._moved(key, start, finish)
        except Exception as error:  # Dask would only log it
            self.errors.append(error)

    def transitions(self, recommendations, stimulus_id):
        self._transitions(recommendations, {}, {}, stimulus_id)

    def join(self, address, threads=THREADS, memory_limit=0):
        worker = WorkerState(
            address=address, status=Status.running, pid=0, name=address, nthreads=threads,
            memory_limit=memory_limit, local_directory="", nanny="", server_id=address, scheduler=self,
        )  # fmt: skip
        self.workers[address] = worker
        self.host_info.setdefault(worker.host, {"addresses": set(), "nthreads": 0})["addresses"].add(address)
        self.total_nthreads += threads
        self.running.add(worker)
        self.check_idle_saturated(worker)
        return worker

    def use(self, worker):
        """After the plugins have heard of it."""
        self.transitions(self.bulk_schedule_unrunnable_after_adding_worker(worker), "test")
        self.slots_open()

    def leave(self, address):
        worker = self.workers.pop(address)
        self.host_info[worker.host]["addresses"].discard(address)
        self.total_nthreads -= worker.nthreads
        self.idle.pop(address, None)
        self.idle_task_count.discard(worker)
        self.saturated.discard(worker)
        worker.status = Status.closed
        self.running.discard(worker)
        gone = {task.key: "released" for task in worker.processing}
        for task in list(worker.has_what):
            self.remove_replica(task, worker)
            if not task.who_has:
                gone[task.key] = "released"
        self.transitions(gone, "test")

    def pause(self, address, is_paused=True):
        worker = self.workers[address]
        worker.status = Status.paused if is_paused else Status.running
        (self.running.discard if is_paused else self.running.add)(worker)
        self.check_idle_saturated(worker)
        if not is_paused:
            self.use(worker)

    def slots_open(self):
        self.stimulus_queue_slots_maybe_opened(stimulus_id="test")

    def make(self, keys, needs=(), workers=None):
        """Tasks that a client wants, and that have not moved yet; each needs all of those."""
        self.made += 1
        tasks = []
        for number, key in enumerate(keys):
            task = self.new_task(key, _spec(key, needs), "released")
            for need in needs:
                task.add_dependency(self.tasks[need])
            task.priority = (0, self.made, number)
            task.who_wants = {self.client}
            self.client.wants_what.add(task)
            task.worker_restrictions = set(workers) if workers else None
            tasks.append(task)
        return tasks

    def schedule(self, tasks):
        self.transitions({task.key: "waiting" for task in reversed(tasks)}, "test")
        self.slots_open()

    def finish(self, task, nbytes=1):
        worker = task.processing_on
        recommendations, _, _ = self._transition(
            task.key,
            "memory",
            "test",
            worker=worker.address,
            type=b"",
            nbytes=nbytes,
            typename="int",
            startstops=[],
        )
        self.transitions(recommendations, "test")
        self.slots_open()

    def release(self, task):
        """The client wants it no more."""
        task.who_wants = None
        self.client.wants_what.discard(task)
        if not task.dependents:
            self.transitions({task.key: "forgotten"}, "test")
        elif not task.waiters and task.state not in ("released", "erred"):
            self.transitions({task.key: "released"}, "test")
        self.slots_open()


def _spec(key, needs):
    from dask._task_spec import Task, TaskRef

    return Task(key, work, *map(TaskRef, needs))
