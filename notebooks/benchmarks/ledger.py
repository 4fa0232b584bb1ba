"""A ledger of what a cluster did: every start of a task, every result that was lost, every pause of a loop.

It is kept the same way with us and without. For under_change.py.
"""

import os
import time
from collections import Counter, defaultdict
from pathlib import Path

from distributed import SchedulerPlugin, WorkerPlugin

STARTS, RULES = "starts-of-tasks", "ledger"
#: a task raised, or asked to be run elsewhere, as those of Dask's shuffles do where they find nothing to do
_FAILS = {(start, finish) for start in ("executing", "long-running") for finish in ("error", "rescheduled")}


class StartsPlugin(WorkerPlugin):
    """Writes down each start of a task, and each that ended in an error, in a file of this process: one
    system call each, so that a process that dies has written what it began."""

    name = STARTS

    def __init__(self, folder):
        self.folder = str(folder)

    def setup(self, worker):
        self.where, self.begun = worker.address, set()
        path = Path(self.folder) / f"{os.getpid()}-{time.time_ns()}.starts"
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        # The state "executing" comes before: a worker that is told to close meanwhile does not begin.
        worker.active_keys = ActiveKeys(self.write, worker.active_keys)

    def transition(self, key, start, finish, **kwargs):
        if (start, finish) in _FAILS and key in self.begun:
            self.write("fail", key)
        if start in ("executing", "long-running") and finish != "long-running":
            self.begun.discard(key)

    def write(self, what, key):
        if what == "start":
            self.begun.add(key)
        os.write(self.file, f"{time.time()}\t{what}\t{self.where}\t{key!r}\n".encode())


class ActiveKeys(set):
    """What a worker knows of the tasks that it really runs; says when one is added."""

    def __init__(self, write, keys):
        super().__init__(keys)
        self._write = write

    def add(self, key):
        self._write("start", key)
        super().add(key)


class LedgerPlugin(SchedulerPlugin):
    """Writes down which workers left with what, and when a key begins anew."""

    name = RULES

    def __init__(self):
        self.anew, self.left = [], []

    def transition(self, key, start, finish, *args, **kwargs):
        if finish == "forgotten" or (start == "memory" and finish == "released" and not self._is_wanted(key)):
            self.anew.append((time.time(), "anew", "", repr(key)))

    def _is_wanted(self, key):
        task = self.scheduler.tasks.get(key)
        return task is not None and bool(task.who_wants or task.waiters)

    async def start(self, scheduler):
        self.scheduler = scheduler

    def log_event(self, topic, message):
        if topic != "all" or not isinstance(message, dict) or message.get("action") != "remove-worker":
            return
        self.left.append(
            {
                "time": time.time(),
                "worker": message["worker"],
                "computed": sorted(map(repr, message["lost-computed-tasks"])),
                "scattered": sorted(map(repr, message["lost-scattered-tasks"])),
                "processing": len(message["processing-tasks"]),
                "expected": message["expected"],
                "stimulus": message["stimulus_id"],
            }
        )


class Pauses:
    """How long a loop had no time for anybody: the longest gap between looks, and the processor time of its
    thread in the longest one. What the harness itself stopped it for does not count."""

    EVERY = 0.01

    def __init__(self, loop):
        self.wall = self.processor = 0.0
        self._loop, self._is_over, self._excused = loop, False, False
        self._last = None
        loop.call_soon_threadsafe(self._look)

    def sleep(self, seconds):
        """Stop the loop on purpose."""
        self._loop.call_soon_threadsafe(self._sleep, seconds)

    def end(self):
        self._is_over = True

    def _sleep(self, seconds):
        self._excused = True
        time.sleep(seconds)

    def _look(self):
        now = time.perf_counter(), time.thread_time()
        if self._last is not None:
            if not self._excused:
                self.wall = max(self.wall, now[0] - self._last[0] - self.EVERY)
            self.processor = max(self.processor, now[1] - self._last[1])
        self._last, self._excused = now, False
        if not self._is_over:
            self._loop.call_later(self.EVERY, self._look)


def read_starts(folder):
    """All that the workers wrote down."""
    found = []
    for path in Path(folder).glob("*.starts"):
        for line in path.read_text().splitlines():
            when, what, where, key = line.split("\t", 3)
            found.append((float(when), what, where, key))
    return found


def twice(starts, anew):
    """Tasks that began although they had begun before: {key: [(when, where), ...]} of those that did.

    A key begins anew when the scheduler has forgotten it, or has released its result because neither a client
    nor a task that is still to run wants it. From then on one start is due, and one more for each that ended
    in an error of the task itself (``retries``), or by its own wish to be run elsewhere (a task of Dask's
    shuffles that is sent to another worker than its data goes back at once, undisturbed as well). Everything
    beyond counts: results that were lost, tasks that were cut off when their worker left, and those of a
    shuffle that was restarted. A key that is given to the cluster again while an older task of that name
    still runs would count wrongly; no workload does that.
    """
    by_key = defaultdict(list)
    for event in (*starts, *anew):
        by_key[event[3]].append(event)
    found = {}
    for key, events in by_key.items():
        due, began = 1, []
        for when, what, where, _ in sorted(events):
            if what == "anew":
                due, began = 1, []
            elif what == "fail":
                due += 1
            else:
                began.append((when, where))
                due -= 1
                if due < 0:
                    found.setdefault(key, []).append(began[-2:])
    return found


def causes(again, left):
    """Why tasks began again, counted: their result was lost with a worker, or something else happened."""
    lost = {key for one in left for key in (*one["computed"], *one["scattered"])}
    gone = {one["worker"] for one in left}
    count = Counter()
    for key, times in again.items():
        for (_, before), _ in times:
            cause = "lost" if key in lost else "cut off" if before in gone else "else"
            count[cause] += 1
    return dict(count)
