"""One job's commits while it runs: what is due, what is on its way, and what could be gone back to."""

from dataclasses import dataclass, field
from typing import Any

from dask_hpc.planning.interval.pattern import Pattern
from dask_hpc.simulator.commits.declared import Checkpoint, LevelName
from dask_hpc.simulator.commits.schedule import pattern_for
from dask_hpc.simulator.execution import Transfer, Wait
from dask_hpc.simulator.platform import Platform


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
