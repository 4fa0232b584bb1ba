"""Which levels something is kept on, if any: those with which least is lost until its end.

A choice is a set of levels, and how often each is committed to. The empty set is *lineage alone*: what is
lost is computed again, from the last commit there was, or from the beginning. Each possible set gets the
pattern of commits that is best for it (003, chapter 6, exact, as ``planning.interval`` has it), and is
charged with what the rest of the run takes on average beyond its own length: commits, restarts, and work done
again. What no level of the set serves goes back to the last commit that does, which is one more level, of
which there are no commits, whose restart takes as long as what is at risk now. Charges are in seconds or,
with what a second of each kind draws, in joules.

Work that is lost takes less long when many do it again (``speed``, measured): failures that cost half as
much are charged as failures that are half as frequent, which is right as long as they do not come one upon
another. A run whose end nobody knows is taken to go on for as long as it has gone on so far. What does not
grow, results that are there and are kept, needs one commit and no more.

Deviations from 003, 3.3.2: protocols are weighed from what was measured here and again whenever that changes,
not once from the machine's data sheet; and for the rest of the run, not for all of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dask_hpc.model.units import show_large
from dask_hpc.planning.interval import TIME, Level, Pattern, Weights, best_pattern, cost
from dask_hpc.strategies.checkpoint.when import SHORTEST, LevelCost, When, has_drifted, short

TIME_OBJECTIVE, ENERGY = OBJECTIVES = ("time", "energy")
_HOUR = 3600.0
_LEAST = 0.01  # seconds; no commit costs nothing
#: what is at risk, or left, may become so many times as much, or as little, before it is weighed again
_GROWN = 1.5
#: seconds; what is less is as good as nothing
_LITTLE = 2.0
#: a choice stays unless another one loses less by this share
_BETTER = 0.02
#: seconds or joules an hour: who loses so much does not come to an end
_ALL = 1e12


@dataclass(frozen=True, slots=True)
class Stake:
    """What there is to lose. ``costs`` has the levels that there are, the cheapest first; ``at_risk`` seconds
    of work that are gone if a failure needs that level now."""

    costs: tuple[LevelCost, ...]
    nodes: int
    at_risk: Mapping[str, float]
    #: seconds until the end
    left: float
    #: seconds of work that are done again in one second
    speed: float = 1.0
    #: whether there is more to lose every second
    grows: bool = True
    #: if not: the levels that have all of it
    there: frozenset[str] = frozenset()
    weights: Weights = TIME
    #: the sets to choose from
    among: tuple[tuple[str, ...], ...] = ((),)

    def has_drifted(self, before: "Stake") -> bool:
        """Whether it is to be weighed anew."""
        if any(getattr(self, one) != getattr(before, one) for one in ("weights", "grows", "there", "among")):
            return True
        pairs = [(self.left, before.left), (self.speed * _LITTLE, before.speed * _LITTLE)]
        pairs += [(self.at_risk[one], before.at_risk.get(one, 0.0)) for one in self.at_risk]
        return any(_differ(*pair) for pair in pairs) or has_drifted(
            before.costs, before.nodes, self.costs, self.nodes
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """Of a set of levels: what is expected to be lost in an hour, in seconds or joules, and how often commits
    are made to each."""

    levels: tuple[str, ...]
    per_hour: float
    every: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LevelChoice(When):
    """``losses``: of all that was weighed, the chosen one first, the others by what they lose."""

    losses: tuple[Loss, ...] = field(default=())

    @property
    def levels(self) -> tuple[str, ...]:
        return self.losses[0].levels


def which(stake: Stake, now: tuple[str, ...] | None = None) -> LevelChoice:
    """The levels with which least is lost. ``now`` are those that are in use: others have to be better by
    more than a little."""
    weighed = [_loss(stake, one) for one in stake.among]
    if len(weighed) > 1:  # a level to which nothing goes is not kept
        weighed = [one for one in weighed if all(one.every[level] < inf for level in one.levels)]
    losses = sorted(weighed, key=_rank)
    kept = next((one for one in losses if one.levels == now), None)
    if kept is not None and kept.per_hour <= losses[0].per_hour * (1 + _BETTER):
        losses.remove(kept)
        losses.insert(0, kept)
    found, unit = losses[0], "" if stake.weights == TIME else "J"
    draws = stake.weights.computing if unit else 1.0
    share = 1 / (1 + found.per_hour / draws / _HOUR)
    return LevelChoice(found.every, share, _reason(stake, losses, unit), tuple(losses))


def _rank(loss: Loss) -> tuple[float, int]:
    """Of equals the one with fewer levels; where all is lost anyway, with more."""
    return loss.per_hour, len(loss.levels) * (1 if loss.per_hour < inf else -1)


def sets(levels: Iterable[str]) -> list[tuple[str, ...]]:
    """All choices that there are; a copy on disk is a partner's."""
    found: list[tuple[str, ...]] = [()]
    for name in levels:
        found += [(*one, name) for one in found if name != "disk" or "partner" in one]
    return found


