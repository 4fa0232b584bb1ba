"""A name under which keys are protected, and the versions of what it names."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.checkpoint.controller.catalogue import Catalogue
from dask_hpc.checkpoint.controller.schedule import Schedule
from dask_hpc.checkpoint.rescue import may_be_stored


class Version:
    """The keys that a name had at one time. ``awaited`` are those that are not in memory."""

    def __init__(self, protected: "Protected", keys: Iterable[Hashable]) -> None:
        self.protected = protected
        self.keys = dict.fromkeys(keys)
        self.awaited: set[Hashable] = set()

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
    pending: list[Version] = field(default_factory=list)
    #: the one of these that is being copied
    target: Version | None = None
    #: the newest that was copied as a whole
    base: Version | None = None

    @property
    def newest(self) -> Version | None:
        """What the name means now."""
        return self.pending[-1] if self.pending else self.base

    @property
    def keys(self) -> dict[Hashable, None]:
        """Of what the name means now."""
        return self.newest.keys if self.newest is not None else {}

    @property
    def is_renewed(self) -> bool:
        """Whether the name has meant something else before: then copies are made when they are due, not when
        all is ready."""
        return self.base is not None or len(self.pending) > 1

    def versions(self) -> list[Version]:
        """All that are kept."""
        return [*([self.base] if self.base is not None else []), *self.pending]

    def choose(self, will_come: Callable[[Hashable], bool]) -> Version | None:
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
