"""Commits for least time and for least energy (seed 003, chapter 5)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from dask_hpc.planning.interval import (
    TIME,
    Level,
    Pattern,
    best_pattern,
    cost,
    deviation,
    efficiency,
    energy_weights,
)
from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Figure,
    Outcome,
    at_most,
    claim,
    direction,
    exactly,
    figure,
)
from dask_hpc.reproduce.multilevel import as_much_as

_NODES = 120_000
_YEAR = 365.25 * 86400
_RUN = 86400.0
_SEVERITY = (0.138, 0.784, 0.078)
_PORTS = 12  # nodes that a switch lets write at once
_LATENCY = 0.5e-6
#: a node that computes, and one that commits: 150 W idle and 28.33 W of the network, as the text has it
WATTS = energy_weights(750.0, 150 + 28 + 1 / 3)
#: per cent of the machine; GB of a node; years between failures of a node
SIZES = (1.0, 10.0, 25.0, 50.0, 75.0, 100.0)
MEMORIES = (16.0, 24.0, 32.0, 40.0)
YEARS = (1.25, 2.5, 5.0, 10.0, 20.0)
ONE, SEVERAL = "checkpoint/restart", "multilevel"
_AS_MUCH = "as much as that: not more, and at least half of it"
_EVERY = "said of all of them"
_STEPS = "said of the whole sweep: every step"
_OPTIMA = "solved: each plan is the best for its own objective"


@dataclass(frozen=True, slots=True)
class PlannedMachine:
    """As the source has it but for what is varied. A factor is of the speed of each part."""

    percent: float = 100.0
    memory: float = 32.0
    years: float = 2.5
    network: float = 1.0
    latency: float = 1.0
    memory_speed: float = 1.0

    def levels(self, way: str) -> tuple[Level, ...]:
        """What commits cost (003, 4.3 to 4.5; 5.3 lacks the ports, G15), and how often nodes fail."""
        nodes = _NODES * self.percent / 100
        rate = nodes / (self.years * _YEAR)
        store = self.memory / (600 * self.network) * nodes / _PORTS
        local = self.memory / (40 * self.memory_speed)
        partner = 2 * (2 * local + _LATENCY / self.latency)
        if way == ONE:
            return (Level("store", store, store, rate),)
        costs = (local, partner, max(store, partner))  # of 1 % of the machine the store is the faster
        return tuple(
            Level(name, seconds, seconds, share * rate)
            for name, seconds, share in zip(("local", "partner", "store"), costs, _SEVERITY, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of one plan: mean efficiency and energy, that of the bare work being 1, and how both vary."""

    efficiency: float
    energy: float
    efficiency_varies: float
    energy_varies: float


@cache
def planned(machine: PlannedMachine, way: str) -> tuple[Outcomes, Outcomes]:
    """For least time, and for least energy."""
    levels = machine.levels(way)
    never = Pattern(_RUN, (0,) * (len(levels) - 1))
    fast, frugal = (_outcomes(levels, best_pattern(levels, _RUN, one) or never) for one in (TIME, WATTS))
    return fast, frugal


def _outcomes(levels: tuple[Level, ...], pattern: Pattern) -> Outcomes:
    share, bare = efficiency(levels, pattern, _RUN), WATTS.computing * _RUN
    return Outcomes(
        share,
        cost(levels, pattern, _RUN, WATTS) / bare,
        share**2 * deviation(levels, pattern, _RUN) / _RUN,
        deviation(levels, pattern, _RUN, WATTS) / bare,
    )


def _lost(machine: PlannedMachine, way: str) -> float:
    """Efficiency given up for energy, in points."""
    fast, frugal = planned(machine, way)
    return 100 * (fast.efficiency - frugal.efficiency)


def _saved(machine: PlannedMachine, way: str) -> float:
    """Energy that this saves, in per cent."""
    fast, frugal = planned(machine, way)
    return 100 * (1 - frugal.energy / fast.energy)


