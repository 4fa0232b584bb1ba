"""Plans of commits in human units (``dask-hpc plan interval``)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isinf, nan
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_quantity, show_duration
from dask_hpc.planning.interval.best import best_pattern
from dask_hpc.planning.interval.exact import Parts, Weights, cost, efficiency, energy_weights, parts, worth
from dask_hpc.planning.interval.levels import Level, Pattern, failure_rate
from dask_hpc.planning.interval.models import last_levels
from dask_hpc.planning.interval.single import daly, young
from dask_hpc.planning.interval.spread import deviation

_CURVE = 41  # points
_SPREAD = 8.0  # the curve goes from an eighth of the planned interval to eight times as much
_KEYS = ("name", "commit", "restart", "mtbf")
_POWERS = ("computing", "committing")
#: what is to be least: time, energy, or the mean time and so many standard deviations of it
OBJECTIVES = ("time", "energy", "steady")
#: an efficiency that nobody would wait for
_HOPELESS = 1e-3


@dataclass(frozen=True, slots=True)
class Way:
    """A way to commit, and the share of the time that is work."""

    name: str
    #: seconds of work between two commits; inf: none at all
    work: float
    efficiency: float
    #: of what the bare work needs; nan: no power is known
    energy: float = nan


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
    objective: str = OBJECTIVES[0]
    #: of what the bare work needs; nan: no power is known
    energy: float = nan
    #: where the time goes, of a run without an end that of a period; None: it has none
    parts: Parts | None = None
    #: standard deviation of the time of the run, or of that of a period; seconds
    deviation: float = 0.0
    #: what takes least time, if that is not what was asked for
    fastest: Way | None = None

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
    def is_hopeless(self) -> bool:
        """Whether next to nothing is ever done, however one commits."""
        return self.efficiency < _HOPELESS

    @property
    def reason(self) -> str:
        rate = failure_rate(self.levels)
        if not rate:
            return "nothing ever fails: a commit would only cost time"
        if self.pattern is None:
            return "a commit costs more than it would save"
        if self.is_hopeless:
            return self._hopeless
        waste = 1 / self.efficiency - 1
        return (
            f"a failure every {show_duration(1 / rate)}; commits, restarts and work that is lost take "
            f"{waste:.1%} on top of the work{self._traded}"
        )

    @property
    def _hopeless(self) -> str:
        """Why next to nothing is ever done: a failure of any level comes before the longest step ends."""
        slow = max(self.levels, key=lambda level: max(level.commit, level.restart))
        what = "commit to" if slow.commit >= slow.restart else "restart from"
        seconds, between = max(slow.commit, slow.restart), 1 / failure_rate(self.levels)
        return (
            f"hopeless: next to nothing is ever done; a {what} {slow.name} takes {show_duration(seconds)}, "
            f"and a failure comes every {show_duration(between)}: it must be quicker, or failures fewer"
        )

    @property
    def _traded(self) -> str:
        """What the objective costs, and what it is worth."""
        fastest = self.fastest
        if fastest is None or not self.efficiency:
            return ""
        words = f"; {fastest.efficiency / self.efficiency - 1:.1%} more time than the fastest plan"
        if self.objective == "energy":
            words += f", {1 - self.energy / fastest.energy:.1%} less energy"
        return words


def plan_interval(
    levels: Iterable[Mapping[str, Any]],
    run: float | str = inf,
    *,
    objective: str = OBJECTIVES[0],
    power: Mapping[str, float | str] | None = None,
    deviations: float = 1.0,
) -> IntervalPlan:
    """How often to commit to which level.

    Each level is a mapping with a ``name``, ``commit`` (the time that a commit takes from the work),
    ``restart`` (as long as a commit unless said otherwise) and ``mtbf``, the mean time between failures that
    need this level, as nothing below it survives them. The cheapest level comes first. ``run`` is the work
    to be done, if that is known: near the end fewer commits pay.

    The ``objective`` is least ``"time"``; or least ``"energy"``, with the ``power`` of a node that is
    ``computing`` and of one that is ``committing`` or restarting; or ``"steady"``: least mean time of the run
    and so many standard ``deviations`` of it.
    """
    read = _read_levels(levels)
    seconds = _quantity("run", run)
    weights = None if power is None else read_power(power)
    pattern = _pattern(read, seconds, objective, weights, deviations)
    never = Pattern(seconds, (0,) * (len(read) - 1)) if 0 < seconds < inf else None
    taken = pattern or never

    def way(name: str, one: Pattern, levels: Sequence[Level] = read, run: float = seconds) -> Way:
        energy = nan if weights is None else 1 / (worth(levels, one, run, weights) or nan)
        return Way(name, one.work, efficiency(levels, one, run), energy)

    this = Way("", inf, 0.0 if failure_rate(read) else 1.0) if taken is None else way("", taken)
    curve: tuple[Way, ...] = ()
    if pattern is not None:
        works = map(float, pattern.work * np.geomspace(1 / _SPREAD, _SPREAD, _CURVE))
        curve = tuple(way("", Pattern(work, pattern.counts)) for work in works)
    fastest = None
    if objective != OBJECTIVES[0] and pattern is not None:
        quick = best_pattern(read, seconds) or never
        fastest = None if quick is None else way("least time", quick)
    others = [] if fastest is None else [fastest]
    # what people do without a plan: one level, the last, as only that survives every failure
    if failure_rate(read) and read[-1].commit:
        last = last_levels(read, 1)
        for name, rule in {"Daly": daly, "Young": young}.items():
            one = Pattern(rule(last[0].commit, last[0].failures))
            others.append(way(f"{last[0].name} alone, {name}'s interval", one, last, inf))
    return IntervalPlan(
        levels=read,
        run=seconds,
        pattern=pattern,
        efficiency=this.efficiency,
        others=tuple(others),
        curve=curve,
        objective=objective,
        energy=this.energy,
        parts=None if taken is None else parts(read, taken, seconds),
        deviation=0.0 if taken is None else deviation(read, taken, seconds),
        fastest=fastest,
    )


def _pattern(
    levels: Sequence[Level], run: float, objective: str, weights: Weights | None, deviations: float
) -> Pattern | None:
    """The best one for what was asked."""
    insist(objective in OBJECTIVES, "objective", objective, ", ".join(OBJECTIVES))
    if objective == "energy":
        if weights is None:
            raise InputError("objective", "'energy' needs the power", " and ".join(_POWERS))
        return best_pattern(levels, run, weights)
    if objective == "time":
        return best_pattern(levels, run)
    is_number = isinstance(deviations, int | float) and not isinstance(deviations, bool)
    insist(is_number and 0 <= deviations < inf, "deviations", deviations, "0 or more, and finite")
    if isinf(run):
        raise InputError("objective", "'steady' needs the run, as its time is to vary little", "a run")

    def steady(pattern: Pattern) -> float:
        return run / (cost(levels, pattern, run) + deviations * deviation(levels, pattern, run))

    return best_pattern(levels, run, worth=steady)


def _read_levels(levels: Iterable[Mapping[str, Any]]) -> tuple[Level, ...]:
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
    return read


def read_power(found: Any) -> Weights:
    """Watts of a node that is ``computing``, and of one that is ``committing`` or restarting."""
    check_keys(found, _POWERS, "power")
    watts = {}
    for name in _POWERS:
        if name not in found:
            raise InputError(f"power: {name}", "is missing", ", ".join(_POWERS))
        watts[name] = parse_quantity(found[name], "W", f"power: {name}")
        insist(0 < watts[name] < inf, f"power: {name}", found[name], "more than 0, and finite")
    return energy_weights(**watts)


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
