"""The simulated machine: an event loop around the same policies that run live.

What happens at one instant happens in this order, which is part of the definition:

1. jobs that end or come to a new step, in the order in which those steps began (a job that reaches its
   walltime and its end at the same instant has ended, not been killed), then kills, then resizes and
   clean-ups that are over, then nodes that are back, then nodes that fail;
   (a step of the power corridor comes last);
2. jobs that are submitted, in the order of the workload;
3. decisions of the policy, again and again until it has nothing more to say. No job is resized twice in
   one instant. Starts and growths take effect at once, shrinks when the resize is over.

A job of no length started in step 3 ends in a new round of the same instant.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Plan, Resize, Start
from dask_hpc.model.power import Corridor
from dask_hpc.model.snapshot import FAILED, INTERRUPTED, Indices, Running, Snapshot
from dask_hpc.model.speedup import is_legal
from dask_hpc.model.story import Happening, Story
from dask_hpc.policy import Policy
from dask_hpc.simulator.execution import Ask, Phased, Point, Record, Steady, Transfer, Wait
from dask_hpc.simulator.in_situ.execution import Piped, placement_of
from dask_hpc.simulator.in_situ.run import Pipeline, PipelineRun
from dask_hpc.simulator.job_commits import CommitDesk, JobCommits
from dask_hpc.simulator.platform import FileSystem, Platform
from dask_hpc.simulator.power import SitePower, with_tick
from dask_hpc.simulator.workload import Arrival

_BETWEEN_REPORTS = 8192
_PATIENCE = 10_000  # ticks on an empty machine before those who wait are given up

# Kinds of events, and their order within one instant.
_END, _STEP, _KILL, _RESIZED, _CLEANED, _REPAIRED, _FAILS, _CANCELLED, _TICK, _CORRIDOR, _COMMIT = range(11)
_RANK = (0, 0, 1, 2, 2, 3, 4, 5, 6, 6, 0)


class _Life:
    """A job from its submission to its end."""

    # Most jobs of a large trace run undisturbed and keep these; setting them one by one shows.
    execution: Steady | Phased | Piped | None = None  # None: one undisturbed stretch
    done = 0.0  # saved before it was stopped
    deadline = inf  # then it is killed; growing does not bring it nearer, shrinking moves it on
    version = 0  # events of an older version are void
    changed = 0.0  # since when it holds the nodes it holds
    at_point = False
    state = ""
    commits: JobCommits | None = None

    def __init__(self, arrival: Arrival, row: int, place: int) -> None:
        self.arrival = arrival
        self.row = row
        self.place = place  # its arrival in the queue, to go back to


class Machine:
    """A simulated machine under one policy. Memory grows with live jobs only, unless recorded."""

    def __init__(
        self,
        platform: Platform | int,
        policy: Policy,
        record: Record | None = None,
        *,
        story: int = 10_000,
        corridor: Corridor | None = None,
    ) -> None:
        platform = platform if isinstance(platform, Platform) else Platform(platform)
        self.platform = with_tick(platform, policy)
        self.policy = policy
        nodes, rank = self.platform.node_list(), policy.queue.rank
        self._power = power = SitePower.of(self.platform, policy, record, corridor)
        self.indices = Indices(nodes, rank) if power is None else power.meter(nodes, rank)
        self.indices.overhead = self.platform.launch + self.platform.cleanup
        if self.platform.only_ticks:
            self.indices.overhead += self.platform.tick / 2  # nodes wait for the next decision
        self.snapshot = Snapshot(self.indices, None if power is None else power.corridor)
        self.story = Story(story)
        self.record = record
        self.file_system = FileSystem(self.platform.link, self.platform.file_system)
        self._desk = CommitDesk(
            self.platform,
            self.file_system,
            record,
            lambda job: self.indices.running[job].nodes,
            lambda time, life: self._push(time, _STEP, life, life.version),
            lambda time, commits: self._push(time, _COMMIT, commits, commits.version),
        )
        self._memory: Any = None
        self._live: dict[str, _Life] = {}
        self._events: list[tuple[float, int, int, int, Any, int]] = []
        self._order = 0
        self._failures: Iterator[tuple[float, int]] = iter(())
        self._at_point: list[_Life] = []
        self._ticking = False
        self._empty_ticks = 0
        #: whether anything has happened that a policy might want to know
        self._news = False

    def run(
        self,
        arrivals: Iterable[Arrival],
        progress: Callable[[int], None] | None = None,
        until: float = inf,
    ) -> int:
        """Play the whole workload, or up to a time; answers the number of jobs seen."""
        stream = iter(arrivals)
        arrival = next(stream, None)
        events, indices, file_system = self._events, self.indices, self.file_system
        transfers = file_system.transfers
        only_ticks = self.platform.only_ticks
        self._begin_failures()
        self._expect_corridor()
        seen = len(self._live)
        rounds = 0
        while True:
            if arrival is None and not self._live:
                break
            now = events[0][0] if events else inf
            if transfers and file_system.next_end < now:
                now = file_system.next_end
            if arrival is not None and arrival.job.submitted < now:
                now = arrival.job.submitted
            if now == inf or now > until:  # inf: who waits now waits for ever
                break
            if now < indices.now:
                assert arrival is not None
                raise InputError(f"job {shown(arrival.job.id)}: submit", f"{now:g} s is out of order")
            indices.now = now
            ticks = False
            if transfers or (events and events[0][0] <= now):
                ticks = self._handle_events(now)
            while arrival is not None and arrival.job.submitted == now:
                self._news = True
                self._submit(arrival, seen)
                seen += 1
                arrival = next(stream, None)
            if ticks or (self._news and not only_ticks):
                self._decide()
            while self._at_point:
                if self._leave_points(now):
                    self._decide()  # who shrank at its scheduling point has freed nodes
            rounds += 1
            if progress is not None and rounds % _BETWEEN_REPORTS == 0:
                progress(seen)
        if self.record is not None:
            self.record.transfer = file_system.mean_transfer
        if self._power is not None:
            self._power.end(indices.now if until == inf or not self._live else until)
        return seen

    def take_over(
        self, indices: Indices, running: list[tuple[Arrival, float]], waiting: list[Arrival]
    ) -> None:
        """Start from this state instead of an empty machine. ``running`` comes with the share done."""
        indices.reorder(self.policy.queue.rank)
        self.indices, self.snapshot = indices, Snapshot(indices)
        if self._power is not None:
            self.indices = indices = self._power.meter_on(indices)
            self.snapshot = Snapshot(indices, self._power.corridor)
        for row, arrival in enumerate([arrival for arrival, _ in running] + waiting):
            if self.record is not None:
                self.record.submitted(row, arrival.job)
        for row, (arrival, done) in enumerate(running):
            job_id = arrival.job.id
            if indices.running[job_id].target is not None:
                indices.finish_resize(job_id)
            now_running = indices.running[job_id]
            life = self._live[job_id] = _Life(arrival, row, -1 - row)
            life.changed = now_running.started
            life.execution = Steady(arrival, done)
            life.execution.begin(indices.now, len(now_running.nodes))
            if self.record is not None:
                self.record.started(row, now_running.started, now_running.nodes)
            self._push(indices.now, _STEP, life, life.version)
            life.deadline = max(now_running.expected_end, now_running.started + arrival.job.walltime)
            self._expect_kill(life)
        for row, arrival in enumerate(waiting, start=len(running)):
            place = indices.waiting.arrival_of(arrival.job.id)
            self._live[arrival.job.id] = _Life(arrival, row, place)
        self._push(indices.now, _TICK, None)  # decide at once

    # events

    def _push(self, time: float, kind: int, what: Any, version: int = 0) -> None:
        self._order += 1
        heappush(self._events, (time, _RANK[kind], self._order, kind, what, version))

    def _handle_events(self, now: float) -> bool:
        """Everything that is due, in order; answers whether a tick was."""
        events = self._events
        ticks = False
        if self.file_system.transfers:
            for life, version in self.file_system.ended(now):
                if life.version != version:
                    continue
                if isinstance(life, JobCommits):
                    self._desk.event(life, now)
                else:
                    self._proceed(life, now)
        while events and events[0][0] <= now:
            _, _, _, kind, what, version = heappop(events)
            if kind == _END:
                if what.version == version:
                    self._finish(what, what.state)
            elif kind == _TICK:
                ticks = True
                self._ticking = False
                self._listen(now)
                # Nothing runs and nothing else is to come: time alone lets a job start, or nothing does.
                self._empty_ticks = 0 if self.indices.running or events else self._empty_ticks + 1
                if self._empty_ticks < _PATIENCE:
                    self._tick_again()
            elif kind == _CORRIDOR:
                ticks = True  # a decision at once, whatever the ticks
                self._expect_corridor()
            elif kind == _REPAIRED:
                self._news = True
                self.indices.add_node(what)
            elif kind == _FAILS:
                self._news = True
                self._fail(what)
                self._next_failure()
            elif kind == _CANCELLED:
                self._cancel(what, now)
            elif kind == _COMMIT:
                if what.version == version:
                    self._desk.event(what, now)
            elif what.version == version:
                self._handle_life(kind, what, now)
        return ticks

    def _handle_life(self, kind: int, life: _Life, now: float) -> None:
        job_id = life.arrival.job.id
        if kind == _STEP:
            self._proceed(life, now)
        elif kind == _KILL:
            self._perhaps_kill(life, now)
        elif kind == _RESIZED:
            self._resized(life, now)
        elif kind == _CLEANED:
            self._news = True
            self.indices.end(job_id)
            del self._live[job_id]

    def _perhaps_kill(self, life: _Life, now: float) -> None:
        """Its walltime is over, unless a resize has moved it."""
        if life.deadline <= now:
            assert life.execution is not None
            ended = life.execution.done(now) > 1.0 - 1e-9  # at the same instant, but for rounding
            self._finish(life, "completed" if ended else "killed")
        else:
            self._expect_kill(life)

    def _cancel(self, life: _Life, now: float) -> None:
        """Its owner gives up."""
        job_id = life.arrival.job.id
        if self._live.get(job_id) is not life or life.state == "cleaning":
            return
        if job_id in self.indices.running:
            self._finish(life, "cancelled")
            return
        self._news = True
        self.indices.withdraw(job_id)
        del self._live[job_id]
        if self.record is not None:
            self.record.ended(life.row, now, "cancelled")

    def _listen(self, now: float) -> None:
        """Who follows a signal asks it again."""
        if self._power is not None and self._power.listen(now):
            self.snapshot.corridor = self._power.corridor
            self._power.note(now)

    def _expect_corridor(self) -> None:
        """Write down the corridor of now, and come back when it changes."""
        if self._power is not None:
            self._power.note(self.indices.now)
            time = self._power.next_change(self.indices.now)
            if time < inf:
                self._push(time, _CORRIDOR, None)

    # submission and end

    def _submit(self, arrival: Arrival, row: int) -> None:
        job = arrival.job
        if self.record is not None:
            self.record.submitted(row, job)
        if job.nodes > self.platform.nodes:
            self._reject(job, row)
            return
        if job.id in self._live:
            raise InputError(f"job {shown(job.id)}", "is submitted again before it has ended")
        waiting = self.indices.waiting
        life = self._live[job.id] = _Life(arrival, row, waiting.arrivals)
        waiting.add(job)
        if self._power is not None:
            self._power.indices.expect(job)
        if arrival.cancelled < inf:
            self._push(max(arrival.cancelled, self.indices.now), _CANCELLED, life)
        self._tick_again()

    def _reject(self, job: Job, row: int) -> None:
        """It can never run here."""
        now = self.indices.now
        reason = f"asks for {job.nodes} nodes, the machine has {self.platform.nodes}"
        self.story.tell(Happening(self.indices.revision, now, "reject", job.id, (), reason))
        if self.record is not None:
            self.record.ended(row, now, "rejected")

    def _tick_again(self) -> None:
        if self.platform.tick and self._live and not self._ticking:
            self._ticking = True
            tick, now = self.platform.tick, self.indices.now
            time = (now // tick + 1) * tick
            self._push(time if time > now else time + tick, _TICK, None)

    def _finish(self, life: _Life, state: str) -> None:
        self._news = True
        job_id = life.arrival.job.id
        now = self.indices.now
        if self.record is not None:
            self._account(life, now)
            self.record.ended(life.row, now, state)
        if life.execution is not None:
            life.at_point = False
            self.file_system.abandon(now, life)
        if life.commits is not None:
            self._desk.finished(life, now)
        if self.platform.cleanup:
            life.version += 1
            life.state = "cleaning"
            self.indices.resizable.pop(job_id, None)
            self.indices.expect_end(job_id, now + self.platform.cleanup)
            self._push(now + self.platform.cleanup, _CLEANED, life, life.version)
        else:
            life.version = -1
            self.indices.end(job_id)
            del self._live[job_id]

    def _account(self, life: _Life, now: float) -> None:
        """Remember the node-seconds up to now of a job whose size changes, or that is stopped."""
        if self.record is None:
            return
        if life.execution is not None or life.row in self.record.details:
            held = len(self.indices.running[life.arrival.job.id].nodes)
            self.record.detail(life.row).node_seconds += held * (now - life.changed)
            life.changed = now

    # decisions

    def _decide(self) -> None:
        self._news = False
        self.indices.push_overdue()
        if self._power is not None:
            self._power.indices.look()
        self._memory = self.policy.settle(self.snapshot, self._memory, self._carry_out)
        self.indices.failed = ()

    def _carry_out(self, plan: Plan) -> None:
        self.story.add(plan)
        running = self.indices.running
        for deed in plan.in_order(lambda job: len(running[job].nodes)):
            if isinstance(deed, Start):
                self._start(deed)
            elif isinstance(deed, Resize):
                self._resize(deed)
            else:
                self._stop(self._live[deed.job], INTERRUPTED)
        if self._power is not None:
            self._power.indices.look()
            self.indices.pull_levers(plan)

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
        if self.record is not None:
            self.record.started(life.row, now, running.nodes)
        commits = arrival.checkpoint is not None
        if arrival.application is None and not (job.resizable or commits) and start.nodes == job.nodes:
            self._run_undisturbed(life, running)
            return
        life.execution = self._execution(life)
        life.execution.begin(begins, len(running.nodes))
        self._measure(life)
        if commits:
            self._desk.start(life, begins)
        if self.platform.launch or commits:
            self._push(begins, _STEP, life, life.version)
        else:
            self._proceed(life, now)
        if life.execution is not None and self._live.get(job.id) is life and life.state != "cleaning":
            life.deadline = max(self.indices.running[job.id].expected_end, begins + job.walltime)
            self._expect_kill(life)

    def _execution(self, life: _Life) -> Steady | Phased | Piped:
        arrival = life.arrival
        if arrival.application is None:
            return Steady(arrival, life.done)
        if not isinstance(arrival.application, Pipeline):
            return Phased(arrival.application, self.platform, life.done)
        job = arrival.job.id
        run = PipelineRun(job, arrival.application, self.platform)
        if self.record is not None:
            run = self.record.pipelines.setdefault(life.row, run)

        def tell(now: float, reason: str) -> None:
            self.story.tell(Happening(self.indices.revision, now, "placement", job, (), reason))

        return Piped(run, placement_of(self.policy), tell, arrival.requests, life.done)

    def _run_undisturbed(self, life: _Life, running: Running) -> None:
        """Its end is known now, unless a node fails."""
        arrival = life.arrival
        runtime = arrival.runtime * (1.0 - life.done) if life.done else arrival.runtime
        walltime = arrival.job.walltime
        if runtime <= walltime:
            life.state = "completed"
        else:
            life.state, runtime = "killed", walltime
        end = running.started + self.platform.launch + runtime
        self._order += 1
        heappush(self._events, (end, 0, self._order, _END, life, life.version))

    def _expect_kill(self, life: _Life) -> None:
        if life.deadline < inf:
            self._push(life.deadline, _KILL, life, life.version)

    # steps of a job

    def _proceed(self, life: _Life, now: float) -> None:
        """Go on with the next step."""
        execution = life.execution
        assert execution is not None
        job_id = life.arrival.job.id
        if life.commits is not None and self._desk.goes_first(life, now):
            return
        while True:
            step = execution.proceed(now)
            if step is None:
                self._finish(life, "completed")
                return
            if isinstance(step, Wait):
                if step.seconds > 0 or isinstance(execution, Steady):
                    self._push(now + step.seconds, _STEP, life, life.version)
                    return
            elif isinstance(step, Transfer):
                if step.bytes_per_node > 0:
                    self.file_system.begin(now, life, step.nodes, step.bytes_per_node, life.version)
                    return
            elif isinstance(step, Ask):
                if life.arrival.job.kind == "evolving":
                    self._news = True
                    self.indices.requests[job_id] = step.nodes
            elif isinstance(step, Point) and life.arrival.job.resizable:
                self._news = True
                self._measure(life)
                life.at_point = True
                self._at_point.append(life)
                return

    def _measure(self, life: _Life) -> None:
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
                self._pause(life, running, now)
            else:
                self._proceed(life, now)
        return len(self.indices.idle) > idle

    # resizes

    def _resize(self, resize: Resize) -> None:
        life = self._live[resize.job]
        job = life.arrival.job
        _check_size(job, resize.nodes)
        indices = self.indices
        if resize.job not in indices.resizable:
            raise RuntimeError(f"policy {self.policy.name}: job {shown(resize.job)} cannot be resized now")
        now = indices.now
        before = len(indices.running[resize.job].nodes)
        self._account(life, now)
        stall, moved = self._cost(life, before, resize.nodes)
        running = indices.begin_resize(resize.job, resize.nodes, stall)
        life.deadline = max(life.deadline + stall, running.expected_end)
        if self.record is not None:
            detail = self.record.detail(life.row)
            detail.resizes += 1
            detail.moved_bytes += moved
            if resize.nodes > before:
                self.record.held(life.row, now, running.nodes)
        if isinstance(life.execution, Steady):
            self._pause(life, running, now)
        # else it waits for its next scheduling point, which may be this instant

    def _cost(self, life: _Life, before: int, after: int) -> tuple[float, float]:
        """Seconds of standing still, and bytes moved: the share of the data that changes its node."""
        moved = life.arrival.data * abs(after - before) / max(before, after)
        return self.platform.resize.seconds(before, after, moved), moved

    def _pause(self, life: _Life, running: Running, now: float) -> None:
        assert life.execution is not None and running.target is not None
        if life.commits is not None:
            self._desk.dropped(life, now)
        life.execution.stand_still(now)
        life.version += 1
        before = len(running.nodes) if running.target < len(running.nodes) else life.execution.nodes
        stall, _ = self._cost(life, before, running.target)
        if stall > 0:
            self._push(now + stall, _RESIZED, life, life.version)
        else:
            self._resized(life, now)

    def _resized(self, life: _Life, now: float) -> None:
        assert life.execution is not None
        self._news = True
        job_id = life.arrival.job.id
        self._account(life, now)
        held = len(self.indices.running[job_id].nodes)
        running = self.indices.finish_resize(job_id)
        if self.record is not None and len(running.nodes) < held:
            self.record.held(life.row, now, running.nodes)
        life.execution.begin(now, len(running.nodes))
        if life.commits is not None:
            self._desk.resized(life)
        self._measure(life)
        life.version += 1
        self._expect_kill(life)
        if isinstance(life.execution, Steady):
            self._push(now, _STEP, life, life.version)
        else:
            self._proceed(life, now)

    # failures

    def _begin_failures(self) -> None:
        if self.platform.failures is not None:
            self._failures = self.platform.failures.times(self.platform.nodes)
            self._next_failure()

    def _next_failure(self) -> None:
        found = next(self._failures, None)
        if found is not None:
            self._push(found[0], _FAILS, str(found[1]))

    def _fail(self, name: str) -> None:
        """A node goes down; the job that holds it stops."""
        indices, failures = self.indices, self.platform.failures
        assert failures is not None
        node = indices.nodes.get(name)
        if node is None:
            return  # it is down already
        self._desk.lost(name)
        holder = next((r for r in indices.running.values() if name in r.nodes), None)
        if holder is not None:
            life = self._live[holder.job.id]
            if life.state == "cleaning":
                indices.end(holder.job.id)
                life.version += 1
                del self._live[holder.job.id]
            else:
                self._stop(life, FAILED)
                indices.failed += (holder.job.id,)
        indices.remove_node(name)
        self._push(indices.now + failures.repair, _REPAIRED, node)

    def _stop(self, life: _Life, ahead: int) -> None:
        """A job stops and waits again; what its last checkpoint does not hold is lost."""
        now = self.indices.now
        job = life.arrival.job
        running = self.indices.running[job.id]
        interval = self.platform.failures.checkpoint if self.platform.failures else 0.0
        if life.execution is None:  # it ran undisturbed so far; now its steps must be known
            life.execution = Steady(life.arrival, life.done)
            life.execution.begin(running.started + self.platform.launch, len(running.nodes))
        done, saved = life.execution.done(now), max(life.done, life.execution.saved(now, interval))
        if life.commits is not None:
            saved = self._desk.stopped(life, now)
        self._account(life, now)
        if self.record is not None:
            detail = self.record.detail(life.row)
            detail.restarts += 1
            share = max(0.0, done - saved)
            detail.lost += share * life.arrival.runtime * job.nodes
            self.record.held(life.row, now, ())
        self.file_system.abandon(now, life)
        life.done = saved
        life.execution = None
        life.at_point = False
        life.version += 1
        self.indices.requeue(job.id, life.place, ahead)


def _check_size(job: Job, nodes: int) -> None:
    if not job.min_nodes <= nodes <= job.max_nodes or not is_legal(job.constraint, nodes):
        raise RuntimeError(f"a policy planned {nodes} nodes for job {shown(job.id)}, which cannot use them")
