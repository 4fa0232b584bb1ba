"""Ready tasks that services keep back, beside the root tasks that the waves keep back.

What is kept is restricted to an address that no worker has, so it waits in Dask's state ``no-worker`` once it
is ready, and a task that is in flight carries what it would have without. Where slots open is the waves'
business, which ask all queues; what may pass there is the queue's.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob, Ready
from dask_hpc.cluster.scheduler.service import Context

#: tasks that pass in one turn of the event loop
PORTION = 500
_FLIES = frozenset({"processing", "queued"})
_OVER = frozenset({"memory", "erred", "forgotten"})


class TaskQueue:
    """What the waves and the gate ask of a service that keeps tasks back."""

    #: those of all services, once it is one of them
    queues: "TaskQueues"

    def keeps(self, key: Hashable) -> bool:
        """Whether the task is one of its."""
        raise NotImplementedError

    def changes_hands(self, key: Hashable, task: Any) -> None:
        """A task has another job, or its job waits again: if it is one of its, it waits as before."""

    def is_awaited(self, job: LiveJob) -> bool:
        """Whether tasks of the job wait here."""
        raise NotImplementedError

    def waiting(self) -> Iterable[Hashable]:
        """Keys of the tasks that wait."""
        raise NotImplementedError

    def count_waiting(self) -> int:
        """How many that are."""
        raise NotImplementedError

    def let_pass(self, only_before_roots: bool) -> None:
        """As many as may. ``only_before_roots``: not after other root tasks that are ready and wait for the
        same slots."""

    def give_back(self) -> Iterable[Hashable]:
        """No task is kept back any more. The keys of those that waited."""
        raise NotImplementedError


class TaskQueues:
    """Those of all services. A task is in one of them at most: the first that keeps it has it."""

    def __init__(self) -> None:
        self._queues: list[TaskQueue] = []
        #: whether something may pass when a slot opens, whosever it is, or as something has ended: this is
        #: looked at with each task of the cluster that ends
        self.wants_look = False

    def add(self, queue: TaskQueue) -> None:
        """Another one."""
        self._queues.append(queue)
        queue.queues = self

    def keeps(self, key: Hashable) -> bool:
        """Whether the task is kept by any of them."""
        return any(queue.keeps(key) for queue in self._queues)

    def changes_hands(self, key: Hashable, task: Any) -> None:
        """A task has another job, or its job waits again."""
        for queue in self._queues:
            queue.changes_hands(key, task)

    def is_awaited(self, job: LiveJob) -> bool:
        """Whether tasks of the job wait in any of them."""
        return any(queue.is_awaited(job) for queue in self._queues)

    def waiting(self) -> Iterator[Hashable]:
        """Keys of the tasks that wait."""
        return (key for queue in self._queues for key in queue.waiting())

    def count_waiting(self) -> int:
        """How many that are."""
        return sum(queue.count_waiting() for queue in self._queues)

    def let_pass(self, only_before_roots: bool) -> None:
        """As many as may, of each."""
        self.wants_look = False
        for queue in self._queues:
            queue.let_pass(only_before_roots)

    def give_back(self) -> list[Hashable]:
        """No task is kept back any more. The keys of those that waited."""
        return [key for queue in self._queues for key in queue.give_back()]


class TaskRow:
    """Tasks that are kept back by the same rule."""

    #: those of them that were let pass and have not ended, by key
    in_flight: dict[Hashable, Any]

    def __init__(self, name: str) -> None:
        self.name = name
        #: how many tasks are in it, whatever their state
        self.tasks = 0
        #: what waits, by job; None for what is outside of jobs
        self.ready: dict[LiveJob | None, Ready] = {}

    def discard(self, key: Hashable) -> None:
        """The task does not wait (any more)."""
        for ready in self.ready.values():
            ready.discard(key)

    def count_waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self.ready.values()))

    def forget_empty(self) -> None:
        """Jobs of which nothing waits need no heap."""
        self.ready = {job: ready for job, ready in self.ready.items() if ready}


Row = TypeVar("Row", bound=TaskRow)


class Head(NamedTuple, Generic[Row]):
    """The first task that waits of a job in a row."""

    priority: Any
    #: of the row: priorities may be equal
    number: int
    row: Row
    job: LiveJob | None
    key: Hashable


class KeptTasks(TaskQueue, Generic[Row]):
    """The tasks of some rows: which wait, which are in flight. A service says what comes into which row,
    and what may pass."""

    #: tasks that were submitted and are in a row, with it; empty if nothing is kept
    row_of: dict[Hashable, Row]
    by_name: dict[str, Row]

    def keep_none(self, context: Context, wakes: Callable[[LiveJob | None], None]) -> None:
        """Nothing is in a row. ``wakes``: tasks may pass, those of this job when slots open."""
        self._context = context
        self._scheduler = context.scheduler
        self._wakes = wakes
        self.by_name = {}
        self.row_of = {}
        self._shut = {compat.GATE}

    def lands(self, row: Row, key: Hashable, is_done: bool) -> None:
        """A task of a row is not in flight any more. ``is_done``: it has a result."""
        raise NotImplementedError

    def may_be_kept(self, key: Hashable, task: Any) -> bool:
        """Whether the user left it to us where the task runs."""
        job = self._context.owner.get(key)
        places, resources = compat.is_restricted(task)
        if resources or compat.is_actor(task) or not compat.is_computed(task):
            return False
        return key not in job.wishes if job else not places and not compat.is_loose(task)

    def keep_back(self, key: Hashable, task: Any, row: Row) -> None:
        """A task that has not been sent is in this row."""
        self.row_of[key] = row
        row.tasks += 1
        compat.restrict(task, self._shut)

    def keeps(self, key: Hashable) -> bool:
        return key in self.row_of

    def changes_hands(self, key: Hashable, task: Any) -> None:
        row = self.row_of.get(key)
        if row is not None and key not in row.in_flight:
            row.discard(key)
            compat.restrict(task, self._shut)
            if task.state == "no-worker":
                self._waits(key, task, row)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        """A task of a row changed its state."""
        row = self.row_of[key]
        if start == "no-worker":
            row.discard(key)
        if key in row.in_flight and (finish in _OVER or (start in _FLIES and finish not in _FLIES)):
            if (task := compat.find_task(self._scheduler, key)) is not None:
                compat.restrict(task, self._shut)
            self.lands(row, key, finish == "memory")
            self.queues.wants_look = True
            self._wakes(None)
        if finish == "no-worker":
            task = compat.find_task(self._scheduler, key)
            if compat.restriction(task) is self._shut:
                self._waits(key, task, row)
        elif finish == "forgotten":
            self.leave(key, row)

    def leave(self, key: Hashable, row: Row) -> None:
        """A task is in no row any more."""
        del self.row_of[key]
        row.tasks -= 1
        if not row.tasks:
            self.by_name.pop(row.name, None)

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks."""
        self.row_of.clear()
        self.by_name.clear()

    def give_back(self) -> list[Hashable]:
        waiting = list(self.waiting())
        for key in self.row_of:
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.restriction(task) is self._shut:
                compat.restrict(task, None)
        self.tasks_vanish()
        return waiting

    def is_awaited(self, job: LiveJob) -> bool:
        return any(row.ready.get(job) for row in self.by_name.values())

    def count_waiting(self) -> int:
        return sum(row.count_waiting() for row in self.by_name.values())

    def waiting(self) -> Iterator[Hashable]:
        return (key for row in self.by_name.values() for ready in row.ready.values() for key in ready)

    def first(self, may_pass: Callable[[Row, LiveJob | None], bool]) -> Head[Row] | None:
        """The best of all that wait, of those rows and jobs that may."""
        return min(
            (
                Head(first[0], number, row, job, first[1])
                for number, row in enumerate(self.by_name.values())
                for job, ready in row.ready.items()
                if (job is None or job.state != "waiting") and may_pass(row, job) and (first := ready.first())
            ),
            key=lambda head: head[:2],
            default=None,
        )

    def _waits(self, key: Hashable, task: Any, row: Row) -> None:
        job = self._context.owner.get(key)
        row.ready.setdefault(job, Ready()).add(task.priority, key)
        if job is None or job.state != "waiting":
            self._wakes(job)
