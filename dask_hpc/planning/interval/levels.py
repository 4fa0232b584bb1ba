"""Levels of a checkpoint, patterns of commits to them, and how often a stretch of time has to be tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import expm1, fsum, inf, prod

from dask_hpc.model.errors import InputError, insist, shown


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a checkpoint. A list of levels goes from the cheapest to the safest: what lies on a level
    survives the failures of that level and of all before it."""

    name: str
    #: seconds that one commit takes from the work, those of the levels below included
    commit: float
    #: seconds until work goes on from here
    restart: float
    #: per second: failures that nothing below this level survives
    failures: float

    def __post_init__(self) -> None:
        for name in ("commit", "restart", "failures"):
            value = getattr(self, name)
            fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf
            insist(fine, f"level {shown(self.name)}: {name}", value, "0 or more, and finite")


def failure_rate(levels: Sequence[Level]) -> float:
    """Failures of any kind, per second."""
    return fsum(level.failures for level in levels)


@dataclass(frozen=True, slots=True)
class Pattern:
    """``work`` seconds of computing between two commits, and how many commits to each level but the last
    come before one to the next level. ``counts == (2, 1)`` is a period of six commits to the levels 0, 0, 1,
    0, 0, 2; a 0 leaves a level out."""

    work: float
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.work > 0:
            raise InputError("work", f"found {shown(self.work)}", "seconds, more than 0")
        if any(count < 0 for count in self.counts):
            raise InputError("counts", f"found {shown(self.counts)}", "whole numbers, 0 or more")

    @property
    def commits(self) -> int:
        """In one period, which ends with a commit to the last level."""
        return prod(count + 1 for count in self.counts)

    def level(self, number: int) -> int:
        """To which level commit ``number`` goes; the first one is 1."""
        found = 0
        for count in self.counts:
            number, left = divmod(number, count + 1)
            if left:
                break
            found += 1
        return found

    def every(self) -> tuple[float, ...]:
        """Seconds of work between two commits to each level or one above it."""
        return tuple(accumulate(self.counts, lambda before, count: before * (count + 1), initial=self.work))


#: of an exponent: nobody waits e^600 times as long
ENDLESS = 600.0


def failures_before(seconds: float, rate: float) -> float:
    """Expected number of failed tries before one gets through."""
    return inf if rate * seconds > ENDLESS else expm1(rate * seconds)


def mean_failure(seconds: float, rate: float) -> float:
    """When a failure comes on average, given that it comes within these seconds."""
    x = rate * seconds
    if x < 1e-5:  # the exact form loses its digits here
        return seconds / 2 - rate * seconds * seconds / 12
    if x > ENDLESS:
        return 1 / rate
    return 1 / rate - seconds / expm1(x)
