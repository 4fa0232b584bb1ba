"""The loop of a program that commits: goes on where it was, and looks at each turn whether to commit."""

import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from time import monotonic, time
from types import FrameType
from typing import Any, Protocol

from dask_hpc.checkpoint.levels import LEVELS, STORE
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity
from dask_hpc.strategies.checkpoint.when import AUTO, DALY, YOUNG, Cost, Every, when

#: failures per second of which nobody has told anything better: one a day
_RATE = 1 / 86400
#: times that an iteration and a commit may take longer than they did, before the end of a job
_CARE = 1.5
#: seconds that are left over then: clocks differ, and a first commit takes nobody knows how long
_RESERVE = 2.0


@dataclass
class Due:
    """``every`` is a whole number of iterations or a duration, after which each commit goes to all levels; or
    durations by level; or a rule: ``auto``, ``young`` or ``daly`` (``strategies.agents.when``). Then the
    cluster says how often to commit; without a cluster that follows from what commits have cost so far."""

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
    _slowest: float = field(default=0.0, repr=False)

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

    def iterated(self, seconds: float) -> None:
        """An iteration is over."""
        self._slowest = max(seconds, 0.9 * self._slowest)

    def plan(self, every: Mapping[str, float], why: str) -> None:
        """What somebody who knows more has planned."""
        self.planned, self.why, self._is_told = dict(every), why, True

    def committed(self, step: int, now: float, cost: float) -> None:
        """It was committed, which cost the program so many seconds."""
        self.begin(step, now)
        self._cost = cost if self._cost is None else 0.7 * self._cost + 0.3 * cost
        if self.rule is not None and not self._is_told:
            found = when(self.rule, [Cost(STORE, self._cost, self.rate)], 1)
            self.planned, self.why = found.every, found.reason

    def took(self, seconds: float) -> None:
        """A commit was safe so many seconds after it was begun."""
        self._longest = max(seconds, 0.7 * self._longest)

    @property
    def seconds(self) -> float:
        """Between commits, by the clock; nothing if iterations are counted."""
        return self._seconds if self.rule is None else min(self.planned.values(), default=0.0)

    def next(self, now: float) -> str:
        """For people: when it is due."""
        if self._iterations:
            return f"at {self._step + self._iterations}"
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
        """Whether to commit after this many iterations."""
        if step <= self._step:
            return False
        if self._iterations:
            return step - self._step >= self._iterations
        return now - self._since >= self.seconds

    def is_last_chance(self, left: float | None) -> bool:
        """Whether another iteration and its commit may not fit before the end of the job."""
        return left is not None and left < _CARE * (self._slowest + self._longest) + _RESERVE


def _duration(found: Any) -> float:
    try:
        seconds = parse_quantity(found, "s")
    except InputError:
        seconds = 0.0
    if type(found) is int or not 0 < seconds < 1e9:
        allowed = 'a number of iterations, a duration such as "5 min" or one by level, auto, young, or daly'
        raise InputError("every", f"found {shown(found)}", allowed)
    return seconds


def _in(seconds: float) -> str:
    return f"in {max(0.0, seconds):.1f} s"


_ASK_SLURM = 10.0  # seconds that scontrol may take


class Ending:
    """While this is open, SIGTERM does not end the process but is noted; ``close`` lets it happen. Where
    signals cannot be caught (in threads), they do what they did."""

    def __init__(self, end: float | None) -> None:
        #: by the system's clock, if it is known
        self.end = end
        self.is_told = False
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

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.is_told:  # somebody insists
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), signal.SIGTERM)
        self.is_told = True


def end_of_job(walltime: Any, ask: Callable[[str], str] | None = None) -> float | None:
    """When this process will be ended, by the system's clock. ``walltime`` is ``auto`` (Slurm is asked),
    seconds from now, or None."""
    if walltime is None:
        return None
    if walltime != "auto":
        seconds = parse_quantity(walltime, "s")
        if not 0 < seconds < 1e9:
            raise InputError("walltime", f"found {shown(walltime)}", "auto, a duration, or None")
        return time() + seconds
    told = os.environ.get("SLURM_JOB_END_TIME", "")
    if told.isdecimal():
        return float(told)
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return None
    try:
        words = dict(word.partition("=")[::2] for word in (ask or _asked)(job).split())
        return datetime.fromisoformat(words["EndTime"]).timestamp()
    except (OSError, subprocess.SubprocessError, KeyError, ValueError):
        return None  # no such command, no answer, or no end ("Unknown")


def _asked(job: str) -> str:
    return subprocess.run(
        ["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=_ASK_SLURM
    ).stdout


class Committing(Protocol):
    """What a loop needs of a checkpoint."""

    due: Due
    step: int
    walltime: Any
    is_asked: bool

    def call(self, work: Any, *args: Any) -> Any:
        """Run a coroutine function, or give its coroutine to an asynchronous program."""

    async def commit_now(self, wait: bool) -> None:
        """Commit what there is."""

    def loop_begins(self, turns: Generator[Any, None, None]) -> None:
        """Raises ``InputError`` if it must not."""

    def loop_ends(self, is_over: bool) -> None:
        """There may be no more iterations."""


class Loop:
    """To be iterated once, with ``for`` or with ``async for``."""

    def __init__(self, checkpoint: Committing, iterable: Iterable[Any]) -> None:
        self._checkpoint = checkpoint
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        turns = self._begun()
        try:
            for item, wait in turns:
                if wait is None:
                    yield item
                else:
                    self._checkpoint.call(self._checkpoint.commit_now, wait)
        finally:
            turns.close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        turns = self._begun()
        try:
            for item, wait in turns:
                if wait is None:
                    yield item
                else:
                    await self._checkpoint.commit_now(wait)
        finally:
            turns.close()

    def _begun(self) -> Generator[tuple[Any, bool | None], None, None]:
        turns = self._turns()
        self._checkpoint.loop_begins(turns)
        return turns

    def _turns(self) -> Generator[tuple[Any, bool | None], None, None]:
        """Items, and between them what to do: commit and go on, or commit and wait until it is safe."""
        checkpoint, due = self._checkpoint, self._checkpoint.due
        is_over = False
        with Ending(end_of_job(checkpoint.walltime)) as ending:
            try:
                due.begin(checkpoint.step, monotonic())
                for item in self._left(checkpoint.step):
                    begun = monotonic()
                    yield item, None
                    now = monotonic()
                    checkpoint.step += 1
                    due.iterated(now - begun)
                    if ending.is_told or due.is_last_chance(ending.left()):
                        yield None, True
                    elif checkpoint.is_asked or due.is_due(checkpoint.step, now):
                        yield None, False
                    if ending.is_told:
                        ending.close()  # what SIGTERM does to this process happens here
                yield None, True
                is_over = True
            finally:
                checkpoint.loop_ends(is_over)

    def _left(self, done: int) -> Iterable[Any]:
        if isinstance(self._iterable, range):
            return self._iterable[done:]
        items = iter(self._iterable)
        return islice(items, done, None)