def run(bench: Bench) -> Outcome:
    """Commits planned for least time against those for least energy (seed 003, 5.6; digest E5.1 to E5.3).

    A run of a day on a part of an exascale machine, with commits to the store alone and with commits to three
    levels. All figures are exact: means by the recursion with the watts of each kind of seconds, standard
    deviations by that of second moments, the efficiency's from the time's to first order. Energy over that of
    bare work. That one level saves 15 % is not reached with the powers that are printed: a commit would have
    to take 28 W, the network's alone, and then the efficiency would suffer more than is said.
    """
    sizes = [PlannedMachine(percent=percent) for percent in SIZES]
    memories = [PlannedMachine(memory=memory) for memory in MEMORIES]
    years = [PlannedMachine(years=each) for each in YEARS]
    claims = [*_trade_off(sizes), *_spread(sizes), *_memory(memories), *_impact(), *_reliability(years)]
    sweeps = {
        "{0.percent:g} % of the machine": sizes,
        "{0.memory:g} GB": memories,
        "a failure of a node in {0.years:g} years": years,
    }
    return Outcome(claims, [one for words, sweep in sweeps.items() for one in _figures(words, sweep)])


def _trade_off(sizes: list[PlannedMachine]) -> list[Claim]:
    """Figure 5.1."""
    one, several = ([_lost(machine, way) for machine in sizes] for way in (ONE, SEVERAL))
    dearer = [100 * (1 / (1 - _saved(machine, ONE) / 100) - 1) for machine in sizes]
    saved = [_saved(machine, SEVERAL) for machine in sizes]
    between = "a range: all sizes lie in it"
    rates = {way: [_saved(machine, way) / _lost(machine, way) for machine in sizes] for way in (ONE, SEVERAL)}
    grows = {way: each[-1] / each[0] - 1 for way, each in rates.items()}
    return [
        claim(f"{ONE}: efficiency given up for energy, at the size where it is least", 0.5, min(one),
              (0.5, 3.0), "points", between),
        claim(f"{ONE}: the same at the size where it is most", 3.0, max(one), (0.5, 3.0), "points", between),
        claim(f"{ONE}: energy that the plan for time takes more, at most", 15.0, max(dearer), as_much_as(15),
              "%", _AS_MUCH),
        claim(f"{SEVERAL}: efficiency given up for energy, at most", 4.0, max(several), as_much_as(4),
              "points", _AS_MUCH),
        claim(f"{SEVERAL}: energy that this saves, at most", 7.0, max(saved), as_much_as(7), "%", _AS_MUCH),
        direction(f"{SEVERAL}: what a point of efficiency saves is more on the whole machine than on 1 %, by",
                  "grows faster", 100 * grows[SEVERAL], (0.0, np.inf)),
        direction(f"{ONE}: the same grows by less than that, by", "less prevalent",
                  100 * (grows[SEVERAL] - grows[ONE]), (0.0, np.inf), "points"),
        *(claim(f"{way}: sizes at which the plan for time is more efficient and that for energy saves some",
                len(sizes), _count(_lost(one, way) > 0 < _saved(one, way) for one in sizes),
                exactly(len(sizes)), note=_EVERY, by_construction=_OPTIMA) for way in (ONE, SEVERAL)),
    ]  # fmt: skip


_VARIES: Mapping[str, Callable[[Outcomes], float]] = {
    "efficiency": lambda one: one.efficiency_varies,
    "energy": lambda one: one.energy_varies,
}


def _spread(sizes: list[PlannedMachine]) -> list[Claim]:
    """How results vary."""
    found = []
    for way in (ONE, SEVERAL):
        for what, of in _VARIES.items():
            fast, frugal = ([of(planned(machine, way)[plan]) for machine in sizes] for plan in (0, 1))
            steps = [after > before for each in (fast, frugal) for before, after in pairwise(each)]
            less = _count(low < high for low, high in zip(frugal, fast, strict=True))
            slower = (fast[-1] - fast[0]) - (frugal[-1] - frugal[0])
            found += [
                claim(f"{way}: steps to a larger size at which the {what} varies more", len(steps),
                      _count(steps), exactly(len(steps)), note=f"{_STEPS}, with both plans"),
                direction(f"{way}: how much the {what} varies rises less if planned for energy, by",
                          "more slowly", 100 * slower, (0.0, np.inf), "points"),
                claim(f"{way}: sizes at which the {what} varies less if planned for energy", len(sizes), less,
                      exactly(len(sizes)), note=_EVERY),
            ]  # fmt: skip
    return found


