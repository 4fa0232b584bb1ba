"""What sensors of a node are made of: what one says, energy counters, and how busy the processors are."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import psutil

#: what a sensor speaks of; nobody knows it of "other"
Covers = Literal["node", "processor", "memory", "gpu", "other"]


class SensorRow(NamedTuple):
    """What one sensor says, or why it says nothing."""

    meter: str
    sensor: str
    covers: Covers
    #: None if it is not known now
    watts: float | None = None
    #: half-width of a 95 % interval
    uncertainty: float = 0.0
    #: why it is not known, or not to be believed
    problem: str = ""
    #: what a person can do about that
    fix: str = ""
    #: the sensor that counts this one's power as well
    within: str = ""


class SensorKind:
    """A kind of sensor. Never raises; where it finds none it says why, in one row without watts."""

    def sense(self, now: float, use: float) -> Sequence[SensorRow]:
        """All of them now (seconds of a clock that only goes forward), the processors having been busy for
        this share of the time since the last look."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what it holds."""


def read_text(path: str) -> str:
    """The file's text."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def number(path: str) -> float | None:
    """The number in a file; None if there is none."""
    try:
        return float(read_text(path))
    except (OSError, ValueError):
        return None


def why_not(error: Exception, path: str) -> str:
    """In words, without the kernel's numbers."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror.lower()}: {path}"
    return f"{error or type(error).__name__}: {path}"


_AT_ONCE = 0.01  # seconds; two looks that are closer give the answer of the first


class Busy(NamedTuple):
    """Since the look before."""

    #: 0 to 1, of all processors
    use: float
    #: 0 to 1: the part of that work that this process and its children did
    share: float


class Processors:
    """Looks at the machine's own clocks of work done."""

    def __init__(self) -> None:
        self._then: float | None = None
        self._total = self._busy = self._own = 0.0
        self._last = Busy(0.0, 0.0)

    def look(self, now: float) -> Busy:
        """What was done since the last look; the first one looks at the time since the machine started."""
        if self._then is not None and now - self._then < _AT_ONCE:
            return self._last
        times = psutil.cpu_times()
        # What guests did is part of "user" already. A processor that waits for a disk is idle.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy = total - times.idle - getattr(times, "iowait", 0.0)
        own = _own_seconds()
        was_total, was_busy, was_own = self._total, self._busy, self._own
        is_first, self._then = self._then is None, now
        self._total, self._busy, self._own = total, busy, own
        use = (busy - was_busy) / (total - was_total) if total > was_total else self._last.use
        # The two clocks tick apart: what we did can seem more than what all did.
        done = max(busy - was_busy, own - was_own)
        share = (own - was_own) / done if done > 0 and not is_first else 0.0
        self._last = Busy(min(max(use, 0.0), 1.0), min(max(share, 0.0), 1.0))
        return self._last


def _own_seconds() -> float:
    """Processor time of this process and of its children, those included that have ended."""
    seconds, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        with suppress(psutil.Error):  # it has just ended
            seconds += sum(psutil.Process(pid).cpu_times()[:4])
        with suppress(OSError):  # the kernel may not list children
            for thread in os.listdir(f"/proc/{pid}/task"):
                path = f"/proc/{pid}/task/{thread}/children"
                with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
                    waiting += map(int, file.read().split())
    return seconds


_TOO_SOON = 0.01  # seconds; the counters themselves move every millisecond
_STEP = 1e-3  # joules; counters go in steps, of which the largest in use is smaller than this
_FROZEN = 3.0  # seconds without a change, and
_WORKING = 0.02  # of the processors at work, make a counter frozen


class CountedPower(NamedTuple):
    """Watts since the look before, or why they are not known."""

    watts: float | None
    problem: str = ""


class EnergyCounter:
    """``span`` is how many joules the counter counts before it starts at 0 again; None if it never does."""

    def __init__(self, span: float | None, bound: float) -> None:
        self._span = span
        self._bound = bound
        self._then: float | None = None
        self._energy = 0.0
        self._unchanged = 0.0
        self._last = CountedPower(None, "")

    def look(self, now: float, energy: float, use: float) -> CountedPower:
        """What the counter says now, in joules. ``use`` (0 to 1) is how busy the processors were since the
        look before."""
        if self._then is None:
            self._then, self._energy = now, energy
            self._last = CountedPower(None, "this is the first look, power needs two")
            return self._last
        seconds = now - self._then
        if seconds < _TOO_SOON:
            return self._last
        difference = energy - self._energy
        self._then, self._energy = now, energy
        self._last = self._judge(seconds, difference, use)
        return self._last

    def lose(self) -> None:
        """The counter was not there: the next look is a first one."""
        self._then = None
        self._unchanged = 0.0

    def _judge(self, seconds: float, difference: float, use: float) -> CountedPower:
        most = self._bound * seconds
        if self._span is not None:
            if difference < 0:
                difference += self._span
            if difference + self._span <= most + _STEP:
                return CountedPower(None, f"it may have wrapped more than once in {seconds:.3g} s")
        if difference == 0:
            self._unchanged += seconds
            if self._unchanged >= _FROZEN and use >= _WORKING:
                still = f"{self._unchanged:.3g} s while the processors worked"
                return CountedPower(None, f"frozen: it has not changed for {still}")
            return CountedPower(None, f"it has not changed for {self._unchanged:.3g} s")
        self._unchanged = 0.0
        if not 0 < difference <= most + _STEP:
            return CountedPower(None, "it jumped: it was set back, or wrapped more than once")
        return CountedPower(difference / seconds)


class OneProcess:
    """Whether we are the one."""

    def __init__(self, name: str) -> None:
        self._name = f"\0{name}"
        self._held: socket.socket | None = None

    def take(self) -> bool:
        """Become the one; False if somebody else is."""
        if self._held is None:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                held.bind(self._name)
            except OSError:
                held.close()
                return False
            self._held = held
        return True

    def release(self) -> None:
        """Let another one be it."""
        if self._held is not None:
            self._held.close()
            self._held = None
