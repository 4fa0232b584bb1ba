"""Where a program goes on from, when it commits (as often as it is asked to, and before it is ended), and
what that was and cost."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field
from math import ceil, inf
from time import monotonic, time
from types import FrameType
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.client.reserved import OwnReservation
from dask_hpc.checkpoint.client.restore import restore
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.items import ARRAYS, rebuild
from dask_hpc.checkpoint.store.manifest import Item, Manifest
from dask_hpc.checkpoint.store.seal import Key
from dask_hpc.checkpoint.store.versions import Versions, read_note
from dask_hpc.checkpoint.version import LEVELS, STORE, read_seconds
from dask_hpc.cluster.worker.farewell import end_of_slurm_job
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import show_duration, show_large
from dask_hpc.strategies.checkpoint.when import AUTO, DALY, YOUNG, Every, LevelCost, commits_left, when

#: failures per second of which nobody has told anything better: one a day
_RATE = 1 / 86400
#: times that an iteration and a commit may take longer than they did, before the end of a job
_CARE = 1.5
#: seconds that are left over then: clocks differ, and a first commit takes nobody knows how long
_RESERVE = 2.0
#: so many times as much may be left as was thought, before one commits to have it planned anew
_AGAIN = 2.0
#: seconds between two questions how often to commit to which levels, and the share of an iteration that an
#: answer is waited for
_ASKS, _PATIENCE = 1.0, 0.001


@dataclass
class Due:
    """``every`` is a whole number of iterations or a duration, after which each commit goes to all levels; or
    durations by level; or a rule: ``auto``, ``young`` or ``daly`` (``strategies.agents.when``). Then the
    cluster says how often to commit; without a cluster that follows from what commits have cost so far.

    A loop over something that has a length knows its end: what is left of it is so many iterations as long as
    the last ones were. After the walltime no more commits are made, though much may be left to be done."""

    every: Any = AUTO
    rate: float = _RATE
    #: seconds between commits by level, and why; nothing as long as nobody knows
    planned: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    #: as the cluster is told: nothing if each commit goes to all levels
    rule: Every | None = None
    _is_told: bool = False
    _iterations: int = 0
    _seconds: float = 0.0
    #: what commits cost the program, and how long they take until they are safe
    _cost: float | None = None
    _longest: float = 0.0
    _since: float = 0.0
    _step: int = 0
    #: seconds of the slowest iteration, a while back
    slowest: float = field(default=0.0, repr=False)
    #: whether to commit before the end of the job, and so many times what that took is kept free for it
    _commits_at_end: bool = True
    _care: float = _CARE
    #: iterations in all, if somebody knows; seconds of one, a moving average; seconds until the walltime
    _total: int | None = None
    _pace: float | None = None
    _walltime: float = inf
    #: seconds that were left when it was last planned
    _left_then: float = inf
    #: whether the cluster chooses levels, and is asked how often to commit before anything is committed
    asks: bool = False
    _asked_at: float = field(default=-inf, repr=False)

    def __post_init__(self) -> None:
        if type(self.every) is int and self.every >= 1:
            self._iterations = self.every
        elif self.every in (AUTO, YOUNG, DALY):
            self.rule = self.every
        elif isinstance(self.every, Mapping):
            if not self.every or not set(self.every) <= set(LEVELS):
                raise InputError("every", f"found {shown(self.every)}", f"durations by {', '.join(LEVELS)}")
            self.rule = {level: _duration(one) for level, one in self.every.items()}
            self.plan(self.rule, "as was said")
        else:
            self._seconds = _duration(self.every)

    def begin(self, step: int, now: float) -> None:
        """The program is there, and all of it is committed."""
        self._step, self._since = step, now

    def reserve(self, told: OwnReservation) -> None:
        """It runs in a job of a chain, whose plan says what becomes of its end."""
        self._commits_at_end, self._care = told.commits, told.care
        self._longest = max(self._longest, told.seconds)

    def goes_over(self, iterable: object) -> None:
        """That is what the loop goes over."""
        self._total = len(iterable) if isinstance(iterable, Sized) else None

    def iterated(self, seconds: float, walltime: float | None = None) -> None:
        """An iteration took so long; so many seconds are left of the walltime, if that is known."""
        self.slowest = max(seconds, 0.9 * self.slowest)
        self._pace = seconds if self._pace is None else 0.7 * self._pace + 0.3 * seconds
        self._walltime = inf if walltime is None else max(0.0, walltime)

    def _iterations_left(self, step: int) -> float:
        return inf if self._total is None else max(0, self._total - step)

    def seconds_left(self, step: int) -> float:
        """Until the loop is over, after so many iterations; without end if nobody knows."""
        iterations = self._iterations_left(step)
        return inf if self._pace is None or iterations == inf else iterations * self._pace

    def commits_left(self, step: int) -> float:
        """That are to come after one at this iteration, that at the end included."""
        every = float(self._iterations)
        if not every:  # by the clock, but only between two iterations
            every = self.seconds / self._pace if self._pace else 1.0
            every = every if every == inf else max(1.0, ceil(every))
        by_walltime = self._walltime / self._pace if self._pace else inf
        return commits_left(min(self._iterations_left(step), by_walltime), every)

    def is_to_ask(self, now: float) -> bool:
        """Whether the cluster may have another plan by now."""
        if not self.asks or now - self._asked_at < _ASKS:
            return False
        self._asked_at = now
        return True

    @property
    def patience(self) -> float:
        """Seconds that it may take to be told another plan."""
        return _PATIENCE * (self._pace or 0.0)

    @property
    def keeps_nothing(self) -> bool:
        """Whether lineage alone is less dear than commits."""
        return self.asks and self.seconds == inf

    def plan(self, every: Mapping[str, float], why: str) -> None:
        """What somebody who knows more has planned."""
        self.planned, self.why, self._is_told = dict(every), why, True

    def committed(self, step: int, now: float, cost: float, is_to_hear: bool = False) -> None:
        """It was committed, which cost the program so many seconds. The cluster may yet say how often to."""
        self.begin(step, now)
        self._left_then = self.seconds_left(step)
        self._cost = cost if self._cost is None else 0.7 * self._cost + 0.3 * cost
        if not is_to_hear:
            self.plan_alone()

    def plan_alone(self) -> None:
        """If nobody who knows more has planned it: by what commits cost the program."""
        if self.rule is not None and not self._is_told and self._cost is not None:
            found = when(self.rule, [LevelCost(STORE, self._cost, self.rate)], 1, self._left_then)
            self.planned, self.why = found.every, found.reason

    def took(self, seconds: float) -> None:
        """A commit was safe so many seconds after it was begun."""
        self._longest = max(seconds, 0.7 * self._longest)

    @property
    def seconds(self) -> float:
        """Between commits, by the clock; nothing if iterations are counted."""
        if self.rule is None:
            return self._seconds
        return min(self.planned.values(), default=inf if self.asks else 0.0)

    def next(self, now: float) -> str:
        """For people: when it is due."""
        if self._iterations:
            return f"at {self._step + self._iterations}"
        if self.seconds == inf:
            return "at the end"
        return _in(self._since + self.seconds - now)

    def by_level(
        self, now: float, levels: Sequence[str], due_in: Mapping[str, float | None]
    ) -> dict[str, str]:
        """For people: when a commit to each level is due. ``due_in`` has the seconds, as far as the cluster
        has planned them; None: never."""
        if self.rule is None:
            return dict.fromkeys(levels, self.next(now))
        soonest = self._since + self.seconds - now
        found = {level: due_in.get(level, soonest) for level in levels}
        return {level: "never" if one is None else _in(one) for level, one in found.items()}

    def is_due(self, step: int, now: float) -> bool:
        if step <= self._step:
            return False
        if self._iterations:
            return step - self._step >= self._iterations
        if self.seconds == inf:  # it seemed too short for any; perhaps it is not
            return not self.asks and self.seconds_left(step) > _AGAIN * self._left_then
        return now - self._since >= self.seconds

    def is_last_chance(self, left: float | None) -> bool:
        """Whether another iteration and its commit may not fit before the end of the job."""
        needed = self._care * (self.slowest + self._longest) + _RESERVE
        return self._commits_at_end and left is not None and left < needed

    def is_over(self, left: float | None) -> bool:
        """Whether they will not fit, even if they take no longer than before."""
        return self._commits_at_end and left is not None and left < self.slowest + self._longest


def _duration(found: Any) -> float:
    allowed = 'a number of iterations, a duration such as "5 min" or one by level, auto, young, or daly'
    return read_seconds("every", None if type(found) is int else found, allowed)


def _in(seconds: float) -> str:
    return f"in {max(0.0, seconds):.1f} s"


class Ending:
    """While this is open, SIGTERM does not end the process but is noted; ``close`` lets it happen. A second
    one ends it at once, but not within ``patience`` seconds of the first: a batch system may tell all
    processes, and whoever started this one passes on what it was told. Where signals cannot be caught (in
    threads), they do what they did."""

    def __init__(self, end: float | None, patience: float = 0.0) -> None:
        #: by the system's clock, if it is known
        self.end = end
        self.is_told = False
        self._patience = patience
        self._told_at = -inf
        self._before: Any = None
        self._catches = False

    def __enter__(self) -> "Ending":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._told)
            self._catches = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def left(self) -> float | None:
        """Seconds until the walltime is over, if it is known."""
        return None if self.end is None else self.end - time()

    def close(self) -> None:
        """Signals do again what they did; one that was noted does it now."""
        if not self._catches:
            return
        self._catches = False
        if signal.getsignal(signal.SIGTERM) == self._told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        if self.is_told:
            self.is_told = False
            os.kill(os.getpid(), signal.SIGTERM)

    def ask(self) -> None:
        """The program itself wants to end, as if it were told to."""
        self.is_told = self._catches

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.is_told and monotonic() - self._told_at >= self._patience:  # somebody insists
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), signal.SIGTERM)
        if not self.is_told:
            self._told_at = monotonic()
        self.is_told = True


def end_of_job(walltime: Any) -> float | None:
    """When this process will be ended, by the system's clock. ``walltime`` is ``auto`` (Slurm is asked),
    seconds from now, or None."""
    if walltime is None or walltime == "auto":
        return None if walltime is None else end_of_slurm_job()
    return time() + read_seconds("walltime", walltime, "auto, a duration, or None")


@dataclass(frozen=True)
class CommitStats:
    """``stall`` is what the program waited for its commits (seconds in all, and at worst), ``seconds`` what
    copies took in the background; ``moved`` and ``unchanged`` are bytes. ``versions`` has the newest
    iteration on each level. ``superseded`` versions made room for newer ones: commits were slower than
    iterations."""

    name: str
    step: int
    commits: int
    seconds: float
    stall: float
    worst_stall: float
    next_due: str
    versions: dict[str, int]
    failed: int = 0
    superseded: int = 0
    moved: int = 0
    unchanged: int = 0
    #: what is wrong with the store, if anything is
    problem: str = ""
    #: by level, when the next commit is due, and why so
    due: dict[str, str] = field(default_factory=dict)
    why: str = ""
    #: why versions go to the store past the agents, if they do
    direct: str = ""
    #: what else a person should know: levels that there are not
    notes: list[str] = field(default_factory=list)

    def as_plain(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        mean = self.seconds / self.commits if self.commits else 0.0
        there = ", ".join(f"{level} at {step}" for level, step in self.versions.items())
        lines = [
            f"{self.name} at iteration {self.step}: {self.commits} commits, {show_duration(mean)} each",
            f"  moved {show_large(self.moved, 'B')}, unchanged {show_large(self.unchanged, 'B')}",
            f"  the program waited {show_duration(self.stall)}, {show_duration(self.worst_stall)} at worst",
            f"  newest versions: {there or 'none'}; next due {self.next_due}",
        ]
        if self.due:
            lines.append("  next due " + ", ".join(f"to {level} {at}" for level, at in self.due.items()))
        if self.why:
            lines.append(f"  {self.why}")
        lines += [f"  {note}" for note in self.notes]
        if self.direct:
            lines.append(f"  versions go to the store directly: {self.direct}")
        if self.superseded:
            lines.append(f"  {self.superseded} made room for newer ones: commits are slower than iterations")
        if self.failed:
            lines.append(f"  {self.failed} failed")
        if self.problem:
            lines.append(f"  the store cannot be used: {self.problem}")
        return "\n".join(lines)


@dataclass
class Found:
    """All values by label, and the items that they are (without blocks, if they are in memory)."""

    where: str
    step: int
    token: str
    nodes: tuple[str, ...]
    values: dict[str, Any] = field(repr=False)
    items: Mapping[str, Item] = field(repr=False)
    #: that were read, if they were
    nbytes: float = 0.0

    def check(self, label: str, kind: str, meta: Mapping[str, Any]) -> None:
        """Whether a value of the program can have become the one that was found. ``InputError`` if not."""
        was, its = self.items[label].kind, self.items[label].meta
        if (kind in ARRAYS) != (was in ARRAYS):
            raise InputError(
                f"add({label!r}, ...)", f"a {kind}", f"a {was}, as in the version in the {self.where}"
            )
        if kind in ARRAYS and (here := _shapes(meta)) != (there := _shapes(its)):
            raise InputError(
                f"add({label!r}, ...)", f"found {shown(here)}", f"{shown(there)}, as in the {self.where}"
            )


def _shapes(meta: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((one["place"], tuple(one["shape"]), one["dtype"]) for one in meta["variables"])


async def in_memory(client: Any, told: Mapping[str, Any]) -> Found:
    """What the scheduler knows, as results of this client."""
    futures = compat.futures_for(client, [key for _, _, key in told["blocks"]])
    blocks: dict[str, dict[str, Any]] = {}
    for label, place, key in told["blocks"]:
        blocks.setdefault(label, {})[place] = futures[key]
    items = json.loads(told["items"])
    values = {}
    for label, item in items.items():
        there = blocks.get(label, {})
        plain = {place: there[place] for place in item["plain"]}
        there = there | dict(zip(plain, await client.gather(list(plain.values())), strict=True))
        values[label] = rebuild(item["kind"], item["meta"], there, may_unpickle=True)
    known = {label: Item(item["kind"], item["meta"]) for label, item in items.items()}
    return Found("memory", told["step"], told["token"], tuple(told["nodes"]), values, known)


async def in_store(
    client: Any, store: Versions, manifest: Manifest, key: Key | None, may_unpickle: bool
) -> tuple[Found, tuple[str, ...]]:
    """Read a version, or the newest before it that is intact; and what was passed over."""
    as_stored = dict.fromkeys(manifest.items, "constant")  # rules are those of the program
    wanted: dict[str, Any] = {"key": key, "unpickle": may_unpickle, "on_resize": as_stored}
    if client is not None:
        values, told = await restore(store.name, store.files.root, client=client, **wanted)
    else:
        values, told = await asyncio.to_thread(restore, store.name, store.files.root, verify=True, **wanted)
    if told.version != manifest.version:
        manifest = await asyncio.to_thread(store.read, told.version)
    if len(manifest.items) == 1:
        values = {next(iter(manifest.items)): values}
    step, known = manifest.step or 0, manifest.items
    found = Found("store", step, manifest.token, manifest.nodes, dict(values), known, manifest.nbytes)
    return found, told.skipped


async def newest(
    name: str,
    client: Any,
    memory: Mapping[str, Any] | None,
    root: str | None,
    key: Key | None,
    may_unpickle: bool,
) -> tuple[Found | None, list[str]]:
    """The version to go on from, if there is one, and what a person should know; ``memory`` is what the
    scheduler knows of it, ``root`` the store."""
    stored: Manifest | None = None
    noted: Mapping[str, Any] | None = None
    wrong: list[str] = []
    versions = None if root is None else Versions(Files(root), name, key)
    if versions is not None:
        try:
            stored, wrong = await asyncio.to_thread(versions.latest)
            noted = await asyncio.to_thread(read_note, versions.files.root, name)
        except Trouble as error:
            if client is None:
                raise
            told = [f"the store cannot be read, so nothing is known of older versions: {error}"]
            return (None if memory is None else await in_memory(client, memory)), told
    found, reached = None, 0 if stored is None else stored.step or 0
    # The one that was further on is newer, whatever the clocks say.
    if memory is not None and (stored is None or memory["step"] >= reached):
        found = await in_memory(client, memory)
    elif stored is not None and versions is not None:
        found, skipped = await in_store(client, versions, stored, key, may_unpickle)
        wrong = [*wrong, *skipped]
    told = [f"a newer version is damaged, an older one is used: {one}" for one in dict.fromkeys(wrong)]
    if found is not None and found.where == "store" and noted is not None and noted["step"] > reached:
        was = f"iteration {noted['step']} was in memory of a cluster that is gone"
        told.append(f"{was}; going on from {found.step}")
    return found, told
