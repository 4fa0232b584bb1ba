"""A worker's half: its heartbeats say which tasks ended and which run, with what they took of the machine.

A heartbeat's word, ``worker.metrics[METRIC]``, a dictionary:

* ``number``: grows by one from word to word; a heartbeat is looked at more than once.
* ``since``, ``until``: all tasks that ended between the two are counted in this word (a task that ends at
  that very moment may come with the next one). Times are seconds of the scheduler's clock, as far as the
  worker knows it.
* ``host``: ``cpu`` (name of the processor), ``cores`` (physical ones), ``limit`` (the worker's memory; 0:
  none).
* ``tasks``: kind -> rows ``[start, stop, inputs, output, counts]`` of tasks that ended: bytes of what they
  needed (None: not known any more) and of their result; counts as in ``counters``, or None.
* ``ended``: kind -> how many there were, if only some of them are told, evenly chosen.
* ``running``: kind -> since when each of those that run does.
* ``counters``: the names of what is counted, or None; ``why_not``: why nothing is, in words.
* ``peaks``: None if that is off; else ``how`` memory is looked at, and ``kinds``: of each kind what
  ``estimate.py`` tells, or None if ``how`` says why not; and ``growth``: of kinds of which tasks run and none
  has ended, for how long the first one has been running, and how far one has grown; and ``base``: bytes that
  the process has when nothing runs, without results.

What cannot wait for a heartbeat is an event of the topic ``peaks.TOPIC``: ``worker`` and ``number``, with
``kinds`` as above (of those that are new, or take more than was told), or with ``running``: rows
``[key, kind, start, bytes]`` of how far the process has grown for each task that runs, and ``resident``, its
memory now.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any

from distributed import WorkerPlugin
from distributed.utils import key_split

from dask_hpc import dask as compat
from dask_hpc.together.worker.counters import Counters
from dask_hpc.together.worker.host import this_host
from dask_hpc.together.worker.peaks import TOPIC, PeakWatch

#: what it is called in heartbeats
METRIC = "dask-hpc-tasks"
_MOST = 200  # tasks of one heartbeat


class TaskObserver(WorkerPlugin):
    """Tells of the tasks that ended since the last heartbeat. ``counters``: and what the processor counted
    for them; ``peaks``: and how much memory kinds of tasks take, as soon as it is known."""

    name = METRIC

    def __init__(self, counters: bool = False, peaks: bool = False) -> None:
        self._with = counters, peaks

    def setup(self, worker: Any) -> None:
        """From now on."""
        counters, peaks = self._with
        self._worker = worker
        self._log = compat.TaskLog(worker)
        self._number = 0
        self._until = self._log.now()
        self._counters = Counters() if counters else None
        self._peaks = PeakWatch(worker, self._say) if peaks else None
        self._stop_watching = None
        if self._peaks or (self._counters and not self._counters.why_not):
            self._stop_watching = compat.watch_threads(worker, self._begins, self._ends)
        self._metric = worker.metrics[METRIC] = self._tell

    def teardown(self, worker: Any) -> None:
        """It does no more; if another one has taken its place, that one does."""
        if worker.metrics.get(METRIC) is self._metric:
            del worker.metrics[METRIC]
        if self._stop_watching:
            self._stop_watching()
        if self._counters:
            self._counters.close()
        if self._peaks:
            self._peaks.close()

    def transition(self, key: Hashable, start: str, finish: str, **kwargs: Any) -> None:
        """A task on this worker changed its state."""
        if self._peaks:
            self._peaks.moved(key, finish)

    def _begins(self, key: Hashable) -> None:
        if self._peaks:
            self._peaks.begins(key)
        if self._counters:
            self._counters.begins(key)  # nearest to the task itself

    def _ends(self, key: Hashable) -> None:
        if self._counters:
            self._counters.ends(key)
        if self._peaks:
            self._peaks.ends(key)

    def _say(self, message: dict[str, Any]) -> None:
        self._worker.log_event(TOPIC, message)

    def _tell(self, worker: Any) -> dict[str, Any]:
        self._number += 1
        since, self._until = self._until, self._log.now()
        tasks, ended = self._ended()
        running: dict[str, list[float]] = {}
        for key, start in compat.running_tasks(worker):
            running.setdefault(key_split(key), []).append(start)
        cpu, cores = this_host()
        counters = self._counters
        counts = counters is not None and not counters.why_not
        return {
            "number": self._number,
            "since": max(since, self._log.complete_since),
            "until": self._until,
            "host": {"cpu": cpu, "cores": cores, "limit": worker.memory_manager.memory_limit or 0},
            "tasks": tasks,
            "ended": ended,
            "running": running,
            "counters": [event.name for event in counters.events] if counters and counts else None,
            "why_not": counters.why_not if counters else "",
            "peaks": self._peaks.facts() if self._peaks else None,
        }

    def _ended(self) -> tuple[dict[str, list[list[Any]]], dict[str, int]]:
        found = [(key_split(one.key), one) for one in self._log.read() if one.stop > one.start]
        every = max(1.0, len(found) / _MOST)
        told = [found[int(place * every)] for place in range(int(len(found) / every))]
        rows: dict[str, list[list[Any]]] = {}
        counters = self._counters
        for kind, one in told:
            counts = counters.take(one.key) if counters else None
            rows.setdefault(kind, []).append([one.start, one.stop, one.inputs, one.output, counts])
        if counters:
            counters.forget_threads()
        if len(told) == len(found):
            return rows, {}
        return rows, dict(Counter(kind for kind, _ in found))
