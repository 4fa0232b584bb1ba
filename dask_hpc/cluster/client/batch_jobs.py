"""What the batch system, or the operating system, says of a cluster's units: queued, running, gone; and, for
who wants to know, of its whole queue.

All clusters of a process share one ``BatchDesk`` for each batch system: it alone asks, for all of them, and
no more often than is polite (``planning/polling.py``).
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import random
from time import monotonic, time
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from dask_hpc import dask as compat
from dask_hpc.batch import command
from dask_hpc.batch.job_state import UNKNOWN, JobState
from dask_hpc.batch.slurm_queue import KnownQueue
from dask_hpc.batch.system import BatchSystem, Command
from dask_hpc.batch.systems import is_slurm, system_of
from dask_hpc.planning.polling import JobWatch, Manners, due_because, next_question, submissions_left

TOLD = "new batch jobs exec their workers, so that these learn when Slurm ends the job"
_GIVEN_UP = 2 * command.PATIENCE  # seconds after which a question was asked by an event loop that is no more
_BEFORE_IT_IS_TOLD = 3  # questions in a row without an answer


def exec_workers(cluster: Any) -> Callable[[], None] | None:
    """Let the worker be the first process of all new jobs of such a cluster. Gives what undoes it, or None
    if there is nothing to do: it is no cluster of Slurm's jobs, or the worker is that process already, or
    the script goes on after it.
    """
    job = compat.batch_job_of(cluster)
    if not is_slurm(job):
        return None
    python, is_module, _ = job.job_script().rstrip().splitlines()[-1].partition(" -m distributed.")
    if not is_module or python.split()[0] == "exec":
        return None
    options = cluster.new_spec["options"]
    before = options.get("python")
    options["python"] = f"exec {python}"
    return lambda: options.update(python=before)


@dataclass(frozen=True, slots=True)
class Known:
    """One unit: what its system said of it, and how many seconds ago it was asked: infinity if it has not
    answered."""

    job: JobState
    ago: float = 0.0


class BatchJobs:
    """The units of one cluster object.

    Batch jobs are looked up at the desk of their system; a process of this machine is asked itself. Whoever
    cannot be asked is unknown: never gone.
    """

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        self._desks: dict[tuple[str, ...], BatchDesk] = {}
        self._submits_to: BatchDesk | None = None
        self._jobs: dict[str, JobWatch] = {}
        self._told: set[str] = set()
        #: what people should know of the batch systems: to be taken away
        self.news: list[str] = []

    async def look(
        self, units: Mapping[Any, Any], ages: Mapping[Any, float], connected: Collection[Any] = ()
    ) -> dict[Any, Known]:
        """What is known of each of these units (objects of the cluster's worker class) now. Of those that
        are connected some worker is."""
        now = monotonic()
        found: dict[Any, Known] = {}
        watches: dict[str, JobWatch] = {}
        at_desks: dict[BatchDesk, dict[Any, str]] = {}
        for name, unit in units.items():
            system, job = system_of(unit), getattr(unit, "job_id", None)
            if system is not None and job is not None:
                desk = self._desk(system, unit.submit_command)
                at_desks.setdefault(desk, {})[name] = job
                watches[job] = self._seen(job, ages.get(name, 0.0), name in connected, now)
            else:
                said = of_process(unit, ages.get(name, 0.0))
                found[name] = Known(said, inf if said.state == "unknown" else 0.0)
                if said is UNKNOWN and job is not None:
                    self._tell(f"nobody asks what becomes of the batch jobs of {type(unit).__name__}")
        self._jobs = watches
        for desk, names in at_desks.items():
            if desk.system.silent:
                self._tell(f"{desk.system.name} does not say {desk.system.silent}")
            answers = await desk.look(self, {job: watches[job] for job in names.values()}, self._manners)
            if desk.trouble:
                self._tell(desk.trouble)
            for name, job in names.items():
                found[name] = self._known(desk, job, answers.get(job))
                if now_id := found[name].job.now_id:
                    units[name].job_id = now_id  # or it could not be taken back
        return found

    async def look_around(self, wants: bool) -> KnownQueue:
        """What is known of the whole queue. From now on everybody's jobs are asked about, not only ours, and
        at the next opportunity if somebody ``wants`` to submit by what the queue is then."""
        assert self._submits_to is not None
        await self._submits_to.look(self, None, self._manners, wants, is_for_all=True)
        return self._submits_to.queue

    def look_away(self) -> None:
        """The whole queue is of no interest just now."""
        assert self._submits_to is not None
        self._submits_to.look_away(self)

    def leave(self) -> None:
        """This cluster object is not adapted any more: nobody asks for it."""
        for desk in self._desks.values():
            desk.forget(self)

    def submits(self, job: Any) -> None:
        """New units will be such jobs of dask-jobqueue, or none."""
        if (system := system_of(job)) is not None:
            self._submits_to = self._desk(system, job.submit_command)

    def left(self) -> float:
        """How many batch jobs may be submitted now."""
        return min((desk.left(self._manners) for desk in self._desks.values()), default=inf)

    def allow(self, number: int) -> int:
        """How many of so many batch jobs may be submitted now; they count as submitted."""
        return min((desk.allow(number, self._manners) for desk in self._desks.values()), default=number)

    def _desk(self, system: BatchSystem, submit: str) -> "BatchDesk":
        words = submit.split()
        key = (system.name, os.path.dirname(words[0]), *system.options(words))
        if key not in self._desks:
            self._desks[key] = BatchDesk.of(system, key)
        return self._desks[key]

    def _seen(self, job: str, age: float, is_connected: bool, now: float) -> JobWatch:
        before = self._jobs.get(job) or JobWatch(submitted=now - age)
        if is_connected:
            since = now if before.connected is None else before.connected
            return replace(before, connected=since, vanished=None, has_run=True)
        return before if before.connected is None else replace(before, connected=None, vanished=now)

    def _known(self, desk: "BatchDesk", job: str, answer: tuple[JobState, float] | None) -> Known:
        """What follows from an answer and from what was seen since."""
        watch, now = self._jobs[job], monotonic()
        here = JobState("running", "", None if watch.connected is None else now - watch.connected)
        if answer is not None:
            said, at = answer
            if watch.has_run and said.state in ("queued", "held"):
                said = replace(said, restarts=max(1, said.restarts or 0))
            self._jobs[job] = replace(
                watch,
                answered=at,
                state=said.state,
                started=None if said.running_for is None else at - said.running_for,
                starts=None if said.starts_in is None else at + said.starts_in,
                ends=at + said.left,
                unclear=None if said.state != "unknown" else at if watch.unclear is None else watch.unclear,
                has_run=watch.has_run or said.state == "running",
            )
            has_come_since = watch.connected is not None and at < watch.connected
            is_over = said.state == "gone" and not has_come_since
            if is_over or (said.state == "running" if watch.connected is not None else not desk.is_deaf):
                return Known(said.later(now - at), now - at)
        if watch.connected is not None:
            return Known(here, inf)
        if desk.is_deaf:
            return Known(JobState("unknown", f"{desk.system.name} does not answer"), inf)
        return Known(JobState("queued", "submitted"), now - watch.submitted)

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self.news.append(words)


@dataclass(frozen=True, slots=True)
class BatchQuestion:
    """One command, what its program is told, and the jobs of ours that it is about: none, if it is about
    what hardly changes."""

    command: Command
    told: str = ""
    ids: Sequence[str] | None = None
    is_for_all: bool = False


class BatchDesk:
    """Asks one batch system about the jobs of all clusters of this process, whichever event loops they live
    on. Who comes when it is time asks for all; whoever comes meanwhile gets what is known."""

    _all: "WeakValueDictionary[tuple[str, ...], BatchDesk]" = WeakValueDictionary()
    _making = threading.Lock()

    def __init__(self, system: BatchSystem, directory: str, options: tuple[str, ...]) -> None:
        self.system = system
        #: why nothing is known, if it is so for a while
        self.trouble = ""
        #: as far as anybody wanted to know it
        self.queue = KnownQueue()
        self._directory = directory
        self._options = options
        self._lock = threading.Lock()
        self._watches: WeakKeyDictionary[BatchJobs, tuple[dict[str, JobWatch], Manners]] = WeakKeyDictionary()
        self._curious: WeakSet[BatchJobs] = WeakSet()
        #: what was said of each job, and when that was asked
        self._answers: dict[str, tuple[JobState, float]] = {}
        self._asked = -inf
        self._asking_since = -inf
        self._unanswered = 0
        self._was_aside = False
        self._chance = random()
        self._submissions: deque[float] = deque(maxlen=10_000)

    @classmethod
    def of(cls, system: BatchSystem, key: tuple[str, ...]) -> "BatchDesk":
        """The one of all who ask this batch system in this way."""
        with cls._making:
            desk = cls._all.get(key)
            if desk is None:
                desk = cls._all[key] = cls(system, key[1], key[2:])
            return desk

    @property
    def is_deaf(self) -> bool:
        """Whether the last question was not answered."""
        return self._unanswered > 0

    async def look(
        self,
        who: BatchJobs,
        jobs: dict[str, JobWatch] | None,
        manners: Manners,
        wants: bool = False,
        is_for_all: bool = False,
    ) -> dict[str, tuple[JobState, float]]:
        """What was said of these jobs (None: the same as before), and when that was asked. Nothing of those
        nobody has asked about."""
        question = self._begins(who, jobs, manners, wants, is_for_all)
        if question is not None:
            try:
                await self._ask(question)
            finally:
                self._asking_since = -inf
        with self._lock:
            return {job: self._answers[job] for job in jobs or () if job in self._answers}

    def look_away(self, who: BatchJobs) -> None:
        """This one is not interested in other people's jobs any more."""
        with self._lock:
            self._curious.discard(who)

    def forget(self, who: BatchJobs) -> None:
        """Nobody asks for this one any more."""
        with self._lock:
            self._watches.pop(who, None)
            self._curious.discard(who)

    def left(self, manners: Manners) -> int:
        """How many jobs may be submitted now."""
        with self._lock:
            return submissions_left(self._submissions, monotonic(), manners)

    def allow(self, number: int, manners: Manners) -> int:
        """How many of so many jobs may be submitted now; they count as submitted."""
        now = monotonic()
        with self._lock:
            allowed = min(number, submissions_left(self._submissions, now, manners))
            self._submissions.extend([now] * allowed)
            return allowed

    def _begins(
        self,
        who: BatchJobs,
        jobs: dict[str, JobWatch] | None,
        manners: Manners,
        wants: bool,
        is_for_all: bool,
    ) -> BatchQuestion | None:
        """Note who is interested in what; and what is to be asked now, if it is time and nobody does."""
        now = monotonic()
        with self._lock:
            before, _ = self._watches.get(who, ({}, manners))
            self._watches[who] = (before if jobs is None else jobs, manners)
            if is_for_all:
                self._curious.add(who)
            if now - self._asking_since < _GIVEN_UP:
                return None
            of_all = {job: watch for watches, _ in self._watches.values() for job, watch in watches.items()}
            told = [manners for _, manners in self._watches.values()]
            often = Manners(min(one.poll for one in told), min(one.due for one in told))
            watches = of_all.values()
            if now < next_question(
                watches, self._asked, self._unanswered, now, often, self._chance, is_wanted=wants
            ):
                return None
            self._asking_since = self._asked = now
            self._chance = random()
            is_urgent = not wants and any(due_because(job, now, often) for job in watches)
            return self._next(sorted(of_all), now, is_urgent)

    def _next(self, ids: list[str], now: float, is_urgent: bool) -> BatchQuestion:
        """About jobs, ours or everybody's; now and then about what hardly changes, if nothing is urgent."""
        overdue = self.queue.overdue(now) if self._curious else None
        self._was_aside = overdue is not None and not is_urgent and not self._was_aside
        if overdue is not None and self._was_aside:
            return BatchQuestion(*overdue)
        # what was too much to be answered is not asked twice in a row
        of_all = self.system.question_of_all() if self._curious and not self._unanswered % 2 else None
        return BatchQuestion(of_all or self.system.question(ids), ids=ids, is_for_all=of_all is not None)

    async def _ask(self, question: BatchQuestion) -> None:
        at = self._asked
        program, *words = question.command
        if question.ids is None:
            heard = await command.hear(question.command, self._directory, question.told)
            with self._lock:
                self.queue.hear(program, heard, at, time())
            return
        heard = await command.hear((program, *self._options, *words), self._directory)
        found = None if heard is None else self.system.read(heard, time())
        gone = JobState("gone", f"{self.system.name} does not know it any more")
        with self._lock:
            if question.is_for_all:
                self.queue.hear(program, None if found is None else heard, at, time())
            if found is None:
                self._unanswered += 1
            else:
                self._unanswered = 0
                self._answers = {job: (found.get(job, gone), at) for job in question.ids}
            is_long = self._unanswered >= _BEFORE_IT_IS_TOLD
            silence = f"{program} gives no answer: nobody knows what becomes of batch jobs"
            self.trouble = silence if is_long else ""


def of_process(unit: Any, age: float) -> JobState:
    """The state of a unit that says it itself, or that is, or knows, a process of this machine."""
    tell = getattr(unit, "state_now", None)
    if tell is not None:
        found: JobState = tell()
        return found
    process = getattr(getattr(unit, "process", None), "proc", None)  # of dask-jobqueue's local backend
    if process is not None:
        if (code := process.poll()) is None:
            return JobState("running", "", age)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return JobState("gone", f"its process {how}")
    status = unit.status.name
    if status in ("closing", "closed", "failed"):
        return JobState("gone", f"its process is {status}")
    if hasattr(unit, "job_id"):  # of a batch system that nobody taught us to ask
        return UNKNOWN
    return JobState("running" if status == "running" else "unknown", "", age if status == "running" else None)
