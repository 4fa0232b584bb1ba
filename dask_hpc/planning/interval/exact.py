"""What a run with checkpoints on several levels takes on average, computed exactly (003 digest, 2.11).

The events are those of the document's own simulations (003, 6.4): a failure needs the last commit to its
level or above; one that comes during a commit loses that commit; one during a restart starts that again, or
the one of a higher level if it is worse. Unlike the document's equations (``hierarchical``), nothing is
approximated: the expected time to get through one interval for the first time follows from those before it.

A commit to the last level is always good enough, so all periods of a pattern take equally long on average,
and a run of any length costs no more to evaluate than one period.

All of it is linear in what a second costs, and seconds of five kinds may cost differently (``Weights``): so
the same maps give energy (003, 5.4, level by level, where equation 5.7 has the last one alone) and, with one
kind at a time, where the time goes (003, 6.4.4). ``Rules`` change what a failure does to what other models
of the literature take it to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, expm1, inf, isinf

import numpy as np

from dask_hpc.planning.interval.levels import (
    Level,
    Pattern,
    failure_rate,
    failures_before,
    mean_failure,
)


@dataclass(frozen=True, slots=True)
class Weights:
    """What a second of each kind costs."""

    #: work, for the first time or again
    computing: float = 1.0
    #: commits that are completed
    commits: float = 1.0
    failed_commits: float = 1.0
    restarts: float = 1.0
    failed_restarts: float = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What failures do. The default is what happens; models differ in what they leave out."""

    #: one during a restart that needs the same level again makes it start from the next one (Moody)
    escalate: bool = False
    #: they come during commits
    in_commits: bool = True
    #: they come during restarts
    in_restarts: bool = True


TIME = Weights()
EXACT = Rules()
MOODY = Rules(escalate=True)
DI = Rules(in_restarts=False)
BENOIT = Rules(in_commits=False, in_restarts=False)


