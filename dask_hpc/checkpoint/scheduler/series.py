"""What a program commits under its name: the versions, and what is known of them all."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, time
from typing import Any

from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.checkpoint.scheduler.schedule import Failures, Schedule
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.versions import Commit
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.checkpoint.agent_rule import LONGEST_WAIT, Direct, failed, pays
from dask_hpc.strategies.checkpoint.when import Every

COMING, NEWEST, WRITING = "coming", "newest", "writing"


@dataclass(eq=False)
class Version:
    """One. ``keys`` are those of its blocks, by label and place; ``items`` is what else there is to know."""

    name: str
    number: int
    step: int
    token: str
    nodes: tuple[str, ...]
    items: dict[str, dict[str, Any]]
    keys: dict[tuple[str, str], Hashable]
    store: dict[str, Any] | None = None
    time: float = field(default_factory=time)
    begun: float = field(default_factory=monotonic)
    seconds: float = 0.0
    nbytes: int = 0
    moved: int = 0
    #: where all of it is
    levels: list[str] = field(default_factory=list)
    problem: str = ""
    #: who needs its results and copies: that it is on its way, is the newest, or is written to a store
    holds: set[str] = field(default_factory=set)
    #: set when there is no more to come
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pins(self) -> str:
        """The owner of its results."""
        return f"dask-hpc-checkpoint-{self.name}-{self.number}"

    @property
    def owner(self) -> Hashable:
        """Of its contents, in the catalogue."""
        return ("version of a checkpoint", self.name, self.number)

    @property
    def called(self) -> str:
        """As in the story."""
        return f"{self.name} at {self.step}"

    def again(self) -> "Version | None":
        """What to write if this could not be written."""
        return self

    def prepare(self, commit: Commit) -> None:
        """It is about to be written."""

    def written(self, manifest: Manifest, seconds: float) -> None:
        """It is in the store; to write it took so long."""

    def as_plain(self) -> dict[str, Any]:
        """What is told about it."""
        return {
            "number": self.number,
            "step": self.step,
            "time": self.time,
            "seconds": self.seconds,
            "nbytes": self.nbytes,
            "moved": self.moved,
            "levels": list(self.levels),
            "problem": self.problem,
        }


@dataclass
class Series:
    """The versions of one name."""

    name: str
    client: str
    number: int = 0
    complete: Version | None = None
    coming: Version | None = None
    waiting: Version | None = None
    commits: int = 0
    #: by number, those that have not arrived everywhere yet
    unsettled: dict[int, Version] = field(default_factory=dict)
    #: versions that made room for newer ones before they were begun
    superseded: int = 0
    failed: int = 0
    moved: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    #: the newest iteration on each level
    newest: dict[str, int] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    #: when commits to which level are due, and what they cost; or whether each goes to all
    schedule: Schedule | None = None
    is_each: bool = False
    #: since when versions go to the store past the agents, if so, and why; when agents were tried last, and
    #: what that cost
    direct: Direct | None = None
    why_direct: str = ""
    tried_at: float = 0.0
    probe: float = 0.0
    #: why copies are not on disk
    disk_problem: str = ""


class Deciding:
    """``failures`` are those that were seen, and ``nodes`` says how many nodes there are."""

    def __init__(
        self, failures: Callable[[], Failures], nodes: Callable[[], int], tell: Callable[[str, str], None]
    ) -> None:
        self._failures = failures
        self._nodes = nodes
        self._tell = tell

    def said(self, series: Series, levels: Sequence[str], every: Every | None, nbytes: float) -> None:
        """What the program wants. Without ``every`` each of its commits goes to all levels."""
        known = series.schedule
        wanted = every or {}
        if known is None or (known.levels, known.every) != (tuple(levels), wanted):
            series.schedule = Schedule(levels, wanted, nbytes, self._failures())
        series.levels, series.is_each = tuple(levels), every is None

    async def plan(self, series: Series) -> None:
        """Anew, if costs, failures or the number of nodes have changed."""
        if series.schedule is not None and not series.is_each:
            found = await series.schedule.plan(max(1, self._nodes()))
            if found is not None:
                self._tell("interval", f"{series.name}: {found.reason}")

    def is_due(self, series: Series, level: str) -> bool:
        """Whether the version that is committed now goes to that level. It is taken to get there."""
        if level not in series.levels or series.schedule is None:
            return False
        return series.is_each or series.schedule.is_due(level)

    def done(self, series: Series, level: str) -> None:
        """A version goes there."""
        if series.schedule is not None and level in series.levels:
            series.schedule.done([level])

    def measured(self, series: Series, level: str, seconds: float, nbytes: float) -> None:
        """What it cost."""
        if series.schedule is not None and nbytes and level in series.levels:
            series.schedule.measured(level, seconds, nbytes)

    # past the agents

    def is_direct(self, series: Series) -> bool:
        """Whether agents are not even asked now."""
        if PARTNER not in series.levels:
            return True
        known, costs = series.direct, series.schedule
        if known is None or costs is None or STORE not in series.levels:
            return False
        if (now := monotonic()) < known.again_at:
            return True
        is_worth_it = pays(series.probe, 0.0, costs.cost(STORE), costs.cost(PARTNER), inf)
        return not is_worth_it and now < series.tried_at + LONGEST_WAIT

    def no_copy(self, series: Series, why: str, seconds: float) -> None:
        """A try was in vain."""
        if STORE not in series.levels:
            return
        if series.direct is None:
            what = "versions go to the store directly until it pays to try agents again"
            self._tell("direct", one_line(f"{series.name}: {why}; {what}"))
        series.tried_at, series.probe, series.why_direct = monotonic(), seconds, why
        series.direct = failed(series.direct, series.tried_at)

    def room_comes(self, series: Series) -> None:
        """There is another agent: the next version tries."""
        if series.direct is not None:
            series.direct, series.tried_at = replace(series.direct, again_at=0.0), -inf

    def copied(self, series: Series) -> None:
        """Agents have taken it all."""
        if series.direct is not None:
            self._tell("direct", f"{series.name}: agents take copies again")
        series.direct, series.why_direct = None, ""

    # what is told

    def as_plain(self, series: Series) -> dict[str, Any]:
        """``every`` and ``due_in``: seconds by level, if that is planned; and why."""
        schedule = series.schedule
        planned = schedule.planned if schedule is not None else None
        return {
            "levels": list(series.levels),
            "every": dict(planned.every) if planned is not None else None,
            "due_in": schedule.due_in() if schedule is not None and planned is not None else {},
            "why": planned.reason if planned is not None else "",
            "direct": series.why_direct,
            "disk_problem": series.disk_problem if DISK in series.levels else "",
        }
