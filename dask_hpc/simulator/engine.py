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

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Interrupt, Plan, Resize, Start
from dask_hpc.model.snapshot import FAILED, INTERRUPTED, Indices, Running, Snapshot
from dask_hpc.model.speedup import PhasedSpeedup, is_legal
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
from dask_hpc.simulator.service import Companion, Life, MachineService
from dask_hpc.simulator.workload import Arrival

_BETWEEN_REPORTS = 8192
_PATIENCE = 10_000  # ticks on an empty machine before those who wait are given up

# The order of events within one instant.
_STEPS, _KILLS, _CHANGES, _REPAIRS, _FAILURES, _CANCELS, _TICKS = range(7)


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
        self._live: dict[str, Life] = {}
        #: ``(time, rank, order, call, what, version)``: ``call(what, time)``, unless it has another version
        self._events: list[tuple[float, int, int, Callable[[Any, float], None], Any, int | None]] = []
        self._order = 0
        self._failures: Iterator[tuple[float, int]] = iter(())
        self._at_point: list[Life] = []
        self._is_ticking = False
        self._empty_ticks = 0
        #: whether anything has happened that a policy might want to know, and whether it is time to decide
        self._news = self._is_due = False
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
        live, events, indices, file_system = self._live, self._events, self.indices, self.file_system
        transfers = file_system.transfers
        only_ticks, watchers = self.platform.only_ticks, self._watchers
        each = self._decides_on_each
        if self.platform.failures is not None:
            self._failures = self.platform.failures.times(self.platform.nodes)
            self._next_failure()
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
                self._news = True
                self._submit(arrival, seen)
                seen += 1
                arrival = next(stream, None)
                submitted = inf if arrival is None else arrival.job.submitted
                if each:
                    self._conclude(now)
            if self._at_point or self._is_due or (self._news and not only_ticks):
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
        if self._is_due or (self._news and not self.platform.only_ticks):
            self._decide()
            if self._is_freed:  # by who started, had nothing to do and has ended
                self.decide_soon()
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
            life = self._live[job_id] = Life(arrival, row, -1 - row)
            life.changed = now_running.started
            life.execution = steady(arrival, done)
            life.execution.begin(indices.now, len(now_running.nodes))
            if self.record is not None:
                self.record.started(row, now_running.started, now_running.nodes)
            self.step_at(indices.now, life)
            life.deadline = max(now_running.expected_end, now_running.started + arrival.limit)
            self._expect_kill(life)
        for row, arrival in enumerate(waiting, start=len(running)):
            place = indices.waiting.arrival_of(arrival.job.id)
            self._live[arrival.job.id] = Life(arrival, row, place)
        self._push(indices.now, _TICKS, self._tick)  # decide at once

    def withdraw(self, job_id: str) -> None:
        """Its owner does not want a job any more. Nothing happens if it is over."""
        if job_id in self._live:
            self._cancel(self._live[job_id], self.indices.now)
            self.decide_soon()

    def step_at(self, time: float, life: Life) -> None:
        """Let a job go on then."""
        self._push(time, _STEPS, self._proceed, life, life.version)

    def wake_at(self, time: float, companion: Companion) -> None:
        """Wake a job's companion then, before anything is decided."""
        self._push(time, _STEPS, lambda one, now: one.woken(now), companion, companion.version)

    def decide_soon(self) -> None:
        """Something is to be decided about: at this instant, or at the next tick if decisions wait."""
        self._news = True
        self._push(self.indices.now, _TICKS, _nothing)

    def decide_at(self, time: float, service: MachineService) -> None:
        """Wake a service then, after everything else of that instant, and decide whatever the ticks."""
        if time < inf:
            self._push(time, _TICKS, self._wake, service)

    def _push(
        self,
        time: float,
        rank: int,
        call: Callable[[Any, float], None],
        what: Any = None,
        version: int | None = None,
    ) -> None:
        self._order += 1
        heappush(self._events, (time, rank, self._order, call, what, version))

    def _end_transfers(self, now: float) -> None:
        for owner, version in self.file_system.ended(now):
            if owner.version == version:
                if isinstance(owner, Life):
                    self._proceed(owner, now)
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
        if self.platform.tick and self._live and not self._is_ticking:
            self._is_ticking = True
            tick, now = self.platform.tick, self.indices.now
            time = (now // tick + 1) * tick
            self._push(time if time > now else time + tick, _TICKS, self._tick)

    def _ask_again(self, _: None, now: float) -> None:
        if now == self._again:  # else it has thought better of it
            self._again, self._news = inf, True

    def _wake(self, service: MachineService, now: float) -> None:
        self._is_due = True
        service.woken(now)

    def _kill(self, life: Life, now: float) -> None:
        """Its walltime is over, unless a resize has moved it."""
        if life.deadline > now:
            self._expect_kill(life)
            return
        assert life.execution is not None
        ended = life.execution.done(now) > 1.0 - 1e-9  # at the same instant, but for rounding
        self._finish(life, now, "completed" if ended else "killed")

    def _cancel(self, life: Life, now: float) -> None:
        """Its owner gives up."""
        job_id = life.arrival.job.id
        if self._live.get(job_id) is not life or life.state == "cleaning":
            return
        if job_id in self.indices.running:
            self._finish(life, now, "cancelled")
            return
        self._give_up(life, "cancelled")

    def _give_up(self, life: Life, state: str) -> None:
        """A job that waits will never start."""
        self._news = True
        self.indices.withdraw(life.arrival.job.id)
        del self._live[life.arrival.job.id]
        if self.record is not None:
            self.record.ended(life.row, self.indices.now, state)

    def _is_late(self, life: Life, now: float) -> None:
        """Its deadline is over: it is worth nothing any more, and removed, as in seed 003, section 4.7.2."""
        job_id = life.arrival.job.id
        if self._live.get(job_id) is not life or life.state == "cleaning":
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
        if job.id in self._live:
            raise InputError(f"job {shown(job.id)}", "is submitted again before it has ended")
        life = self._live[job.id] = Life(arrival, row, self.indices.waiting.add(job))
        for service in self._followers:
            service.submitted(job)
        if job.deadline is not None:
            self._push(max(job.deadline, now), _CANCELS, self._is_late, life)
        if arrival.cancelled < inf:
            self._push(max(arrival.cancelled, now), _CANCELS, self._cancel, life)
        if self.platform.tick:
            self._tick_again()

    def _finish(self, life: Life, now: float, state: str = "") -> None:
        """It is over, in the state that was foreseen if no other is said."""
        self._news = True
        job_id = life.arrival.job.id
        if self.record is not None:
            if life.execution is not None or life.row in self.record.details:
                self._account(life, now)
            self.record.ended(life.row, now, state or life.state)
        if life.execution is not None:
            life.at_point = False
            self._abandon(life, now)
        if life.companion is not None:
            life.companion.finished(now)
        if self.platform.cleanup:
            life.version += 1
            life.state = "cleaning"
            self.indices.resizable.pop(job_id, None)
            self.indices.expect_end(job_id, now + self.platform.cleanup)
            self._push(now + self.platform.cleanup, _CHANGES, self._cleaned, life, life.version)
        else:
            self._is_freed = True
            life.version = -1
            self.indices.end(job_id)
            del self._live[job_id]

    def _abandon(self, life: Life, now: float) -> None:
        self.file_system.abandon(now, life)
        for service in self._readers:
            service.abandoned(life, now)

    def _cleaned(self, life: Life, now: float) -> None:
        self._news = self._is_freed = True
        life.version = -1
        self.indices.end(life.arrival.job.id)
        del self._live[life.arrival.job.id]

    def _account(self, life: Life, now: float) -> None:
        """Remember the node-seconds up to now of a job whose size changes, or that is stopped."""
        if self.record is not None:
            held = len(self.indices.running[life.arrival.job.id].nodes)
            self.record.detail(life.row).node_seconds += held * (now - life.changed)
            life.changed = now

    def _decide(self) -> None:
        self._news = self._is_due = self._is_freed = False
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
                self._push(again, _TICKS, self._ask_again)

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
                (self._restart if deed.restart else self._resize)(deed)
            elif isinstance(deed, Interrupt):
                self._interrupt(deed)
            else:
                self._give_up(self._live[deed.job], "dropped")

    def _start(self, start: Start) -> None:
        life = self._live[start.job]
        arrival = life.arrival
        job = arrival.job
        if start.nodes != job.nodes:
            _check_size(job, start.nodes)
        running = self.indices.start(start.job, start.nodes)
        now = self.indices.now
        begins = now + self.platform.launch
        if self.platform.launch:
            self.indices.expect_end(job.id, running.expected_end + self.platform.launch)
        life.changed = now
        if self.indices.picked:
            self._tell_of_nodes(running)
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
            heappush(self._events, (end, _STEPS, self._order, self._finish, life, life.version))
            return
        life.execution = self._execution(life)
        life.execution.begin(begins, len(running.nodes))
        self._measure(life)
        if companion is not None:
            companion.begin(begins)
        if self.platform.launch or companion is not None:
            self.step_at(begins, life)
        else:
            self._proceed(life, now)
        if life.execution is not None and self._live.get(job.id) is life and life.state != "cleaning":
            life.deadline = max(self.indices.running[job.id].expected_end, begins + arrival.limit)
            self._expect_kill(life)

    def _tell_of_nodes(self, running: Running) -> None:
        """Why a job has just got these nodes."""
        indices, job = self.indices, running.job.id
        reason = indices.picked
        self.story.tell(Happening(indices.revision, indices.now, "picked", job, running.nodes, reason))

    def _execution(self, life: Life) -> Execution:
        application = life.arrival.application
        if application is None:
            return steady(life.arrival, life.done)
        if isinstance(application, Application):
            return Phased(application, self.platform, life.done)
        found = (service.execution(life) for service in self._services)
        return next(execution for execution in found if execution is not None)

    def _expect_kill(self, life: Life) -> None:
        if life.deadline < inf:
            self._push(life.deadline, _KILLS, self._kill, life, life.version)

    def _proceed(self, life: Life, now: float) -> None:
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
                        self.file_system.begin(now, life, step.nodes, step.bytes_per_node, life.version)
                    return
            elif isinstance(step, Ask):
                if life.arrival.job.kind == "evolving":
                    self._news = True
                    self.indices.requests[job_id] = step.nodes
            elif isinstance(step, Turn) and life.arrival.job.resizable:
                self._news = True
                self._measure(life)
            elif isinstance(step, Point) and life.arrival.job.resizable:
                self._news = True
                self._measure(life)
                life.at_point = True
                self._at_point.append(life)
                return

    def _measure(self, life: Life) -> None:
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
            running = self.indices.running[life.arrival.job.id]
            if running.target is not None:
                assert life.execution is not None
                is_shrink = running.target < len(running.nodes)
                before = len(running.nodes) if is_shrink else life.execution.nodes
                stall, _ = self._cost(life, before, running.target)
                self._pause(life, stall, now)
            else:
                self._proceed(life, now)
        return len(self.indices.idle) > idle

    def _resize(self, resize: Resize) -> None:
        life = self._live[resize.job]
        job = life.arrival.job
        indices = self.indices
        if resize.job in indices.lacking:  # any number of nodes is better than what it has
            size = len(indices.running[job.id].nodes)
            _check_size(job, resize.nodes, size + 1, size + indices.lacking[job.id])
        else:
            _check_size(job, resize.nodes)
        if resize.job not in indices.resizable and resize.job not in indices.lacking:
            raise RuntimeError(f"policy {self.policy.name}: job {shown(resize.job)} cannot be resized now")
        now = indices.now
        before = len(indices.running[resize.job].nodes)
        self._account(life, now)
        stall, moved = self._cost(life, before, resize.nodes)
        running = indices.begin_resize(resize.job, resize.nodes, stall)
        if indices.picked and resize.nodes > before:
            self._tell_of_nodes(running)
        life.deadline = max(life.deadline + stall, running.expected_end)
        if self.record is not None:
            detail = self.record.detail(life.row)
            detail.resizes += 1
            detail.moved_bytes += moved
            if resize.nodes > before:
                self.record.held(life.row, now, running.nodes)
        if isinstance(life.execution, Steady):
            is_news = self._news
            self._pause(life, stall, now)
            self._news = is_news  # if that was all, the policy is asked again at once, and not once more
        # else it waits for its next scheduling point, which may be this instant

    def _restart(self, resize: Resize) -> None:
        """A job commits, if it is to, is stopped, and starts again on another size: it stands still for the
        commit and the launch, and then for as long as it reads back what it kept."""
        life, now = self._live[resize.job], self.indices.now
        job, execution = life.arrival.job, life.execution
        _check_size(job, resize.nodes)
        if not job.restarts or execution is None or life.state == "cleaning":
            raise RuntimeError(f"policy {self.policy.name}: job {shown(resize.job)} cannot be restarted now")
        self._account(life, now)
        if life.companion is not None:
            life.companion.interrupted(now)
        self.file_system.abandon(now, life)
        reached = execution.reached(now)
        execution.stand_still(now)
        stall = self.platform.cleanup + self.platform.launch
        if resize.restart == "after a commit" and life.companion is not None:
            stall += life.companion.last_commit(now)
        life.version += 1
        life.at_point = False
        before = len(self.indices.running[resize.job].nodes)
        running = self.indices.begin_resize(resize.job, resize.nodes, stall)
        life.deadline = max(life.deadline + stall, running.expected_end)
        if self.record is not None and resize.nodes > before:
            self.record.held(life.row, now, running.nodes)
        kept = None if resize.restart == "at once" else reached
        self._push(
            now + stall, _CHANGES, lambda one, time: self._restarted(one, kept, time), life, life.version
        )

    def _restarted(self, life: Life, kept: float | None, now: float) -> None:
        """It has its new nodes and begins there, from such a share of its work, or from its last commit."""
        assert life.execution is not None
        self._news = True
        job = life.arrival.job
        done = life.execution.done(now)
        if life.companion is not None:
            if kept is not None:
                life.companion.committed(kept)
            kept = max(life.done, life.companion.stopped(now))
        saved = done if kept is None else kept
        self._account(life, now)
        held = len(self.indices.running[job.id].nodes)
        running = self.indices.finish_resize(job.id)
        if self.record is not None:
            detail = self.record.detail(life.row)
            detail.resizes += 1
            detail.restarts += 1
            detail.lost += max(0.0, done - saved) * life.arrival.runtime * job.nodes
            if len(running.nodes) < held:
                self.record.held(life.row, now, running.nodes)
        life.done = saved
        life.execution = self._execution(life)
        life.execution.begin(now, len(running.nodes))
        self._measure(life)
        if life.companion is not None:
            life.companion.begin(now)
        life.version += 1
        self._expect_kill(life)
        self.step_at(now, life)

    def _cost(self, life: Life, before: int, after: int) -> tuple[float, float]:
        """Seconds of standing still, and bytes moved: the share of the data that changes its node."""
        moved = life.arrival.data * abs(after - before) / max(before, after)
        return self.platform.resize.seconds(before, after, moved), moved

    def _pause(self, life: Life, stall: float, now: float) -> None:
        """Its resize begins, for which it stands still so long."""
        assert life.execution is not None
        if life.companion is not None:
            life.companion.interrupted(now)
        life.execution.stand_still(now)
        life.version += 1
        if stall > 0:
            self._push(now + stall, _CHANGES, self._resized, life, life.version)
        else:
            self._resized(life, now)

    def _resized(self, life: Life, now: float) -> None:
        assert life.execution is not None
        self._news = True
        job_id = life.arrival.job.id
        if life.changed != now:
            self._account(life, now)
        held = len(self.indices.running[job_id].nodes)
        running = self.indices.finish_resize(job_id)
        if self.record is not None:
            self.record.adaptation.add(now - running.resized_at)
            if len(running.nodes) < held:
                self.record.held(life.row, now, running.nodes)
        execution = life.execution
        execution.begin(now, len(running.nodes))
        if life.companion is not None:
            life.companion.resized()
        self._measure(life)
        life.version += 1
        if isinstance(execution, Steady):
            until = now if life.companion is not None else now + execution.wait(now)
            if until == now or until > life.deadline:  # else it ends before
                self._expect_kill(life)
            self.step_at(until, life)
        else:
            self._expect_kill(life)
            self._proceed(life, now)

    def _next_failure(self) -> None:
        found = next(self._failures, None)
        if found is not None:
            self._push(found[0], _FAILURES, self._fail, str(found[1]))

    def _fail(self, name: str, now: float) -> None:
        """A node goes down; the job that holds it stops."""
        self._next_failure()
        failures, node = self.platform.failures, self.indices.nodes.get(name)
        assert failures is not None
        if node is not None:  # else it is down already
            self.lose_node(name, now, failures.survive)
            self._push(now + failures.repair, _REPAIRS, self.join_node, node)

    def lose_node(self, name: str, now: float, survive: bool) -> None:
        """A node is gone. Who holds it stops, or does with the others if that is possible and he may."""
        self._news = True
        indices = self.indices
        for service in self._services:
            service.node_failed(name)
        holder = next((r for r in indices.running.values() if name in r.nodes), None)
        if holder is not None:
            life = self._live[holder.job.id]
            if life.state == "cleaning":
                self._cleaned(life, now)
            elif survive and self._can_survive(life, holder):
                self._lose(life, name, now)
            else:
                self._stop(life, FAILED)
                indices.failed += (holder.job.id,)
        if name in indices.nodes:
            indices.remove_node(name)

    def work_left(self, job_id: str) -> float:
        """Node-seconds that a running job has still to do, on the nodes that it asked for."""
        life, running = self._live[job_id], self.indices.running[job_id]
        runtime, nodes = life.arrival.runtime, life.arrival.job.nodes
        if life.execution is not None:
            done = life.execution.done(self.indices.now)
        else:
            done = life.done + (self.indices.now - running.started) / runtime if runtime else 1.0
        return max(0.0, 1.0 - done) * runtime * nodes

    def is_at_work(self, job_id: str) -> bool:
        """Whether a running job has not come to its end, or been stopped."""
        return self._live[job_id].state != "cleaning"

    def slow_down(self, job_id: str, stretch: float) -> None:
        """A running job takes so many times as long to communicate from now on."""
        life, now = self._live[job_id], self.indices.now
        execution = life.execution
        if execution is None or execution.stretch == stretch:
            return
        wait = execution.slow_down(now, stretch)
        if wait is not None:
            life.version += 1
            self._expect_kill(life)
            self.step_at(now + wait, life)

    def move_job(self, job_id: str, gone: str, instead: str) -> None:
        """A running job goes on on a node that is idle, instead of one of its own."""
        running = self.indices.exchange(job_id, gone, instead)
        if self.record is not None:
            self.record.held(self._live[job_id].row, self.indices.now, running.nodes)

    def join_node(self, node: Node, now: float) -> None:
        """A node is there, idle."""
        self._news = True
        self.indices.add_node(node)

    def _can_survive(self, life: Life, holder: Running) -> bool:
        """Whether it has other nodes, and does nothing that all of them are needed for."""
        is_plain = life.companion is None and life.arrival.application is None
        return is_plain and len(holder.nodes) > 1

    def _lose(self, life: Life, node: str, now: float) -> None:
        """A job goes on with its other nodes. What the lost one did since the last checkpoint is lost."""
        indices, job = self.indices, life.arrival.job
        execution = self._steady(life)
        done = execution.done(now)
        lost = (done - max(life.done, execution.saved(now, self._interval))) / execution.nodes
        self._account(life, now)
        if self.record is not None:
            self.record.detail(life.row).lost += lost * life.arrival.runtime * job.nodes
        running = indices.remove_node(node)
        assert running is not None
        if self.record is not None:
            self.record.held(life.row, now, running.nodes)
        life.execution = steady(life.arrival, done - lost)
        life.execution.begin(now, len(running.nodes[: running.target]))
        life.version += 1
        if running.target is not None:  # what it was about to change is changed at once
            indices.finish_resize(job.id)
        self._expect_kill(life)
        self.step_at(now, life)

    def _steady(self, life: Life) -> Steady:
        """How a job proceeds that has no application. One that ran undisturbed so far has steps from now on,
        and a time by which it is killed."""
        running = self.indices.running[life.arrival.job.id]
        begun = running.started + self.platform.launch
        if life.execution is None:
            life.execution = steady(life.arrival, life.done)
            life.execution.begin(begun, len(running.nodes))
            life.deadline = max(running.expected_end, begun + life.arrival.limit)
        assert isinstance(life.execution, Steady)
        return life.execution

    def _interrupt(self, deed: Interrupt) -> None:
        """A job stops for another, at once or once it has kept its state."""
        life, now = self._live[deed.job], self.indices.now
        at_once = deed.when == "forced-commit"
        if deed.when != "now" and life.companion is not None and life.companion.keeps_first(now, at_once):
            self.indices.stops(deed.job, deed.whom)
        elif deed.when != "now" and self._interval and life.arrival.application is None:
            self.indices.stops(deed.job, deed.whom)
            execution, runtime = self._steady(life), life.arrival.runtime
            # a commit costs nothing here, so that one at once is one of what there is
            left = 0.0 if at_once else self._interval - execution.done(now) * runtime % self._interval
            self.stop_after(now + left, life)
        else:
            self._stop(life, INTERRUPTED)

    def stop_after(self, time: float, life: Life) -> None:
        """A job that is to stop has kept its state then."""
        self._push(time, _CHANGES, self._kept, life)

    def _kept(self, life: Life, now: float) -> None:
        job_id = life.arrival.job.id
        if self._live.get(job_id) is life and job_id in self.indices.stopping:
            self._news = True
            if self.indices.is_worth_stopping(job_id):
                self._stop(life, INTERRUPTED, is_kept=True)

    @property
    def _interval(self) -> float:
        return self.platform.failures.checkpoint if self.platform.failures else 0.0

    def _stop(self, life: Life, ahead: int, is_kept: bool = False) -> None:
        """A job stops and waits again; what its last checkpoint does not hold is lost, unless it has just
        kept all that there is."""
        now = self.indices.now
        job = life.arrival.job
        if life.execution is None:  # it ran undisturbed so far; now its steps must be known
            self._steady(life)
        assert life.execution is not None
        done, saved = life.execution.done(now), max(life.done, life.execution.saved(now, self._interval))
        if life.companion is not None:
            saved = life.companion.stopped(now)
        elif is_kept:
            saved = done
        self._account(life, now)
        if self.record is not None:
            detail = self.record.detail(life.row)
            detail.restarts += 1
            share = max(0.0, done - saved)
            detail.lost += share * life.arrival.runtime * job.nodes
            self.record.held(life.row, now, ())
        self._abandon(life, now)
        life.done = saved
        life.execution = None
        life.at_point = False
        life.version += 1
        self.indices.requeue(job.id, life.place, ahead)


def _nothing(_: None, now: float) -> None:
    """The instant is enough."""


def _check_size(job: Job, nodes: int, low: int = 0, high: int = 0) -> None:
    is_fine = low <= nodes <= high or is_legal(job.constraint, nodes)
    if not (low or job.min_nodes) <= nodes <= (high or job.max_nodes) or not is_fine:
        raise RuntimeError(f"a policy planned {nodes} nodes for job {shown(job.id)}, which cannot use them")
