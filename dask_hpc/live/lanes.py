"""I/O lanes: of the tasks that read from one file system, only so many are in flight on the whole cluster.

A file system that serves some readers well and collapses under more gets a limit (``hpc.io-lanes``). The
tasks that read from it are restricted to an address that no worker has; ready, they wait in Dask's state
``no-worker``, best first, and pass as others end: a task outside of jobs, or of a job that is not confined,
goes back to Dask, which queues and places it as it would without us; that of a confined job needs a slot on
the job's workers as well (``waves.py``). A task that is in flight carries what it would have without lanes.

1. A task reads if ``planning/reads.py`` says so when it is submitted. While it waits, measurements may say
   otherwise: then it passes without being counted.
2. Its file system is the longest configured path that its store lies under; if there is none, for the limit
   "default", the first folder of the path (or scheme and host of a URL); if no path is found in the task, the
   collection that is read. All tasks of one Dask group are taken to read from the same. (xarray marks arrays
   that it chunks in memory as producers, too: for the limit "default" they read until they are measured.)
3. Lanes do not know of each other: one that is full lets the others go on.
4. Tasks that the user restricted (``workers=``, ``resources=``) and actors are left alone.
5. Another limit applies at once to what waits; which tasks are in a lane is decided when they are submitted.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from dask_hpc.live import compat
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.ready import Ready
from dask_hpc.planning.reads import Measured, reads

_PORTION = 500  # tasks that pass in one turn of the event loop
_FLIES = frozenset({"processing", "queued"})
_OVER = frozenset({"memory", "erred", "forgotten"})


class Lane:
    """The reads of one file system."""

    def __init__(self, name: str, rule: str) -> None:
        self.name = name
        #: the key of the configuration that limits it
        self.rule = rule
        #: how many tasks are in it, whatever their state
        self.tasks = 0
        self.in_flight: set[Hashable] = set()
        #: what waits, by job; None for what is outside of jobs
        self.ready: dict[LiveJob | None, Ready] = {}


class Lanes:
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
        self._lanes: dict[str, Lane] = {}
        #: the lane of every task that is in one; empty if there are no limits
        self.lane_of: dict[Hashable, Lane] = {}
        self._shut = {compat.GATE}
        #: whether a read has ended since the last look
        self.has_news = False

    # what people change

    def set_limits(self, limits: Mapping[str, int] | None) -> None:
        """So many reads in flight: by path, and "default" for every other file system; None for no lanes."""
        self._limits = {path.rstrip("/") or "/": most for path, most in (limits or {}).items()}
        if self._lanes:
            self._wake(None)

    # what happens

    def submit(self, keys: Iterable[Hashable]) -> None:
        """Tasks arrive, none of which has moved yet, and jobs have taken theirs."""
        if not self._limits:
            return
        by_group: dict[Any, Lane | None] = {}
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if key in self.lane_of or not compat.is_new(task) or not self._may_wait(key, task):
                continue
            group = compat.group(task)
            if group not in by_group:
                by_group[group] = self._lane(task) if self._reads(task) else None
            if lane := by_group[group]:
                self.lane_of[key] = lane
                lane.tasks += 1
                compat.restrict(task, self._shut)

    def keep(self, key: Hashable, task: Any) -> None:
        """A task has changed hands, or its job waits again: in a lane it waits as before."""
        lane = self.lane_of.get(key)
        if lane is not None and key not in lane.in_flight:
            self._leaves_heap(key, lane)
            compat.restrict(task, self._shut)
            if compat.is_unplaced(task):
                self._waits(key, task, lane)

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        """A task in a lane changed its state."""
        lane = self.lane_of[key]
        if start == "no-worker":
            self._leaves_heap(key, lane)
        if key in lane.in_flight and (finish in _OVER or (start in _FLIES and finish not in _FLIES)):
            lane.in_flight.discard(key)
            if (task := compat.find_task(self._scheduler, key)) is not None:
                compat.restrict(task, self._shut)
            self.has_news = True
            self._wake(None)
        if finish == "no-worker":
            task = compat.find_task(self._scheduler, key)
            if compat.restriction(task) is self._shut:
                self._waits(key, task, lane)
        elif finish == "forgotten":
            del self.lane_of[key]
            lane.tasks -= 1
            if not lane.tasks:
                self._lanes.pop(lane.name, None)

    def vanish(self) -> None:
        """All tasks are gone."""
        self.lane_of.clear()
        self._lanes.clear()

    def close(self) -> list[Hashable]:
        """No task is in a lane any more. The keys of those that waited."""
        waiting = list(self.waiting())
        for key in self.lane_of:
            task = compat.find_task(self._scheduler, key)
            if task is not None and compat.restriction(task) is self._shut:
                compat.restrict(task, None)
        self.vanish()
        self._limits = {}
        return waiting

    # what follows

    def is_awaited(self, job: LiveJob) -> bool:
        """Whether reads of the job wait."""
        return any(lane.ready.get(job) for lane in self._lanes.values())

    def count_waiting(self) -> int:
        """How many tasks wait in lanes."""
        return sum(len(ready) for lane in self._lanes.values() for ready in lane.ready.values())

    def waiting(self) -> Iterator[Hashable]:
        """Keys of the tasks that wait in lanes."""
        return (key for lane in self._lanes.values() for ready in lane.ready.values() for key in ready)

    def let_pass(self, only_before_roots: bool) -> None:
        """As many reads as limits and slots allow. ``only_before_roots``: of confined jobs only those that
        go before the job's other root tasks that are ready."""
        left = _PORTION
        self.has_news = False
        for lane in self._lanes.values():
            full: set[LiveJob | None] = set()
            most = self._limits.get(lane.rule, left)
            while left and len(lane.in_flight) < most and (best := self._best(lane, full)):
                priority, job, key = best
                other = job.ready.first() if job and only_before_roots else None
                if (other and other[0] < priority) or not self._pass(lane, job, key):
                    full.add(job)
                left -= 1
            lane.ready = {job: ready for job, ready in lane.ready.items() if ready}
        if not left:
            self._wake(None)

    def _best(self, lane: Lane, full: set[LiveJob | None]) -> tuple[Any, LiveJob | None, Hashable] | None:
        heads = [
            (first[0], job, first[1])
            for job, ready in lane.ready.items()
            if job not in full and (job is None or job.state != "waiting") and (first := ready.first())
        ]
        return min(heads, key=lambda head: head[0], default=None)

    def _pass(self, lane: Lane, job: LiveJob | None, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        counts = self._reads(task)
        if job is None or not job.confined:
            lane.ready[job].discard(key)
            compat.restrict(task, job.gate if job else None)
            if counts:
                lane.in_flight.add(key)
            compat.nudge(self._scheduler, [key], "hpc-lane", plainly=True)
            return True
        slots = compat.free_slots(self._scheduler, job.workers)
        if not slots:
            return False
        lane.ready[job].discard(key)
        if counts:
            lane.in_flight.add(key)
        compat.send(self._scheduler, {key: min(slots).address}, f"hpc-lane-{job.id}")
        compat.restrict(task, job.gate)
        return True

    def _waits(self, key: Hashable, task: Any, lane: Lane) -> None:
        job = self._owner.get(key)
        lane.ready.setdefault(job, Ready()).add(compat.priority(task), key)
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

    def _reads(self, task: Any) -> bool:
        name = compat.prefix(task)
        measured = Measured(*compat.measured(self._scheduler, name))
        return reads(name, compat.is_producer(task), measured)

    def _lane(self, task: Any) -> Lane | None:
        path = compat.source(task)
        under = (rule for rule in self._limits if path and _is_under(path, rule))
        rule = max(under, key=len, default="default")
        if rule not in self._limits:
            return None
        name = rule
        if rule == "default":
            name = _file_system(path) if path else f"of {compat.group_name(task)}"
        return self._lanes.setdefault(name, Lane(name, rule))


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def _file_system(path: str) -> str:
    """The first folder, or scheme and host of a URL."""
    if "://" in path:
        parts = urlsplit(path)
        return f"{parts.scheme}://{parts.netloc}"
    return "/" + path.strip("/").split("/")[0]
