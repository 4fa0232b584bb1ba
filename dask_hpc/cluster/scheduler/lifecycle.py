"""How jobs come, wait, are cancelled and end: what the loop knows of them between two decisions."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.request import AUTO, read_request
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.jobs import LiveJob, Work
from dask_hpc.cluster.scheduler.service import Context, Service, Timer
from dask_hpc.cluster.scheduler.window import AdaptationWindows
from dask_hpc.model.errors import InputError
from dask_hpc.model.snapshot import Running
from dask_hpc.model.speedup import IoDemand
from dask_hpc.model.story import Explanation
from dask_hpc.model.units import count_nodes, counted, show_duration

_NEWS = 0.05  # seconds until a decision sees more work of jobs that run: it may come task by task
_NEWS_OF_IO = 0.02  # of a job's time: a change of what it reads and writes that is worth a decision
_KEPT = 1000  # jobs that are done, for status(); and contexts closed before anything of them was seen


class Lifecycle:
    """Every job's way from its first graph to its end. Nothing is decided here."""

    def __init__(self, context: Context, gate: Gate, hand_overs: HandOvers) -> None:
        self._context = context
        self._gate = gate
        self._hand_overs = hand_overs
        self._figures = context.get(Figures)
        self._done: OrderedDict[str, None] = OrderedDict()
        self.closed_early: OrderedDict[str, None] = OrderedDict()
        self.news = Timer(context, "more work", context.wake)
        self.next_deadline = Timer(context, "a deadline", context.wake)
        #: the jobs that have one, which is not over
        self._deadlines: set[LiveJob] = set()
        self._arrivals = 0
        self._last_offered = -1
        #: jobs that wait and that no decision has seen yet
        self.not_offered: dict[LiveJob, None] = {}
        self._perhaps_over: dict[LiveJob, None] = {}
        #: cancelled jobs of which more has arrived
        self._late: dict[LiveJob, None] = {}
        #: requests of the jobs to which all belongs that these clients submit outside of jobs
        self.script_of: dict[str, dict[str, Any]] = {}

    def stop(self) -> None:
        """Nothing more is timed."""
        self.news.stop()
        self.next_deadline.stop()

    # what happens

    def graph_arrives(
        self, client: str, request: Any, keys: list[Any], submitter: Any = None
    ) -> LiveJob | None:
        """Tasks were submitted: by a job if there is a request; by a task, for the job of that task; else
        outside of jobs. The job, if there is one."""
        outside = request is None
        job = self._job_of_task(submitter, client) if outside else self._job_of(request, client)
        changed = self._gate.submit(keys, job)
        if changed:
            self.tasks_change_hands()
        if job is not None and job.state == "waiting" and job.blocking:
            self._hold_back(job)
        if changed or (job is not None and job.state != "running"):
            self._context.wake()
        elif job is not None and not self.news.is_set:
            self.news.set(_NEWS)
        return job

    def may_be_over(self, jobs: Iterable[LiveJob]) -> None:
        """Look before the next decision whether these jobs end."""
        self._perhaps_over.update(dict.fromkeys(jobs))

    def tasks_change_hands(self) -> None:
        """A job that waits may have lost its last task."""
        self.may_be_over(self._context.waiting_jobs())

    def context_closes(self, job_id: str) -> None:
        """The client left a job's context. Its last graphs may still be on their way."""
        job = self._context.jobs.get(job_id)
        if job is None:
            _remember(self.closed_early, job_id)
        elif not job.closed:
            job.closed = True
            self._perhaps_over[job] = None
            self._context.wake()

    def client_leaves(self, client: str) -> None:
        """A client is gone, and its contexts with it."""
        self.script_of.pop(client, None)
        for job in self._context.jobs.values():
            if client in job.clients:
                job.clients.discard(client)
                if not job.clients:
                    self.context_closes(job.id)

    def decide_alone(self, decide: Callable[[], None]) -> None:
        """Where the only job there is has just arrived, its tasks need not wait for the next decision.

        None of them has moved yet; that is why, closed or not, it cannot be over.
        """
        alone = next(iter(self.not_offered)) if len(self.not_offered) == 1 else None
        indices = self._context.indices
        if alone is None or indices.running or len(indices.waiting) or self._gate.freed:
            return
        if all(job is alone for job in self._perhaps_over):
            ends, self._perhaps_over = self._perhaps_over, {}
            decide()
            self._perhaps_over.update(ends)

    # what people ask for

    def keep_back(self, job: LiveJob, why: str) -> None:
        """A job that waits is not to start, or may again if there is no reason any more."""
        if job.kept_back == why:
            return
        job.kept_back = why
        if why and job.state == "waiting":
            self._hold_back(job)
        self._context.tell_of("hold" if why else "release", job, reason=why or "it may start again")
        self._context.wake()

    def size_ahead(self, job: LiveJob) -> int:
        """The size of a running job, or the one it is on its way to."""
        return self._context.indices.running[job.id].target or len(job.nodes)

    def asked_for(self, job: LiveJob) -> int:
        """The size that a running job wants to have."""
        return self._context.indices.requests.get(job.id, self.size_ahead(job))

    def ask(self, job: LiveJob, change: int) -> None:
        """A running job wants so many more nodes, or gives some back. The policy answers; here only the
        size it asks for."""
        size, requests = self.size_ahead(job), self._context.indices.requests
        wanted = requests[job.id] = self.asked_for(job) + change
        if wanted == size:
            del requests[job.id]
        more = f"{change} more" if change > 0 else f"{-change} less"
        reason = f"asks for {more}: {count_nodes(wanted)}, has {size}"
        self._context.tell_of("request", job, job.nodes, reason)
        self._context.wake()

    def cancel(self, job: LiveJob) -> None:
        """Somebody wants no more of a job. Its results stay, its nodes are free."""
        self._context.look_at_the_clock()
        count = job.undone = self._cut_off(job)
        self._end(job, "cancel", f"cancelled, with {count} tasks that were not done")
        self.tasks_change_hands()
        self._context.wake()

    def drop(self, job: LiveJob, reason: str, why: Explanation) -> None:
        """A job that waits is given up, as the policy says."""
        count = self._cut_off(job)
        self._end(job, "drop", f"given up, with {count} tasks: {reason}", why)
        self.tasks_change_hands()

    # before a decision

    def cancel_late(self) -> None:
        """Cancel what arrived too late."""
        while self._late:
            job, _ = self._late.popitem()
            count = self._cancel_tasks(job)
            reason = f"{count} tasks of it arrived after it was cancelled"
            self._context.tell_of("cancel", job, reason=reason)

    def end_jobs(self) -> None:
        """The jobs that have nothing more to do, or give way, are over."""
        if self.script_of:
            self.may_be_over(job for job in self._context.running_jobs() if job.gives_way)
        while self._perhaps_over:
            job = next(iter(self._perhaps_over))
            del self._perhaps_over[job]
            if reason := self._why_over(job):
                ended = "fail" if job.ends_as == "failed" else "end"
                self._end(job, ended if job.state == "running" else "withdraw", reason)
                self._gate.lift(job)
            elif job.state == "done" and not job.unfinished:
                self.ends_otherwise(job)

    def offer_jobs(self) -> None:
        """The next decision sees the jobs that nothing holds back."""
        waiting = self._context.indices.waiting
        for job in sorted(self.not_offered, key=lambda job: job.arrival):
            if job.blocking is None and not job.kept_back:
                del self.not_offered[job]
                waiting.add(job.model, job.arrival, job.ahead)
                if job.arrival < self._last_offered:
                    # Not at the end: what a policy remembers of this queue is worth nothing now.
                    self._context.indices.revision += 1
                self._last_offered = max(self._last_offered, job.arrival)

    def push_ends(self) -> None:
        """Jobs that run longer than they should are expected to end later."""
        for late in self._context.indices.push_overdue():
            job = self._context.jobs[late.job.id]
            late = self._asks_for_more(job, late)
            limit = "its walltime" if late.job.walltime < inf else "its expected end"
            reason = f"still runs after {limit}; now expected to end at {show_duration(late.expected_end)}"
            self._context.tell_of("overstay", job, late.nodes, reason)

    def _asks_for_more(self, job: LiveJob, late: Running) -> Running:
        """A job whose walltime followed from past runs gets the next one that does."""
        if not job.walltimes:
            return late
        indices = self._context.indices
        scale = late.job.walltime_on(len(late.nodes)) / late.job.walltime
        longer = [one for one in job.walltimes if late.started + scale * one > indices.now]
        if not longer:
            return late
        job.walltimes = tuple(longer[1:])
        self._context.learn_of(job, walltime=longer[0])
        indices.expect_end(job.id, late.started + scale * longer[0])
        return indices.running[job.id]

    def tell_late(self) -> None:
        """Jobs whose deadline is over: it is said, and no more."""
        now = self._context.indices.now
        for job in [job for job in self._deadlines if job.state == "done" or job.deadline <= now]:
            self._deadlines.discard(job)
            if job.state != "done":
                reason = f"its deadline is over, with {len(job.unfinished)} tasks that are not done"
                self._context.tell_of("deadline", job, job.nodes, reason)
        if self._deadlines:
            self.next_deadline.set(min(job.deadline for job in self._deadlines) - now)

    def requeue(self, job: LiveJob, ahead: int, reason: str) -> None:
        """A running job has no node any more: it waits again, so far ahead of the queue."""
        self._hand_overs.cancel(job)
        job.ahead = ahead
        self._context.get(AdaptationWindows).cancel(job)
        job.state = "waiting"
        job.started = None
        job.reason = reason
        self._figures.allotted(job)
        self._gate.shut(job)
        self.not_offered[job] = None
        for other in list(self._context.waiting_jobs()):
            if other.blocking:
                self._hold_back(other)
        self._context.tell_of("requeue", job, reason=reason)

    def ends_otherwise(self, job: LiveJob) -> None:
        """Tasks of a job that is over were tried again, and none of it is under way any more."""
        if (outcome := job.ends_as) != job.outcome:
            job.outcome, job.corrected = outcome, self._context.clock()
            self._figures.ended_otherwise(job)
            is_done = outcome == "done"
            job.reason = "the tasks of it that had failed are done now" if is_done else _failed(job)
            self._context.tell_of("end" if is_done else "fail", job, reason=job.reason)

    # inner workings

    def _job_of(self, request: Any, client: str) -> LiveJob | None:
        now = self._context.indices.now = self._context.clock()
        found = request.get("id") if isinstance(request, dict) else None
        jobs = self._context.jobs
        job = jobs.get(found) if isinstance(found, str) else None
        if job is None:
            try:
                name, model = read_request(request, now)
            except InputError as error:
                self._context.tell("ignored", str(error))
                return None
            said = (request.get(one, "") for one in ("layout", "login"))
            job = jobs[model.id] = LiveJob(name, model, self._arrivals, *said)
            job.wants_walltime = request.get("walltime") == AUTO
            self._context.ask_about(job)
            self._arrivals += 1
            self.not_offered[job] = None
            if job.deadline < inf:
                self._deadlines.add(job)
            self._context.tell_of("submit", job, reason=f"asks for {count_nodes(model.nodes)}")
            job.closed = self.closed_early.pop(model.id, False) is None
            job.script = self.script_of.get(client, {}).get("id", "")
            self._figures.submitted(job)
        elif job.is_cancelled:
            self._arrives_late(job)
        elif job.state == "done":
            # Its context was closed while this graph was on its way, and all else was done: go on.
            self._done.pop(job.id, None)
            job.state, job.outcome = "waiting", ""
            job.ended = None
            job.renew()
            self._figures.submitted(job)
            self.not_offered[job] = None
            self._context.tell_of("submit", job, reason="more of its work arrived after it was done")
        job.clients.add(client)
        if job.gives_way:
            job.closed = False  # perhaps it was: by a client of the script that is gone
        if job.closed:
            self._perhaps_over[job] = None
        return job

    def _job_of_task(self, submitter: Any, client: str) -> LiveJob | None:
        job = self._context.owner.get(submitter)
        if job is None or (job.state == "done" and not job.is_cancelled):
            return None
        job.helpers.add(client)
        if job.is_cancelled:
            self._arrives_late(job)
        return job

    def _arrives_late(self, job: LiveJob) -> None:
        """More of a cancelled job arrives. It may not start, and is cancelled by ``cancel_late``."""
        job.renew()
        self._late[job] = None

    def _cut_off(self, job: LiveJob) -> int:
        """Nothing more comes of it; how many of its tasks were not done."""
        job.is_cancelled = job.closed = True
        return self._cancel_tasks(job)

    def _cancel_tasks(self, job: LiveJob) -> int:
        """Release them as by ``Client.cancel``, except for what others need: that leaves the job. How many
        that were. Not to be called from within Dask's transitions."""
        before = len(job.unfinished)
        clients, reason = job.clients | job.helpers, f"job {job.id} was cancelled"
        compat.cancel(self._context.scheduler, list(job.unfinished), clients, reason)
        left = list(job.unfinished)
        self._gate.let_go(left, job)
        self._gate.lift(job)
        return before - len(left)

    def _end(self, job: LiveJob, decision: str, reason: str, why: Explanation | None = None) -> None:
        """A job is over; the nodes it held are idle."""
        indices = self._context.indices
        nodes = job.nodes if job.state == "running" else ()
        if job.state == "running":
            self._context.each("job_ends", lambda service: service.job_ends(job))
            indices.end(job.id)
        elif job.id in indices.waiting:
            indices.withdraw(job.id)
        job.reason = reason
        self._context.tell_of(decision, job, nodes, reason, why)
        self.not_offered.pop(job, None)
        self._hand_overs.cancel(job)
        self._context.get(AdaptationWindows).over(job)
        job.state, job.outcome = "done", job.ends_as
        job.ended = indices.now
        self._figures.ended(job)
        for old in _remember(self._done, job.id):
            del self._context.jobs[old]

    def _why_over(self, job: LiveJob) -> str:
        """Why a job ends now; nothing if it does not."""
        if job.state == "done":
            return ""
        if job.closed and not job.unfinished:
            left = "its tasks are done" if job.state == "running" else "no task of it is left"
            return _failed(job) if job.failures else f"its context is closed and {left}"
        if job.gives_way and not job.unfinished and job.state == "running":
            others = any(not other.kept_back for other in self._context.waiting_jobs())
            return "it has nothing to run, and others wait" if others else ""
        return ""

    def _hold_back(self, job: LiveJob) -> None:
        if job.id in self._context.indices.waiting:
            self._context.indices.withdraw(job.id)
        self.not_offered[job] = None


