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
    restart, reached = _restarts(levels, rate)
    #: what getting through a stretch takes, by the level of its commit: first try, then for each failure
    stretches = [_stretch(pattern.work + level.commit, rate) for level in levels]
    spent = 0.0
    saved = [0.0] * len(levels)  # the time it took to reach the last commit that serves after each failure
    for number in range(1, count + 1):
        level = pattern.level(number)
        first, failures, lost = stretches[level]
        if number == count:
            first, failures, lost = _stretch(last + levels[level].commit * commits_last, rate)
        back = sum(share * (spent - at) for share, at in zip(reached, saved, strict=True))
        spent += first + failures * (lost + restart + back)
        if isinf(spent):
            return inf
        for below in range(level + 1):
            saved[below] = spent
    return spent


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
