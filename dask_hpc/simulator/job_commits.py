"""Where a machine's jobs commit: between a job's steps, its events and the shared file system.

A commit that the job waits for is a step of the job like any other, taken before its next one; a job that
proceeds steadily is stopped for it in the middle of its work, one with phases between two tasks. Any other
commit is an owner of transfers of its own, and the job knows nothing of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any

from dask_hpc.planning.interval.exact import Pattern, young
from dask_hpc.simulator.execution import Details, Record, Steady, Transfer, Wait
from dask_hpc.simulator.platform import Failures, FileSystem, Platform
from dask_hpc.simulator.workload import Checkpoint, LevelName
from dask_hpc.strategies.checkpoint.when import Cost, when

_MOST = 10_000  # commits to one level before one to the next
_CHEAPEST = 0.01  # seconds of a commit that is planned with
_RAREST, _COMMONEST = 1e-6, 0.9  # of all failures, that need the last level


def quiet_seconds(level: LevelName, nbytes: float, platform: Platform, nodes: int) -> float:
    """What a commit to one level alone takes when nobody else uses the file system."""
    rate = platform.link
    if level == "store":
        rate = min(rate, platform.file_system / nodes)
    return nbytes / nodes / rate


def failure_rate(failures: Failures | None, nodes: int) -> float:
    """Of one node, per second, as far as it is known beforehand; ``nodes`` is how many the machine has."""
    if failures is None:
        return 0.0
    if failures.trace:
        last = max(time for time, _ in failures.trace)
        return len(failures.trace) / nodes / last if last else 0.0
    return 1 / failures.mtbf


def pattern_for(checkpoint: Checkpoint, platform: Platform, nodes: int) -> Pattern | None:
    """The order of its commits on so many nodes; None: never."""
    levels = len(checkpoint.levels)
    if not isinstance(checkpoint.every, str):
        return Pattern(checkpoint.every, (0,) * (levels - 1))
    costs = _costs(checkpoint, platform, nodes)
    if not costs:
        return None
    return _planned(checkpoint.every, costs, nodes)


@lru_cache(4096)
def _planned(rule: str, costs: tuple[Cost, ...], nodes: int) -> Pattern | None:
    """What the live service would plan, as an order of commits: every so-many-th goes one level further."""
    every = list(when(rule, costs, nodes).every.values())
    if every[0] == inf:
        return None
    counts = tuple(max(0, round(min(above / below, _MOST)) - 1) for below, above in pairwise(every))
    return Pattern(every[0], counts)


def _costs(checkpoint: Checkpoint, platform: Platform, nodes: int) -> tuple[Cost, ...]:
    """None if nothing ever fails."""
    rate = failure_rate(platform.failures, platform.nodes)
    if not rate:
        return ()
    seconds = [
        max(_CHEAPEST, quiet_seconds(level, checkpoint.nbytes, platform, nodes))
        for level in checkpoint.levels
    ]
    needs = [rate]
    if len(seconds) == 2:
        # Both copies of a part are gone if a neighbour fails as well before the next commit.
        both = 2 * rate * (young(seconds[0], nodes * rate) + seconds[0])
        needs.append(rate * min(_COMMONEST, max(_RAREST, both)))
        needs[0] -= needs[1]
    return tuple(
        Cost(level, one, need) for level, one, need in zip(checkpoint.levels, seconds, needs, strict=True)
    )


@dataclass(slots=True)
class Kept:
    """A commit that is complete on one level."""

    done: float
    #: where its copies lie, for partners: each part on its node and on that node's partner
    nodes: frozenset[str] = frozenset()
    failed: set[str] = field(default_factory=set)


class JobCommits:
    """``life`` is whose they are. Work is counted in shares, as executions do."""

    def __init__(self, life: Any, checkpoint: Checkpoint, platform: Platform) -> None:
        self.life, self.checkpoint = life, checkpoint
        self._platform = platform
        self.pattern: Pattern | None = None
        #: events of an older version are void
        self.version = 0
        #: waits for the job to come to where it can stand still
        self.is_due = False
        #: has to be read back before the job goes on
        self.is_restoring = False
        #: steps that are still to come of what is on its way
        self._steps: list[tuple[LevelName, Wait | Transfer]] = []
        self.is_moving = False
        self._number = 0
        #: when it set out
        self.began = 0.0
        self._done = 0.0
        self._nodes: tuple[str, ...] = ()
        #: nodes that failed meanwhile
        self._failed: set[str] = set()
        self.kept: dict[LevelName, Kept] = {}

    # what there is

    @property
    def saved(self) -> float:
        """The share of the work that need not be done again."""
        return max((kept.done for kept in self.kept.values()), default=0.0)

    def lost(self, node: str) -> None:
        """A node failed, with the copies that lay there."""
        self._failed.add(node)
        kept = self.kept.get("partner")
        if kept is None:
            return
        kept.failed.add(node)
        if any(one in kept.failed and self._partner(one) in kept.failed for one in kept.nodes):
            del self.kept["partner"]

    def _partner(self, node: str) -> str:
        return str((int(node) + 1) % self._platform.nodes)

    # when

    def start(self, nodes: int) -> None:
        """The job begins, or begins again, on so many nodes."""
        self._number = 0
        self.plan(nodes)
        self.is_restoring = self.saved > 0

    def plan(self, nodes: int) -> None:
        """How often it commits with so many nodes."""
        self.pattern = pattern_for(self.checkpoint, self._platform, nodes)

    def next_due(self, now: float) -> float | None:
        """When the next commit is due; one that takes longer than the interval is followed by the next at
        once."""
        if self.pattern is None:
            return None
        if self.checkpoint.asynchronous and self._number:
            return max(now, self.began + self.pattern.work)
        return now + self.pattern.work

    # what is on its way

    def begin(self, now: float, done: float, nodes: tuple[str, ...]) -> None:
        """Commit what is done by now; ``next_step`` says what that takes."""
        assert self.pattern is not None
        self.is_due, self.is_moving = False, True
        self._number += 1
        self.began, self._done, self._nodes = now, done, nodes
        self._failed = set()
        upto = self.pattern.level(self._number)
        self._steps = [(level, self._step(level)) for level in self.checkpoint.levels[: upto + 1]]

    def begin_restore(self, now: float, nodes: tuple[str, ...]) -> None:
        """Read back the newest commit, from where that is quickest."""
        level: LevelName = max(self.kept, key=lambda name: (self.kept[name].done, name == "partner"))
        self.is_moving, self.began, self._nodes = True, now, nodes
        self._steps = [(level, self._step(level))]

    def next_step(self) -> Wait | Transfer | None:
        """What comes next of what is on its way; None: it is over."""
        return self._steps[0][1] if self._steps else None

    def step_over(self) -> None:
        """One more level has it."""
        level, _ = self._steps.pop(0)
        if self.is_restoring:
            return
        nodes = frozenset(self._nodes) if level == "partner" else frozenset()
        self.kept[level] = Kept(self._done, nodes, set(self._failed))

    def ended(self) -> None:
        """All levels have it, or the job."""
        self.is_moving = self.is_restoring = False

    def dropped(self) -> None:
        """The job was stopped or resized in the middle of it. A commit is due again."""
        if self.is_moving and not self.is_restoring:
            self._number -= 1
            self.is_due = not self.checkpoint.asynchronous
        self.is_moving = False
        self._steps.clear()

    def _step(self, level: LevelName) -> Wait | Transfer:
        each = self.checkpoint.nbytes / len(self._nodes)
        if level == "store":
            return Transfer(len(self._nodes), each)
        return Wait(each / self._platform.link)


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
