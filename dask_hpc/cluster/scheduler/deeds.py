"""From a plan to deeds: jobs start, grow and shrink on the workers of their nodes."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.model.plan import Plan, Resize, Start
from dask_hpc.model.snapshot import Running
from dask_hpc.model.story import Happening, explain, explain_levers

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.loop import ControlLoop


class Deeds:
    """Carries plans out, for one control loop. Nothing is decided here."""

    def __init__(self, control: "ControlLoop") -> None:
        self._control = control
        self._gate = control.gate
        self._indices = control.indices
        self._nodes = control.nodes
        self._story = control.story
        self._levers = control.levers

    def carry_out(self, plan: Plan) -> None:
        """Nothing live fails a node yet, so there is nobody to interrupt for."""
        control = self._control
        self._story.add(plan, explain(control.recorded[-1].snapshot, plan, control.policy.rules))
        running = self._indices.running
        for deed in plan.in_order(lambda job: len(running[job].nodes)):
            if isinstance(deed, Start):
                self._start(plan, deed)
            elif isinstance(deed, Resize):
                self._resize(plan, deed)
        self._indices.pull_levers(plan)
        why = None
        if plan.hold or plan.cap or plan.release or plan.verdict:
            why = explain_levers(control.recorded[-1].snapshot, control.policy.rules, plan)
        self._levers.pull(plan, why)
        if plan.verdict is not None:
            control.verdict = plan.verdict
            self._story.tell(Happening(plan.id, plan.time, "corridor", reason=str(plan.verdict), why=why))

    def staying(self, running: Running) -> Iterator[str]:
        """Addresses of the workers on the nodes that the job is not giving up."""
        return (w for name in running.nodes[: running.target] for w in self._nodes.workers(name))

    def free_a_job_alone(self) -> None:
        """A job that has come to hold every node, because the others left, need not be restricted."""
        if len(self._indices.running) != 1:
            return
        (running,) = self._indices.running.values()
        job = self._control.jobs[running.job.id]
        holds_all = len(running.nodes) == len(self._nodes) and not running.target
        if job.confined and not job.wishes and holds_all:
            self._gate.move(job, self.staying(running))

    def _start(self, plan: Plan, start: Start) -> None:
        running = self._indices.start(start.job, start.nodes)
        self._levers.give(running.nodes)
        job = self._control.jobs[start.job]
        job.state = "running"
        job.nodes = running.nodes
        job.started = running.started
        job.reason = start.reason
        self._control.size_changed(job)
        self._story.tell(Happening(plan.id, plan.time, "start", job.id, job.nodes, start.reason))
        self._gate.open(job, self.staying(running))
        self._control.job_starts(took_over=self._gate.take_over(job.needs, job))

    def _resize(self, plan: Plan, resize: Resize) -> None:
        """New tasks of the job go to its new nodes only. Nodes it gives up are its own until what it has
        there has ended or moved."""
        job = self._control.jobs[resize.job]
        size = len(job.nodes)
        running = self._indices.begin_resize(resize.job, resize.nodes)
        if resize.nodes > size:
            self._levers.give(running.nodes)
            self._resized(job, plan, "grow", resize.reason)
            return
        gives = {w for name in running.nodes[resize.nodes :] for w in self._nodes.workers(name)}
        self._gate.move(job, self.staying(running))
        done = partial(self._handed_over, job, plan, resize)
        if not self._control.is_dry and self._control.hand_overs.begin(job, gives, done):
            gone = running.nodes[resize.nodes :]
            reason = f"{resize.reason}; waits for its tasks there and takes its results along"
            self._story.tell(Happening(plan.id, plan.time, "hand-over", job.id, gone, reason))
        else:
            self._resized(job, plan, "shrink", resize.reason)

    def _handed_over(self, job: LiveJob, plan: Plan, resize: Resize) -> None:
        self._control.look_at_the_clock()
        self._resized(job, plan, "shrink", resize.reason)
        self._control.wake()

    def _resized(self, job: LiveJob, plan: Plan, decision: str, reason: str) -> None:
        running = self._indices.finish_resize(job.id)
        job.nodes = running.nodes
        self._control.size_changed(job)
        self._gate.move(job, self.staying(running))
        if decision == "grow" or job.layout:
            self._control.spreading.grown(self.staying(running))
        self._story.tell(Happening(plan.id, self._indices.now, decision, job.id, job.nodes, reason))
