"""When results are copied to which level.

``auto`` takes the pattern of commits that wastes least (003, chapter 6, as ``planning.interval`` has it);
``young`` and ``daly`` give each level an interval of its own, from what a commit to it costs and from how
often it is needed; else the intervals are those that the user said.

Failures are expected as often as a prior says and as often as they were seen: with a prior of one failure in
``mtbf`` seconds, worth ``WEIGHT`` failures, the mean of the posterior (a gamma distribution) is
``(WEIGHT + seen) / (WEIGHT * mtbf + node seconds)``. Deviation: a commit is taken to stop the work for as
long as it takes, though it runs beside it. So intervals are longer than the best ones rather than shorter.

A run that ends soon needs no commits to the store: without any, half of what is left is lost on average if
all of it fails; a commit in its middle halves that, and saves ``failures * left**2 / 4`` seconds. If one
takes longer, none is planned. At the end of a loop there is one in any case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from dask_hpc.model.units import show_duration
from dask_hpc.planning.interval import Level, Pattern, best_pattern, daly, efficiency, young

#: of the prior, in failures
WEIGHT = 1.0
#: seconds; what is planned shorter would be commits all the time
SHORTEST = 1.0
#: seconds; no commit costs nothing, however short it was measured
_LEAST = 0.01
#: by so much, as a share, what a plan was made from may change before another is made
DRIFT = 0.25

AUTO, YOUNG, DALY = "auto", "young", "daly"
_RULES = {YOUNG: young, DALY: daly}
_STORE = "store"
_ROUNDING = 1e-9  # of a number of commits
#: a rule, or seconds for each level
Every = str | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LevelCost:
    """Of one level: seconds of a commit, failures per second of one node that need this level, and seconds
    until work goes on from there (as long as a commit, until it was measured)."""

    level: str
    commit: float
    failures: float
    restart: float | None = None


@dataclass(frozen=True, slots=True)
class When:
    """Seconds between commits by level, the share of the time that is work then (None if the user said how
    often), and why."""

    every: Mapping[str, float]
    efficiency: float | None
    reason: str


def failure_rate(mtbf: float, failures: float, node_seconds: float) -> float:
    """Of one node, per second: what was expected, and what was seen in so many seconds of so many nodes."""
    return (WEIGHT + failures) / (WEIGHT * mtbf + node_seconds)


def has_drifted(
    before: Sequence[LevelCost], nodes_before: int, costs: Sequence[LevelCost], nodes: int
) -> bool:
    """Whether a plan that was made before is to be made again."""
    if nodes != nodes_before or [one.level for one in before] != [one.level for one in costs]:
        return True
    return any(
        _differ(old.commit, new.commit) or _differ(old.failures, new.failures)
        for old, new in zip(before, costs, strict=True)
    )


def commits_left(left: float, every: float) -> float:
    """With so much left to be done, iterations or seconds, and a commit each time that so much is done and at
    the end."""
    return left if left in (0.0, inf) else max(1.0, ceil(left / every - _ROUNDING))


def until_end(planned: When, costs: Sequence[LevelCost], nodes: int, left: float) -> When:
    """The same for a run that has so many seconds left: no commits to the store if they cost more than they
    save. What the user said stays as it is."""
    if planned.efficiency is None or planned.every.get(_STORE, inf) == inf:
        return planned
    failures = max(1, nodes) * next(one.failures for one in costs if one.level == _STORE)
    if failures * left**2 / 4 >= max(_LEAST, *(one.commit for one in costs)):
        return planned
    why = f"{planned.reason}; no more to the store: the {short(left)} that are left are too short for it"
    return replace(planned, every={**planned.every, _STORE: inf}, reason=why)


def when(every: Every, costs: Sequence[LevelCost], nodes: int, left: float = inf) -> When:
    """How often to commit to each level; the cheapest one comes first. ``left`` are seconds until the end of
    the run, if that is known."""
    return until_end(_endless(every, costs, nodes), costs, nodes, left)


def _endless(every: Every, costs: Sequence[LevelCost], nodes: int) -> When:
    if not isinstance(every, str):
        chosen = {one.level: max(SHORTEST, every.get(one.level, inf)) for one in costs}
        return When(chosen, None, f"commits {_said(chosen)}, as was said")
    levels, most = [], _LEAST
    for one in costs:
        most = max(most, one.commit)  # a level above one that costs more costs as much
        levels.append(Level(one.level, most, most, one.failures * max(1, nodes)))
    rate = sum(one.failures for one in levels)
    pattern = best_pattern(levels) if every == AUTO else None
    if not rate or (every == AUTO and pattern is None):
        return When({one.level: inf for one in costs}, 1.0, "nothing ever fails: no commits")
    if pattern is not None:
        planned = dict(zip((one.level for one in costs), pattern.every(), strict=True))
        share = efficiency(levels, pattern)
    else:
        planned = {one.name: _RULES[every](one.commit, one.failures) for one in levels}
        share = min(efficiency([one], Pattern(planned[one.name])) for one in levels if one.failures)
    chosen = {name: max(SHORTEST, seconds) for name, seconds in planned.items()}
    reason = (
        f"commits {_said(chosen)} ({every}): one takes {short(levels[0].commit)}, a failure is expected "
        f"every {short(1 / rate)}; {share:.1%} of the time is work"
    )
    return When(chosen, share, reason)


def _differ(old: float, new: float) -> bool:
    return abs(new - old) > DRIFT * max(old, 1e-12)


def _said(every: Mapping[str, float]) -> str:
    parts = [f"to {level} every {short(seconds)}" for level, seconds in every.items() if seconds < inf]
    return ", ".join(parts) or "never"


def short(seconds: float) -> str:
    """Two digits of a duration."""
    return show_duration(float(f"{seconds:.2g}"))
