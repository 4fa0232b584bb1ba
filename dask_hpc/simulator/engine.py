"""The simulated machine: an event loop around the same policies that run live.

What happens at one instant happens in this order, which is part of the definition:

1. jobs that end or come to a new step, in the order in which those steps began (a job that reaches its
   walltime and its end at the same instant has ended, not been killed), then kills, then resizes and
   clean-ups that are over, then nodes that are back, then nodes that fail;
   (what services wait for comes last);
2. jobs that are submitted, in the order of the workload;
3. decisions of the policy, again and again until it has nothing more to say. No job is resized twice in
   one instant. Starts and growths take effect at once, shrinks when the resize is over.

A job of no length started in step 3 ends in a new round of the same instant.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Interrupt, Plan, Resize, Start
from dask_hpc.model.snapshot import Indices, Running, Snapshot
from dask_hpc.model.speedup import PhasedSpeedup
from dask_hpc.model.story import Happening, Story
from dask_hpc.policy import Policy
from dask_hpc.simulator.application import Application
from dask_hpc.simulator.execution import (
    Ask,
    Execution,
    Phased,
    Point,
    Steady,
    Transfer,
    Turn,
    Wait,
    steady,
)
from dask_hpc.simulator.node_desk import MachineDesk
from dask_hpc.simulator.platform import FileSystem, Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.resizes import Resizes, check_size
from dask_hpc.simulator.service import (
    CANCELS,
    CHANGES,
    KILLS,
    STEPS,
    TICKS,
    Companion,
    Life,
    MachineService,
)
from dask_hpc.simulator.stops import Stops
from dask_hpc.simulator.workload import Arrival

_BETWEEN_REPORTS = 8192
_PATIENCE = 10_000  # ticks on an empty machine before those who wait are given up


class Engine:
    """A simulated machine under one policy. Memory grows with live jobs only, unless recorded."""

    def __init__(
        self,
        platform: Platform | int,
        policy: Policy,
        record: Record | None = None,
        *,
        story: int = 10_000,
        services: Sequence[MachineService] = (),
    ) -> None:
        self.platform = platform if isinstance(platform, Platform) else Platform(platform)
        self._most_nodes = self.platform.most_nodes
        self._decides_on_each = self.platform.decide == "event"
        self.policy = policy
        self.story = Story(story)
        self.record = record
        self.file_system = FileSystem(self.platform)
        if record is not None:
            self.file_system.loads = record.loads
        self._services = tuple(services)
        self._followers = tuple(one for one in services if one.follows_decisions)
        self._watchers = tuple(one for one in services if one.follows_instants)
        # every job that starts asks them: those that never have an answer are not asked
        self._escorts = tuple(one for one in services if type(one).accompany is not MachineService.accompany)
        self.desk = MachineDesk(self, services)
        self._is_asked_for_nodes = any(one.borrows for one in services)
        self._readers = tuple(one for one in services if type(one).reads is not MachineService.reads)
        for service in services:
            service.join(self)
        self._observe(Indices(self.platform.node_list(), policy.queue))
        self.indices.topology = self.platform.topology
        self.indices.overhead = self.platform.launch + self.platform.cleanup
        if self.platform.only_ticks:
            self.indices.overhead += self.platform.tick / 2  # nodes wait for the next decision
        self._memory: Any = None
        self.lives: dict[str, Life] = {}
        #: ``(time, rank, order, call, what, version)``: ``call(what, time)``, unless it has another version
        self._events: list[tuple[float, int, int, Callable[[Any, float], None], Any, int | None]] = []
        self._order = 0
        self._resizes, self._stops = Resizes(self), Stops(self)
        self._at_point: list[Life] = []
        self._is_ticking = False
        self._empty_ticks = 0
        self.news = False
        #: whether it is time to decide
        self._is_due = False
        #: whether nodes have come free since the policy was asked last
        self._is_freed = False
        #: when the policy wants to be asked again though nothing has happened
        self._again = inf

    def _observe(self, indices: Indices) -> None:
        for service in self._services:
            indices = service.watch(indices)
        indices.picker = self.policy.nodes
        self.indices, self.snapshot = indices, Snapshot(indices)

    def run(
        self,
        arrivals: Iterable[Arrival],
        progress: Callable[[int], None] | None = None,
        until: float = inf,
    ) -> int:
        """Play the whole workload, or up to a time; answers the number of jobs seen."""
        stream = iter(arrivals)
        arrival = next(stream, None)
        submitted = inf if arrival is None else arrival.job.submitted
        live, events, indices, file_system = self.lives, self._events, self.indices, self.file_system
        transfers = file_system.transfers
        only_ticks, watchers = self.platform.only_ticks, self._watchers
        each = self._decides_on_each
        self._stops.begin()
        for service in self._services:
            service.begin()
        seen = len(live)
        rounds = 0
        while True:  # Python 3.11 makes a function fast at the jumps back of such a loop, not of ``while x``
            if not live and submitted == inf:
                break
            now = events[0][0] if events else inf
            if transfers and file_system.next_end < now:
                now = file_system.next_end
            if submitted < now:
                now = submitted
            if now == inf or now > until:  # inf: who waits now waits for ever
                break
            if now < indices.now:
                assert arrival is not None
                raise InputError(f"job {shown(arrival.job.id)}: submit", f"{now:g} s is out of order")
            indices.now = now
            if transfers:
                self._end_transfers(now)
            while events and events[0][0] <= now:
                _, _, _, call, what, version = heappop(events)
                if version is None or what.version == version:
                    call(what, now)
                    if each:
                        self._conclude(now)
            while submitted == now:
                assert arrival is not None
                self.news = True
                self._submit(arrival, seen)
                seen += 1
                arrival = next(stream, None)
                submitted = inf if arrival is None else arrival.job.submitted
                if each:
                    self._conclude(now)
            if self._at_point or self._is_due or (self.news and not only_ticks):
                self._conclude(now)
            for service in watchers:
                service.settled(now)
            rounds += 1
            if progress is not None and rounds % _BETWEEN_REPORTS == 0:
                progress(seen)
        if live and now == inf:
            self._nobody_could_start()
        if self.record is not None:
            self.record.transfer = file_system.mean_transfer
        for service in self._services:
            service.end(indices.now if until == inf or not live else until)
        return seen

    def _conclude(self, now: float) -> None:
        """What has happened is decided about, if it is time to; who is at a scheduling point goes on."""
        if self._is_due or (self.news and not self.platform.only_ticks):
            self._decide()
            if self._is_freed:  # by who started, had nothing to do and has ended
                self.decide_soon()
            if self._decides_on_each:  # who asked now has had his answer
                self.indices.requests.clear()
        while self._at_point:
            if self._leave_points(now):
                self._decide()  # who shrank at its scheduling point has freed nodes

    def take_over(
        self, indices: Indices, running: list[tuple[Arrival, float]], waiting: list[Arrival]
    ) -> None:
        """Start from this state instead of an empty machine. ``running`` comes with the share done."""
        indices.waiting.rerank(self.policy.queue)
        self._observe(indices)
        indices = self.indices
        for row, arrival in enumerate([arrival for arrival, _ in running] + waiting):
            if self.record is not None:
                self.record.submitted(row, arrival.job, arrival.alone)
        for row, (arrival, done) in enumerate(running):
            job_id = arrival.job.id
            if indices.running[job_id].target is not None:
                indices.finish_resize(job_id)
            now_running = indices.running[job_id]
            life = self.lives[job_id] = Life(arrival, row, -1 - row)
            life.changed = now_running.started
            life.execution = steady(arrival, done)
            life.execution.begin(indices.now, len(now_running.nodes))
            if self.record is not None:
                self.record.started(row, now_running.started, now_running.nodes)
            self.step_at(indices.now, life)
            life.deadline = max(now_running.expected_end, now_running.started + arrival.limit)
            self.expect_kill(life)
        for row, arrival in enumerate(waiting, start=len(running)):
            place = indices.waiting.arrival_of(arrival.job.id)
            self.lives[arrival.job.id] = Life(arrival, row, place)
        self.push(indices.now, TICKS, self._tick)  # decide at once

    def withdraw(self, job_id: str) -> None:
        """Its owner does not want a job any more. Nothing happens if it is over."""
        if job_id in self.lives:
            self._cancel(self.lives[job_id], self.indices.now)
            self.decide_soon()

    def step_at(self, time: float, life: Life) -> None:
        """Let a job go on then."""
        self.push(time, STEPS, self.proceed, life, life.version)

    def wake_at(self, time: float, companion: Companion) -> None:
        """Wake a job's companion then, before anything is decided."""
        self.push(time, STEPS, lambda one, now: one.woken(now), companion, companion.version)

    def decide_soon(self) -> None:
        """Something is to be decided about: at this instant, or at the next tick if decisions wait."""
        self.news = True
        self.push(self.indices.now, TICKS, _nothing)

    def decide_at(self, time: float, service: MachineService) -> None:
        """Wake a service then, after everything else of that instant, and decide whatever the ticks."""
        if time < inf:
            self.push(time, TICKS, self._wake, service)

    def push(
        self,
        time: float,
        rank: int,
        call: Callable[[Any, float], None],
        what: Any = None,
        version: int | None = None,
    ) -> None:
        """Then ``call(what, time)``, unless it has another version by then."""
        self._order += 1
        heappush(self._events, (time, rank, self._order, call, what, version))

    def _end_transfers(self, now: float) -> None:
        for owner, version in self.file_system.ended(now):
            if owner.version == version:
                if isinstance(owner, Life):
                    self.proceed(owner, now)
                else:
                    owner.woken(now)
                if self._decides_on_each:
                    self._conclude(now)

    def _tick(self, _: None, now: float) -> None:
        self._is_due = True
        self._is_ticking = False
        for service in self._services:
            service.tick(now)
        # Nothing runs and nothing else is to come: time alone lets a job start, or nothing does.
        self._empty_ticks = 0 if self.indices.running or self._events else self._empty_ticks + 1
        if self._empty_ticks < _PATIENCE:
            self._tick_again()

    def _tick_again(self) -> None:
        if self.platform.tick and self.lives and not self._is_ticking:
            self._is_ticking = True
            tick, now = self.platform.tick, self.indices.now
            time = (now // tick + 1) * tick
            self.push(time if time > now else time + tick, TICKS, self._tick)

    def _ask_again(self, _: None, now: float) -> None:
        if now == self._again:  # else it has thought better of it
            self._again, self.news = inf, True

    def _wake(self, service: MachineService, now: float) -> None:
        self._is_due = True
        service.woken(now)

    def _kill(self, life: Life, now: float) -> None:
        """Its walltime is over, unless a resize has moved it."""
        if life.deadline > now:
            self.expect_kill(life)
            return
        assert life.execution is not None
        ended = life.execution.done(now) > 1.0 - 1e-9  # at the same instant, but for rounding
        self._finish(life, now, "completed" if ended else "killed")

    def _cancel(self, life: Life, now: float) -> None:
        """Its owner gives up."""
        job_id = life.arrival.job.id
        if self.lives.get(job_id) is not life or life.state == "cleaning":
            return
        if job_id in self.indices.running:
            self._finish(life, now, "cancelled")
            return
        self._give_up(life, "cancelled")

    def _give_up(self, life: Life, state: str) -> None:
        """A job that waits will never start."""
        self.news = True
        self.indices.withdraw(life.arrival.job.id)
        del self.lives[life.arrival.job.id]
        if self.record is not None:
            self.record.ended(life.row, self.indices.now, state)

    def _is_late(self, life: Life, now: float) -> None:
        """Its deadline is over: it is worth nothing any more, and removed, as in seed 003, section 4.7.2."""
        job_id = life.arrival.job.id
        if self.lives.get(job_id) is not life or life.state == "cleaning":
            return
        if job_id in self.indices.running:
            self._finish(life, now, "dropped")
        else:
            self._give_up(life, "dropped")

    def _submit(self, arrival: Arrival, row: int) -> None:
        job, now = arrival.job, self.indices.now
        if self.record is not None:
            self.record.submitted(row, job, arrival.alone)
        if job.nodes > self._most_nodes:  # it can never run here
            reason = f"asks for {job.nodes} nodes, the machine has {self._most_nodes}"
            self.story.tell(Happening(self.indices.revision, now, "reject", job.id, (), reason))
            if self.record is not None:
                self.record.ended(row, now, "rejected")
            return
        if job.id in self.lives:
            raise InputError(f"job {shown(job.id)}", "is submitted again before it has ended")
        life = self.lives[job.id] = Life(arrival, row, self.indices.waiting.add(job))
        for service in self._followers:
            service.submitted(job)
        if job.deadline is not None:
            self.push(max(job.deadline, now), CANCELS, self._is_late, life)
        if arrival.cancelled < inf:
            self.push(max(arrival.cancelled, now), CANCELS, self._cancel, life)
        if self.platform.tick:
            self._tick_again()

    def _finish(self, life: Life, now: float, state: str = "") -> None:
        """It is over, in the state that was foreseen if no other is said."""
        self.news = True
        job_id = life.arrival.job.id
        if self.record is not None:
            if life.execution is not None or life.row in self.record.details:
                self.account(life, now)
            self.record.ended(life.row, now, state or life.state)
        if life.execution is not None:
            life.at_point = False
            self.abandon(life, now)
        if life.companion is not None:
            life.companion.finished(now)
        if self.platform.cleanup:
            life.version += 1
            life.state = "cleaning"
            self.indices.resizable.pop(job_id, None)
            self.indices.expect_end(job_id, now + self.platform.cleanup)
            self.push(now + self.platform.cleanup, CHANGES, self.cleaned, life, life.version)
        else:
            self._is_freed = True
            life.version = -1
            self.indices.end(job_id)
            del self.lives[job_id]

    def abandon(self, life: Life, now: float) -> None:
        """It does not wait for any transfer (any more)."""
        self.file_system.abandon(now, life)
        for service in self._readers:
            service.abandoned(life, now)

    def cleaned(self, life: Life, now: float) -> None:
        """Its nodes are free."""
        self.news = self._is_freed = True
        life.version = -1
        self.indices.end(life.arrival.job.id)
        del self.lives[life.arrival.job.id]

    def account(self, life: Life, now: float) -> None:
        """Remember the node-seconds up to now of a job whose size changes, or that is stopped."""
        if self.record is not None:
            held = len(self.indices.running[life.arrival.job.id].nodes)
            self.record.detail(life.row).node_seconds += held * (now - life.changed)
            life.changed = now

    def _decide(self) -> None:
        self.news = self._is_due = self._is_freed = False
        indices = self.indices
        if indices.by_end and indices.by_end[0][0] < indices.now:
            indices.push_overdue()
        for service in self._followers:
            service.look()
        if self._is_asked_for_nodes:
            self.desk.look()
        self._memory = self.policy.settle(self.snapshot, self._memory, self._carry_out)
        if self._is_asked_for_nodes:
            self.desk.answer()
        indices.failed = ()
        again = self.policy.ask_again(self.snapshot, self._memory)
        if again != self._again:
            self._again = again
            if again < inf:
                self.push(again, TICKS, self._ask_again)

    def _nobody_could_start(self) -> None:
        """Who waits when nothing is to come waits for ever: that must not be because nobody was asked."""
        plan, _ = self.policy.decide(self.snapshot, None)
        if plan is not None and plan.starts:
            start = plan.starts[0]
            raise RuntimeError(
                f"a simulation is over at {self.indices.now:g} s, and policy {self.policy.name} would start "
                f"job {start.job} on {start.nodes} nodes if it were asked: please report this as a bug"
            )

    def _carry_out(self, plan: Plan) -> None:
        self.story.add(plan)
        if plan.only_starts:
            for start in plan.starts:
                self._start(start)
        else:
            self._carry_out_all(plan)
        if plan.lend is not None or plan.take_back is not None:
            self.desk.carry_out(plan)
        for service in self._followers:
            service.carried_out(plan)

    def _carry_out_all(self, plan: Plan) -> None:
        running = self.indices.running
        for deed in plan.in_order(lambda job: len(running[job].nodes)):
            if isinstance(deed, Start):
                self._start(deed)
            elif isinstance(deed, Resize):
                (self._resizes.restart if deed.restart else self._resizes.resize)(deed)
            elif isinstance(deed, Interrupt):
                self._stops.interrupt(deed)
            else:
                self._give_up(self.lives[deed.job], "dropped")

    def _start(self, start: Start) -> None:
        life = self.lives[start.job]
        arrival = life.arrival
        job = arrival.job
        if start.nodes != job.nodes:
            check_size(job, start.nodes)
        running = self.indices.start(start.job, start.nodes)
        now = self.indices.now
        begins = now + self.platform.launch
        if self.platform.launch:
            self.indices.expect_end(job.id, running.expected_end + self.platform.launch)
        life.changed = now
        if self.indices.picked:
            self.tell_of_nodes(running)
        if self.record is not None:
            self.record.started(life.row, now, running.nodes)
        companion = life.companion
        if companion is None:
            for service in self._escorts:
                found = service.accompany(life)
                if found is not None:
                    life.companion = companion = found
        is_alone = companion is None and (job.kind == "rigid" or not job.resizable)
        if life.done and isinstance(arrival.speedup, PhasedSpeedup):
            is_alone = False  # what is left of it is another share of its time than of its work
        if job.traffic and self.platform.topology is not None:
            is_alone = False  # how long it takes is a matter of what others send
        if arrival.application is None and is_alone and start.nodes == job.nodes:
            # its end is known now, unless a node fails
            runtime = arrival.runtime * (1.0 - life.done) if life.done else arrival.runtime
            if runtime <= job.walltime or arrival.overstays:
                life.state = "completed"
            else:
                life.state, runtime = "killed", job.walltime
            self._order += 1  # as ``_push``, without the call: nearly all jobs of large traces come here
            end = begins + runtime
            heappush(self._events, (end, STEPS, self._order, self._finish, life, life.version))
            return
        life.execution = self.execute(life)
        life.execution.begin(begins, len(running.nodes))
        self.measure(life)
        if companion is not None:
            companion.begin(begins)
        if self.platform.launch or companion is not None:
            self.step_at(begins, life)
        else:
            self.proceed(life, now)
        if life.execution is not None and self.lives.get(job.id) is life and life.state != "cleaning":
            life.deadline = max(self.indices.running[job.id].expected_end, begins + arrival.limit)
            self.expect_kill(life)

    def tell_of_nodes(self, running: Running) -> None:
        """Why a job has just got these nodes."""
        indices, job = self.indices, running.job.id
        reason = indices.picked
        self.story.tell(Happening(indices.revision, indices.now, "picked", job, running.nodes, reason))

    def execute(self, life: Life) -> Execution:
        """How it does what is left of its work."""
        application = life.arrival.application
        if application is None:
            return steady(life.arrival, life.done)
        self._is_in_phase(life)
        if isinstance(application, Application):
            return Phased(application, self.platform, life.done)
        found = (service.execution(life) for service in self._services)
        return next(execution for execution in found if execution is not None)

    def expect_kill(self, life: Life) -> None:
        """It is killed when its walltime is over."""
        if life.deadline < inf:
            self.push(life.deadline, KILLS, self._kill, life, life.version)

    def proceed(self, life: Life, now: float) -> None:
        """Go on with the next step."""
        execution = life.execution
        assert execution is not None
        job_id = life.arrival.job.id
        if life.companion is not None and life.companion.goes_first(now):
            return
        while True:
            step = execution.proceed(now)
            if step is None:
                self._finish(life, now, "completed")
                return
            if isinstance(step, Wait):
                if step.seconds > 0 or isinstance(execution, Steady):
                    self.step_at(now + step.seconds, life)
                    return
            elif isinstance(step, Transfer):
                if step.bytes_per_node > 0:
                    if not (step.is_read and any(one.reads(life, step, now) for one in self._readers)):
                        self.file_system.begin(
                            now, life, step.nodes, step.bytes_per_node, life.version, is_read=step.is_read
                        )
                    return
            elif isinstance(step, Ask):
                if life.arrival.job.kind == "evolving" and self._hears(step.nodes, job_id):
                    self.news = True
                    self.indices.requests[job_id] = step.nodes
            elif isinstance(step, Turn) and life.arrival.job.resizable:
                self.news = True
                self.measure(life)
            elif isinstance(step, Point) and life.arrival.job.resizable:
                self.news = True
                self.measure(life)
                life.at_point = True
                self.indices.in_phase.discard(job_id)
                self._at_point.append(life)
                return

    def _hears(self, nodes: int, job_id: str) -> bool:
        """Whether it is of any use to ask for so many: on each event who asks gets all of them, or none."""
        indices = self.indices
        return not self._decides_on_each or nodes - len(indices.running[job_id].nodes) <= len(indices.idle)

    def _is_in_phase(self, life: Life) -> None:
        """It goes on to its next scheduling point, if it has any."""
        job = life.arrival.job
        if job.resizable:
            self.indices.in_phase.add(job.id)

    def measure(self, life: Life) -> None:
        """What policies are to know of its time in communication."""
        if life.arrival.job.resizable and life.execution is not None:
            mtct = life.execution.mtct()
            if mtct is not None:
                self.indices.mtct[life.arrival.job.id] = mtct

    def _leave_points(self, now: float) -> bool:
        """Decisions are made: jobs at a scheduling point change their size or go on. Answers whether
        any has become smaller at once."""
        lives, self._at_point = self._at_point, []
        idle = len(self.indices.idle)
        for life in lives:
            if not life.at_point:  # it was stopped meanwhile
                continue
            life.at_point = False
            self._is_in_phase(life)
            running = self.indices.running[life.arrival.job.id]
            if running.target is not None:
                assert life.execution is not None
                is_shrink = running.target < len(running.nodes)
                before = len(running.nodes) if is_shrink else life.execution.nodes
                stall, _ = self._resizes.cost(life, before, running.target)
                self._resizes.pause(life, stall, now)
            else:
                self.proceed(life, now)
        return len(self.indices.idle) > idle

    def work_left(self, job_id: str) -> float:
        """Node-seconds that a running job has still to do, on the nodes that it asked for."""
        life, running = self.lives[job_id], self.indices.running[job_id]
        runtime, nodes = life.arrival.runtime, life.arrival.job.nodes
        if life.execution is not None:
            done = life.execution.done(self.indices.now)
        else:
            done = life.done + (self.indices.now - running.started) / runtime if runtime else 1.0
        return max(0.0, 1.0 - done) * runtime * nodes

    def is_at_work(self, job_id: str) -> bool:
        """Whether a running job has not come to its end, or been stopped."""
        return self.lives[job_id].state != "cleaning"

    def slow_down(self, job_id: str, stretch: float) -> None:
        """A running job takes so many times as long to communicate from now on."""
        life, now = self.lives[job_id], self.indices.now
        execution = life.execution
        if execution is None or execution.stretch == stretch:
            return
        wait = execution.slow_down(now, stretch)
        if wait is not None:
            life.version += 1
            self.expect_kill(life)
            self.step_at(now + wait, life)

    def move_job(self, job_id: str, gone: str, instead: str) -> None:
        """A running job goes on on a node that is idle, instead of one of its own."""
        running = self.indices.exchange(job_id, gone, instead)
        if self.record is not None:
            self.record.held(self.lives[job_id].row, self.indices.now, running.nodes)

    def join_node(self, node: Node, now: float) -> None:
        """A node is there, idle."""
        self.news = True
        self.indices.add_node(node)

    def lose_node(self, name: str, now: float, survive: bool) -> None:
        """A node is gone. Who holds it stops, or does with the others if that is possible and he may."""
        self.news = True
        for service in self._services:
            service.node_failed(name)
        self._stops.node_goes(name, now, survive)
        if name in self.indices.nodes:
            self.indices.remove_node(name)

    def stop_after(self, time: float, life: Life) -> None:
        """A job that is to stop has kept its state then."""
        self.push(time, CHANGES, self._stops.kept, life)


def _nothing(_: None, now: float) -> None:
    """The instant is enough."""
