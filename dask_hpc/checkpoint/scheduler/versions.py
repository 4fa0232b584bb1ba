"""What is kept under a name: the versions of a program, and those of a name that protects results; and when
the next is due at which level."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, time
from typing import Any, Protocol

from dask_hpc.checkpoint.levels import DISK, PARTNER, STORE
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.context import ControllerContext
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts, Schedule
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.versions import Commit
from dask_hpc.checkpoint.worker.rescue import may_be_stored
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.checkpoint.agent_rule import LONGEST_WAIT, Direct, failed
from dask_hpc.strategies.checkpoint.when import Every

COMING, NEWEST, WRITING = "coming", "newest", "writing"


class Origin(Protocol):
    """Whose versions go to a store."""

    def called(self, version: "KeptVersion") -> str:
        """As in the story."""

    def again(self, version: "KeptVersion") -> "KeptVersion | None":
        """What to write if this could not be written."""

    def prepare(self, version: "KeptVersion", commit: Commit) -> None:
        """It is about to be written."""

    def stored(self, version: "KeptVersion", manifest: Manifest, seconds: float) -> None:
        """The store has it, so long after its turn came."""


@dataclass(eq=False)
class KeptVersion:
    """One that may go to a store. ``keys`` are those of its blocks, by label and place; ``items`` tells what
    they are."""

    origin: Origin
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


class Series:
    """The versions that a program commits under a name, and how it wants them to be kept."""

    def __init__(self, context: ControllerContext, failures: FailureCounts, name: str, client: str) -> None:
        self._context = context
        self.name = name
        self.client = client
        #: of its newest version
        self.number = 0
        self.complete: KeptVersion | None = None
        self.coming: KeptVersion | None = None
        self.waiting: KeptVersion | None = None
        #: by number, those that have not arrived everywhere yet
        self.unsettled: dict[int, KeptVersion] = {}
        self.commits = self.failed = self.moved = self.unchanged = 0
        #: versions that made room for newer ones before they were begun
        self.superseded = 0
        self.seconds = 0.0
        #: the newest iteration on each level
        self.newest: dict[str, int] = {}
        self.levels: tuple[str, ...] = ()
        #: when commits to which level are due, and what they cost; or whether each goes to all
        self.schedule = Schedule((), {}, 0.0, failures)
        self.is_each = True
        #: since when versions go to the store past the agents, if so, and why; when agents were tried last,
        #: and what that cost
        self._direct: Direct | None = None
        self.why_direct = ""
        self._tried_at = 0.0
        #: why copies are not on disk
        self.disk_problem = ""

    def said(self, levels: Sequence[str], every: Every | None, nbytes: float) -> None:
        """What the program wants. Without ``every`` each of its commits goes to all levels."""
        wanted = every or {}
        if (self.schedule.levels, self.schedule.every) != (tuple(levels), wanted):
            self.schedule = Schedule(levels, wanted, nbytes, self.schedule.failures)
        self.levels, self.is_each = tuple(levels), every is None

    async def plan(self) -> None:
        """Anew, if costs, failures or the number of nodes have changed."""
        if not self.is_each:
            found = await self.schedule.plan(max(1, len(self._context.nodes)))
            if found is not None:
                self._context.tell("interval", f"{self.name}: {found.reason}")

    def is_due(self, level: str) -> bool:
        """Whether the version that is committed now goes to that level. It is taken to get there."""
        return level in self.levels and (self.is_each or self.schedule.is_due(level))

    def done(self, level: str) -> None:
        """A version goes there."""
        if level in self.levels:
            self.schedule.done([level])

    def measured(self, level: str, seconds: float, nbytes: float) -> None:
        """What it cost."""
        if nbytes and level in self.levels:
            self.schedule.measured(level, seconds, nbytes)

    def has(self, version: KeptVersion, level: str) -> None:
        """All of a version is there."""
        version.levels.append(level)
        self.newest[level] = version.step

    # as a version's origin

    def called(self, version: KeptVersion) -> str:
        """As in the story."""
        return f"{self.name} at {version.step}"

    def again(self, version: KeptVersion) -> KeptVersion:
        """The same is tried again."""
        return version

    def prepare(self, version: KeptVersion, commit: Commit) -> None:
        """Nothing else is known of what is stored."""

    def stored(self, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        """The store has it."""
        self.has(version, STORE)
        self.measured(STORE, seconds, version.nbytes or 1)

    # past the agents

    @property
    def is_direct(self) -> bool:
        """Whether agents are not even asked now."""
        if PARTNER not in self.levels:
            return True
        known, costs = self._direct, self.schedule
        if known is None or STORE not in self.levels:
            return False
        if (now := monotonic()) < known.again_at:
            return True
        is_worth_it = costs.cost(STORE) > costs.cost(PARTNER)
        return not is_worth_it and now < self._tried_at + LONGEST_WAIT

    def no_copy(self, why: str) -> None:
        """A try was in vain."""
        if STORE not in self.levels:
            return
        if self._direct is None:
            what = "versions go to the store directly until it pays to try agents again"
            self._context.tell("direct", one_line(f"{self.name}: {why}; {what}"))
        self._tried_at, self.why_direct = monotonic(), why
        self._direct = failed(self._direct, self._tried_at)

    def room_comes(self) -> None:
        """There is another agent: the next version tries."""
        if self._direct is not None:
            self._direct, self._tried_at = replace(self._direct, again_at=0.0), -inf

    def copied(self) -> None:
        """Agents have taken it all."""
        if self._direct is not None:
            self._context.tell("direct", f"{self.name}: agents take copies again")
        self._direct, self.why_direct = None, ""

    def as_plain(self, store_problem: str) -> dict[str, Any]:
        """What is told. ``every`` and ``due_in``: seconds by level, if that is planned; and why."""
        planned = self.schedule.planned
        complete, coming, waiting = (
            None if one is None else one.as_plain() for one in (self.complete, self.coming, self.waiting)
        )
        return {
            "name": self.name,
            "commits": self.commits,
            "failed": self.failed,
            "superseded": self.superseded,
            "seconds": self.seconds,
            "moved": self.moved,
            "unchanged": self.unchanged,
            "store_problem": store_problem,
            "versions": self.newest,
            "levels": list(self.levels),
            "every": dict(planned.every) if planned is not None else None,
            "due_in": self.schedule.due_in() if planned is not None else {},
            "why": planned.reason if planned is not None else "",
            "direct": self.why_direct,
            "disk_problem": self.disk_problem if DISK in self.levels else "",
            "complete": complete,
            "coming": coming,
            "waiting": waiting,
        }


class ProtectedVersion:
    """The keys that a name had at one time. ``awaited`` are those that are not in memory."""

    def __init__(self, protected: "Protected", keys: Iterable[Hashable]) -> None:
        self.protected = protected
        self.keys = dict.fromkeys(keys)
        self.awaited: set[Hashable] = set()

    @property
    def copies(self) -> int:
        """On how many agents each block is to be."""
        return self.protected.copies

    @property
    def is_held(self) -> bool:
        """Whether its results are kept in memory: while it is copied, and while the next one is awaited."""
        protected = self.protected
        if self is protected.base:
            return bool(protected.pending)
        return protected.is_renewed and self is protected.target

    def to_copy(self) -> list[Hashable]:
        """Keys that are copied. Parts of a shuffle do more than their results tell: they are never loaded,
        so they are not copied."""
        return [key for key in self.keys if may_be_stored(key)]

    def is_whole(self, catalogue: Catalogue) -> bool:
        """Whether somebody has a copy of each."""
        return all(catalogue.where(key)[1] for key in self.to_copy())


@dataclass
class Protected:
    """``copies`` is how many agents have each block."""

    name: str
    schedule: Schedule
    copies: int = 1
    #: why the last copies are not on disks
    disk_problem: str = ""
    #: not copied as a whole, oldest first
    pending: list[ProtectedVersion] = field(default_factory=list)
    #: the one of these that is being copied
    target: ProtectedVersion | None = None
    #: the newest that was copied as a whole
    base: ProtectedVersion | None = None

    @property
    def newest(self) -> ProtectedVersion | None:
        """What the name means now."""
        return self.pending[-1] if self.pending else self.base

    @property
    def next_stored(self) -> ProtectedVersion | None:
        """What is written to a store next: what was copied as a whole, or what there is."""
        return self.base or self.target or self.newest

    @property
    def keys(self) -> dict[Hashable, None]:
        """Of what the name means now."""
        return self.newest.keys if self.newest is not None else {}

    @property
    def is_renewed(self) -> bool:
        """Whether the name has meant something else before: then copies are made when they are due, not when
        all is ready."""
        return self.base is not None or len(self.pending) > 1

    def versions(self) -> list[ProtectedVersion]:
        """All that are kept."""
        return [*([self.base] if self.base is not None else []), *self.pending]

    def choose(self, will_come: Callable[[Hashable], bool]) -> ProtectedVersion | None:
        """Which version is copied next: the newest that is there as a whole, or the oldest that can still
        get there."""
        for version in reversed(self.pending):
            if not version.awaited:
                return version
        return next((one for one in self.pending if all(map(will_come, one.awaited))), None)

    def as_plain(self, catalogue: Catalogue) -> dict[str, Any]:
        """How much of it is copied."""
        contents, copied = set(), 0
        for key in self.keys:
            content, where = catalogue.where(key)
            if where:
                contents.add(content)
                copied += 1
        planned = self.schedule.planned
        return {
            "name": self.name,
            "keys": len(self.keys),
            "copied": copied,
            "awaited": 0 if self.newest is None else len(self.newest.awaited),
            "nbytes": sum(catalogue.contents[one].nbytes for one in contents),
            "copies": self.copies,
            "levels": list(self.schedule.levels),
            "every": None if planned is None else dict(planned.every),
            "why": "" if planned is None else planned.reason,
            "next_due": self.schedule.next_due_in() if self.pending else None,
        }
