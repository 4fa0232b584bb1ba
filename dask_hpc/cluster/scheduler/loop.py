"""The control loop: from what happened to a snapshot, and from the policy's plan to what is done."""

from collections.abc import Hashable, Iterator
from functools import partial
from math import inf
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.request import DRAIN
from dask_hpc.cluster.scheduler.fair_shares import FairShares, Tag
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.gate import DryGate, Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.in_force import InForce
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.leaving import Leaving
from dask_hpc.cluster.scheduler.lending import Lending
from dask_hpc.cluster.scheduler.lifecycle import Lifecycle, Measurements
from dask_hpc.cluster.scheduler.plan_execution import PlanExecution
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.cluster.scheduler.sizing import Sizing
from dask_hpc.cluster.scheduler.spread import Spread
from dask_hpc.cluster.scheduler.window import AdaptationWindows
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import FAILED, REST, Snapshot
from dask_hpc.policy import Policy


class ControlLoop:
    """The live body. Its methods say what happened; ``decide`` then does what the policy plans.

    Nothing here waits, polls or is timed: each event marks the loop dirty through ``wake``, and one
    decision follows for all events of the same turn of the event loop.
    """

    def __init__(self, context: Context) -> None:
        context.renew()
        context.add(self)
        self._context = context
        self._scheduler = context.scheduler
        self.nodes, self.indices, self.jobs = context.nodes, context.indices, context.jobs
        #: seconds of the last decision
        self.cycle = 0.0
        self._is_released = False
        #: what the policy asked to remember
        self.memory: Any = None
        self.figures = context.add(Figures(context))
        self.gate = context.add((DryGate if context.is_dry else Gate)(context))
        self.scatters = compat.Scatters(context.scheduler, self.gate.home)
        self.holds = context.add(Holds(context, self.scatters))
        self.leaving = context.add(Leaving(context, self.holds))
        self.hand_overs = HandOvers(context, self.holds.mover)
        self.windows = context.add(AdaptationWindows(context))
        self.spread = Spread(context)
        self.lifecycle = Lifecycle(context, self.gate, self.hand_overs)
        self.measurements = context.add(Measurements(context))
        self.lending = context.add(Lending(context, self.holds))
        self.execution = PlanExecution(
            context,
            self.gate,
            self.hand_overs,
            self.spread,
            self.windows,
            self.lifecycle,
            self.measurements,
            self.figures,
            self.lending,
        )
        self.sizing = Sizing(context)
        #: until a job that has nothing to run gives up nodes
        self._rest = Timer(context, "the rest of a job", context.wake)
        #: when the policy wants to be asked again though nothing has happened
        self._again = Timer(context, "asking the policy again", context.wake)
        #: how clients share what is in no job, if they do, and the tasks that are tagged then
        self.shares: FairShares | None = None
        self.tagged: dict[Hashable, Tag] = {}
        self._share(context.settings["fair-shares"])
        if context.is_dry:
            self.leaving.close()  # Dask's own retirement stays in force
        for name in self.nodes:
            context.tell_of("node-joined", nodes=(name,))
        context.each("begin", lambda service: service.begin())

    # what happened

    def graph_arrives(self, client: str, request: Any, keys: list[Any], submitter: Any = None) -> None:
        """Tasks were submitted, by a client or by a task of its; with a request, by a job."""
        if request is None:
            request = self.lifecycle.script_of.get(client)
        if request is not None or self._context.owner:
            self.lifecycle.graph_arrives(client, request, keys, submitter)
        self._context.each("graph_arrives", lambda service: service.graph_arrives(keys))
        self.lifecycle.decide_alone(self.decide)
        if self.shares is not None and submitter is None:
            self.shares.graph_arrives(client, keys)

    def data_come(self, client: str, request: Any, first: str) -> None:
        """A client is about to scatter data in a job; that is work of it, with which it may begin."""
        job = self.lifecycle.graph_arrives(client, request, [])
        if job is not None:
            self.gate.expect(first, job)
            if not job.unfinished:
                job.rests_since = self._context.clock()

    def has_no_more(self, job: LiveJob) -> None:
        """Of its tasks, so far, nobody waits for any more."""
        if job.state == "done":
            self.lifecycle.ends_otherwise(job)
            return
        job.rests_since = self._context.clock()
        if job.closed or job.gives_way or job.state == "waiting":
            self.lifecycle.may_be_over((job,))
            self._context.wake()
        elif len(self.indices.waiting):
            self._rest.set(REST)

    def context_closes(self, job_id: str) -> None:
        """The client left a job's context."""
        self.lifecycle.context_closes(job_id)

    def client_leaves(self, client: str) -> None:
        """A client is gone, and its contexts with it."""
        if self.shares is not None:
            self.shares.time.forget(client)
        self.windows.client_leaves(client)
        self.lifecycle.client_leaves(client)

    def worker_joins(self, address: str) -> None:
        """A worker connects: a new node, or more of one we have."""
        context = self._context
        name, is_new = self.nodes.join(address, *compat.worker_identity(self._scheduler, address))
        context.each("worker_joins", lambda service: service.worker_joins(address))
        self.spread.joined(address)
        self.lending.worker_joins(name, address)
        if is_new:
            context.look_at_the_clock()
            self.indices.add_node(Node(name))
            self.figures.nodes_change()
            context.tell_of("node-joined", nodes=(name,))
            context.wake()
            for job in context.running_jobs():  # nobody's node: its workers are not for those with others
                if not job.confined:
                    self.gate.confine(job)
        elif holder := context.holders().get(name):
            running = self.indices.running[holder.id]
            if name in running.nodes[: running.target]:
                self.gate.move(holder, {*holder.workers, address})

    def worker_leaves(self, address: str) -> None:
        """A worker is gone: the job that holds it becomes smaller, or waits again if it was its last."""
        context = self._context
        self.holds.worker_leaves(address)
        context.each("worker_leaves", lambda service: service.worker_leaves(address))
        left = self.nodes.leave(address)
        if left is None:
            return
        name, was_last = left
        holder = context.holders().get(name)
        if holder is not None:
            self.gate.cut(holder, address)
        if not was_last:
            return
        context.look_at_the_clock()
        running = self.indices.remove_node(name)
        self.figures.nodes_change()
        context.tell_of("node-left", nodes=(name,))
        if holder is not None and running is not None:
            holder.nodes = running.nodes
            if holder.nodes:
                if running.target is not None:  # it was giving up nodes: perhaps it needs them now
                    self.gate.open(holder, context.staying(running))
                self.measurements.size_changed(holder)
                self.figures.allotted(holder)
                if holder.layout:
                    self.spread.grown(context.staying(running))
                holder.reason = f"node {name} is gone"
                context.tell_of("shrink", holder, holder.nodes, holder.reason)
                self.windows.changed(holder)
            else:
                reason = f"lost its last node {name}; waits again, ahead of others"
                self.lifecycle.requeue(holder, FAILED, reason)
                self.indices.failed += (holder.id,)
        context.wake()

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks (``client.restart()``)."""
        self.gate.tasks_vanish()
        self._context.each("tasks_vanish", lambda service: service.tasks_vanish())
        self.holds.tasks_vanish()
        self.lifecycle.may_be_over(self.jobs.values())
        self._context.wake()

    def change(self, in_force: InForce, reason: str) -> None:
        """Another policy or other settings from now on. Nothing is lost; what runs keeps running."""
        context = self._context
        if in_force.settings["fair-shares"] != context.settings["fair-shares"]:
            self._share(in_force.settings["fair-shares"])
        context.settings = in_force.settings
        if in_force.policy != context.policy:
            context.policy = in_force.policy
            self.memory = None
            if context.policy.lending is None:
                self.lending.let_go("the policy lends none")
            self.indices.waiting.rerank(context.policy.queue)
            self.indices.picker = context.policy.nodes
        context.each("policy_changes", lambda service: service.policy_changes())
        context.tell("policy", reason)
        context.wake()

    def _share(self, weights: Any) -> None:
        if self._context.is_dry:
            return
        if self.shares is not None and weights:
            self.shares.weights = weights if isinstance(weights, dict) else {}
        elif self.shares is not None:
            self.shares.end()
            self.shares = None
        elif weights:
            self.shares = FairShares(self._scheduler, weights, self._context.owner, self.tagged)

    # what follows

    def decide(self) -> None:
        """One decision for everything that happened since the last."""
        self._catch_up()
        context = self._context
        if not context.is_paused:
            context.each("decides", lambda service: service.decides())
            self.memory = context.policy.settle(
                context.snapshot(),
                self.memory,
                lambda plan: self.execution.carry_out(plan, context.recorded[-1].question),
                context.recorded.append,
            )
            self.indices.failed = ()
            self._ask_again()
        context.each("keep", lambda service: service.keep())
        self.lending.keep()
        self.execution.free_a_job_alone()

    def _ask_again(self) -> None:
        context = self._context
        again = context.policy.ask_again(context.snapshot(), self.memory)
        if again < inf:
            self._again.set(again - self.indices.now)
        else:
            self._again.stop()

    def open_gates(self) -> None:
        """An error may have come between a job's start and its tasks: nothing is to be kept from running."""
        for job in self._context.running_jobs():
            self.gate.open(job, self._context.workers_of(job))

    def snapshot(self) -> Snapshot:
        """What a decision would look at now; it lasts."""
        self._catch_up()
        frozen = self._context.snapshot().freeze()
        for service in self._context.services:
            service.freeze(frozen)
        return frozen

    def preview(self, policy: Policy | None = None) -> list[dict[str, Any]]:
        """What would be decided now, by the policy in force or another, without doing it."""
        self._catch_up()
        context, snapshot = self._context, self._context.snapshot()
        if policy is None:
            plans = context.policy.preview(snapshot, self.memory)
        else:
            indices = snapshot.thaw()
            indices.waiting.rerank(policy.queue)
            indices.picker = policy.nodes
            if policy.lending is None:
                indices.let_go_of_loans()
            for service in context.services:
                service.prepare(indices, policy)
            plans = policy.preview(context.snapshot(policy, indices), None)
        found = [
            {
                "decision": decision,
                "job": getattr(one, "job", ""),
                "nodes": getattr(one, "nodes", 0),
                "reason": one.reason,
            }
            for plan in plans
            for decision, ones in (
                ("drop", plan.drops),
                ("interrupt", plan.interrupts),
                ("resize", plan.resizes),
                ("start", plan.starts),
                ("hold", (plan.hold,)),
                ("cap", (plan.cap,)),
                ("give-back", (plan.release,)),
                ("lend", (plan.lend,)),
                ("take-back", (plan.take_back,)),
            )
            for one in ones
            if one is not None
        ]
        chosen = policy or context.policy
        return found + [
            {"decision": decision, "job": "", "nodes": 0, "reason": reason}
            for service in context.services
            for decision, reason in service.foresees(chosen)
        ]

    def _catch_up(self) -> None:
        """Bring the indices up to date with what happened."""
        context = self._context
        context.look_at_the_clock()
        self.lifecycle.cancel_late()
        self.lifecycle.end_jobs()
        self.gate.nudge_freed()
        self.lifecycle.offer_jobs()
        not_withheld = {service.hold_reason for service in context.services}
        self.indices.withhold(self.holds.nodes(self.nodes, besides=not_withheld))
        self.measurements.note()
        self.lifecycle.push_ends()
        self.lifecycle.tell_late()
        self._look_who_rests()
        context.each("refresh", lambda service: service.refresh())
        self.lending.refresh()

    def _look_who_rests(self) -> None:
        indices = self.indices
        resting = {job.id: job.rests_since for job in self._context.running_jobs() if not job.unfinished}
        if resting != indices.resting:
            indices.resting = resting
            indices.revision += 1
        if resting and len(indices.waiting) and (latest := max(resting.values())) + REST > indices.now:
            self._rest.set(latest + REST - indices.now)

    def release_all(self, decision: str, reason: str) -> None:
        """Let go of everything, once: all tasks run as in plain Dask."""
        if self._is_released:
            return
        self._is_released = True
        context = self._context
        ways = (
            self.figures.close,
            self._rest.stop,
            self._again.stop,
            self.lifecycle.stop,
            self.windows.close,
            self.hand_overs.close,
            self.lending.close,
            partial(context.each, "release", lambda service: service.release()),
            self.leaving.close,
            self.holds.close,
            self.scatters.stop,
            self.spread.close,
            self.gate.lift_all,
            partial(self._share, False),
        )
        for let_go in ways:
            try:  # whatever goes wrong with one of them, the others are not kept
                let_go()
            except Exception as error:
                context.count_error("letting go", error)
        for job in self.jobs.values():
            if job.state != "done":
                job.state, job.outcome = "done", job.ends_as
                job.ended = context.clock()
                job.reason = reason
        context.tell(decision, reason)

    def marked(self) -> dict[tuple[str, str], list[str]]:
        """The nodes that are not simply there for jobs: what is so with them, and why. One that is drained
        has nothing to do any more."""
        indices, holds, found = self.indices, self.holds, dict[tuple[str, str], list[str]]()
        lent = {one.node: who for who, known in indices.borrowers.items() for one in known.lent}
        leaving = {self.nodes.node_of(address) for address in {*self.leaving.addresses, *holds.closing}}
        touched = dict.fromkeys(self.nodes.node_of(address) for address in holds.reasons)
        for name in dict.fromkeys((*lent, *leaving, *touched)):
            workers = self.nodes.workers(name)
            held = [address for address in workers if address in holds.reasons]
            why = ", ".join(dict.fromkeys(reason for address in held for reason in holds.reasons[address]))
            if name in leaving:
                state = "leaving", why
            elif name in lent:
                state = "lent", lent[name]
            elif len(held) < len(workers):
                state = "hold", f"{len(held)} of its {len(workers)} workers: {why}"
            elif all(DRAIN in holds.reasons[one] and not self._is_at_work(one) for one in held):
                state = "drained", why
            else:
                state = "hold", why
            if workers:
                found.setdefault(state, []).append(name)
        return found

    def _is_at_work(self, address: str) -> bool:
        return bool(compat.processing(self._scheduler, address))

    def held_by_waiting(self) -> Iterator[Any]:
        """Keys of the tasks that only our gate or a hold keeps from running, or that wait for a slot."""
        yield from self.holds.stuck
        yield from self.gate.held_back()

    async def settle(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        self._context.each("cancel", lambda service: service.cancel())
        self._rest.stop()
        self._again.stop()
        self.lifecycle.stop()
        self.windows.close()
        self.hand_overs.close()
        self.lending.close()
        self.leaving.close()
        self.holds.cancel()
        self.spread.close()
        await self.leaving.settle()
