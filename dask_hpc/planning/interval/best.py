"""The pattern of commits at which least is wasted: of time, of energy, or of whatever is asked for.

A coarse grid by the model in closed form, and steps from its best by the exact one. The document evaluates
all patterns instead (003, 6.3.3). All intervals of a run are alike: none is cut short at its end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import inf, isinf, prod, sqrt

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.planning.interval import exact
from dask_hpc.planning.interval.exact import TIME, Weights
from dask_hpc.planning.interval.hierarchical import hierarchical_efficiency
from dask_hpc.planning.interval.levels import Level, Pattern, failure_rate

_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_LONGEST = 20_000  # commits of a period that are looked at one by one
_WORKS = 60  # lengths of work on the grid
_STARTS = 3  # of the grid's best that are improved
_FINEST = 1e-3  # change of the work, as a share, at which improving ends
_BETTER = 1 + 1e-9
_MOST_LEVELS = 6


@dataclass(frozen=True, slots=True)
class _Choice:
    """Counts of each level but the last, and either periods of a run or the work between commits."""

    counts: tuple[int, ...]
    periods: int = 0
    work: float = 0.0

    def pattern(self, run: float) -> Pattern:
        commits = prod(count + 1 for count in self.counts)
        return Pattern(run / (self.periods * commits) if self.periods else self.work, self.counts)


def best_pattern(
    levels: Sequence[Level],
    run: float = inf,
    weights: Weights = TIME,
    worth: Callable[[Pattern], float] | None = None,
) -> Pattern | None:
    """How to commit so that a run of so many seconds of work ends soonest; without an end, so that most of
    its time is work. None: never, as nothing fails or nothing is saved by it.

    With weights it is not time that is least but cost. ``worth`` says how good a pattern is, if that is not
    its exact cost: the more, the better, and 0 is no good at all."""
    if not 1 <= len(levels) <= _MOST_LEVELS:
        raise InputError("levels", f"found {len(levels)}", f"from 1 to {_MOST_LEVELS}")
    if not run > 0:
        raise InputError("run", f"found {shown(run)}", "seconds, more than 0")
    rate = failure_rate(levels)
    if not rate:
        return None

    @cache
    def value(choice: _Choice) -> float:
        pattern = choice.pattern(run)
        if pattern.commits > _LONGEST:
            return 0.0
        return worth(pattern) if worth else exact.worth(levels, pattern, run, weights)

    starts = _from_grid(levels, run, rate, weights)
    found = max((_improved(start, value) for start in starts), key=value)
    pattern = found.pattern(run)
    return None if pattern.commits == 1 and found.periods == 1 else pattern


def _from_grid(levels: Sequence[Level], run: float, rate: float, weights: Weights) -> list[_Choice]:
    """The best of all patterns on a coarse grid, by the model in closed form."""
    combinations = [
        counts
        for counts in product(_COUNTS, repeat=len(levels) - 1)
        if prod(count + 1 for count in counts) <= _LONGEST
    ]
    table = np.array(combinations, float).reshape(len(combinations), len(levels) - 1)
    commits, columns = np.prod(table + 1, axis=1), [column[:, None] for column in table.T]
    if isinf(run):
        shortest = max(min(level.commit for level in levels), 1e-6 / rate)
        middle = sqrt(2 * shortest / rate)
        works = np.geomspace(middle / 30, middle * 30, _WORKS)[None, :]
        worth = hierarchical_efficiency(levels, works, columns, weights=weights)
        choices = [_Choice((), work=float(seconds)) for seconds in works[0]]
    else:
        periods = np.unique(np.geomspace(1, 1e5, _WORKS).round())[None, :]
        works = run / (periods * commits[:, None])
        worth = hierarchical_efficiency(levels, works, columns, periods, weights)
        choices = [_Choice((), periods=int(number)) for number in periods[0]]
    order = np.argsort(worth, axis=None)[::-1][:_STARTS]
    places = [np.unravel_index(place, worth.shape) for place in order]
    return [replace(choices[column], counts=combinations[row]) for row, column in places]


def _improved(choice: _Choice, worth: Callable[[_Choice], float]) -> _Choice:
    step = 0.25
    while step > _FINEST:
        better = max(_neighbours(choice, step), key=worth)
        if worth(better) > worth(choice) * _BETTER:
            choice = better
        else:
            step /= 2
    return choice


def _neighbours(choice: _Choice, step: float) -> Iterator[_Choice]:
    """A little more or less of one thing, and of one thing at another's cost."""
    sizes = [_steps(count, step) for count in choice.counts]
    lengths: list[tuple[int, float]] = [(choice.periods, choice.work)]
    if choice.periods:
        lengths += [(periods, 0.0) for periods in _steps(choice.periods, step) if periods]
    else:
        lengths += [(0, choice.work * (1 + step)), (0, choice.work / (1 + step))]
    for periods, work in lengths:
        yield _Choice(choice.counts, periods, work)
        for place, others in enumerate(sizes):
            for other in others:
                counts = (*choice.counts[:place], other, *choice.counts[place + 1 :])
                yield _Choice(counts, periods, work)


def _steps(count: int, step: float) -> list[int]:
    by = max(1, round(count * step))
    return [other for other in (count - by, count + by) if other >= 0]
