"""The versions of one name and the levels that they go to, from begun to committed, to the store, and to
being dropped: a state machine without Dask, clock or network.

It hears of events (a version is begun, is copied as a whole, never will be, is written to the store or is
not) and says what follows: which one is to be copied, or written, whose results are to stay in memory, which
ones nobody needs any longer. Shells carry that out (``scheduler.series``).

The newest that was copied as a whole, the base, stays until a newer one is, or the series is closed; what was
given up never becomes the base; numbers only grow. One version is on its way to others at a time, and one to
the store. A program's series is eager: what it commits stays in memory from then on, one waits behind the one
that is on its way, and a newer one takes its place. What is protected is not: its versions wait for their
results, as many as there are, and when it is time the newest that is complete is chosen.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity

#: ``process`` is what ``partner`` becomes on a cluster of one node, and the same to us: copies are on another
#: node if there is one. What is on ``disk`` are the copies of partners, which survive their processes
PARTNER, DISK, STORE = LEVELS = ("partner", "disk", "store")
_SAME = {"process": PARTNER}


def read_levels(found: Any, has_store: bool) -> tuple[str, ...]:
    """The cheapest first. Without a store its level is left out."""
    allowed = f"one or several of {', '.join(LEVELS)}; disk with partner"
    words = [found] if isinstance(found, str) else found
    if not isinstance(words, Iterable):
        raise InputError("levels", f"found {shown(found)}", allowed)
    chosen = {_SAME.get(one, one) if isinstance(one, str) else one for one in words}
    if not chosen or not chosen <= set(LEVELS) or (DISK in chosen and PARTNER not in chosen):
        raise InputError("levels", f"found {shown(found)}", allowed)
    levels = tuple(one for one in LEVELS if one in chosen and (one != STORE or has_store))
    if not levels:
        raise InputError("levels", f"found {shown(found)}, and no store", "a store, or other levels")
    return levels


def read_seconds(where: str, found: Any, allowed: str) -> float:
    """More than none and less than 30 years."""
    try:
        seconds = parse_quantity(found, "s")
    except InputError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InputError(where, f"found {shown(found)}", allowed)
    return seconds


@dataclass(eq=False)
class KeptVersion:
    """One state of what is kept. ``keys`` are those of its blocks, by whatever says what they are; if it may
    go to a store, by label and place, and ``items`` tells what they are there."""

    series: Any
    keys: dict[Any, Hashable]
    #: keys that are not in memory, as far as somebody looks
    awaited: set[Hashable] = field(default_factory=set)
    #: as it is called in the store, and how to write there
    name: str = ""
    store: dict[str, Any] | None = None
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    step: int = 0
    token: str = ""
    nodes: tuple[str, ...] = ()
    #: by the system's clock and by the process's
    time: float = 0.0
    begun: float = 0.0
    seconds: float = 0.0
    nbytes: int = 0
    moved: int = 0
    number: int = 0
    #: where all of it is
    levels: list[str] = field(default_factory=list)
    problem: str = ""
    #: there is no more to come, or nothing that anybody waits for
    is_settled: bool = False

    @property
    def copies(self) -> int:
        """On how many agents each block is to be."""
        copies: int = self.series.copies
        return copies

    def as_plain(self) -> dict[str, Any]:
        names = ("number", "step", "time", "seconds", "nbytes", "moved", "problem")
        return {"levels": list(self.levels), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Changes:
    """What follows from an event: whose results are to stay in memory from now on, whose need not any longer,
    which versions nobody needs; which one is to be copied now, and whether somebody has to begin to write."""

    held: list[KeptVersion] = field(default_factory=list)
    freed: list[KeptVersion] = field(default_factory=list)
    gone: list[KeptVersion] = field(default_factory=list)
    copy: KeptVersion | None = None
    writes: bool = False


class SeriesState:
    """``copies`` is how many agents are to have each block."""

    def __init__(self, name: str, is_eager: bool = False) -> None:
        self.name = name
        self.is_eager = is_eager
        self.copies = 1
        #: of the newest version
        self.number = 0
        #: the newest that was copied as a whole
        self.base: KeptVersion | None = None
        #: the one that is being copied
        self.target: KeptVersion | None = None
        #: not copied as a whole, oldest first
        self.pending: list[KeptVersion] = []
        #: on its way to the store, and next
        self.writing: KeptVersion | None = None
        self.to_write: KeptVersion | None = None
        self._is_busy = False
        #: the newest number in the store, ours or of another that writes the same name
        self.in_store = 0
        #: versions that made room for newer ones before they were begun
        self.superseded = 0
        self._known: list[KeptVersion] = []
        self._held: list[KeptVersion] = []
        self._aimed_at: KeptVersion | None = None

    @property
    def newest(self) -> KeptVersion | None:
        """The one that was begun last, if it may still be had."""
        return self.pending[-1] if self.pending else self.base

    @property
    def next_stored(self) -> KeptVersion | None:
        """The one that people would have if all memory were lost: what was copied as a whole, or what there
        is."""
        return self.base or self.target or self.newest

    @property
    def keys(self) -> dict[Any, Hashable]:
        """What the name means now."""
        return self.newest.keys if self.newest is not None else {}

    @property
    def is_renewed(self) -> bool:
        """Whether there was another version before: then copies are made when they are due, not when all is
        ready."""
        return self.base is not None or len(self.pending) > 1

    def known(self) -> list[KeptVersion]:
        found = (self.base, *self.pending, self.writing, self.to_write)
        return list(dict.fromkeys(one for one in found if one is not None))

    def holds(self, version: KeptVersion) -> bool:
        """Whether its results stay in memory: a program's as long as somebody needs it; else while it is
        copied, and as the base while a newer one is awaited: one death costs not both."""
        if self.is_eager:
            return version in self.known()
        if version is self.base:
            return bool(self.pending)
        return version is self.target and self.is_renewed

    def begin(self, version: KeptVersion) -> Changes:
        self._count(version)
        if self.is_eager:
            for one in [one for one in self.pending if one is not self.target]:
                self.pending.remove(one)
                one.problem, one.is_settled = "a newer one came before it was begun", True
                self.superseded += 1
        self.pending.append(version)
        if self.is_eager and self.target is None:
            self.target = version
        return self._changes()

    def choose(self, is_due: bool, will_come: Callable[[Hashable], bool]) -> Changes:
        """It is time to copy: if nothing is on its way that can get there, the newest that is there as a
        whole, or the oldest that can still get there."""
        if self.target is not None and not all(map(will_come, self.target.awaited)):
            self.target = None
        if self.target is None and is_due:
            complete = (one for one in reversed(self.pending) if not one.awaited)
            possible = (one for one in self.pending if all(map(will_come, one.awaited)))
            self.target = next(complete, None) or next(possible, None)
        return self._changes()

    def aim(self, version: KeptVersion) -> Changes:
        if version in self.pending:
            self.target = version
        return self._changes()

    def copied(self, version: KeptVersion) -> Changes:
        """All of the one that is on its way is copied. Nobody needs those before it any longer."""
        if version is self.target and version in self.pending:
            del self.pending[: self.pending.index(version) + 1]
            self.base = version
            if not self.is_eager:
                self.target = None
        return self._changes()

    def end(self, version: KeptVersion) -> Changes:
        """Nothing more is done for it: it was copied, or never will be. The next one may be."""
        if version in self.pending:
            self.pending.remove(version)
        if version is self.target:
            self.target = self.pending[0] if self.is_eager and self.pending else None
        version.is_settled = version not in (self.writing, self.to_write)
        return self._changes()

    def lost_base(self) -> Changes:
        """Nothing is left of it, nor does anybody want it."""
        self.base = None
        return self._changes()

    def write(self, version: KeptVersion) -> Changes:
        """It goes to the store when its turn comes, unless a newer one comes first."""
        self._count(version)
        replaced, self.to_write, version.is_settled = self.to_write, version, False
        if replaced is not None and replaced is not version:
            replaced.problem, replaced.is_settled = "a newer one came before it was written", True
        begins, self._is_busy = not self._is_busy, True
        return self._changes(begins)

    def next_to_write(self) -> KeptVersion | None:
        """The one whose turn it is; if there is none, nobody writes any longer."""
        self.writing, self.to_write = self.to_write, None
        self._is_busy = self.writing is not None
        return self.writing

    def written(self, problem: str = "", again: KeptVersion | None = None) -> Changes:
        """The one whose turn it was is in the store; or could not be written, and unless there is a newer one
        by now, ``again`` is next. Whoever waits for it hears so in any case."""
        version, self.writing = self.writing, None
        if version is not None:
            version.problem, version.is_settled = problem, True
            if not problem:
                version.levels.append(STORE)
            elif self.to_write is None and again is not None:
                self._count(again)
                self.to_write = again
        return self._changes()

    def learn(self, number: int) -> bool:
        """The store has this version, whoever wrote it. Whether it is the newest that we heard of."""
        is_news, self.in_store = number > self.in_store, max(number, self.in_store)
        return is_news

    def close(self) -> Changes:
        """Nobody needs any of it, but what is on its way to the store."""
        self.base = self.target = None
        self.pending.clear()
        return self._changes()

    def _count(self, version: KeptVersion) -> None:
        if not version.number:
            self.number += 1
            version.number = self.number

    def _changes(self, writes: bool = False) -> Changes:
        known, before = self.known(), self._known
        held, was_held = [one for one in known if self.holds(one)], self._held
        copy = self.target if self.target is not self._aimed_at else None
        self._known, self._held, self._aimed_at = known, held, self.target
        return Changes(
            held=[one for one in held if one not in was_held],
            freed=[one for one in was_held if one not in held],
            gone=[one for one in before if one not in known],
            copy=copy,
            writes=writes,
        )
