"""How much a run's cost varies: its standard deviation, exactly, by the recursion of ``exact`` for second
moments (003 digest, 2.11 says that it can be done; the document simulates, 003, 5.6).

What it takes to get through an interval for the first time depends on nothing that came before: after a
restart a run stands where it once stood. So variances of intervals add up. One interval is a geometric
number of tries that fail, each with what it cut off, a restart, and all that is done again since a commit;
because of the square of that last part the maps are those of products of a state's numbers.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, inf, isinf, sqrt

import numpy as np

from dask_hpc.planning.interval.exact import (
    EXACT,
    TIME,
    PatternWay,
    Rules,
    Weights,
    cut_off,
    intervals,
    turns,
    whole_periods,
)
from dask_hpc.planning.interval.levels import (
    ENDLESS,
    Level,
    Pattern,
    failure_rate,
    failures_before,
    mean_failure,
)


def deviation(
    levels: Sequence[Level],
    pattern: Pattern,
    run: float = inf,
    weights: Weights = TIME,
    rules: Rules = EXACT,
) -> float:
    """The standard deviation of what a run costs; of one without an end, that of a period."""
    rate = failure_rate(levels)
    if not rate:
        return 0.0
    whole, found = whole_periods(pattern, run), 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        way = _SpreadWay(levels, pattern, rate, weights, rules)
        if whole:
            last = len(levels) - 1
            period = way.interval(pattern.work, levels[last].commit, last) @ way.first(pattern.commits - 1)
            found = whole * way.variance(period)
        if not isinf(run):
            left = run - whole * pattern.work * pattern.commits
            before = intervals(pattern, left) - 1
            end = way.interval(left - before * pattern.work, 0.0, 0)
            found += way.variance(end @ way.first(before))
    return sqrt(found) if found < inf else inf  # which nan is not


class _SpreadWay(PatternWay):
    """A state is a variance, what of it came since the last commit that serves after a failure of each level,
    and the products of all pairs of: what was spent since each of these commits, and 1."""

    def __init__(
        self, levels: Sequence[Level], pattern: Pattern, rate: float, weights: Weights, rules: Rules
    ) -> None:
        self._own = len(levels) + 1
        super().__init__(levels, pattern, self._own + self._own**2)
        self._rate = rate
        self._weights = weights
        self._rules = rules
        self._reached, self._restart, self._restart_squared = _restart_moments(
            tuple(levels), rate, weights, rules
        )

    def variance(self, way: np.ndarray) -> float:
        """Of what goes this way from a commit to the last level."""
        return float(way[0, -1])

    def interval(self, work: float, commit: float, level: int) -> np.ndarray:
        own, weights = self._own, self._weights
        exposed = commit if self._rules.in_commits else 0.0
        failures = failures_before(work + exposed, self._rate)
        cut = cut_off(work, exposed, self._rate, weights)
        # of one failure, in numbers of a state: its mean, and the mean of its square
        mean = np.array([*self._reached, cut / failures + self._restart.sum()]) if failures else np.zeros(own)
        square = np.zeros((own, own))
        if failures:
            lost = cut / failures
            square[range(own - 1), range(own - 1)] = self._reached
            square[:-1, -1] = 2 * (lost * self._reached + self._restart)
            square[-1, -1] = _cut_off_squared(work, exposed, self._rate, weights) / failures
            square[-1, -1] += 2 * lost * self._restart.sum() + self._restart_squared
        first = weights.computing * work + weights.commits * commit
        # the number of failures varies, too
        spread = failures * square + failures * failures * np.outer(mean, mean)

        variance = np.zeros(self.size)
        variance[1:own] = failures * self._reached
        variance[own:] = spread.ravel()
        above = slice(level + 1, own - 1)  # levels that this commit does nothing for
        spent = np.eye(own)
        spent[: level + 1] = 0.0
        spent[above] += failures * mean
        spent[above, -1] += first
        found = np.zeros((self.size, self.size))
        found[0, 0] = 1.0
        found[0] += variance
        for place in range(level + 2, own):
            found[place, place] = 1.0
            found[place] += variance
        found[own:, own:] = np.kron(spent, spent)
        return found


def _cut_off_squared(work: float, commit: float, rate: float, weights: Weights) -> float:
    """Of all tries that fail before one gets through work and commit, the squares of what each costs."""
    if rate * (work + commit) > ENDLESS:
        return inf
    computed, failed = weights.computing * work, weights.failed_commits
    tries = failures_before(commit, rate)
    later = computed**2 * tries + 2 * computed * failed * tries * mean_failure(commit, rate)
    later += failed**2 * _squared_failure(commit, rate)
    # before one gets through both, so many tries get through the commit for each that does
    return weights.computing**2 * exp(rate * commit) * _squared_failure(work, rate) + later


def _squared_failure(seconds: float, rate: float) -> float:
    """Of all failures before one gets through so many seconds, the squares of when they come."""
    x = rate * seconds
    if x < 0.1:  # the exact form loses its digits here
        term, found = x, 0.0
        for number in range(10):
            found += term / (number + 3)
            term *= -x / (number + 1)
        return found * seconds * seconds * exp(x)
    return float((2 * np.expm1(x) - x * x - 2 * x) / rate**2)


@lru_cache(maxsize=256)
def _restart_moments(
    levels: tuple[Level, ...], rate: float, weights: Weights, rules: Rules
) -> tuple[np.ndarray, np.ndarray, float]:
    """How likely a restart after a failure ends on each level, its mean cost there times that, and the mean
    of the square of its cost."""
    size = len(levels)
    severity = np.array([level.failures / rate for level in levels])
    ends, costs, squares = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size)
    for this in reversed(range(size)):
        seconds = levels[this].restart
        after = np.array(turns(this, severity.tolist(), rules))
        through = failures_before(seconds, rate) if rules.in_restarts else 0.0
        good, bad = 1 / (1 + through), through / (1 + through)
        others, stays = bad * after, 1 - bad * after[this]
        others[this] = 0.0
        whole, failed = weights.restarts * seconds, weights.failed_restarts * mean_failure(seconds, rate)
        own = np.eye(size)[this]
        ends[this] = (good * own + others @ ends) / stays
        again = others + bad * after * own  # wherever a try that fails goes on
        costs[this] = (good * whole * own + failed * again @ ends + others @ costs) / stays
        squares[this] = good * whole**2 + 2 * failed * (again @ costs).sum() + others @ squares
        if through:
            each = weights.failed_restarts**2 * _squared_failure(seconds, rate) / through
            squares[this] += bad * each
        squares[this] /= stays
    return severity @ ends, severity @ costs, float(severity @ squares)
