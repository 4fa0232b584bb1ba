"""How a plan is carried out live: jobs start, grow and shrink on the workers of their nodes."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.lending import Lending
from dask_hpc.cluster.scheduler.lifecycle import Lifecycle, Measurements
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.scheduler.spread import Spread
from dask_hpc.cluster.scheduler.window import AdaptationWindows
from dask_hpc.model.plan import Interrupt, Plan, Resize, Start
from dask_hpc.model.snapshot import INTERRUPTED, Running, Snapshot
from dask_hpc.model.story import Happening, explain, explain_loans


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """Carries plans out. Nothing is decided here."""

    context: Context
    gate: Gate
    hand_overs: HandOvers
    spread: Spread
    windows: AdaptationWindows
    lifecycle: Lifecycle
    measurements: Measurements
    figures: Figures
    lending: Lending

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Do what was planned from this snapshot."""
        context = self.context
        explained = explain(snapshot, plan, context.policy.rules)
        context.story.add(plan, explained)
        running = context.indices.running
        for step in plan.in_order(lambda job: len(running[job].nodes)):
            if isinstance(step, Start):
                self._start(plan, step)
            elif isinstance(step, Resize):
                self._resize(plan, step)
            elif isinstance(step, Interrupt):
                self._interrupt(plan, step)
            else:
                self.lifecycle.drop(context.jobs[step.job], step.reason, explained[step.job])
        if plan.lend is not None or plan.take_back is not None:
            self.lending.carry_out(plan, explain_loans(snapshot, context.policy.rules, plan))
        for service in context.services:
            service.carry_out(plan, snapshot)

    def free_a_job_alone(self) -> None:
        """A job that has come to hold every node, because the others left, need not be restricted."""
        context = self.context
        if len(context.indices.running) != 1:
            return
        (running,) = context.indices.running.values()
        job = context.jobs[running.job.id]
        holds_all = len(running.nodes) == len(context.nodes) and not running.target
        if job.confined and not job.wishes and holds_all:
            self.gate.move(job, context.staying(running))

    def _start(self, plan: Plan, start: Start) -> None:
        running = self.context.indices.start(start.job, start.nodes)
        self._give(running.nodes)
        job = self.context.jobs[start.job]
        job.state, job.ahead = "running", 0
        job.nodes = running.nodes
        job.started = running.started
        self.figures.allotted(job)
        self.measurements.size_changed(job)
        self._tell(plan, plan.time, "start", job, start.reason)
        self._tell_of_nodes(job, running)
        self.gate.open(job, self.context.staying(running))
        self.windows.changed(job)
        if took_over := self.gate.take_over(job.needs, job):
            self.lifecycle.tasks_change_hands()
        if took_over or self.lifecycle.not_offered:  # somebody may have waited for that
            self.context.wake()

    def _resize(self, plan: Plan, resize: Resize) -> None:
        """New tasks of the job go to the nodes that stay only. One that can only be started again commits
        first. Its program has a window to adapt itself in, if it listens; then they go to those that join."""
        context = self.context
        job = context.jobs[resize.job]
        size = len(job.nodes)
        is_growth = resize.nodes > size
        running = context.indices.begin_resize(resize.job, resize.nodes)
        if is_growth:
            self._give(running.nodes)
            self._tell_of_nodes(job, running)
        else:
            self.gate.move(job, context.staying(running))
        self.figures.resize_begins(job, size, resize.nodes)
        go_on = partial(self.windows.open, job, partial(self._adapted, job, plan, resize, is_growth))
        committed = partial(self._committed, running, go_on)
        if resize.restart != "after a commit" or not self._keeps_first(job, True, committed):
            go_on()

    def _committed(self, changing: Running, go_on: Callable[[], None]) -> None:
        """What there was of a job is kept: it goes on changing, if it still does."""
        context = self.context
        running = context.indices.running.get(changing.job.id)
        is_same = running is not None and (running.order, running.target) == (changing.order, changing.target)
        if is_same and context.is_on:
            context.look_at_the_clock()
            go_on()
            context.wake()

    def _adapted(self, job: LiveJob, plan: Plan, resize: Resize, is_growth: bool) -> None:
        """The program had its time. Nodes that the job gives up are its own until what it has there has ended
        or moved."""
        self.figures.phase_ends(job, "window")
        if is_growth:
            self._resized(job, plan, "grow", resize.reason)
            self.figures.resize_ends(job)
            return
        context = self.context
        running = context.indices.running[job.id]
        gives = {w for name in running.nodes[resize.nodes :] for w in context.nodes.workers(name)}
        done = partial(self._handed_over, job, plan, resize)
        if not context.is_dry and self.hand_overs.begin(job, gives, done):
            gone = running.nodes[resize.nodes :]
            reason = f"{resize.reason}; waits for its tasks there and takes its results along"
            job.reason = reason
            context.story.tell(Happening(plan.id, plan.time, "hand-over", job.id, gone, reason))
        else:
            self.figures.resize_ends(job)
            self._resized(job, plan, "shrink", resize.reason)

    def _interrupt(self, plan: Plan, step: Interrupt) -> None:
        """A job stops for another: at once, or once its results are kept where somebody keeps them. They stay
        in memory in any case."""
        context = self.context
        job = context.jobs[step.job]
        stop = partial(self._stop, plan, step, job)
        done = partial(self._kept, job, stop)
        if step.when != "now" and self._keeps_first(job, step.when == "forced-commit", done):
            context.indices.stops(job.id, step.whom)
        else:
            stop()

    def _keeps_first(self, job: LiveJob, at_once: bool, done: Callable[[], None]) -> bool:
        def is_theirs(key: Hashable) -> bool:
            return self.context.owner.get(key) is job

        return any(one.keeps_first(is_theirs, at_once, done) for one in self.context.services)

    def _kept(self, job: LiveJob, stop: Callable[[], None]) -> None:
        context = self.context
        if job.id in context.indices.stopping and context.is_on:
            context.look_at_the_clock()
            if context.indices.is_worth_stopping(job.id):
                stop()
            context.wake()

    def _stop(self, plan: Plan, step: Interrupt, job: LiveJob) -> None:
        context, workers = self.context, set(job.workers)
        context.indices.end(job.id)
        self._tell(plan, context.indices.now, "interrupt", job, step.reason)
        job.nodes = ()
        self.lifecycle.requeue(job, INTERRUPTED, "was stopped for another job; waits again, ahead of others")
        if not context.is_dry:
            self.hand_overs.recall(job, workers)
        self.lifecycle.offer_jobs()

    def _handed_over(self, job: LiveJob, plan: Plan, resize: Resize) -> None:
        self.context.look_at_the_clock()
        self.figures.phase_ends(job, "move")
        self._resized(job, plan, "shrink", resize.reason + self.figures.resize_ends(job))
        self.context.wake()

    def _resized(self, job: LiveJob, plan: Plan, decision: str, reason: str) -> None:
        running = self.context.indices.finish_resize(job.id)
        job.nodes = running.nodes
        self.figures.allotted(job)
        self.measurements.size_changed(job)
        # tasks may wait, as all its other workers are held
        self.gate.open(job, self.context.staying(running))
        if decision == "grow" or job.layout:
            self.spread.grown(self.context.staying(running))
        self._tell(plan, self.context.indices.now, decision, job, reason)
        self.windows.changed(job)

    def _give(self, nodes: tuple[str, ...]) -> None:
        for service in self.context.services:
            service.nodes_given(nodes)

    def _tell_of_nodes(self, job: LiveJob, running: Running) -> None:
        """Why it has just got these nodes, if who picked them has something to say."""
        if self.context.indices.picked:
            self.context.tell_of("picked", job, running.nodes, self.context.indices.picked)

    def _tell(self, plan: Plan, time: float, decision: str, job: LiveJob, reason: str) -> None:
        job.reason = reason
        self.context.story.tell(Happening(plan.id, time, decision, job.id, job.nodes, reason))
