"""The control loop: from what happened to a snapshot, from the policy's plan to deeds."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.request import layout_of, read_request
from dask_hpc.cluster.scheduler.cancel import Cancelling
from dask_hpc.cluster.scheduler.deeds import Deeds
from dask_hpc.cluster.scheduler.fair_shares import FairShares
from dask_hpc.cluster.scheduler.gate import DryGate, Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.in_force import InForce
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.leaving import Leaving
from dask_hpc.cluster.scheduler.spread import Spreading
from dask_hpc.config import AUTO
from dask_hpc.lanes.scheduler import LaneTuning
from dask_hpc.model.errors import InputError
from dask_hpc.model.node import Node, Nodes
from dask_hpc.model.power import Verdict
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.story import Explanation, Happening, Story
from dask_hpc.model.units import count_nodes, show_duration
from dask_hpc.policy import Policy, Recorded
from dask_hpc.power.scheduler.levers import WHY, Levers
from dask_hpc.power.scheduler.watch import PowerWatch

_RECORDED = 200  # decisions that are kept with all they were made from
_KEPT = 1000  # jobs that are done, for status(); and contexts closed before anything of them was seen


class ControlLoop:
    """The live body. Its methods say what happened; ``decide`` then does what the policy plans.

    Nothing here waits, polls or is timed: each event marks the loop dirty through ``wake``, and one
    decision follows for all events of the same turn of the event loop.
    """

    def __init__(
        self,
        scheduler: Any,
        in_force: InForce,
        clock: Callable[[], float],
        wake: Callable[[], None],
        story: Story,
        power: PowerWatch,
        count_error: Callable[[str, Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self.clock = clock
        #: marks the loop dirty
        self.wake = wake
        self.policy = in_force.policy
        #: the configuration's keys under ``hpc``, as they are now
        self.settings = in_force.settings
        #: whether somebody wants nothing to be decided
        self.is_paused = False
        self.story = story
        self.count_error = count_error
        #: the newest decisions, each of which can be made again
        self.recorded: deque[Recorded] = deque(maxlen=_RECORDED)
        #: what the policy asked to remember
        self.memory: Any = None
        #: a job's communication over compute time on so many nodes, if there is enough evidence
        self.measure: Callable[[LiveJob, int], float | None] = lambda job, nodes: job.performance.mtct
        #: what the policy last said of the power corridor
        self.verdict: Verdict | None = None
        self._last_offered = -1
        self.nodes = Nodes(self.settings["node"])
        for address in compat.workers_by_name(scheduler):
            self.nodes.join(address, *compat.worker_identity(scheduler, address))
        self.indices = Indices((Node(name) for name in self.nodes), self.policy.queue.rank, clock())
        #: decisions are made and told, and nothing is done
        self.is_dry = self.settings["dry-run"]
        self.gate = (DryGate if self.is_dry else Gate)(scheduler, self.nodes, count_error)
        self.lane_tuning = LaneTuning(
            scheduler, self.gate.waves.lanes, self.tell, lambda: self.is_paused, count_error
        )
        self._limit_reads()
        self.holds = Holds(scheduler, self._tell_of_hold, self._running_jobs, count_error)
        self.leaving = Leaving(scheduler, self.holds, self.tell, self._budget, count_error)
        self.hand_overs = HandOvers(
            scheduler, self.gate.owner, self.holds.mover, self.tell, self._budget, count_error
        )
        self.spreading = Spreading(scheduler, self, count_error)
        self.levers = Levers(scheduler, self)
        self.deeds = Deeds(self)
        #: all jobs by id, in order of submission; of those that are done only the newest
        self.jobs: dict[str, LiveJob] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._closed_early: OrderedDict[str, None] = OrderedDict()
        self._arrivals = 0
        self._not_offered: dict[LiveJob, None] = {}
        self._perhaps_over: dict[LiveJob, None] = {}
        #: jobs of which tasks have ended since the last decision
        self._worked: dict[LiveJob, None] = {}
        self._cancelling = Cancelling(scheduler, self.gate, self._tell)
        #: requests of the jobs to which all belongs that these clients submit outside of jobs
        self.script_of: dict[str, dict[str, Any]] = {}
        #: how clients share what is in no job, if they do
        self.shares: FairShares | None = None
        self._share(self.settings["fair-shares"])
        if self.is_dry:
            self.leaving.close()  # Dask's own retirement stays in force
        for name in self.nodes:
            self._tell("node-joined", nodes=(name,))
        #: what is known of power, while somebody wants to know
        self.power = power
        power.attach(self)

    # what happened

    def graph_arrives(self, client: str, request: Any, keys: list[Any], submitter: Any = None) -> None:
        """Tasks were submitted: by a job if there is a request; by a task, for the job of that task; else
        outside of jobs."""
        outside = request is None
        job = self._job_of_task(submitter, client) if outside else self._job_of(request, client)
        changed = self.gate.submit(keys, job)
        if changed:
            self._perhaps_over.update(dict.fromkeys(self._waiting_jobs()))
        if job is not None and job.state == "waiting" and job.blocking:
            self._hold_back(job)
        if changed or job is not None:
            self.wake()

    def decide_at_once(self) -> None:
        """Where the only job there is has just arrived, its tasks need not wait for the next decision.

        None of them has moved yet; that is why, closed or not, it cannot be over.
        """
        alone = next(iter(self._not_offered)) if len(self._not_offered) == 1 else None
        if alone is None or self.indices.running or len(self.indices.waiting) or self.gate.has_freed:
            return
        if all(job is alone for job in self._perhaps_over):
            ends, self._perhaps_over = self._perhaps_over, {}
            self.decide()
            self._perhaps_over.update(ends)

    def task_moves(
        self, key: Any, job: LiveJob, start: str, finish: str, startstops: Any = None, nbytes: int = 0
    ) -> None:
        """A task of a job changed its state. ``startstops``: when its worker did what for it."""
        if key in job.passed and finish != "processing":
            self.gate.waves.root_ends(key, job)
        if start == "no-worker":
            job.held.pop(key, None)
            job.ready.discard(key)
        if finish in compat.UNFINISHED:
            if key not in job.unfinished:
                job.owe(key, compat.prefix(compat.find_task(self._scheduler, key)))
            if finish == "no-worker":
                self._task_waits(key, job)
            return
        work = job.settle(key)
        if finish == "memory" and work and startstops:
            self._worked[job] = None
            if job.performance.add(work, startstops, nbytes):
                self.wake()
        if finish == "forgotten":
            self.gate.forget(key, job)
        may_end = job.closed or job.gives_way or job.state == "waiting"
        if not job.unfinished and job.state != "done" and may_end:
            self._perhaps_over[job] = None
            self.wake()

    def _task_waits(self, key: Any, job: LiveJob) -> None:
        task = compat.find_task(self._scheduler, key)
        if job.wave and compat.restriction(task) is job.wave:
            self.gate.waves.root_waits(key, task, job)
        elif key not in self.gate.waves.lanes.lane_of:
            job.held[key] = None

    def context_closes(self, job_id: str) -> None:
        """The client left a job's context. Its last graphs may still be on their way."""
        job = self.jobs.get(job_id)
        if job is None:
            _remember(self._closed_early, job_id)
        elif not job.closed:
            job.closed = True
            self._perhaps_over[job] = None
            self.wake()

    def client_leaves(self, client: str) -> None:
        """A client is gone, and its contexts with it."""
        self.script_of.pop(client, None)
        if self.shares is not None:
            self.shares.time.forget(client)
        for job in self.jobs.values():
            if client in job.clients:
                job.clients.discard(client)
                if not job.clients:
                    self.context_closes(job.id)

    def worker_joins(self, address: str) -> None:
        """A worker connects: a new node, or more of one we have."""
        name, is_new = self.nodes.join(address, *compat.worker_identity(self._scheduler, address))
        self.levers.caps.worker_joins(address)
        self.spreading.grown([address])
        if is_new:
            self.look_at_the_clock()
            self.indices.add_node(Node(name))
            self._tell("node-joined", nodes=(name,))
            self.wake()
            for job in self._running_jobs():  # nobody's node: its workers are not for those that have others
                if not job.confined:
                    self.gate.confine(job)
        elif holder := next((job for job in self._running_jobs() if name in job.nodes), None):
            running = self.indices.running[holder.id]
            if name in running.nodes[: running.target]:
                self.gate.extend(holder, [address])

    def worker_leaves(self, address: str) -> None:
        """A worker is gone: the job that holds it becomes smaller, or waits again if it was its last."""
        self.holds.worker_leaves(address)
        self.levers.caps.worker_leaves(address)
        left = self.nodes.leave(address)
        if left is None:
            return
        name, was_last = left
        holder = next((job for job in self._running_jobs() if name in job.nodes), None)
        if holder is not None:
            self.gate.cut(holder, address)
        if not was_last:
            return
        self.look_at_the_clock()
        running = self.indices.remove_node(name)
        self._tell("node-left", nodes=(name,))
        if holder is not None and running is not None:
            holder.nodes = running.nodes
            if holder.nodes:
                if running.target is not None:  # it was giving up nodes: perhaps it needs them now
                    self.gate.open(holder, self.deeds.staying(running))
                self.size_changed(holder)
                if holder.layout:
                    self.spreading.grown(self.deeds.staying(running))
                reason = f"node {name} is gone"
                self._tell("shrink", holder, holder.nodes, reason)
            else:
                self._requeue(holder, f"lost its last node {name}; waits again in its old place")
        self.wake()

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks (``client.restart()``)."""
        self.gate.owner.clear()
        self.gate.waves.lanes.vanish()
        self.holds.tasks_vanish()
        for job in self.jobs.values():
            for key in list(job.unfinished):
                job.settle(key)
            job.held.clear()
            job.ready.clear()
            job.passed.clear()
            self.gate.waves.forget(job)
            job.wishes.clear()
            job.needs.clear()
            self._perhaps_over[job] = None
        self.wake()

    def change(self, in_force: InForce, reason: str) -> None:
        """Another policy or other settings from now on. Nothing is lost; what runs keeps running."""
        if in_force.settings["fair-shares"] != self.settings["fair-shares"]:
            self._share(in_force.settings["fair-shares"])
        self.settings = in_force.settings
        if in_force.policy != self.policy:
            self.policy = in_force.policy
            self.memory = self.verdict = None
            self.indices.reorder(self.policy.queue.rank)
            if self.policy.power is None:
                self.levers.let_go()
        self._limit_reads()
        self.power.adjust()
        self._tell("policy", reason=reason)
        self.wake()

    def job_asks(self, job: LiveJob, change: int) -> int:
        """A running job wants so many more nodes, or gives some back. The policy answers; here only the
        size it asks for."""
        size = self.size_ahead(job)
        wanted = self.indices.requests.get(job.id, size) + change
        self.indices.requests[job.id] = wanted
        if wanted == size:
            del self.indices.requests[job.id]
        more = f"{change} more" if change > 0 else f"{-change} less"
        self._tell("request", job, job.nodes, f"asks for {more}: {count_nodes(wanted)}, has {size}")
        self.wake()
        return wanted

    def size_ahead(self, job: LiveJob) -> int:
        """The size of a running job, or the one it is on its way to."""
        return self.indices.running[job.id].target or len(job.nodes)

    def keep_back(self, job: LiveJob, why: str) -> None:
        """A job that waits is not to start, or may again if there is no reason any more."""
        if job.kept_back == why:
            return
        job.kept_back = why
        if why and job.state == "waiting":
            self._hold_back(job)
        self._tell("hold" if why else "release", job, reason=why or "it may start again")
        self.wake()

    def cancel(self, job: LiveJob) -> int:
        """Somebody wants no more of a job. Its results stay, its nodes are free; how many tasks that was."""
        self.look_at_the_clock()
        job.is_cancelled = job.closed = True
        count = self._cancelling.cancel(job)
        job.reason = f"cancelled, with {count} tasks that were not done"
        self._end(job, "cancel", job.reason)
        self._perhaps_over.update(dict.fromkeys(self._waiting_jobs()))
        self.wake()
        return count

    def _limit_reads(self) -> None:
        if not self.is_dry:
            limits = self.settings["io-lanes"]
            strategy = self.policy.io
            if limits == AUTO:
                limits, strategy = None, strategy or Policy.load("io-lanes").io
            self.lane_tuning.follow(strategy)
            self.gate.waves.lanes.set_rules(limits, strategy)

    def _share(self, weights: Any) -> None:
        if self.is_dry:
            return
        if self.shares is not None and weights:
            self.shares.weights = weights if isinstance(weights, dict) else {}
        elif self.shares is not None:
            self.shares.end()
            self.shares = None
        elif weights:
            self.shares = FairShares(self._scheduler, weights, self.gate.owner.__contains__)

    # what follows

    def decide(self) -> None:
        """One decision for everything that happened since the last."""
        self._catch_up()
        if not self.is_paused:
            self.power.decides()
            snapshot = Snapshot(self.indices, self.power.corridor)
            self.memory = self.policy.settle(
                snapshot, self.memory, self.deeds.carry_out, self.recorded.append
            )
        self.levers.keep()
        self.deeds.free_a_job_alone()

    def snapshot(self) -> Snapshot:
        """What a decision would look at now; it lasts."""
        self._catch_up()
        frozen = Snapshot(self.indices, self.power.corridor).freeze()
        if self.power.corridor is not None and not getattr(self.policy.power, "follow", ""):
            frozen.corridor = None  # the policy's own: another policy has another
        return frozen

    def preview(self, policy: Policy | None = None) -> list[dict[str, Any]]:
        """What would be decided now, by the policy in force or another, without doing it."""
        self._catch_up()
        snapshot = Snapshot(self.indices, self.power.corridor)
        if policy is None:
            plans = self.policy.preview(snapshot, self.memory)
        else:
            indices = snapshot.thaw()
            indices.reorder(policy.queue.rank)
            if policy.power is not None and indices.power is None:
                indices.power = self.power.view()
            plans = policy.preview(Snapshot(indices, self.power.corridor_of(policy)), None)
        return [
            {
                "decision": decision,
                "job": getattr(one, "job", ""),
                "nodes": getattr(one, "nodes", 0),
                "reason": one.reason,
            }
            for plan in plans
            for decision, ones in (
                ("interrupt", plan.interrupts),
                ("resize", plan.resizes),
                ("start", plan.starts),
                ("hold", (plan.hold,)),
                ("cap", (plan.cap,)),
                ("give-back", (plan.release,)),
            )
            for one in ones
            if one is not None
        ]

    def _catch_up(self) -> None:
        """Bring the indices up to date with what happened."""
        self.look_at_the_clock()
        self._cancelling.cancel_late()
        self._end_jobs()
        self.gate.nudge_freed()
        self._offer_jobs()
        self.indices.withhold(self.holds.nodes(self.nodes, besides=WHY))
        self._note_performance()
        self._push_ends()
        self.power.refresh()

    def release_all(self, decision: str, reason: str) -> None:
        """Let go of everything: all tasks run as in plain Dask."""
        ways = (
            self.power.close,
            self.hand_overs.close,
            self.leaving.close,
            self.levers.let_go,
            self.holds.close,
            self.spreading.close,
            self.lane_tuning.close,
            self.gate.lift_all,
            partial(self._share, False),
        )
        for let_go in ways:
            try:  # whatever goes wrong with one of them, the others are not kept
                let_go()
            except Exception as error:
                self.count_error("letting go", error)
        for job in self.jobs.values():
            if job.state != "done":
                job.state = "done"
                job.ended = self.clock()
                job.reason = reason
        self._tell(decision, reason=reason)

    def held_by_waiting(self) -> Iterator[Any]:
        """Keys of the tasks that only our gate or a hold keeps from running, or that wait for a slot."""
        yield from self.holds.stuck
        for job in self.jobs.values():
            if job.state == "waiting":
                yield from job.held
            yield from job.ready
        yield from self.gate.waves.lanes.waiting()

    async def settle(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        self.power.cancel()
        self.hand_overs.close()
        self.leaving.close()
        self.levers.cancel()
        self.holds.stop_timer()
        self.spreading.close()
        await self.leaving.settle()

    def groups(self) -> Iterator[tuple[LiveJob | None, list[str]]]:
        """The running jobs with their workers, and None with the workers of no running job."""
        free = dict.fromkeys(self.nodes)
        for job in self._running_jobs():
            yield job, self.workers_of(job)
            for name in job.nodes:
                free.pop(name, None)
        yield None, [address for name in free for address in self.nodes.workers(name)]

    def workers_of(self, job: LiveJob) -> list[str]:
        """The workers of a running job, without those it is giving up; none if it does not run."""
        running = self.indices.running.get(job.id)
        return list(self.deeds.staying(running)) if running else []

    def look_at_the_clock(self) -> None:
        """It is now."""
        self.indices.now = self.clock()

    def job_starts(self, took_over: bool) -> None:
        """A job starts, perhaps with tasks that other jobs had; somebody may have waited for that."""
        if took_over:
            self._perhaps_over.update(dict.fromkeys(self._waiting_jobs()))
        if took_over or self._not_offered:
            self.wake()

    def tell(self, decision: str, reason: str, why: Explanation | None = None) -> None:
        """Add to the story."""
        self._tell(decision, reason=reason, why=why)

    def _tell_of_hold(self, decision: str, reason: str) -> None:
        self._tell(decision, reason=reason)
        self.wake()  # a node may be given away again, or no more

    def _job_of(self, request: Any, client: str) -> LiveJob | None:
        now = self.indices.now = self.clock()
        found = request.get("id") if isinstance(request, dict) else None
        job = self.jobs.get(found) if isinstance(found, str) else None
        if job is None:
            try:
                name, model = read_request(request, now)
            except InputError as error:
                self._tell("ignored", reason=str(error))
                return None
            job = self.jobs[model.id] = LiveJob(name, model, self._arrivals, layout_of(request))
            self._arrivals += 1
            self._not_offered[job] = None
            self._tell("submit", job, reason=f"asks for {count_nodes(model.nodes)}")
            job.closed = self._closed_early.pop(model.id, False) is None
            job.script = self.script_of.get(client, {}).get("id", "")
        elif job.is_cancelled:
            self._cancelling.arrives(job)
        elif job.state == "done":
            # Its context was closed while this graph was on its way, and all else was done: go on.
            self._done.pop(job.id, None)
            job.state = "waiting"
            job.ended = None
            job.renew()
            self._not_offered[job] = None
            self._tell("submit", job, reason="more of its work arrived after it was done")
        job.clients.add(client)
        if job.gives_way:
            job.closed = False  # perhaps it was: by a client of the script that is gone
        if job.closed:
            self._perhaps_over[job] = None
        return job

    def _job_of_task(self, submitter: Any, client: str) -> LiveJob | None:
        job = self.gate.owner.get(submitter)
        if job is None or (job.state == "done" and not job.is_cancelled):
            return None
        job.helpers.add(client)
        if job.is_cancelled:
            self._cancelling.arrives(job)
        return job

    def _end_jobs(self) -> None:
        if self.script_of:
            self._perhaps_over.update((job, None) for job in self._running_jobs() if job.gives_way)
        while self._perhaps_over:
            job = next(iter(self._perhaps_over))
            del self._perhaps_over[job]
            reason = self._why_over(job)
            if not reason:
                continue
            self._end(job, "end" if job.state == "running" else "withdraw", reason)
            self.gate.lift(job)

    def _end(self, job: LiveJob, decision: str, reason: str) -> None:
        """A job is over; the nodes it held are idle."""
        nodes = job.nodes if job.state == "running" else ()
        if job.state == "running":
            self.indices.end(job.id)
        elif job.id in self.indices.waiting:
            self.indices.withdraw(job.id)
        self._tell(decision, job, nodes, reason)
        self._not_offered.pop(job, None)
        self.hand_overs.cancel(job)
        job.state = "done"
        job.ended = self.indices.now
        for old in _remember(self._done, job.id):
            del self.jobs[old]

    def _why_over(self, job: LiveJob) -> str:
        """Why a job ends now; nothing if it does not."""
        if job.state == "done":
            return ""
        if job.is_over:
            left = "its tasks are done" if job.state == "running" else "no task of it is left"
            return f"its context is closed and {left}"
        if job.gives_way and not job.unfinished and job.state == "running":
            others = any(not other.kept_back for other in self._waiting_jobs())
            return "it has nothing to run, and others wait" if others else ""
        return ""

    def _offer_jobs(self) -> None:
        for job in sorted(self._not_offered, key=lambda job: job.arrival):
            if job.blocking is None and not job.kept_back:
                del self._not_offered[job]
                self.indices.waiting.add(job.model, job.arrival)
                if job.arrival < self._last_offered:
                    # Not at the tail: what a policy remembers of this queue is worth nothing now.
                    self.indices.revision += 1
                self._last_offered = max(self._last_offered, job.arrival)

    def _hold_back(self, job: LiveJob) -> None:
        if job.id in self.indices.waiting:
            self.indices.withdraw(job.id)
        self._not_offered[job] = None

    def _push_ends(self) -> None:
        for late in self.indices.push_overdue():
            limit = "its walltime" if late.job.walltime < inf else "its expected end"
            reason = f"still runs after {limit}; now expected to end at {show_duration(late.expected_end)}"
            self._tell("overstay", self.jobs[late.job.id], late.nodes, reason)

    def size_changed(self, job: LiveJob) -> None:
        """What was measured of it says nothing about its new size."""
        job.performance.resized(self.indices.now)
        self._measure(job)

    def _measure(self, job: LiveJob) -> None:
        mtct = self.measure(job, len(job.nodes)) if job.model.resizable else None
        job.performance.note(job.id, mtct, self.indices, self.expected)

    def _note_performance(self) -> None:
        worked, self._worked = self._worked, {}
        for job in worked:
            if job.state == "running":
                self._measure(job)

    def expected(self, prefix: str) -> float | None:
        """Seconds that a task of that prefix takes anywhere on the cluster, if Dask knows."""
        return compat.average_duration(self._scheduler, prefix)

    def _requeue(self, job: LiveJob, reason: str) -> None:
        self.hand_overs.cancel(job)
        job.state = "waiting"
        job.started = None
        job.reason = reason
        self.gate.shut(job)
        self._not_offered[job] = None
        for other in list(self._waiting_jobs()):
            if other.blocking:
                self._hold_back(other)
        self._tell("requeue", job, reason=reason)

    def _budget(self) -> float:
        seconds: float = self.settings["drain"]
        return seconds

    def _waiting_jobs(self) -> Iterator[LiveJob]:
        return (job for job in self.jobs.values() if job.state == "waiting")

    def _running_jobs(self) -> Iterator[LiveJob]:
        return (self.jobs[job_id] for job_id in self.indices.running)

    def _tell(
        self,
        decision: str,
        job: LiveJob | None = None,
        nodes: tuple[str, ...] = (),
        reason: str = "",
        why: Explanation | None = None,
    ) -> None:
        happening = Happening(
            self.indices.revision, self.clock(), decision, job.id if job else "", nodes, reason, why
        )
        self.story.tell(happening)


def _remember(ids: OrderedDict[str, None], new: str) -> list[str]:
    """Add an id; answers those that are forgotten for it."""
    ids[new] = None
    return [ids.popitem(last=False)[0] for _ in range(len(ids) - _KEPT)]
