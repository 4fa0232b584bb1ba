"""What a run with checkpoints on several levels takes on average, computed exactly (003 digest, 2.11).

The events are those of the document's own simulations (003, 6.4): a failure needs the last commit to its
level or above; one that comes during a commit loses that commit; one during a restart starts that again, or
the one of a higher level if it is worse. Unlike the document's equations (``hierarchical``), nothing is
approximated: the expected time to get through one interval for the first time follows from those before it.

A commit to the last level is always good enough, so all periods of a pattern take equally long on average,
and a run of any length costs no more to evaluate than one period.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, exp, expm1, fsum, inf, isinf, prod, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown

#: of an exponent: nobody waits e^600 times as long
ENDLESS = 600.0


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


_ROUNDING = 1e-9  # of a number of periods or intervals, as a share


def efficiency(levels: Sequence[Level], pattern: Pattern, run: float = inf) -> float:
    """The share of the time in which the run computes something for the first time. A run of ``run`` seconds
    of work ends without a commit; one without an end goes on for ever."""
    if isinf(run):
        return pattern.work * pattern.commits / period_time(levels, pattern)
    return run / run_time(levels, pattern, run)


def run_time(levels: Sequence[Level], pattern: Pattern, run: float) -> float:
    """Expected seconds of a run with so many seconds of work, which ends without a commit."""
    period = pattern.work * pattern.commits
    whole = ceil(run / period * (1 - _ROUNDING)) - 1  # periods that end with a commit
    before = whole * period_time(levels, pattern) if whole > 0 else 0.0
    return before + _time(levels, pattern, run - whole * period)


def period_time(levels: Sequence[Level], pattern: Pattern) -> float:
    return _time(levels, pattern, pattern.work * pattern.commits, commits_last=True)


def _time(levels: Sequence[Level], pattern: Pattern, run: float, *, commits_last: bool = False) -> float:
    """Expected seconds of a period, or of the beginning of one."""
    count = max(1, ceil(run / pattern.work * (1 - _ROUNDING)))
    rate = failure_rate(levels)
    if not rate:
        commits = count if commits_last else count - 1
        return run + sum(levels[pattern.level(number)].commit for number in range(1, commits + 1))
    way, end = _PatternWay(levels, pattern, rate), pattern.level(count)
    last = run - (count - 1) * pattern.work + levels[end].commit * commits_last
    with np.errstate(over="ignore", invalid="ignore"):
        spent = float((way.interval(last, end) @ way.first(count - 1))[0, -1])
    return spent if spent < inf else inf  # which nan is not


class _PatternWay:
    """What happens to a run, as linear maps. A state is the time that was spent, what of it was spent since
    the last commit that serves after a failure of each level, and 1. The same stretches that follow one
    another are a power of a map, so a million commits take no longer than a few."""

    def __init__(self, levels: Sequence[Level], pattern: Pattern, rate: float) -> None:
        self._levels = levels
        self._pattern = pattern
        self._rate = rate
        self._restart, self._reached = _restarts(levels, rate)
        self._blocks: dict[int, np.ndarray] = {}

    def interval(self, seconds: float, level: int) -> np.ndarray:
        """So many seconds, and then there is a commit to this level."""
        failures, lost = failures_before(seconds, self._rate), mean_failure(seconds, self._rate)
        size = len(self._levels) + 2
        spent = np.zeros(size)
        spent[1:-1] = failures * np.array(self._reached)
        spent[-1] = seconds + failures * (lost + self._restart)
        found = np.eye(size)
        found[1 : level + 2] = 0.0
        found[0] += spent
        found[level + 2 : -1] += spent
        return found

    def first(self, number: int) -> np.ndarray:
        """So many intervals from the beginning of a period, all with their commits."""
        found = np.eye(len(self._levels) + 2)
        sizes = list(accumulate(self._pattern.counts, lambda size, count: size * (count + 1), initial=1))
        for level in reversed(range(len(sizes))):
            times, number = divmod(number, sizes[level])
            if times:
                found = np.linalg.matrix_power(self._block(level), times) @ found
        return found

    def _block(self, level: int) -> np.ndarray:
        """All that ends with a commit to this level, since the last such one."""
        if level not in self._blocks:
            found = np.eye(len(self._levels) + 2)
            for below in reversed(range(level)):
                if times := self._pattern.counts[below]:
                    found = np.linalg.matrix_power(self._block(below), times) @ found
            seconds = self._pattern.work + self._levels[level].commit
            self._blocks[level] = self.interval(seconds, level) @ found
        return self._blocks[level]


def _restarts(levels: Sequence[Level], rate: float) -> tuple[float, list[float]]:
    """Mean seconds of a restart after a failure, tries that fail included, and how likely it ends on each
    level."""
    severity = [level.failures / rate for level in levels]
    times = [0.0] * len(levels)
    ends: list[list[float]] = [[]] * len(levels)
    for this in reversed(range(len(levels))):
        seconds = levels[this].restart
        good = exp(-rate * seconds)
        # (1 - good) of a tiny number would have no digits left
        bad = -expm1(-rate * seconds)
        here = sum(severity[: this + 1])
        stays = 1 - bad * here
        above = range(this + 1, len(levels))
        if stays <= 0:
            return inf, [0.0] * len(levels)
        failed = mean_failure(seconds, rate) + sum(severity[j] * times[j] for j in above)
        times[this] = (good * seconds + bad * failed) / stays
        ends[this] = [0.0] * len(levels)
        ends[this][this] = good / stays
        for j in above:
            for k in above:
                ends[this][k] += bad * severity[j] * ends[j][k] / stays
    mean = sum(share * time for share, time in zip(severity, times, strict=True))
    reached = [sum(severity[s] * ends[s][m] for s in range(len(levels))) for m in range(len(levels))]
    return mean, reached


def young(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to first order (Young, 1974)."""
    return sqrt(2 * commit / rate) if rate > 0 else inf