class Measurements:
    """What running jobs show of themselves, for decisions: communication over compute time, the share of
    their time that they read and write, expected ends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: a job's communication over compute time on so many nodes, if there is enough evidence
        self.measure: Callable[[LiveJob, int], float | None] = lambda job, nodes: job.performance.mtct
        # asked of every prefix of every job: those that never have an answer are not asked
        self._who_knows_files = [
            service for service in context.services if type(service).file_share is not Service.file_share
        ]
        #: jobs of which tasks have ended since the last decision
        self.worked: dict[LiveJob, None] = {}

    def size_changed(self, job: LiveJob) -> None:
        """What was measured of it says nothing about its new size."""
        job.performance.resized(self._context.indices.now)
        self._note(job)

    def note(self) -> None:
        """What ended since the last decision counts."""
        worked = tuple(self.worked)
        self.worked.clear()  # Dask's hook has it, too
        for job in worked:
            if job.state == "running":
                self._note(job)

    def expected(self, prefix: str) -> float | None:
        """Seconds that a task of that prefix takes anywhere on the cluster, if Dask knows."""
        return compat.average_duration(self._context.scheduler, prefix)

    def io_share(self, job: LiveJob) -> float | None:
        """The share of its time that a job read and wrote files, if there is enough evidence."""
        return job.performance.io_share(self._of_tasks)

    def _of_tasks(self, work: Work) -> float:
        found = (service.file_share(work.prefix, work.makes_data) for service in self._who_knows_files)
        return max(found, default=0.0)

    def _note(self, job: LiveJob) -> None:
        share = self.io_share(job)
        if share is not None:
            known = job.model.io_intensity
            if known is None or abs(known.intensity(job.model.nodes) - share) > _NEWS_OF_IO:
                self._context.learn_of(job, io_intensity=IoDemand.of_share(share))
        mtct = self.measure(job, len(job.nodes)) if job.model.resizable else None
        job.performance.note(job.id, mtct, self._context.indices, self.expected)


def _failed(job: LiveJob) -> str:
    """How many of its tasks failed, and why the first one did."""
    tasks = f"{counted(job.failures, 'task')} of it failed"
    return f"{tasks}: {job.error}" if job.error else tasks


def _remember(ids: OrderedDict[str, None], new: str) -> list[str]:
    """Add an id; answers those that are forgotten for it."""
    ids[new] = None
    return [ids.popitem(last=False)[0] for _ in range(len(ids) - _KEPT)]
