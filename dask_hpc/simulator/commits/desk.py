"""Where a machine's jobs commit: between a job's steps, its events and the shared file system.

A commit that the job waits for is a step of the job like any other, taken before its next one; a job that
proceeds steadily is stopped for it in the middle of its work, one with phases between two tasks. Any other
commit is an owner of transfers of its own, and the job knows nothing of it.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from dask_hpc.simulator.commits.running import JobCommits
from dask_hpc.simulator.execution import Steady, Transfer, Wait
from dask_hpc.simulator.file_system import FileSystem
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.record import Details, Record


class CommitDesk:
    """``nodes_of`` says what a job holds, ``step`` lets a job go on at a time, ``wake`` comes back to
    ``event`` at a time."""

    def __init__(
        self,
        platform: Platform,
        file_system: FileSystem,
        record: Record | None,
        nodes_of: Callable[[str], tuple[str, ...]],
        step: Callable[[float, Any], None],
        wake: Callable[[float, JobCommits], None],
    ) -> None:
        self._platform, self._file_system, self._record = platform, file_system, record
        self._nodes_of, self._step, self._wake = nodes_of, step, wake
        #: of all jobs that are not through, by name
        self._known: dict[str, JobCommits] = {}

    def start(self, life: Any, begins: float) -> None:
        """A job that says what it commits begins its work then."""
        job = life.arrival.job.id
        if life.commits is None:
            life.commits = self._known[job] = JobCommits(life, life.arrival.checkpoint, self._platform)
        life.commits.start(len(self._nodes_of(job)))
        if not life.commits.is_restoring:
            self._expect(life.commits, begins)

    def event(self, commits: JobCommits, now: float) -> None:
        """A commit is due, or one that nobody waits for has come to its next level."""
        life = commits.life
        if commits.pattern is None:
            return
        if commits.is_moving:
            self._over(commits, now)
            self._go_on(commits, now)
        elif commits.checkpoint.asynchronous:
            commits.begin(now, life.execution.done(now), self._nodes_of(life.arrival.job.id))
            self._go_on(commits, now)
        else:
            commits.is_due = True
            # one that stands still already is asked again when it goes on
            if isinstance(life.execution, Steady) and not life.execution.stands_still:
                life.version += 1
                self._step(now, life)

    def goes_first(self, life: Any, now: float) -> bool:
        """Whether a job that would go on has to wait for a commit of its own, or to read one back."""
        commits: JobCommits = life.commits
        if commits.is_moving and (commits.is_restoring or not commits.checkpoint.asynchronous):
            self._over(commits, now)
        elif commits.is_restoring:
            self._stop_for(life, now)
            commits.begin_restore(now, self._nodes_of(life.arrival.job.id))
        elif commits.is_due:
            self._stop_for(life, now)
            execution = life.execution
            done = execution.done(now) if isinstance(execution, Steady) else execution.reached()
            commits.begin(now, done, self._nodes_of(life.arrival.job.id))
        else:
            return False
        while (step := commits.next_step()) is not None:
            if self._takes_time(step, life, life.version, now):
                if isinstance(step, Wait):
                    self._step(now + step.seconds, life)
                return True
            self._over(commits, now)
        commits.ended()
        if isinstance(life.execution, Steady):
            life.execution.begin(now, life.execution.nodes)
        self._expect(commits, now)
        return False

    def dropped(self, life: Any, now: float) -> None:
        """The job is resized, or stops: what it waits for is given up."""
        commits: JobCommits = life.commits
        if commits.is_moving and (commits.is_restoring or not commits.checkpoint.asynchronous):
            self._account(commits, now)
            self._file_system.abandon(now, life)
            commits.dropped()

    def resized(self, life: Any) -> None:
        """It goes on with as many nodes as it holds now."""
        life.commits.plan(len(self._nodes_of(life.arrival.job.id)))

    def stopped(self, life: Any, now: float) -> float:
        """The job stops, and with it all that is on its way; answers the share that is saved."""
        self.dropped(life, now)
        commits: JobCommits = life.commits
        self._file_system.abandon(now, commits)
        commits.dropped()
        commits.version += 1
        commits.is_due = commits.is_restoring = False
        return commits.saved

    def finished(self, life: Any, now: float) -> None:
        """It is over; nobody needs its commits."""
        self.stopped(life, now)
        self._known.pop(life.arrival.job.id, None)

    def lost(self, node: str) -> None:
        """A node failed: copies on it are gone, also those of jobs that wait."""
        for commits in self._known.values():
            commits.lost(node)
            life = commits.life
            if life.execution is None and commits.saved < life.done:
                if (detail := self._detail(life)) is not None:
                    share = life.done - commits.saved
                    detail.lost += share * life.arrival.runtime * life.arrival.job.nodes
                life.done = commits.saved

    # steps

    def _expect(self, commits: JobCommits, now: float) -> None:
        due = commits.next_due(now)
        if due is not None and due < inf:
            commits.version += 1
            self._wake(due, commits)

    def _go_on(self, commits: JobCommits, now: float) -> None:
        """With a commit that nobody waits for."""
        while (step := commits.next_step()) is not None:
            commits.version += 1
            if self._takes_time(step, commits, commits.version, now):
                if isinstance(step, Wait):
                    self._wake(now + step.seconds, commits)
                return
            self._over(commits, now)
        commits.ended()
        self._expect(commits, now)

    def _takes_time(self, step: Wait | Transfer, owner: Any, version: int, now: float) -> bool:
        if isinstance(step, Wait):
            return step.seconds > 0
        if step.bytes_per_node > 0:
            self._file_system.begin(now, owner, step.nodes, step.bytes_per_node, version)
            return True
        return False

    def _over(self, commits: JobCommits, now: float) -> None:
        is_reading = commits.is_restoring
        commits.step_over()
        detail = self._detail(commits.life)
        if detail is not None and not is_reading:
            detail.commit_bytes += commits.checkpoint.nbytes
            detail.commits += commits.next_step() is None
        if commits.next_step() is None:
            self._account(commits, now)

    def _account(self, commits: JobCommits, now: float) -> None:
        """What the job stood still for it."""
        detail = self._detail(commits.life)
        if detail is not None and (commits.is_restoring or not commits.checkpoint.asynchronous):
            detail.commit_time += now - commits.began

    def _stop_for(self, life: Any, now: float) -> None:
        if isinstance(life.execution, Steady):
            life.execution.stand_still(now)

    def _detail(self, life: Any) -> Details | None:
        return None if self._record is None else self._record.detail(life.row)