def daly(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to higher order (Daly, 2006)."""
    if not rate:
        return inf
    mean = 1 / rate
    if commit >= 2 * mean:
        return mean
    part = commit / (2 * mean)
    return sqrt(2 * commit * mean) * (1 + sqrt(part) / 3 + part / 9) - commit


_FOREVER = 1e6  # periods of a run that does not end


def hierarchical_efficiency(
    levels: Sequence[Level], work: Any, counts: Sequence[Any], periods: Any = _FOREVER
) -> Any:
    """The share of the time that is work, for arrays (of one shape) of the seconds between commits, of the
    counts of each level but the last, and of the periods of a run."""
    numbers = [np.asarray(count, float) for count in (*counts, np.asarray(periods, float) - 1)]
    total = np.asarray(work, float) * prod(number + 1 for number in numbers)
    rates = [level.failures for level in levels]
    whole = sum(rates) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        below: list[tuple[float, Any]] = []  # share of failures, and time to get through, of each level
        time = np.asarray(work, float)
        for place, (level, number) in enumerate(zip(levels, numbers, strict=True)):
            up_to_here = sum(rates[: place + 1])
            share = level.failures / whole
            once = _through(time, level.failures)
            below.append((share, once))
            failures = _grown(time, level.failures)
            failed_commits = number * _grown(level.commit, up_to_here)
            restarts = share * failed_commits + failures * (share * failed_commits + number + 1)
            time = (
                (number + 1) * once
                + number * _through(level.commit, up_to_here)
                + restarts * _through(level.restart, up_to_here)
                + failed_commits * sum(part * seconds for part, seconds in below)
            )
        return np.where(np.isfinite(time), total / time, 0.0)


def _grown(seconds: Any, rate: float) -> Any:
    exponent = rate * np.asarray(seconds, float)
    return np.where(exponent > ENDLESS, np.inf, np.expm1(np.minimum(exponent, ENDLESS)))


def _through(seconds: Any, rate: float) -> Any:
    return _grown(seconds, rate) / rate if rate > 0 else np.asarray(seconds, float)
