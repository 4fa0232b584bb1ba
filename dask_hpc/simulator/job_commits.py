"""Jobs that commit on a machine: between a job's steps, its events and the shared file system.

A commit that the job waits for is a step of the job like any other, taken before its next one; a job that
proceeds steadily is stopped for it in the middle of its work, one with phases between two tasks. Any other
commit is an owner of transfers of its own, and the job knows nothing of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import inf

from dask_hpc.planning.interval import Pattern, young
from dask_hpc.simulator.execution import Steady
from dask_hpc.simulator.platform import Failures, Platform
from dask_hpc.simulator.service import Companion, Life, MachineService, Site
from dask_hpc.simulator.workload import DeclaredCheckpoint, LevelName
from dask_hpc.strategies.checkpoint.when import Cost, when

_MOST = 10_000  # commits to one level before one to the next
_CHEAPEST = 0.01  # seconds of a commit that is planned with
_RAREST, _COMMONEST = 1e-6, 0.9  # of all failures, that need the last level


def failure_rate(failures: Failures | None, nodes: int) -> float:
    """Of one node, per second, as far as it is known beforehand; ``nodes`` is how many the machine has."""
    if failures is None:
        return 0.0
    if failures.trace:
        last = max(time for time, _ in failures.trace)
        return len(failures.trace) / nodes / last if last else 0.0
    return 1 / failures.mtbf


def pattern_for(checkpoint: DeclaredCheckpoint, platform: Platform, nodes: int) -> Pattern | None:
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


def _costs(checkpoint: DeclaredCheckpoint, platform: Platform, nodes: int) -> tuple[Cost, ...]:
    """None if nothing ever fails."""
    rate = failure_rate(platform.failures, platform.nodes)
    if not rate:
        return ()
    # of a commit to each level alone, when nobody else uses the file system
    rates = {"partner": platform.link, "store": min(platform.link, platform.file_system / nodes)}
    quiet = [checkpoint.nbytes / nodes / rates[level] for level in checkpoint.levels]
    seconds = [max(_CHEAPEST, one) for one in quiet]
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


@dataclass(slots=True)
class CommitsOfJob:
    """Commits that are complete, seconds of standing still for them and for reading them back, and bytes."""

    commits: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0


class CommitsOfJobs(dict[int, CommitsOfJob]):
    """Of one run of a machine, by the rows of its jobs."""


class CommitDesk(MachineService):
    """Where jobs commit."""

    def __init__(self) -> None:
        #: of all jobs that are not through, by name
        self.known: dict[str, JobCommits] = {}

    def begin(self) -> None:
        record = self.site.record
        self.written = None if record is None else record.find(CommitsOfJobs) or record.add(CommitsOfJobs())

    def accompany(self, life: Life) -> Companion | None:
        checkpoint = life.arrival.checkpoint
        if checkpoint is None:
            return None
        commits = self.known[life.arrival.job.id] = JobCommits(life, checkpoint, self)
        return commits

    def node_failed(self, node: str) -> None:
        """Copies on it are gone, also those of jobs that wait."""
        for commits in self.known.values():
            commits.lost(node)


class JobCommits(Companion):
    """Of one job. Work is counted in shares, as executions do."""

    def __init__(self, life: Life, checkpoint: DeclaredCheckpoint, desk: CommitDesk) -> None:
        self._life, self._checkpoint, self._desk = life, checkpoint, desk
        self._site: Site = desk.site
        self._pattern: Pattern | None = None
        #: waits for the job to come to where it can stand still
        self._is_due = False
        #: has to be read back before the job goes on
        self._is_restoring = False
        #: that what is on its way still goes to, or comes from
        self._levels: list[LevelName] = []
        self._is_moving = False
        self._number = 0
        #: when it set out, with which share of the work, and from where
        self._began = 0.0
        self._done = 0.0
        self._nodes: tuple[str, ...] = ()
        #: nodes that failed meanwhile
        self._failed: set[str] = set()
        self._kept: dict[LevelName, Kept] = {}
        #: whether the job stops once a commit is complete
        self._is_last = False

    # what there is

    @property
    def saved(self) -> float:
        """The share of the work that need not be done again."""
        return max((kept.done for kept in self._kept.values()), default=0.0)

    def lost(self, node: str) -> None:
        """A node failed, with the copies that lay there."""
        self._failed.add(node)
        kept = self._kept.get("partner")
        if kept is not None:
            kept.failed.add(node)
            partners = {one: str((int(one) + 1) % self._site.platform.nodes) for one in kept.nodes}
            if any(one in kept.failed and other in kept.failed for one, other in partners.items()):
                del self._kept["partner"]
        life, saved = self._life, self.saved
        if life.execution is None and saved < life.done:
            if self._site.record is not None:
                work = life.arrival.runtime * life.arrival.job.nodes
                self._site.record.detail(life.row).lost += (life.done - saved) * work
            life.done = saved

    # what the job does

    def begin(self, now: float) -> None:
        self._number = 0
        self.resized()
        self._is_restoring = self.saved > 0
        if not self._is_restoring:
            self._expect_next(now)

    def resized(self) -> None:
        self._pattern = pattern_for(self._checkpoint, self._site.platform, len(self._held))

    def goes_first(self, now: float) -> bool:
        life = self._life
        assert life.execution is not None
        is_under_way = self._stops_the_job
        if not (is_under_way or self._is_restoring or self._is_due):
            return False
        if not is_under_way and isinstance(life.execution, Steady):
            life.execution.stand_still(now)
        if is_under_way:
            self._step_over(now)
        elif self._is_restoring:
            # the newest one, from where that is quickest
            self._set_out(now, [max(self._kept, key=lambda at: (self._kept[at].done, at == "partner"))])
        else:
            self._begin_commit(now, life.execution.reached(now))
        return self._goes_on(now, life)

    def woken(self, now: float) -> None:
        """A commit is due, or one that nobody waits for has come to its next level."""
        life = self._life
        if self._pattern is None:
            return
        assert life.execution is not None
        if self._is_moving:
            self._step_over(now)
            self._goes_on(now, self)
        elif self._checkpoint.asynchronous:
            self._begin_commit(now, life.execution.done(now))
            self._goes_on(now, self)
        else:
            self._is_due = True
            # one that stands still already is asked again when it goes on
            if isinstance(life.execution, Steady) and not life.execution.stands_still:
                life.version += 1
                self._site.step_at(now, life)

    def keeps_first(self, now: float, at_once: bool) -> bool:
        if self._pattern is None or self._is_restoring or (self._pattern.work == inf and not at_once):
            return False
        self._is_last = True
        if at_once and not self._is_moving:  # one that is on its way is as good
            self.version += 1
            self._site.wake_at(now, self)
        return True

    def interrupted(self, now: float) -> None:
        if self._stops_the_job:
            self._account(now)
            self._site.file_system.abandon(now, self._life)
            self._drop()

    def stopped(self, now: float) -> float:
        self.interrupted(now)
        self._site.file_system.abandon(now, self)
        self._drop()
        self.version += 1
        self._is_due = self._is_restoring = False
        return self.saved

    def finished(self, now: float) -> None:
        self.stopped(now)
        self._desk.known.pop(self._life.arrival.job.id, None)

    # what is on its way

    @property
    def _held(self) -> tuple[str, ...]:
        return self._site.indices.running[self._life.arrival.job.id].nodes

    @property
    def _stops_the_job(self) -> bool:
        """Whether something is on its way that the job waits for."""
        return self._is_moving and (self._is_restoring or not self._checkpoint.asynchronous)

    def _expect_next(self, now: float) -> None:
        """One that takes longer than the interval is followed by the next at once."""
        if self._pattern is None:
            return
        due = now + self._pattern.work
        if self._checkpoint.asynchronous and self._number:
            due = max(now, self._began + self._pattern.work)
        if due < inf:
            self.version += 1
            self._site.wake_at(due, self)

    def _begin_commit(self, now: float, done: float) -> None:
        assert self._pattern is not None
        self._is_due = False
        self._number += 1
        self._done, self._failed = done, set()
        upto = self._pattern.level(self._number)
        self._set_out(now, self._checkpoint.levels[: upto + 1])

    def _set_out(self, now: float, levels: Sequence[LevelName]) -> None:
        self._is_moving, self._began, self._nodes = True, now, self._held
        self._levels = list(levels)

    def _goes_on(self, now: float, owner: "Life | JobCommits") -> bool:
        """With a commit that the job waits for, if it is the owner, or nobody; whether that takes time."""
        site, nodes = self._site, len(self._nodes)
        while self._levels:
            each = self._checkpoint.nbytes / nodes
            seconds = each / site.platform.link
            if owner is self:
                self.version += 1
            if self._levels[0] == "store" and each > 0:
                site.file_system.begin(now, owner, nodes, each, owner.version)
                return True
            if self._levels[0] != "store" and seconds > 0:
                if isinstance(owner, Life):
                    site.step_at(now + seconds, owner)
                else:
                    site.wake_at(now + seconds, owner)
                return True
            self._step_over(now)
        self._is_moving = self._is_restoring = False
        execution = self._life.execution
        if owner is not self and isinstance(execution, Steady):
            execution.begin(now, execution.nodes)
        self._expect_next(now)
        return False

    def _step_over(self, now: float) -> None:
        """One more level has it."""
        level = self._levels.pop(0)
        if not self._is_restoring:
            nodes = frozenset(self._nodes) if level == "partner" else frozenset()
            self._kept[level] = Kept(self._done, nodes, set(self._failed))
            if (written := self._written) is not None:
                written.nbytes += self._checkpoint.nbytes
                written.commits += not self._levels
        if not self._levels:
            self._account(now)
            if self._is_last:
                self._is_last = False
                self._site.stop_after(now, self._life)

    def _drop(self) -> None:
        """The job was stopped or resized in the middle of it. A commit is due again."""
        if self._is_moving and not self._is_restoring:
            self._number -= 1
            self._is_due = not self._checkpoint.asynchronous
        self._is_moving = False
        self._levels.clear()

    def _account(self, now: float) -> None:
        if (written := self._written) is not None and self._stops_the_job:
            written.seconds += now - self._began

    @property
    def _written(self) -> CommitsOfJob | None:
        written = self._desk.written
        return None if written is None else written.setdefault(self._life.row, CommitsOfJob())
