"""I/O lanes: of the tasks that read from one file system, only so many are in flight on the whole cluster.

A file system that serves some readers well and collapses under more gets a limit, a person's
(``hpc.io-lanes``) or one that is found by trying (strategy ``io-lanes``). The tasks that read from it are
restricted to an address that no worker has; ready, they wait in Dask's state ``no-worker``, best first, and
pass as others end (``Passage``). A task that is in flight carries what it would have without lanes.

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

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob, Ready
from dask_hpc.cluster.scheduler.service import TaskQueue
from dask_hpc.lanes.lane import Lane, Passage, is_read
from dask_hpc.lanes.reads import file_system, rule_of
from dask_hpc.model.io import IoView

_FLIES = frozenset({"processing", "queued"})
_OVER = frozenset({"memory", "erred", "forgotten"})


class Lanes(TaskQueue):
    """Lets reads pass. ``owner`` says which task belongs to which job; ``wake`` asks for ``let_pass``, also
    when slots open on the workers of the job that is named."""

    def __init__(
        self,
        scheduler: Any,
        owner: Mapping[Hashable, LiveJob],
        wake: Callable[[LiveJob | None], None],
    ) -> None:
        self._scheduler = scheduler
        self._owner = owner
        self._wake = wake
        self._limits: dict[str, int] = {}
        self._passage = Passage(scheduler)
        #: file systems that are read from, by name
        self.by_name: dict[str, Lane] = {}
        #: the lane of every task that is in one; empty if there are no limits
        self.lane_of: dict[Hashable, Lane] = {}
        self._shut = {compat.GATE}
        #: whether a read has ended since the last look
        self.has_news = False
        #: called when a file system is read from for the first time, and when reads have ended
        self.tell_strategy: Callable[[], None] = lambda: None

    # what people change

    def set_rules(self, limits: Mapping[str, int] | None, strategy: Any) -> None:
        """So many reads in flight: by path, and "default" for every other file system; None for no limits
        of that kind. ``strategy`` says the rest; without it, what has no limit is in no lane."""
        self._limits = {path.rstrip("/") or "/": most for path, most in (limits or {}).items()}
        self._passage.strategy = strategy
        for lane in self.by_name.values():
            most = self._limits.get(lane.rule)
            if most is not None and (most != lane.limit or not lane.is_fixed):
                lane.change(most, "set by configuration")
            elif most is None and (lane.is_fixed or (strategy is None and lane.limit is not None)):
                lane.change(None, "no limit")
            lane.is_fixed = most is not None
        if self.by_name:
            self._wake(None)
            self.tell_strategy()

    def change(self, name: str, limit: int | None, reason: str) -> None:
        """Another limit for a file system."""
        self.by_name[name].change(limit, reason)
        self._wake(None)

    # what happens

    def submit(self, keys: Iterable[Hashable]) -> None:
        """Tasks arrive, none of which has moved yet, and jobs have taken theirs."""
        if not self._limits and self._passage.strategy is None:
            return
        by_group: dict[Any, Lane | None] = {}
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if key in self.lane_of or not compat.is_new(task) or not self._may_wait(key, task):
                continue
            group = task.group
            if group not in by_group:
                by_group[group] = self._lane(task) if is_read(self._scheduler, task) else None
            if lane := by_group[group]:
                self.lane_of[key] = lane
                lane.tasks += 1
                compat.restrict(task, self._shut)

    def keeps(self, key: Hashable) -> bool:
        """Whether the task is in a lane."""
        return key in self.lane_of

    def changes_hands(self, key: Hashable, task: Any) -> None:
        """A task has another job, or its job waits again: in a lane it waits as before."""
        lane = self.lane_of.get(key)
        if lane is not None and key not in lane.in_flight:
            self._leaves_heap(key, lane)
            compat.restrict(task, self._shut)
            if task.state == "no-worker":
                self._waits(key, task, lane)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        """A task in a lane changed its state."""
        lane = self.lane_of[key]
        if start == "no-worker":
            self._leaves_heap(key, lane)
        if key in lane.in_flight and (finish in _OVER or (start in _FLIES and finish not in _FLIES)):
            self._passage.arrives(lane, key, finish == "memory")
            if (task := compat.find_task(self._scheduler, key)) is not None:
                compat.restrict(task, self._shut)
            self.has_news = True
            self._wake(None)
            self.tell_strategy()
        if finish == "no-worker":
            task = compat.find_task(self._scheduler, key)
            if compat.restriction(task) is self._shut:
                self._waits(key, task, lane)
        elif finish == "forgotten":
            del self.lane_of[key]
            lane.tasks -= 1
            if not lane.tasks:
                self.by_name.pop(lane.name, None)

    def vanish(self) -> None:
        """All tasks are gone."""
        self.lane_of.clear()
        self.by_name.clear()
        self._passage.vanish()

    def close(self) -> list[Hashable]:
        """No task is in a lane any more. The keys of those that waited."""
        waiting = list(self.waiting())
        for key in self.lane_of:
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.restriction(task) is self._shut:
                compat.restrict(task, None)
        self.vanish()
        self._limits = {}
        self._passage.strategy = None
        return waiting

    # what follows

    @property
    def wants_slots(self) -> bool:  # type: ignore[override]
        """Whether reads wait for slots of any worker."""
        return bool(self.lane_of) and self._passage.wants_slots

    def is_awaited(self, job: LiveJob) -> bool:
        """Whether reads of the job wait."""
        return any(lane.ready.get(job) for lane in self.by_name.values())

    def count_waiting(self) -> int:
        """How many tasks wait in lanes."""
        return sum(lane.count_waiting() for lane in self.by_name.values())

    def waiting(self) -> Iterator[Hashable]:
        """Keys of the tasks that wait in lanes."""
        return (key for lane in self.by_name.values() for key in lane.waiting())

    def let_pass(self, only_before_roots: bool) -> None:
        """As many reads as limits and slots allow. ``only_before_roots``: not after other root tasks that
        are ready and wait for the same slots."""
        self.has_news = False
        if self._passage.let_pass(self.by_name.values(), only_before_roots):
            self._wake(None)

    @property
    def paired(self) -> str:
        """What was last said of what goes next, a read or what computes."""
        return self._passage.paired

    def as_status(self) -> list[dict[str, Any]]:
        """Each file system that is read from, as plain data."""
        return [
            {
                "file_system": lane.name,
                "limit": lane.limit,
                "tuned": not lane.is_fixed and self._passage.strategy is not None,
                "in_flight": len(lane.in_flight),
                "waiting": lane.count_waiting(),
                "done": lane.done,
                "reads_per_second": lane.rate,
                "seconds_per_read": lane.seconds,
                "reason": lane.reason,
            }
            for lane in self.by_name.values()
        ]

    def _waits(self, key: Hashable, task: Any, lane: Lane) -> None:
        job = self._owner.get(key)
        lane.ready.setdefault(job, Ready()).add(task.priority, key)
        if job is None or job.state != "waiting":
            self._wake(job)

    def _leaves_heap(self, key: Hashable, lane: Lane) -> None:
        for ready in lane.ready.values():
            ready.discard(key)

    def _may_wait(self, key: Hashable, task: Any) -> bool:
        job = self._owner.get(key)
        places, resources = compat.is_restricted(task)
        if resources or compat.is_actor(task) or not compat.is_computed(task):
            return False
        return key not in job.wishes if job else not places

    def _lane(self, task: Any) -> Lane | None:
        path = compat.source(task)
        rule = rule_of(path or "", self._limits)
        if rule not in self._limits and (self._passage.strategy is None or not path):
            return None
        name = rule
        if rule == "default":
            name = file_system(path) if path else f"of {task.group.name}"
        lane = self.by_name.get(name)
        if lane is None:
            lane = self.by_name[name] = Lane(name, rule, self._limits.get(rule), rule in self._limits)
            self.tell_strategy()
        return lane


class LaneTuning:
    """Asks, carries out, tells."""

    def __init__(
        self,
        scheduler: Any,
        lanes: Lanes,
        tell: Callable[[str, str], None],
        is_paused: Callable[[], bool],
        count_error: Callable[[str, Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self._lanes = lanes
        self._tell = tell
        self._is_paused = is_paused
        self._count_error = count_error
        self._strategy: Any = None
        self._memory: Any = None
        self._is_scheduled = False

    def follow(self, strategy: Any) -> None:
        """The strategy from now on, if there is one. Another one begins anew."""
        if strategy != self._strategy:
            self._strategy, self._memory = strategy, None
        self._lanes.tell_strategy = self._nothing if strategy is None else self._news

    def close(self) -> None:
        """Nothing is asked any more."""
        self.follow(None)

    def _nothing(self) -> None:
        return None

    def _news(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.loop.add_callback(self._ask)

    def _ask(self) -> None:
        self._is_scheduled = False
        if self._strategy is None or self._is_paused():
            return
        try:
            lanes = tuple(lane.view() for lane in self._lanes.by_name.values())
            view = IoView(self._scheduler.total_nthreads, lanes)
            changes, self._memory = self._strategy.decide(view, self._memory)
            for change in changes:
                self._lanes.change(change.lane, change.limit, change.reason)
                most = "no limit" if change.limit is None else f"{change.limit} at once"
                self._tell("io-limit", f"reads of {change.lane}: {most}; {change.reason}")
        except Exception as error:
            self._memory = None
            self._count_error("tuning of I/O", error)
