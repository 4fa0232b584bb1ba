"""How a plan is carried out live: jobs start, grow and shrink on the workers of their nodes."""

from dataclasses import dataclass
from functools import partial

from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.lending import Lending
from dask_hpc.cluster.scheduler.lifecycle import Lifecycle, Measurements
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.scheduler.spread import Spread
from dask_hpc.model.plan import Plan, Resize, Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.story import Happening, explain, explain_loans


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """Carries plans out. Nothing is decided here."""

    context: Context
    gate: Gate
    hand_overs: HandOvers
    spread: Spread
    lifecycle: Lifecycle
    measurements: Measurements
    lending: Lending

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Do what was planned from this snapshot. Nothing live fails a node yet, so there is nobody to
        interrupt for."""
        context = self.context
        context.story.add(plan, explain(snapshot, plan, context.policy.rules))
        running = context.indices.running
        for step in plan.in_order(lambda job: len(running[job].nodes)):
            if isinstance(step, Start):
                self._start(plan, step)
            elif isinstance(step, Resize):
                self._resize(plan, step)
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
        job.state = "running"
        job.nodes = running.nodes
        job.started = running.started
        job.reason = start.reason
        self.measurements.size_changed(job)
        self._tell(plan, plan.time, "start", job, start.reason)
        self.gate.open(job, self.context.staying(running))
        if took_over := self.gate.take_over(job.needs, job):
            self.lifecycle.tasks_change_hands()
        if took_over or self.lifecycle.not_offered:  # somebody may have waited for that
            self.context.wake()

    def _resize(self, plan: Plan, resize: Resize) -> None:
        """New tasks of the job go to its new nodes only. Nodes it gives up are its own until what it has
        there has ended or moved."""
        context = self.context
        job = context.jobs[resize.job]
        size = len(job.nodes)
        running = context.indices.begin_resize(resize.job, resize.nodes)
        if resize.nodes > size:
            self._give(running.nodes)
            self._resized(job, plan, "grow", resize.reason)
            return
        gives = {w for name in running.nodes[resize.nodes :] for w in context.nodes.workers(name)}
        self.gate.move(job, context.staying(running))
        done = partial(self._handed_over, job, plan, resize)
        if not context.is_dry and self.hand_overs.begin(job, gives, done):
            gone = running.nodes[resize.nodes :]
            reason = f"{resize.reason}; waits for its tasks there and takes its results along"
            context.story.tell(Happening(plan.id, plan.time, "hand-over", job.id, gone, reason))
        else:
            self._resized(job, plan, "shrink", resize.reason)

    def _handed_over(self, job: LiveJob, plan: Plan, resize: Resize) -> None:
        self.context.look_at_the_clock()
        self._resized(job, plan, "shrink", resize.reason)
        self.context.wake()

    def _resized(self, job: LiveJob, plan: Plan, decision: str, reason: str) -> None:
        running = self.context.indices.finish_resize(job.id)
        job.nodes = running.nodes
        self.measurements.size_changed(job)
        # tasks may wait, as all its other workers are held
        self.gate.open(job, self.context.staying(running))
        if decision == "grow" or job.layout:
            self.spread.grown(self.context.staying(running))
        self._tell(plan, self.context.indices.now, decision, job, reason)

    def _give(self, nodes: tuple[str, ...]) -> None:
        for service in self.context.services:
            service.nodes_given(nodes)

    def _tell(self, plan: Plan, time: float, decision: str, job: LiveJob, reason: str) -> None:
        self.context.story.tell(Happening(plan.id, time, decision, job.id, job.nodes, reason))
