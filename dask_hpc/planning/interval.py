"""When to commit to which level, in human units (``dask-hpc plan interval``), from what a run with
checkpoints on several levels takes on average, computed exactly (003 digest, 2.11).

The events are those of the document's own simulations (003, 6.4): a failure needs the last commit to its
level or above; one that comes during a commit loses that commit; one during a restart starts that again, or
the one of a higher level if it is worse. Unlike the document's equations (``hierarchical``), nothing is
approximated: the expected time to get through one interval for the first time follows from those before it.

A commit to the last level is always good enough, so all periods of a pattern take equally long on average,
and a run of any length costs no more to evaluate than one period.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise, product
from math import ceil, exp, expm1, fsum, inf, isinf, prod, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_quantity, show_duration


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
