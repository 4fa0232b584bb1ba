"""Kinds of tasks, and how much each uses the memory that tasks on one node share (seed 003, 2.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from dask_hpc.model.errors import insist, is_number

#: the most memory bound first
MEM_CLASSES = ("I", "II", "III", "IV", "V")
#: misses per instruction from which on a kind is of this class. The seed names classes, and no borders: these
#: are decades that agree with its table 2.3.
_FROM = (1e-2, 1e-4, 1e-6, 1e-8, 0.0)
#: mean misses per instruction of the applications of each class in that table
_PUBLISHED = {
    "I": fmean((1.84e-2, 1.56e-2)),
    "II": fmean((1.63e-3, 1.50e-3, 1.11e-3, 8.60e-4)),
    "III": fmean((3.47e-5, 1.88e-5)),
    "IV": 8.69e-7,
    "V": fmean((6.27e-10, 4.22e-10)),
}
_MOST = 2.0**64  # of a counter: what is more has wrapped


class MemoryUse(NamedTuple):
    """Ratios of counters of the last cache; None: not known."""

    #: misses per instruction: the memory intensity
    intensity: float | None = None
    #: misses per access
    miss_ratio: float | None = None
    #: accesses per instruction
    access_rate: float | None = None


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """What the processor counted over a whole run of a task, alone: of its last cache, and instructions."""

    misses: float
    accesses: float
    instructions: float

    def __post_init__(self) -> None:
        for name in ("misses", "accesses", "instructions"):
            value = getattr(self, name)
            fine = is_number(value, 0, _MOST) and not isinstance(value, bool)
            insist(fine, name, value, "a count from 0 to 2**64; beyond, a counter has wrapped")
        insist(self.instructions > 0, "instructions", self.instructions, "more than 0")
        insist(
            self.accesses > 0 or self.misses == 0, "accesses", self.accesses, "more than 0, as it has misses"
        )

    @property
    def use(self) -> MemoryUse:
        """Per instruction and per access."""
        ratio = self.misses / self.accesses if self.accesses else 0.0
        return MemoryUse(self.misses / self.instructions, ratio, self.accesses / self.instructions)


@dataclass(frozen=True, slots=True)
class TaskKind:
    """Tasks that do the same to different data."""

    name: str
    #: how long one takes alone on a node
    seconds: float
    counters: CacheCounters | None = None
    #: what a person says of it, for a kind whose counters are not known; empty: nothing
    said_class: str = ""

    def __post_init__(self) -> None:
        fine = is_number(self.seconds, 0, 1e15) and self.seconds > 0
        insist(fine, "seconds", self.seconds, "more than 0 seconds")
        if self.said_class:
            insist(self.said_class in MEM_CLASSES, "mem_class", self.said_class, ", ".join(MEM_CLASSES))

    @property
    def mem_class(self) -> str | None:
        """I (memory bound) to V: as measured, or else as somebody says."""
        if self.counters is not None:
            intensity = self.counters.use.intensity
            return mem_class_of(intensity) if intensity is not None else None
        return self.said_class or None

    @property
    def use(self) -> MemoryUse:
        """As measured; or the published mean of its class; or nothing."""
        return ClassAverages().use(self)


def mem_class_of(intensity: float) -> str:
    """The class of so many misses per instruction."""
    insist(is_number(intensity, 0, inf), "intensity", intensity, "misses per instruction, 0 or more")
    return next(name for name, least in zip(MEM_CLASSES, _FROM, strict=True) if intensity >= least)


@dataclass(frozen=True, slots=True)
class ClassAverages:
    """What stands for measurements that are missing: the mean of measured kinds of the same class, or if
    there are none, the published intensity (with which sets of features after D are out of reach)."""

    means: Mapping[str, MemoryUse] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, kinds: Iterable[TaskKind]) -> "ClassAverages":
        """Of these."""
        uses: dict[str, list[MemoryUse]] = {}
        for kind in kinds:
            if kind.counters is not None and kind.mem_class is not None:
                uses.setdefault(kind.mem_class, []).append(kind.counters.use)
        return cls({name: _mean(found) for name, found in uses.items()})

    def use(self, kind: TaskKind) -> MemoryUse:
        """Of this kind."""
        if kind.counters is not None:
            return kind.counters.use
        if kind.mem_class is None:
            return MemoryUse()
        return self.means.get(kind.mem_class) or MemoryUse(_PUBLISHED[kind.mem_class])


def _mean(uses: list[MemoryUse]) -> MemoryUse:
    return MemoryUse(
        *(fmean(value for value in column if value is not None) for column in zip(*uses, strict=True))
    )
