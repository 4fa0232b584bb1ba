"""The corridor that holds now, where the policy says to follow a file or a signal.

What is followed is looked at about once a second, beside the event loop. What cannot be used is refused as a
whole and told once: a file that is half written, damaged or gone, a signal that fails or says nonsense. Then
the corridor stays what it was; until there was a first one, it is what the policy's parameters say.
"""

import asyncio
import os
from contextlib import suppress
from datetime import datetime
from math import isclose
from pathlib import Path
from stat import S_ISREG
from time import time
from typing import Any

from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.worker.farewell import in_thread
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.power import PREFIX, Corridor, CorridorSignal
from dask_hpc.model.units import parse_duration

_LIMIT = 1_000_000  # bytes of a file
_NEWS = 0.01  # a share by which a bound changes


class FollowedFile:
    """A corridor as ``Corridor.parse`` reads it. A step's time is in seconds since control began, or a date
    with a time and its zone. ``began`` is when control did (POSIX)."""

    def __init__(self, path: str, began: float) -> None:
        self._path = Path(path).expanduser()
        self._began = began
        #: what the file looked like when it was read last, and what was wrong with it then, if anything
        self._stamp: tuple[int, ...] | None = None
        self._problem: InputError | None = None

    def look(self) -> Corridor | None:
        """The corridor, if the file is another one than at the last look."""
        name = one_line(str(self._path))
        try:
            found = os.stat(self._path)
            if not S_ISREG(found.st_mode):  # a pipe might never answer
                raise InputError("", "is no ordinary file", file=name)
            stamp = _stamp(found)
            if stamp == self._stamp:
                if self._problem is not None:
                    raise self._problem
                return None
            with open(self._path, "rb") as file:
                text = file.read(_LIMIT + 1)
                after = _stamp(os.fstat(file.fileno()))
        except OSError as error:
            self._stamp = None  # when it is back, it is to be read
            raise InputError("", f"cannot be read: {error.strerror}", file=name) from None
        if after != stamp:
            return None  # somebody writes just now: the next look will tell
        self._stamp, self._problem = stamp, None
        try:
            return Corridor.parse(text, self._seconds)
        except InputError as error:
            self._problem = error.in_file(name)
            raise self._problem from None

    def _seconds(self, value: Any) -> float:
        if isinstance(value, str) and "-" in value and ":" in value:
            with suppress(ValueError):  # perhaps it is one of Slurm's durations
                value = datetime.fromisoformat(value)
        if not isinstance(value, datetime):
            return parse_duration(value)
        if value.tzinfo is None:
            allowed = "a date and time with its zone, such as 2026-11-20T14:00:00+01:00"
            raise InputError("", f"found {value.isoformat()}", allowed)
        return value.timestamp() - self._began


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


class FollowedSignal:
    """A function of the POSIX time, looked for at the first look."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._signal: CorridorSignal | None = None
        self._last: Corridor | None = None

    def look(self) -> Corridor | None:
        if self._signal is None:
            self._signal = CorridorSignal.find(self._name)
        before, self._last = self._last, self._signal.at(time())
        return None if self._last == before else self._last


class CorridorSource:
    """Follows what one policy says, and looks ``every`` so many seconds. A new corridor wakes the control."""

    def __init__(self, context: Context, follow: str, every: float = 1.0) -> None:
        self.follow = follow
        self._context = context
        self._every = every
        #: what was followed last; None until something usable was found
        self.corridor: Corridor | None = None
        self._told: Corridor | None = None
        #: how often what is followed could not be used
        self.refused = 0
        #: why it cannot be used now, if so
        self.problem = ""
        name = follow.removeprefix(PREFIX)
        self._followed: FollowedFile | FollowedSignal = (
            FollowedFile(follow, time() - context.clock()) if name == follow else FollowedSignal(name)
        )
        self._following = context.do("a look at the corridor", self._follow())

    def close(self) -> None:
        self._following.cancel()

    async def _follow(self) -> None:
        """Each look comes some time after the answer to the one before, so one that stalls is the last."""
        while True:
            try:
                found = await in_thread(self._followed.look)
            except Exception as error:
                self._refuse(error)
            else:
                self._see(found)
            await asyncio.sleep(self._every)

    def _see(self, found: Corridor | None) -> None:
        was_refused, self.problem = bool(self.problem), ""
        words = ""
        if found is not None and found != self.corridor:
            if was_refused or self._is_worth_telling(found):
                self._told = found
                words = f"{self.follow} says {found.in_words()}"
            self.corridor = found
            self._context.wake()
        elif was_refused:
            words = f"{self.follow} can be used again, and says what it said before"
        if words:
            self._context.tell("new-corridor", words)

    def _refuse(self, problem: Exception) -> None:
        self.refused += 1
        is_input = isinstance(problem, InputError)
        words = one_line(str(problem) if is_input else f"{self.follow}: {type(problem).__name__}: {problem}")
        if words != self.problem:
            self.problem = words
            instead = "the corridor stays what it was"
            if self.corridor is None:
                instead = "the corridor is what the policy's parameters say"
            self._context.tell("corridor-refused", f"{words}; {instead}")

    def _is_worth_telling(self, found: Corridor) -> bool:
        """A signal may change a little every second: that is no news."""
        if self._told is None or len(found.steps) != len(self._told.steps):
            return True
        pairs = zip(found.steps, self._told.steps, strict=True)
        return not all(isclose(a, b, rel_tol=_NEWS) for pair in pairs for a, b in zip(*pair, strict=True))