def _memory(memories: list[PlannedMachine]) -> list[Claim]:
    """Figure 5.2."""
    bands: Mapping[str, tuple[Band, Band]] = {
        ONE: ((5.0, 14.0), at_most(3.0)),
        SEVERAL: ((2.0, 6.0), (2.0, 3.0)),
    }
    found = []
    for way, (saving, loss) in bands.items():
        saved, lost = ([of(machine, way) for machine in memories] for of in (_saved, _lost))
        words = f"between {saving[0]:g} and {saving[1]:g}"
        note = "a range: all memories lie in it"
        for extreme, value in (("least", min(saved)), ("most", max(saved))):
            text = f"memory, {way}: energy saved, where it is {extreme}"
            found.append(claim(text, words, value, saving, "%", note))
        text = f"memory, {way}: efficiency given up for it, at most"
        bound = "at most 3" if loss[0] < 0 else "between 2 and 3"
        found.append(claim(text, bound, max(lost), loss, "points", "a bound"))
        text = f"memory, {way}: efficiency given up for it, at least"
        if loss[0] > 0:
            found.append(claim(text, bound, min(lost), loss, "points", note))
    return found


def _impact() -> list[Claim]:
    """Which of all has most effect, if it is twice as bad."""
    base = planned(PlannedMachine(), SEVERAL)[0].efficiency
    drops = {
        what: 100 * (base - planned(machine, SEVERAL)[0].efficiency)
        for what, machine in {
            "memory": PlannedMachine(memory=64.0),
            "MTBF": PlannedMachine(years=1.25),
            "network": PlannedMachine(network=0.5),
            "latency": PlannedMachine(latency=0.5),
            "memory speed": PlannedMachine(memory_speed=0.5),
        }.items()
    }
    memory = drops.pop("memory")
    return [
        direction(f"twice the memory costs more efficiency than a {what} half as good, by", "largest impact",
                  memory - drop, (0.0, np.inf), "points")
        for what, drop in drops.items()
    ]  # fmt: skip


def _reliability(years: list[PlannedMachine]) -> list[Claim]:
    """Figure 5.3."""
    found = []
    for way in (ONE, SEVERAL):
        plans = [planned(machine, way) for machine in years]
        better = [after[0].efficiency > before[0].efficiency for before, after in pairwise(plans)]
        less = [_saved(after, way) < _saved(before, way) for before, after in pairwise(years)]
        calmer = _count(of(frugal) < of(fast) for fast, frugal in plans for of in _VARIES.values())
        number = 2 * len(years)
        found += [
            claim(f"{way}: steps to nodes that fail less often at which efficiency rises", len(better),
                  _count(better), exactly(len(better)), note=_STEPS),
            claim(f"{way}: steps at which the energy saved falls", len(less), _count(less),
                  exactly(len(less)), note=_STEPS),
            claim(f"{way}: times that efficiency or energy varies less if planned for energy", number, calmer,
                  exactly(number), note=_EVERY),
        ]  # fmt: skip
    return found


def _count(facts: Iterable[bool]) -> float:
    return float(sum(facts))


def _figures(words: str, sweep: list[PlannedMachine]) -> list[Figure]:
    found = []
    for machine in sweep:
        for way in (ONE, SEVERAL):
            for plan, one in zip(("time", "energy"), planned(machine, way), strict=True):
                text = f"{words.format(machine)}, {way}, for {plan}"
                found.append(figure(f"{text}: efficiency", 100 * one.efficiency, "%"))
                found.append(figure(f"{text}: energy", one.energy, "times"))
    return found
