"""What a run with checkpoints on several levels takes on average, computed exactly (003 digest, 2.11).

The events are those of the document's own simulations (003, 6.4): a failure needs the last commit to its
level or above; one that comes during a commit loses that commit; one during a restart starts that again, or
the one of a higher level if it is worse. Unlike the document's equations (``hierarchical``), nothing is
approximated: the expected time to get through one interval for the first time follows from those before it.

A commit to the last level is always good enough, so all periods of a pattern take equally long on average,
and a run of any length costs no more to evaluate than one period.
"""

from collections.abc import Sequence
from math import ceil, exp, expm1, inf, isinf

import numpy as np

from dask_hpc.model.level import Level, failure_rate
from dask_hpc.planning.interval.pattern import Pattern
from dask_hpc.planning.interval.stage import failures_before, mean_failure

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
    """Expected seconds of one period."""
    return _time(levels, pattern, pattern.work * pattern.commits, commits_last=True)


def _time(levels: Sequence[Level], pattern: Pattern, run: float, *, commits_last: bool = False) -> float:
    """Expected seconds of a period, or of the beginning of one."""
    count = max(1, ceil(run / pattern.work * (1 - _ROUNDING)))
    last = run - (count - 1) * pattern.work
    rate = failure_rate(levels)
    if not rate:
        commits = count if commits_last else count - 1
        return run + sum(levels[pattern.level(number)].commit for number in range(1, commits + 1))
    way = _Way(levels, pattern, rate)
    end = pattern.level(count)
    with np.errstate(over="ignore", invalid="ignore"):
        before = way.first(count - 1)
        through = way.interval(last + levels[end].commit * commits_last, end)
        spent = float((through @ before)[0, -1])
    return spent if spent < inf else inf  # which nan is not


class _Way:
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
        first, failures, lost = _stretch(seconds, self._rate)
        size = len(self._levels) + 2
        spent = np.zeros(size)
        spent[1:-1] = failures * np.array(self._reached)
        spent[-1] = first + failures * (lost + self._restart)
        found = np.eye(size)
        found[0] += spent
        for this in range(len(self._levels)):
            row = found[this + 1]
            if this <= level:
                row[:] = 0.0
            else:
                row += spent
        return found

    def first(self, number: int) -> np.ndarray:
        """So many intervals from the beginning of a period, all with their commits."""
        found = np.eye(len(self._levels) + 2)
        sizes = [1]
        for count in self._pattern.counts:
            sizes.append(sizes[-1] * (count + 1))
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


def _stretch(seconds: float, rate: float) -> tuple[float, float, float]:
    return seconds, failures_before(seconds, rate), mean_failure(seconds, rate)


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
