"""How jobs on the simulated machine change their size: at once, at a scheduling point, or by a restart."""

from dask_hpc.model.errors import shown
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize
from dask_hpc.model.speedup import is_legal
from dask_hpc.simulator.execution import Steady
from dask_hpc.simulator.service import CHANGES, InnerSite, Life


class Resizes:
    """Carries out what policies plan of them."""

    def __init__(self, site: InnerSite) -> None:
        self._site = site

    def resize(self, resize: Resize) -> None:
        """At once, or at its next scheduling point."""
        life = self._site.lives[resize.job]
        job = life.arrival.job
        indices = self._site.indices
        if resize.job in indices.lacking:  # any number of nodes is better than what it has
            size = len(indices.running[job.id].nodes)
            check_size(job, resize.nodes, size + 1, size + indices.lacking[job.id])
        else:
            check_size(job, resize.nodes)
        if resize.job not in indices.resizable and resize.job not in indices.lacking:
            raise self._cannot("resized", resize)
        now = indices.now
        before = len(indices.running[resize.job].nodes)
        self._site.account(life, now)
        stall, moved = self.cost(life, before, resize.nodes)
        running = indices.begin_resize(resize.job, resize.nodes, stall)
        if indices.picked and resize.nodes > before:
            self._site.tell_of_nodes(running)
        life.deadline = max(life.deadline + stall, running.expected_end)
        if self._site.record is not None:
            detail = self._site.record.detail(life.row)
            detail.resizes += 1
            detail.moved_bytes += moved
            if resize.nodes > before:
                self._site.record.held(life.row, now, running.nodes)
        if isinstance(life.execution, Steady):
            is_news = self._site.news
            self.pause(life, stall, now)
            # If that was all, the policy is asked again at once, and not once more.
            self._site.news = is_news
        # else it waits for its next scheduling point, which may be this instant

    def restart(self, resize: Resize) -> None:
        """A job commits, if it is to, is stopped, and starts again on another size: it stands still for the
        commit and the launch, and then for as long as it reads back what it kept."""
        life, now = self._site.lives[resize.job], self._site.indices.now
        job, execution = life.arrival.job, life.execution
        check_size(job, resize.nodes)
        if not job.restarts or execution is None or life.state == "cleaning":
            raise self._cannot("restarted", resize)
        self._site.account(life, now)
        if life.companion is not None:
            life.companion.interrupted(now)
        self._site.file_system.abandon(now, life)
        reached = execution.reached(now)
        execution.stand_still(now)
        stall = self._site.platform.cleanup + self._site.platform.launch
        if resize.restart == "after a commit" and life.companion is not None:
            stall += life.companion.last_commit(now)
        life.version += 1
        life.at_point = False
        before = len(self._site.indices.running[resize.job].nodes)
        running = self._site.indices.begin_resize(resize.job, resize.nodes, stall)
        life.deadline = max(life.deadline + stall, running.expected_end)
        if self._site.record is not None and resize.nodes > before:
            self._site.record.held(life.row, now, running.nodes)
        kept = None if resize.restart == "at once" else reached
        self._site.push(
            now + stall, CHANGES, lambda one, time: self._restarted(one, kept, time), life, life.version
        )

    def _restarted(self, life: Life, kept: float | None, now: float) -> None:
        """It has its new nodes and begins there, from such a share of its work, or from its last commit."""
        assert life.execution is not None
        self._site.news = True
        job = life.arrival.job
        done = life.execution.done(now)
        if life.companion is not None:
            if kept is not None:
                life.companion.committed(kept)
            kept = max(life.done, life.companion.stopped(now))
        saved = done if kept is None else kept
        self._site.account(life, now)
        held = len(self._site.indices.running[job.id].nodes)
        running = self._site.indices.finish_resize(job.id)
        if self._site.record is not None:
            detail = self._site.record.detail(life.row)
            detail.resizes += 1
            detail.restarts += 1
            detail.lost += max(0.0, done - saved) * life.arrival.runtime * job.nodes
            if len(running.nodes) < held:
                self._site.record.held(life.row, now, running.nodes)
        life.done = saved
        life.execution = self._site.execute(life)
        life.execution.begin(now, len(running.nodes))
        self._site.measure(life)
        if life.companion is not None:
            life.companion.begin(now)
        life.version += 1
        self._site.expect_kill(life)
        self._site.step_at(now, life)

    def cost(self, life: Life, before: int, after: int) -> tuple[float, float]:
        """Seconds of standing still, and bytes moved: the share of the data that changes its node."""
        moved = life.arrival.data * abs(after - before) / max(before, after)
        return self._site.platform.resize.seconds(before, after, moved), moved

    def pause(self, life: Life, stall: float, now: float) -> None:
        """Its resize begins, for which it stands still so long."""
        assert life.execution is not None
        if life.companion is not None:
            life.companion.interrupted(now)
        life.execution.stand_still(now)
        life.version += 1
        if stall > 0:
            self._site.push(now + stall, CHANGES, self._resized, life, life.version)
        else:
            self._resized(life, now)

    def _resized(self, life: Life, now: float) -> None:
        assert life.execution is not None
        self._site.news = True
        job_id = life.arrival.job.id
        if life.changed != now:
            self._site.account(life, now)
        held = len(self._site.indices.running[job_id].nodes)
        running = self._site.indices.finish_resize(job_id)
        if self._site.record is not None:
            self._site.record.adaptation.add(now - running.resized_at)
            if len(running.nodes) < held:
                self._site.record.held(life.row, now, running.nodes)
        execution = life.execution
        execution.begin(now, len(running.nodes))
        if life.companion is not None:
            life.companion.resized()
        self._site.measure(life)
        life.version += 1
        if isinstance(execution, Steady):
            until = now if life.companion is not None else now + execution.wait(now)
            if until == now or until > life.deadline:  # else it ends before
                self._site.expect_kill(life)
            self._site.step_at(until, life)
        else:
            self._site.expect_kill(life)
            self._site.proceed(life, now)

    def _cannot(self, be: str, resize: Resize) -> RuntimeError:
        policy = self._site.policy.name
        return RuntimeError(f"policy {policy}: job {shown(resize.job)} cannot be {be} now")


def check_size(job: Job, nodes: int, low: int = 0, high: int = 0) -> None:
    """A policy may plan what the job can use, or what lies between these, and nothing else."""
    is_fine = low <= nodes <= high or is_legal(job.constraint, nodes)
    if not (low or job.min_nodes) <= nodes <= (high or job.max_nodes) or not is_fine:
        raise RuntimeError(f"a policy planned {nodes} nodes for job {shown(job.id)}, which cannot use them")
