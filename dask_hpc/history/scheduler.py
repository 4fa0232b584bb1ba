"""The history as a service of a managed cluster: it knows of jobs that come what those of their name did
before, and notes what a job did when it ends.

1. A run is noted when a job that ran is over: ``done``, or ``killed`` if it was cancelled or tasks of it
   failed. It counts from its last start.
2. A job whose time says nothing is not noted: one that gave its nodes up while it had nothing to run, or that
   went on after it was over; nothing is in a dry run, where jobs run on whatever there is.
3. A loop that commits is a run by its own name when it ends, or tells the job of that name what it knows:
   what commits and a restore took, and how much of the work is saved. (A program that is ended from outside,
   as by a walltime, has no time to say so.)
4. A job that asks for walltime "auto" gets one that follows from past runs of its name, by a plan
   (``planning.run_times``), and then the next that does, if it takes longer.
5. The file is read once, beside all else; jobs that were submitted before are told then.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from time import time
from typing import Any
from weakref import WeakSet

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.lifecycle import Measurements
from dask_hpc.cluster.scheduler.service import Context, Service, Timer
from dask_hpc.cluster.worker.farewell import in_thread
from dask_hpc.history.runs import PastRun, RunHistory, key_of, path_of
from dask_hpc.model.errors import one_line
from dask_hpc.model.speedup import IoDemand
from dask_hpc.planning.run_times import walltimes_of

#: what only they know
_OF_LOOPS = ("saved_seconds", "commit", "restore")
_TOGETHER = 1.0  # seconds in which ends of jobs are written at once
_LOOK = 5.0  # seconds between two looks at memory, at least: there may be many workers
_PATIENCE = 5.0  # seconds that a disk has when control ends


#: the same runs make the same walltimes, and jobs of a name come in crowds
_walltimes = lru_cache(64)(walltimes_of)


class RunSoFar:
    """What is seen of a run while it goes on."""

    def __init__(self, now: float, nodes: int) -> None:
        self._since = now
        self._nodes = nodes
        self.node_seconds = 0.0
        self.peak = 0.0

    def look(self, now: float, nodes: int) -> None:
        """It had the nodes it was last seen with until now."""
        self.node_seconds += self._nodes * (now - self._since)
        self._since, self._nodes = now, nodes


class RunRecorder(Service):
    """Reads the history, tells jobs of it, and adds to it."""

    history: RunHistory

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writing: asyncio.Task[None] | None = None
        self._timer = Timer(context, "the history of runs", self._write)

    # its life

    def begin(self) -> None:
        """Jobs anew."""
        self.history = RunHistory(path_of(self.context.settings["history"]))
        self._so_far: dict[LiveJob, RunSoFar] = {}
        #: what loops have told of jobs of their names
        self._loops: dict[str, dict[str, Any]] = {}
        #: jobs that are noted, or never will be
        self._settled: WeakSet[LiveJob] = WeakSet()
        self._looked = -inf
        self._is_read = False
        if self.history.path is not None:
            self.context.do("the history of runs", self._learn(in_thread(self.history.read)))

    def release(self) -> None:
        self._timer.stop()
        self._so_far.clear()
        self._write()

    async def settle(self) -> None:
        """What was to be remembered is, if the disk answers in time."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_PATIENCE)

    def cancel(self) -> None:
        self.release()

    # what happens

    def knows_of(self, job: LiveJob) -> dict[str, Any]:
        known: dict[str, Any] = {}
        key = key_of(job.name, job.model.user)
        recorded, share = self.history.recorded(key, job.model), self.history.io_share(key)
        if recorded is not None:
            known["recorded"] = recorded
        if share is not None and job.model.io_intensity is None:
            known["io_intensity"] = IoDemand.of_share(share)
        if job.wants_walltime and not job.walltime_why and (self._is_read or self.history.path is None):
            self.context.do("a walltime", self._give_walltime(job, key))
        return known

    async def _give_walltime(self, job: LiveJob, key: str) -> None:
        """It asked for one that follows from past runs."""
        done, cut = self.history.durations_on(key, job.model)
        if not done:
            job.walltime_why = f"no run of {job.name} that was done is known: it goes without a walltime"
        else:
            found = await in_thread(_walltimes, tuple(done), tuple(cut))
            job.walltimes, job.walltime_why = found.seconds[1:], found.reason
            self.context.learn_of(job, walltime=found.seconds[0])
            running = self.context.indices.running.get(job.id)
            if running is not None:
                end = running.started + running.job.walltime_on(len(running.nodes))
                self.context.indices.expect_end(job.id, max(end, self.context.clock()))
            self.context.wake()
        self.context.tell_of("walltime", job, reason=job.walltime_why)

    def keep(self) -> None:
        """Sizes may have changed."""
        now, running = self.context.indices.now, set()
        is_time = now - self._looked >= _LOOK
        self._looked = now if is_time else self._looked
        for job in self.context.running_jobs():
            running.add(job)
            found = self._so_far.get(job)
            if found is None:
                found = self._so_far[job] = RunSoFar(now, len(job.nodes))
            else:
                found.look(now, len(job.nodes))
            if is_time:
                self._look_at_memory(job, found)
        for job in self._so_far.keys() - running:  # it waits again
            del self._so_far[job]

    def job_ends(self, job: LiveJob) -> None:
        so_far = self._so_far.pop(job, None)
        if so_far is None or job in self._settled or self.context.is_dry:
            return
        self._settled.add(job)
        now = self.context.indices.now
        seconds = now - (now if job.started is None else job.started)
        if seconds <= 0 or not job.closed:
            return
        so_far.look(now, 0)
        self._look_at_memory(job, so_far)
        share = self.context.get(Measurements).io_share(job)
        run = PastRun(
            nodes=round(so_far.node_seconds / seconds, 3),
            seconds=seconds,
            ended="killed" if job.is_cancelled or job.failures else "done",
            when=time(),
            peak_bytes=so_far.peak or None,
            io_seconds=None if share is None else share * seconds,
            **self._loops.pop(job.name, {}),
        )
        self._note(key_of(job.name, job.model.user), run)

    def loop_ends(self, name: str, run: Mapping[str, Any]) -> None:
        if self.context.is_dry:
            return
        try:
            found = PastRun.of({**run, "when": time()})
        except (TypeError, ValueError, KeyError):  # it came over the wire
            return
        if any(job.name == name for job in self.context.running_jobs()):
            row = found.as_row()
            self._loops[name] = {key: row[key] for key in _OF_LOOPS if key in row}
        else:
            self._note(name, found)

    def _note(self, key: str, run: PastRun) -> None:
        self.history.note(key, run)
        if not self._timer.is_set:
            self._timer.set(_TOGETHER)

    def _look_at_memory(self, job: LiveJob, so_far: RunSoFar) -> None:
        scheduler = self.context.scheduler
        used = (compat.memory_of(scheduler, address)[1] for address in job.workers & scheduler.workers.keys())
        so_far.peak = max(so_far.peak, *used, 0.0)

    # the file

    async def _learn(self, reading: "asyncio.Future[Any]") -> None:
        try:
            self.history.learn(await reading)
        except Exception as problem:
            self.context.tell("warning", one_line(f"{problem}; goes without a history of runs"))
            return
        self._is_read = True
        for job in self.context.jobs.values():
            if job.state != "done":
                self.context.learn_of(job, **self.knows_of(job))
        self.context.wake()

    def _write(self) -> None:
        if self.history.is_due and self._writing is None:
            self._writing = self.context.do("the history of runs", self._save(self.history))

    async def _save(self, history: RunHistory) -> None:
        try:
            while history.is_due:  # more may have ended meanwhile, and control with it
                await in_thread(history.write)
        except Exception as problem:
            words = f"{history.path}: cannot be written: {problem}; runs are not remembered"
            self.context.tell("warning", one_line(words))
            history.path = None
        finally:
            self._writing = None


SERVICE = RunRecorder
