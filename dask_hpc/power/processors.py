"""How busy the processors of this machine are, and how much of that is this process's and its children's."""

import os
from contextlib import suppress
from typing import NamedTuple

import psutil

_AT_ONCE = 0.01  # seconds; two looks that are closer give the answer of the first
_TICKS = os.sysconf("SC_CLK_TCK")


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
        total, busy = _all_seconds()
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


def _all_seconds() -> tuple[float, float]:
    """Of all processors since the machine started: seconds, and seconds at work."""
    times = psutil.cpu_times()
    # What guests did is part of "user" already. A processor that waits for a disk is idle.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total, total - times.idle - getattr(times, "iowait", 0.0)


def _own_seconds() -> float:
    """Processor time of this process and of its children, those included that have ended."""
    own = os.times()
    seconds = own.user + own.system + own.children_user + own.children_system
    waiting = _children(os.getpid())
    while waiting:
        pid = waiting.pop()
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / _TICKS
            waiting += _children(pid)
    return seconds


def _children(pid: int) -> list[int]:
    """Process ids of the children. None where the kernel does not list them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{thread}/children"
            with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
                found += map(int, file.read().split())
    return found
