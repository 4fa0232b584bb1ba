"""Measures how far a worker's process grows while tasks run, and tells the scheduler at once.

Whenever a task begins or ends in one of the worker's threads, and some 25 times a second while any runs, one
looks: how much memory the process has, at most had since one last looked (``resident.py``), and how much of
that are results that Dask knows of. What is left, less what was left when nothing ran, has been taken by the
tasks that run; ``estimate.py`` says by which.

1. A task's result counts with it until Dask has it among its results. Inputs were there before it began, so
   they are told apart (``inputs``: what was brought for it).
2. What arrives or is freed meanwhile is a result, and so of nobody's growth. While results arrive nobody
   knows how much of them has come: all of it is taken to be there, what is seen then is less sure, and what
   is there when a task begins is taken to have been less, so that rather too much is its own.
3. A process that is not ours alone (several workers, or the scheduler, in one) grows for other reasons: then
   nothing is told but why.
4. A task that never releases the GIL keeps this thread waiting; the high-water mark has seen it all the same.
5. Tasks that are shorter than a look costs are not all looked at: kinds that are not known come first.
   Where too many begin and end, what the process had at most is nobody's.
6. A result of which the process has less than Dask reckons (a view of an input, pages that nobody touched)
   counts as what its task has grown by.
7. Growth that stays when a task ends (caches, memory that is not given back) counts with the tasks that run
   until for once none does.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from itertools import count
from math import inf
from time import monotonic
from typing import Any

from distributed.system import MEMORY_LIMIT
from distributed.utils import key_split

from dask_hpc import dask as compat
from dask_hpc.together.worker.estimate import Estimates, TaskRun
from dask_hpc.together.worker.resident import Resident, resident_memory

logger = logging.getLogger(__name__)

#: the topic of what is told at once
TOPIC = "dask-hpc-peaks"
#: bytes; whatever is less is noise
NOISE = 4 << 20
_PERIOD = 0.04  # seconds from one look to the next while tasks run
_TELL_AFTER = 0.1  # seconds from one word of what runs to the next
_STEP = 0.05  # of the worker's memory limit: less growth is not told
_PER_SECOND = 20.0  # beginnings and ends of tasks that are looked at
_FIRST = 3  # tasks of a kind that always are
_YOUNG = 0.2  # seconds; what runs for less, of a kind that is known, is not looked at meanwhile
_PATIENCE = 5.0  # seconds until a result that Dask has not got by then is forgotten
_MOST = 50  # kinds of one heartbeat


class PeakWatch:
    """Looks at one worker's memory. ``say``: sends a message, from any thread."""

    def __init__(
        self, worker: Any, say: Callable[[dict[str, Any]], None], memory: Resident | None = None
    ) -> None:
        self._worker = worker
        self._say = say
        self._memory = memory or resident_memory()
        self.how = self._memory.how
        limit = getattr(worker.memory_manager, "memory_limit", None)
        self._limit = float(limit or MEMORY_LIMIT)
        self._lock = threading.Lock()
        self._runs: dict[Hashable, TaskRun] = {}
        #: Dask has not got their results yet; when they ended, and whether one has looked then
        self._ended: dict[Hashable, tuple[TaskRun, float, bool]] = {}
        self._young: dict[Hashable, float] = {}  # that nobody has looked at, and since when they run
        self._less: dict[Hashable, int] = {}  # by how much results are less than Dask reckons
        self._landed = 0  # bytes of results that Dask has got since one last looked
        self._missed = False  # one began or ended without a look since the last one
        self.estimates = Estimates()
        self._base = self._left = 0.0
        self._known = 0
        self._tokens, self._filled = _PER_SECOND, monotonic()
        self._told_at = 0.0
        self._numbers = count(1)
        self._heartbeats = 0
        self._awake, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dask-hpc-peaks", daemon=True)
        self._rest()
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._awake.set()
        self._thread.join(1.0)
        with self._lock:
            self._runs.clear()
            self._young.clear()
            self._memory.close()

    @property
    def why_not(self) -> str:
        """Why nothing can be said of this process; empty if it can."""
        return compat.process_mates(self._worker)

    # in the worker's threads

    def begins(self, key: Hashable) -> None:
        """A task begins."""
        kind = key_split(key)
        if self._may_look(kind):
            with self._lock:
                self._begin(TaskRun(key, kind, compat.now_there(self._worker)))
        else:
            self._young[key] = compat.now_there(self._worker)
            self._missed = True
        if not self._awake.is_set():
            self._awake.set()

    def _begin(self, run: TaskRun) -> None:
        if self._over.is_set():
            return
        self._take_over()
        if self._runs or self._ended:
            self._look()
            run.alone = False
        else:
            self._rest()
            run.alone = not compat.arriving_bytes(self._worker)
        self._runs[run.key] = run

    def ends(self, key: Hashable) -> None:
        """A task has ended; its result is still its own."""
        if self._young.pop(key, None) is not None:
            self._missed = True
            return
        with self._lock:
            run = self._runs.get(key)
            if run is None or self._over.is_set():
                return
            looks = self._may_look(run.kind)
            if looks:
                self._look()
            else:
                self._missed = True
            del self._runs[key]
            if key not in self._worker.state.actors:  # of what their methods return nobody hears
                self._ended[key] = run, monotonic(), looks

    # on the worker's event loop

    def moved(self, key: Hashable, finish: str) -> None:
        """Dask has its result, or has given it up."""
        if key in self._less and finish != "memory":
            with self._lock:
                self._less.pop(key)
        if key not in self._ended:
            return
        with self._lock:
            run, _, looked = self._ended.pop(key)
            result, inputs = compat.sizes_of(self._worker, key)
            if finish == "memory":
                self._landed += result
                if looked and result - run.level > NOISE:
                    self._less[key] = int(result - run.level)
            if run.rank < 0 or finish not in ("memory", "error"):
                return  # nobody has looked, or it was not done
            found = self.estimates.end(run, result, inputs)
            news = {run.kind: found.tell()} if found.has_news() else None
        if news and not self.why_not:
            self._tell(kinds=news)

    def facts(self) -> dict[str, Any]:
        """For a heartbeat."""
        if why := self.why_not:
            return {"kinds": None, "how": why}
        now, growth = compat.now_there(self._worker), dict[str, list[float]]()
        with self._lock:
            self._heartbeats += 1
            if not (self._runs or self._ended or self._young or self._over.is_set()):
                self._rest()
            for run in self._runs.values():
                if not self.estimates.knows(run.kind):
                    seconds, level = growth.get(run.kind, (0.0, 0.0))
                    growth[run.kind] = [max(seconds, now - run.start), max(level, run.level)]
            return {
                "kinds": self.estimates.tell(_MOST, self._heartbeats),
                "growth": growth,
                "base": max(0, int(self._base)),
                "how": self.how,
            }

    # in a thread of its own

    def _watch(self) -> None:
        while not self._over.is_set():
            self._awake.wait()
            self._over.wait(_PERIOD)
            try:
                running = self._look_again()
            except Exception:
                logger.exception("dask-hpc: a worker's memory is not looked at any more")
                return
            if running is not None:
                self._tell(**running)

    def _look_again(self) -> dict[str, Any] | None:
        with self._lock:
            if self._over.is_set():
                return None
            now = monotonic()
            for key in [key for key, (_, since, _) in self._ended.items() if now - since > _PATIENCE]:
                del self._ended[key]
            self._take_over()
            if not self._runs:
                if not self._ended:
                    self._awake.clear()
                return None
            oldest = min(run.start for run in self._runs.values())
            is_young = compat.now_there(self._worker) - oldest < _YOUNG
            if is_young and all(self._is_known(run.kind) for run in self._runs.values()):
                return None
            self._look()
            step = _STEP * self._limit
            if now - self._told_at < _TELL_AFTER or not any(
                abs(run.level - run.told) > step for run in self._runs.values()
            ):
                return None
            self._told_at = now
            for run in self._runs.values():
                run.told = run.level
            rows = [[run.key, run.kind, run.start, int(run.level)] for run in self._runs.values()]
            resident = self._memory.now()
        return None if self.why_not else {"running": rows, "resident": resident}

    def _tell(self, **what: Any) -> None:
        self._say({"worker": self._worker.address, "number": next(self._numbers), **what})

    # under the lock

    def _is_known(self, kind: str) -> bool:
        known = self.estimates.kinds.get(kind)
        return known is not None and known.tasks >= _FIRST

    def _may_look(self, kind: str) -> bool:
        if not self._is_known(kind):
            return True
        now = monotonic()
        self._tokens = min(_PER_SECOND, self._tokens + (now - self._filled) * _PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _take_over(self) -> None:
        """Those that nobody has looked at run as well."""
        for key in list(self._young):
            start = self._young.pop(key, None)
            if start is not None:  # else it has just ended
                self._runs[key] = TaskRun(key, key_split(key), start, alone=False)

    def _rest(self) -> None:
        """Nothing runs: what the process has now is nobody's."""
        _, now = self._memory.look()
        self._known = self._known_bytes()
        self._base = self._left = float(now - self._known)
        self._missed = False
        self._landed = 0

    def _look(self) -> None:
        """Who has grown by how much since one last looked."""
        arrives = compat.arriving_bytes(self._worker) > 0
        known = self._known_bytes()
        most, now = self._memory.look()
        self._take_over()  # also those that began just now
        left = float(now - known)
        # twice, as a result is reckoned a moment before it is known that it is less
        self._base, self._left = min(self._base, max(left, self._left)), inf if arrives else left
        if not self._missed:
            left = max(left, most - max(known, self._known))
        runs = [*self._runs.values(), *(run for run, *_ in self._ended.values())]
        if arrives or known - self._known - self._landed > NOISE:  # was it taken for growth?
            for run in runs:
                run.is_unsure()
        self._known, self._landed, self._missed = known, 0, False
        if runs:
            self.estimates.share(max(0.0, left - self._base), runs)

    def _known_bytes(self) -> int:
        """What is of no task that runs: results that are there, and those that arrive."""
        known = compat.managed_bytes(self._worker) + compat.arriving_bytes(self._worker)
        return known - sum(self._less.values())
