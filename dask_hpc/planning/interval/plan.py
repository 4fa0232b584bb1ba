"""When to commit, in human units: what ``dask-hpc plan interval`` prints, for programs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from math import inf, isinf, prod, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_quantity, show_duration
from dask_hpc.planning.interval.exact import (
    Level,
    Pattern,
    daly,
    efficiency,
    failure_rate,
    hierarchical_efficiency,
    young,
)

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


def best_pattern(levels: Sequence[Level], run: float = inf) -> Pattern | None:
    """How to commit so that a run of so many seconds of work ends soonest; without an end, so that most of
    its time is work. None: never, as nothing fails or nothing is saved by it."""
    if not 1 <= len(levels) <= _MOST_LEVELS:
        raise InputError("levels", f"found {len(levels)}", f"from 1 to {_MOST_LEVELS}")
    if not run > 0:
        raise InputError("run", f"found {shown(run)}", "seconds, more than 0")
    rate = failure_rate(levels)
    if not rate:
        return None

    @cache
    def worth(choice: _Choice) -> float:
        pattern = choice.pattern(run)
        return 0.0 if pattern.commits > _LONGEST else efficiency(levels, pattern, run)

    starts = _from_grid(levels, run, rate)
    found = max((_improved(start, worth) for start in starts), key=worth)
    pattern = found.pattern(run)
    return None if pattern.commits == 1 and found.periods == 1 else pattern


def _from_grid(levels: Sequence[Level], run: float, rate: float) -> list[_Choice]:
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
        worth = hierarchical_efficiency(levels, works, columns)
        choices = [_Choice((), work=float(seconds)) for seconds in works[0]]
    else:
        periods = np.unique(np.geomspace(1, 1e5, _WORKS).round())[None, :]
        works = run / (periods * commits[:, None])
        worth = hierarchical_efficiency(levels, works, columns, periods)
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


_CURVE = 41  # points
_SPREAD = 8.0  # the curve goes from an eighth of the planned interval to eight times as much
_KEYS = ("name", "commit", "restart", "mtbf")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to commit, and the share of the time that is work."""

    name: str
    #: seconds of work between two commits; inf: none at all
    work: float
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPlan:
    """How often to commit to which level, and how that compares."""

    levels: tuple[Level, ...]
    #: seconds of work in all; inf if that is not known
    run: float
    #: None: committing costs more than it saves
    pattern: Pattern | None
    #: the share of the time that is work
    efficiency: float
    others: tuple[Way, ...]
    #: other intervals, with the order of levels that was planned
    curve: tuple[Way, ...]

    @property
    def every(self) -> dict[str, float]:
        """Seconds of work between two commits to each level or one above it; inf: never."""
        if self.pattern is None:
            return {level.name: inf for level in self.levels}
        return {
            level.name: seconds if seconds < self.run * (1 - 1e-9) else inf
            for level, seconds in zip(self.levels, self.pattern.every(), strict=True)
        }

    @property
    def reason(self) -> str:
        rate = failure_rate(self.levels)
        if not rate:
            return "nothing ever fails: a commit would only cost time"
        if self.pattern is None:
            return "a commit costs more than it would save"
        waste = (1 / self.efficiency - 1) if self.efficiency else inf
        return (
            f"a failure every {show_duration(1 / rate)}; commits, restarts and work that is lost take "
            f"{waste:.1%} on top of the work"
        )


def plan_interval(levels: Iterable[Mapping[str, Any]], run: float | str = inf) -> IntervalPlan:
    """How often to commit to which level.

    Each level is a mapping with a ``name``, ``commit`` (the time that a commit takes from the work),
    ``restart`` (as long as a commit unless said otherwise) and ``mtbf``, the mean time between failures that
    need this level, as nothing below it survives them. The cheapest level comes first. ``run`` is the work
    to be done, if that is known: near the end fewer commits pay.
    """
    if isinstance(levels, str | Mapping) or not isinstance(levels, Iterable):
        raise InputError("levels", f"found {shown(levels)}", "a list of levels")
    read = tuple(read_level(level, number) for number, level in enumerate(levels, 1))
    names = [level.name for level in read]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError("levels", f"found {shown(min(twice))} twice", "each name once")
    for below, above in pairwise(read):
        if above.commit < below.commit:
            raise InputError(
                f"level {shown(above.name)}",
                f"is cheaper than {shown(below.name)}, which survives less",
                "the cheapest first; leave out what is never worth its cost",
            )
    seconds, rate = _quantity("run", run), failure_rate(read)
    pattern = best_pattern(read, seconds)
    share = 0.0 if rate else 1.0
    curve: tuple[Way, ...] = ()
    others: tuple[Way, ...] = ()
    if pattern is not None:
        works = map(float, pattern.work * np.geomspace(1 / _SPREAD, _SPREAD, _CURVE))
        patterns = [Pattern(work, pattern.counts) for work in works]
        curve = tuple(Way("", one.work, efficiency(read, one, seconds)) for one in patterns)
        share = efficiency(read, pattern, seconds)
    elif rate and not isinf(seconds):
        share = efficiency(read, Pattern(seconds, (0,) * (len(read) - 1)), seconds)
    # what people do without a plan: one level, the last, as only that survives every failure
    if rate and read[-1].commit:
        last = replace(read[-1], failures=rate)
        rules = {"Daly": Pattern(daly(last.commit, rate)), "Young": Pattern(young(last.commit, rate))}
        others = tuple(
            Way(f"{last.name} alone, {name}'s interval", one.work, efficiency([last], one))
            for name, one in rules.items()
        )
    return IntervalPlan(
        levels=read, run=seconds, pattern=pattern, efficiency=share, others=others, curve=curve
    )


def read_level(found: Any, number: int) -> Level:
    """From a mapping, as in a file; it is the ``number``-th until its name is known."""
    where = f"level {number}"
    check_keys(found, _KEYS, where)
    name = found.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: name", f"found {shown(name)}", "a name")
    where = f"level {shown(name)}"
    for key in ("commit", "mtbf"):
        if key not in found:
            raise InputError(f"{where}: {key}", "is missing", ", ".join(_KEYS))
    values = {key: _quantity(f"{where}: {key}", found[key]) for key in _KEYS[1:] if key in found}
    between = values.pop("mtbf")
    if not between > 0:
        raise InputError(f"{where}: mtbf", f"found {shown(found['mtbf'])}", "a time, more than 0")
    return Level(name, values["commit"], values.get("restart", values["commit"]), 1 / between)


def _quantity(where: str, value: Any) -> float:
    try:
        seconds = parse_quantity(value, "s")
    except InputError as error:
        raise error.at(where) from None
    if not seconds >= 0:
        raise InputError(where, f"found {shown(value)}", "0 or more")
    return seconds
