"""What a program commits under its name: the versions, and what is known of them all."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from dask_hpc.checkpoint.controller.schedule import Schedule
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.saving import Commit
from dask_hpc.strategies.agents.fallback import Direct

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
