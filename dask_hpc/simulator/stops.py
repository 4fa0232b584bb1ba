"""Nodes of the simulated machine that fail, and jobs that stop for that or for each other: what they keep."""

from collections.abc import Iterator

from dask_hpc.model.plan import Interrupt
from dask_hpc.model.snapshot import FAILED, INTERRUPTED, Running
from dask_hpc.simulator.execution import Steady, steady
from dask_hpc.simulator.service import FAILURES, REPAIRS, InnerSite, Life


class Stops:
    """Stops jobs, and lets nodes fail."""

    def __init__(self, site: InnerSite) -> None:
        self._site = site
        self._failures: Iterator[tuple[float, int]] = iter(())

    def begin(self) -> None:
        """Nodes may fail from now on."""
        platform = self._site.platform
        if platform.failures is not None:
            self._failures = platform.failures.times(platform.nodes)
            self._next_failure()

    def _next_failure(self) -> None:
        found = next(self._failures, None)
        if found is not None:
            self._site.push(found[0], FAILURES, self._fail, str(found[1]))

    def _fail(self, name: str, now: float) -> None:
        """A node goes down; the job that holds it stops."""
        self._next_failure()
        failures, node = self._site.platform.failures, self._site.indices.nodes.get(name)
        assert failures is not None
        if node is not None:  # else it is down already
            self._site.lose_node(name, now, failures.survive)
            self._site.push(now + failures.repair, REPAIRS, self._site.join_node, node)

    def node_goes(self, name: str, now: float, survive: bool) -> None:
        """Who holds it stops, or does with the others if that is possible and he may."""
        indices = self._site.indices
        holder = next((r for r in indices.running.values() if name in r.nodes), None)
        if holder is not None:
            life = self._site.lives[holder.job.id]
            if life.state == "cleaning":
                self._site.cleaned(life, now)
            elif survive and self._can_survive(life, holder):
                self._lose(life, name, now)
            else:
                self._stop(life, FAILED)
                indices.failed += (holder.job.id,)

    def _can_survive(self, life: Life, holder: Running) -> bool:
        """Whether it has other nodes, and does nothing that all of them are needed for."""
        is_plain = life.companion is None and life.arrival.application is None
        return is_plain and len(holder.nodes) > 1

    def _lose(self, life: Life, node: str, now: float) -> None:
        """A job goes on with its other nodes. What the lost one did since the last checkpoint is lost."""
        indices, job = self._site.indices, life.arrival.job
        execution = self._steady(life)
        done = execution.done(now)
        lost = (done - max(life.done, execution.saved(now, self._interval))) / execution.nodes
        self._site.account(life, now)
        if self._site.record is not None:
            self._site.record.detail(life.row).lost += lost * life.arrival.runtime * job.nodes
        running = indices.remove_node(node)
        assert running is not None
        if self._site.record is not None:
            self._site.record.held(life.row, now, running.nodes)
        life.execution = steady(life.arrival, done - lost)
        life.execution.begin(now, len(running.nodes[: running.target]))
        life.version += 1
        if running.target is not None:  # what it was about to change is changed at once
            indices.finish_resize(job.id)
        self._site.expect_kill(life)
        self._site.step_at(now, life)

    def _steady(self, life: Life) -> Steady:
        """How a job proceeds that has no application. One that ran undisturbed so far has steps from now on,
        and a time by which it is killed."""
        running = self._site.indices.running[life.arrival.job.id]
        begun = running.started + self._site.platform.launch
        if life.execution is None:
            life.execution = steady(life.arrival, life.done)
            life.execution.begin(begun, len(running.nodes))
            life.deadline = max(running.expected_end, begun + life.arrival.limit)
        assert isinstance(life.execution, Steady)
        return life.execution

    def interrupt(self, deed: Interrupt) -> None:
        """A job stops for another, at once or once it has kept its state."""
        life, now = self._site.lives[deed.job], self._site.indices.now
        at_once = deed.when == "forced-commit"
        if deed.when != "now" and life.companion is not None and life.companion.keeps_first(now, at_once):
            self._site.indices.stops(deed.job, deed.whom)
        elif deed.when != "now" and self._interval and life.arrival.application is None:
            self._site.indices.stops(deed.job, deed.whom)
            execution, runtime = self._steady(life), life.arrival.runtime
            # a commit costs nothing here, so that one at once is one of what there is
            left = 0.0 if at_once else self._interval - execution.done(now) * runtime % self._interval
            self._site.stop_after(now + left, life)
        else:
            self._stop(life, INTERRUPTED)

    def kept(self, life: Life, now: float) -> None:
        """A job that is to stop has kept its state."""
        job_id = life.arrival.job.id
        if self._site.lives.get(job_id) is life and job_id in self._site.indices.stopping:
            self._site.news = True
            if self._site.indices.is_worth_stopping(job_id):
                self._stop(life, INTERRUPTED, is_kept=True)

    @property
    def _interval(self) -> float:
        return self._site.platform.failures.checkpoint if self._site.platform.failures else 0.0

    def _stop(self, life: Life, ahead: int, is_kept: bool = False) -> None:
        """A job stops and waits again; what its last checkpoint does not hold is lost, unless it has just
        kept all that there is."""
        now = self._site.indices.now
        job = life.arrival.job
        if life.execution is None:  # it ran undisturbed so far; now its steps must be known
            self._steady(life)
        assert life.execution is not None
        done, saved = life.execution.done(now), max(life.done, life.execution.saved(now, self._interval))
        if life.companion is not None:
            saved = life.companion.stopped(now)
        elif is_kept:
            saved = done
        self._site.account(life, now)
        if self._site.record is not None:
            detail = self._site.record.detail(life.row)
            detail.restarts += 1
            share = max(0.0, done - saved)
            detail.lost += share * life.arrival.runtime * job.nodes
            self._site.record.held(life.row, now, ())
        self._site.abandon(life, now)
        life.done = saved
        life.execution = None
        life.at_point = False
        life.version += 1
        self._site.indices.requeue(job.id, life.place, ahead)
