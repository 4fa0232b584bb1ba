"""What models of the literature would plan for the same levels, what they think comes of it, and what does.

As the document describes them (003, 6.2 and 6.4; digest 2.12): Young's and Daly's rules know one level, the
last, as that alone survives every failure; Di's model knows the last two, Benoit's, Moody's and the
document's any number. Moody's and Benoit's plan for a run without an end.

Deviations: Moody's is not the Markov chain, but the exact recursion with its rule for failed restarts, and
Di's the same with its own. Benoit's is the first-order formula, whose counts are rounded so that each level's
commits divide those of the one above.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum, inf, isinf, nan, sqrt

from dask_hpc.planning.interval.best import best_pattern
from dask_hpc.planning.interval.exact import DI, EXACT, MOODY, Rules, efficiency
from dask_hpc.planning.interval.hierarchical import FOREVER, hierarchical_efficiency
from dask_hpc.planning.interval.levels import Level, Pattern, failure_rate
from dask_hpc.planning.interval.single import daly, daly_first_order, young

# formulas divide by both
_LEAST = 1e-3  # seconds of a commit
_RAREST = 1e-9  # of all failures


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What one model plans."""

    model: str
    #: that it knows
    levels: tuple[Level, ...]
    pattern: Pattern
    #: the share of the time that is work, as the model predicts it; nan: it does not
    predicted: float
    #: and as it is
    efficiency: float


def model_plans(levels: Sequence[Level], run: float = inf) -> tuple[ModelPlan, ...]:
    """Of all of them, the exact one first; none if nothing fails."""
    if not failure_rate(levels):
        return ()
    models = (exact, dauwe, moody, di, benoit, by_daly, by_first_order, by_young)
    return tuple(model(levels, run) for model in models)


def last_levels(levels: Sequence[Level], number: int) -> list[Level]:
    """The last ones, with the failures of those below."""
    kept = list(levels[-number:])
    kept[0] = replace(kept[0], failures=fsum(one.failures for one in levels[: len(levels) - len(kept) + 1]))
    return kept


def exact(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    return _searched("exact", levels, run, EXACT)


def dauwe(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """The document's (003, 6.3)."""

    def worth(pattern: Pattern) -> float:
        periods = FOREVER if isinf(run) else run / (pattern.work * pattern.commits)
        return float(hierarchical_efficiency(levels, pattern.work, pattern.counts, periods))

    return _planned("Dauwe", levels, run, best_pattern(levels, run, worth=worth), worth)


def moody(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """Failed restarts go up by a level; for ever."""
    return _searched("Moody", levels, run, MOODY, plans_for=inf)


def di(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """No restart fails."""
    return _searched("Di", last_levels(levels, 2), run, DI)


def benoit(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """To first order; for ever."""
    rarest = failure_rate(levels) * _RAREST
    pairs = [(max(one.commit, _LEAST), max(one.failures, rarest)) for one in levels]
    between = sqrt(2 * pairs[-1][0] / pairs[-1][1])
    often = [between * sqrt(rate / (2 * commit)) for commit, rate in pairs]
    for place in reversed(range(len(often) - 1)):  # a commit to a level is one to those below
        often[place] = max(often[place], often[place + 1])
    counts = [max(0, round(below / above) - 1) for below, above in pairwise(often)]
    pattern = Pattern(between / (Pattern(1.0, tuple(counts)).commits), tuple(counts))
    waste = fsum(sqrt(2 * one.failures * one.commit) for one in levels)
    return ModelPlan("Benoit", tuple(levels), pattern, 1 / (1 + waste), efficiency(levels, pattern, run))


def by_daly(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """His higher-order interval, and his cost of it, which is exact for a run without an end."""
    return _by_rule("Daly", daly, levels, run)


def by_first_order(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    """003, 3.8."""
    return _by_rule("Daly, first order", daly_first_order, levels, run)


def by_young(levels: Sequence[Level], run: float = inf) -> ModelPlan:
    return replace(_by_rule("Young", young, levels, run), predicted=nan)


def _by_rule(
    name: str, rule: Callable[[float, float], float], levels: Sequence[Level], run: float
) -> ModelPlan:
    last = last_levels(levels, 1)
    pattern = Pattern(rule(max(last[0].commit, _LEAST), last[0].failures))
    return ModelPlan(name, tuple(last), pattern, efficiency(last, pattern), efficiency(last, pattern, run))


def _searched(
    name: str, levels: Sequence[Level], run: float, rules: Rules, plans_for: float | None = None
) -> ModelPlan:
    planned = run if plans_for is None else plans_for

    def worth(pattern: Pattern) -> float:
        return efficiency(levels, pattern, planned, rules)

    return _planned(name, levels, run, best_pattern(levels, planned, worth=worth), worth)


def _planned(
    name: str,
    levels: Sequence[Level],
    run: float,
    pattern: Pattern | None,
    worth: Callable[[Pattern], float],
) -> ModelPlan:
    pattern = pattern or Pattern(run, (0,) * (len(levels) - 1))  # no commit at all
    return ModelPlan(name, tuple(levels), pattern, worth(pattern), efficiency(levels, pattern, run))