def _loss(stake: Stake, kept: tuple[str, ...]) -> Loss:
    """Of one set of levels, and its best pattern."""
    levels, bare, at_risk = _levels(stake, kept)
    lost, draws = sum(one for one, _ in bare), stake.weights
    lineage = None
    if lost:
        # A restart from there is work: it is to be charged as that.
        again = sum(rate * risk for rate, risk in bare) / lost
        lineage = Level("", levels[-1].commit if levels else 0.0, 0.0, lost)
        lineage = replace(lineage, restart=again * draws.computing / draws.restarts)
    pattern = None
    if levels and stake.grows and sum(one.failures for one in levels):
        pattern = best_pattern(levels, stake.left, draws)
    every = _every(stake, kept, pattern, at_risk)
    shown = pattern or Pattern(stake.left, (0,) * (len(levels) - 1))
    if lineage is not None:
        most = int(stake.left / (shown.work * shown.commits)) + 1  # so many are never made
        counts = (*shown.counts, most) if levels else ()
        levels, shown = [*levels, lineage], Pattern(shown.work if levels else stake.left, counts)
    if not levels:
        return Loss(kept, 0.0, every)
    total = cost(levels, shown, stake.left, draws) if stake.grows else _resting(stake, levels)
    total -= draws.computing * stake.left
    if stake.grows:
        waits = max(0.0, min(every.values()) - at_risk)  # until the next commit it is still at risk
        served = sum(one.failures for one in levels) - lost
        total += draws.computing * served * at_risk * min(waits, stake.left) if kept else 0.0
        new = kept if at_risk >= SHORTEST and not waits else ()
    else:
        new = tuple(one for one in kept if one not in stake.there)
    commits = [max(_LEAST, one.commit) for one in stake.costs if one.level in new]
    total += draws.commits * max(commits, default=0.0)
    return Loss(kept, max(0.0, total) * _HOUR / stake.left, every)


def _levels(stake: Stake, kept: Sequence[str]) -> tuple[list[Level], list[tuple[float, float]], float]:
    """Those that are kept, with the failures that each serves; of failures that none serves the rate and what
    each costs; and what is at risk until the next commit."""
    nodes, levels, most, at_risk = max(1, stake.nodes), list[Level](), _LEAST, 0.0
    waiting: list[tuple[float, float]] = []
    for one in stake.costs:
        rate, risk = one.failures * nodes / stake.speed, stake.at_risk[one.level]
        if one.level not in kept:
            waiting.append((rate, risk))
            continue
        most, at_risk = max(most, one.commit), max(at_risk, risk)
        rate += sum(other for other, _ in waiting)
        waiting = []
        restart = (one.commit if one.restart is None else one.restart) * stake.speed
        levels.append(Level(one.level, most, restart, rate))
    return levels, waiting, at_risk


def _resting(stake: Stake, levels: Sequence[Level]) -> float:
    """What does not grow is lost and had again, as often as that happens."""
    restarts = sum(one.failures * one.restart for one in levels) * stake.left
    return stake.weights.computing * stake.left + stake.weights.restarts * restarts


def _every(stake: Stake, kept: Sequence[str], pattern: Pattern | None, at_risk: float) -> dict[str, float]:
    """Seconds by level. What is at risk may be worth a commit now, and what follows none: then it is due."""
    once = SHORTEST
    if stake.grows:
        once = max(SHORTEST, min(at_risk, stake.left)) if at_risk >= SHORTEST else inf
    planned = dict.fromkeys(kept, once)
    if pattern is not None:
        planned = dict(zip(kept, pattern.every(), strict=True))
        planned = {one: inf if it >= stake.left * (1 - 1e-9) else it for one, it in planned.items()}
    return {one.level: max(SHORTEST, planned.get(one.level, inf)) for one in stake.costs}


def _differ(one: float, other: float) -> bool:
    low, high = sorted((max(one, _LITTLE), max(other, _LITTLE)))
    return high > _GROWN * low


def _reason(stake: Stake, losses: Sequence[Loss], unit: str) -> str:
    found, *others = losses
    rate = sum(one.failures for one in stake.costs) * max(1, stake.nodes)
    often = f"a failure is expected every {short(1 / rate)}" if rate else "nothing ever fails"
    said = f"{_said(found)}: it is expected to lose {_amount(found.per_hour, unit)} an hour"
    if others:
        said += f", {_named(others[0].levels)} {_amount(others[0].per_hour, unit)}"
    return f"{said}; {often}, and {short(stake.left)} are left"


def _said(loss: Loss) -> str:
    often = [f"{one} every {short(loss.every[one])}" for one in loss.levels if loss.every[one] < inf]
    return "copies to " + ", ".join(often) if often else "no copies, lineage alone"


def _named(levels: Sequence[str]) -> str:
    return " and ".join(levels) or "lineage alone"


def _amount(value: float, unit: str) -> str:
    if value > _ALL:
        return "all of it"
    return show_large(float(f"{value:.2g}"), unit) if unit else short(value)