def energy_weights(computing: float, committing: float) -> Weights:
    """Watts while a node computes, and while it commits or restarts: a cost is joules then."""
    return Weights(computing, committing, committing, committing, committing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time of a run goes, in seconds."""

    #: computed for the first time
    work: float
    #: computed again, and computing that a failure cut off
    recomputation: float
    commits: float
    failed_commits: float
    restarts: float
    failed_restarts: float

    @property
    def total(self) -> float:
        return self.cost(TIME)

    def cost(self, weights: Weights) -> float:
        """Of all of it."""
        return (
            weights.computing * (self.work + self.recomputation)
            + weights.commits * self.commits
            + weights.failed_commits * self.failed_commits
            + weights.restarts * self.restarts
            + weights.failed_restarts * self.failed_restarts
        )


_ROUNDING = 1e-9  # of a number of periods or intervals, as a share


def efficiency(levels: Sequence[Level], pattern: Pattern, run: float = inf, rules: Rules = EXACT) -> float:
    """The share of the time in which the run computes something for the first time. A run of ``run`` seconds
    of work ends without a commit; one without an end goes on for ever."""
    return worth(levels, pattern, run, TIME, rules)


def worth(
    levels: Sequence[Level], pattern: Pattern, run: float, weights: Weights, rules: Rules = EXACT
) -> float:
    """What the bare work costs over what the run does; it may have no end."""
    work = pattern.work * pattern.commits if isinf(run) else run
    return weights.computing * work / cost(levels, pattern, run, weights, rules)


def run_time(levels: Sequence[Level], pattern: Pattern, run: float) -> float:
    """Expected seconds of a run with so many seconds of work, which ends without a commit."""
    return cost(levels, pattern, run)


def period_time(levels: Sequence[Level], pattern: Pattern) -> float:
    return cost(levels, pattern)


def cost(
    levels: Sequence[Level],
    pattern: Pattern,
    run: float = inf,
    weights: Weights = TIME,
    rules: Rules = EXACT,
) -> float:
    """What a run with so many seconds of work costs on average; of one without an end, its periods."""
    period, whole = pattern.work * pattern.commits, whole_periods(pattern, run)
    before = whole * _cost(levels, pattern, period, weights, rules, commits_last=True) if whole else 0.0
    return before if isinf(run) else before + _cost(levels, pattern, run - whole * period, weights, rules)


def whole_periods(pattern: Pattern, run: float) -> int:
    """Those of a run that end with a commit; 1 stands for a run without an end."""
    if isinf(run):
        return 1
    return max(0, ceil(run / (pattern.work * pattern.commits) * (1 - _ROUNDING)) - 1)


def intervals(pattern: Pattern, run: float) -> int:
    """Commits of so much work, were there one at its end."""
    return max(1, ceil(run / pattern.work * (1 - _ROUNDING)))


def parts(levels: Sequence[Level], pattern: Pattern, run: float = inf, rules: Rules = EXACT) -> Parts:
    """Where the time of a run goes; of one without an end, that of a period."""
    one_kind = [Weights(*(float(this == kind) for this in range(5))) for kind in range(5)]
    computing, *others = (cost(levels, pattern, run, weights, rules) for weights in one_kind)
    work = pattern.work * pattern.commits if isinf(run) else run
    names = ("commits", "failed_commits", "restarts", "failed_restarts")
    # a rounding error is no work that was done again
    recomputation = max(0.0, computing - work)
    return Parts(work=work, recomputation=recomputation, **dict(zip(names, others, strict=True)))


def _cost(
    levels: Sequence[Level],
    pattern: Pattern,
    run: float,
    weights: Weights,
    rules: Rules,
    *,
    commits_last: bool = False,
) -> float:
    """Of a period, or of the beginning of one."""
    count = intervals(pattern, run)
    rate = failure_rate(levels)
    if not rate:
        commits = count if commits_last else count - 1
        seconds = sum(levels[pattern.level(number)].commit for number in range(1, commits + 1))
        return weights.computing * run + weights.commits * seconds
    way, end = _CostWay(levels, pattern, rate, weights, rules), pattern.level(count)
    work, commit = run - (count - 1) * pattern.work, levels[end].commit * commits_last
    with np.errstate(over="ignore", invalid="ignore"):
        spent = float((way.interval(work, commit, end) @ way.first(count - 1))[0, -1])
    return spent if spent < inf else inf  # which nan is not


class PatternWay:
    """What happens to a run, as linear maps of ``size`` numbers. The same stretches that follow one another
    are a power of a map, so a million commits take no longer than a few."""

    def __init__(self, levels: Sequence[Level], pattern: Pattern, size: int) -> None:
        self.levels = levels
        self.pattern = pattern
        self.size = size
        self._blocks: dict[int, np.ndarray] = {}

    def interval(self, work: float, commit: float, level: int) -> np.ndarray:
        """So many seconds of work, and then a commit to this level, which takes so many."""
        raise NotImplementedError

    def first(self, number: int) -> np.ndarray:
        """So many intervals from the beginning of a period, all with their commits."""
        found = np.eye(self.size)
        sizes = list(accumulate(self.pattern.counts, lambda size, count: size * (count + 1), initial=1))
        for level in reversed(range(len(sizes))):
            times, number = divmod(number, sizes[level])
            if times:
                found = np.linalg.matrix_power(self._block(level), times) @ found
        return found

    def _block(self, level: int) -> np.ndarray:
        """All that ends with a commit to this level, since the last such one."""
        if level not in self._blocks:
            found = np.eye(self.size)
            for below in reversed(range(level)):
                if times := self.pattern.counts[below]:
                    found = np.linalg.matrix_power(self._block(below), times) @ found
            self._blocks[level] = self.interval(self.pattern.work, self.levels[level].commit, level) @ found
        return self._blocks[level]


class _CostWay(PatternWay):
    """A state is what was spent, what of it was spent since the last commit that serves after a failure of
    each level, and 1."""

    def __init__(
        self, levels: Sequence[Level], pattern: Pattern, rate: float, weights: Weights, rules: Rules
    ) -> None:
        super().__init__(levels, pattern, len(levels) + 2)
        self._rate = rate
        self._weights = weights
        self._rules = rules
        self._restart, reached = restarts(tuple(levels), rate, weights, rules)
        self._reached = np.array(reached)

    def interval(self, work: float, commit: float, level: int) -> np.ndarray:
        exposed = commit if self._rules.in_commits else 0.0
        failures = failures_before(work + exposed, self._rate)
        spent = np.zeros(self.size)
        spent[1:-1] = failures * self._reached
        spent[-1] = (
            self._weights.computing * work
            + self._weights.commits * commit
            + cut_off(work, exposed, self._rate, self._weights)
            + failures * self._restart
        )
        found = np.eye(self.size)
        found[1 : level + 2] = 0.0
        found[0] += spent
        found[level + 2 : -1] += spent
        return found


def cut_off(work: float, commit: float, rate: float, weights: Weights) -> float:
    """Cost of the tries that fail before one gets through work and commit."""
    tries = failures_before(commit, rate)
    failed_commits = tries * mean_failure(commit, rate)
    before = failures_before(work, rate)
    # what was computed is lost with each commit that fails, whatever had to be computed for it
    computing = before * mean_failure(work, rate) + (tries * before / rate if tries else 0.0)
    return weights.computing * computing + weights.failed_commits * failed_commits


@lru_cache(maxsize=256)
def restarts(
    levels: tuple[Level, ...], rate: float, weights: Weights, rules: Rules
) -> tuple[float, list[float]]:
    """Mean cost of a restart after a failure, tries that fail included, and how likely it ends on each
    level."""
    severity = [level.failures / rate for level in levels]
    costs = [0.0] * len(levels)
    ends: list[list[float]] = [[]] * len(levels)
    for this in reversed(range(len(levels))):
        seconds = levels[this].restart
        good = exp(-rate * seconds) if rules.in_restarts else 1.0
        # (1 - good) of a tiny number would have no digits left
        bad = -expm1(-rate * seconds) if rules.in_restarts else 0.0
        after = turns(this, severity, rules)
        stays = 1 - bad * after[this]
        if stays <= 0:
            return inf, [0.0] * len(levels)
        others = range(this + 1, len(levels))
        failed = weights.failed_restarts * mean_failure(seconds, rate)
        failed += sum(after[other] * costs[other] for other in others)
        costs[this] = (good * weights.restarts * seconds + bad * failed) / stays
        ends[this] = [0.0] * len(levels)
        ends[this][this] = good / stays
        for other in others:
            for end in others:
                ends[this][end] += bad * after[other] * ends[other][end] / stays
    mean = sum(share * each for share, each in zip(severity, costs, strict=True))
    reached = [sum(severity[s] * ends[s][m] for s in range(len(levels))) for m in range(len(levels))]
    return mean, reached


def turns(this: int, severity: Sequence[float], rules: Rules) -> list[float]:
    """Where a restart from this level goes on when it fails: the share of each level."""
    found = [0.0] * this + [sum(severity[: this + 1]), *severity[this + 1 :]]
    if rules.escalate and this + 1 < len(severity):
        found[this] -= severity[this]
        found[this + 1] += severity[this]
    return found
