"""Requests for jobs of nine laws if nothing can be kept (seed 004, 11.1)."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from dask_hpc.planning.reservation.brute_force import brute_force
from dask_hpc.planning.reservation.cost import CLOUD, WAIT, Cost
from dask_hpc.planning.reservation.discrete import Grid, end_of, equal_probability, equal_time
from dask_hpc.planning.reservation.law import Law, read_law
from dask_hpc.planning.reservation.methods import Question
from dask_hpc.planning.reservation.programs import no_checkpoint
from dask_hpc.planning.reservation.rules import by_rule
from dask_hpc.planning.reservation.sequence import Milestone, Setting
from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Figure,
    Outcome,
    at_least,
    at_most,
    claim,
    exactly,
    figure,
)

#: what is printed, by table and law
TABLES: Mapping[str, Mapping[str, Sequence[float | None]]] = yaml.safe_load(
    Path(__file__).with_name("reservation_tables.yaml").read_text(encoding="utf-8")
)
#: Table 11.1, but for the uniform law: see the assumptions
LAWS = {
    "Exponential": "exponential mean=1h",
    "Weibull": "weibull shape=0.5 scale=1h",
    "Gamma": "gamma shape=2 scale=0.5h",
    "Lognormal": "lognormal sigma=0.5 scale=20.085536923187668h",
    "TruncatedNormal": "truncnormal mean=8h std=1.4142135623730951h",
    "Pareto": "pareto shape=3 scale=1.5h",
    "Uniform": "uniform min=10h max=20h",
    "Beta": "beta a=2 b=2 scale=1h",
    "BoundedPareto": "boundedpareto shape=2.1 scale=1h max=20h",
}
HOUR = 3600.0
#: of a law without an end: what the published tables leave out
BEYOND = 1e-8
SIZES = (10, 25, 50, 100, 250, 500, 1000)
RULES = ("mean-by-mean", "mean-stdev", "mean-doubling", "median-by-median")
_QUANTILES = (0.25, 0.5, 0.75, 0.99)
_NOISE = 10.0
_MONTE_CARLO = "a Monte-Carlo estimate of unknown size, several per cent off: within 10 %"
_BELOW = "; the minimum of 5,000 such estimates lies below what any sequence costs"
#: hours: mean and standard deviation of the scaled walltimes
SCALED = ((0.348, 0.072), (0.696, 0.072), (0.696, 0.143), (1.741, 0.072), (1.741, 0.359), (3.482, 0.072),
          (3.482, 0.717))  # fmt: skip
#: "very close", in per cent: nothing else is said of three curves
_CLOSE = 1.0
_OVER = 1e-12


def run(bench: Bench) -> Outcome:
    """Nine laws, five ways to choose requests without a commit, and what they cost over knowing in advance
    (seed 004, 11.1; digest 5.3).

    All costs are exact: the series of the survival function, with a tail of doubled requests where a law has
    no end. The source draws jobs instead, and does not say how many. That its numbers are noisy is seen where
    two of them belong to one sequence, and that its brute force takes the least of 5,000 of them makes that
    column too low: for an exponential law the best sequence costs 2.3645, not 2.15.
    """
    claims = [*_grids(), *_rules(), *_first_requests(), *_scaled()]
    return Outcome(claims, [*_optima(), *_exact_scaled()])


def normalised(milestones: Sequence[Milestone], law: Law, cost: Cost = CLOUD) -> float:
    """What a sequence costs over what it costs to know in advance."""
    question = Question(law, Setting(cost))
    return question.judged(milestones).expected / cost.omniscient(law.mean)


def best_on(grid: Grid, law: Law, cost: Cost = CLOUD) -> tuple[Milestone, ...]:
    """The best requests that end at times of a grid."""
    return no_checkpoint(grid, Setting(cost)).milestones


def grids(law: Law, number: int) -> dict[str, Grid]:
    """Both kinds, cut as the published tables are."""
    end = end_of(law, BEYOND)
    return {
        "equal-time": equal_time(law, 0.0, number, end),
        "equal-probability": equal_probability(law, 0.0, number, end),
    }


@cache
def by_force(text: str) -> tuple[Milestone, ...]:
    """The best of 5,000 first requests for a law, where a request costs its length."""
    return brute_force(read_law(text), Setting(CLOUD))


def from_first(law: Law, first: float) -> tuple[Milestone, ...]:
    """The requests that follow from the first one by the condition for the best (formula 10.23, where a
    request costs its length); none if they turn down."""
    works = [0.0, first]
    while (left := float(law.sf(works[-1]))) > _OVER:
        following = min(float(law.sf(works[-2])) / float(law.pdf(works[-1])), law.high)
        if following <= works[-1]:
            return ()
        works.append(following)
        if len(works) > 1000 or not left:
            break
    return tuple(Milestone(work) for work in works[1:])


def _percent(ours: Sequence[float], published: Sequence[float | None]) -> float:
    """The largest deviation of a row, in per cent."""
    pairs = zip(ours, published, strict=True)
    return max(100 * abs(one / other - 1) for one, other in pairs if other is not None)


def _within(published: float, percent: float = _NOISE) -> Band:
    return published * (1 - percent / 100), published * (1 + percent / 100)


def _grids() -> list[Claim]:
    """Table 11.2, row by row."""
    found = []
    for name, text in LAWS.items():
        law = read_law(text)
        rows: dict[str, list[float]] = {}
        for number in SIZES:
            for kind, grid in grids(law, number).items():
                rows.setdefault(kind, []).append(normalised(best_on(grid, law), law))
        for kind, row in rows.items():
            note = f"{_MONTE_CARLO}; ours: {', '.join(f'{one:.2f}' for one in row)}"
            words = f"Table 11.2, {kind}, {name}: the largest deviation over {len(SIZES)} sizes of the grid"
            found.append(
                claim(words, "the printed row", _percent(row, TABLES[kind][name]), at_most(_NOISE), "%", note)
            )
    return found


def _rules() -> list[Claim]:
    """Table 11.3."""
    found = []
    for name, text in LAWS.items():
        law = read_law(text)
        printed = TABLES["heuristics"][name]
        ways = {"brute-force": by_force(text)}
        ways |= {rule: by_rule(rule, law, (), Setting(CLOUD)) for rule in RULES}
        for (way, milestones), published in zip(ways.items(), printed, strict=False):
            assert published is not None
            note = _MONTE_CARLO + (_BELOW if way == "brute-force" else "")
            words = f"Table 11.3, {name}: {way}"
            found.append(claim(words, published, normalised(milestones, law), _within(published), note=note))
    return found


def _first_requests() -> list[Claim]:
    """Table 11.4."""
    found, agree, cells = [], 0, 0
    for name, text in LAWS.items():
        law, printed = read_law(text), TABLES["first-requests"][name]
        first, published = by_force(text)[0].work / HOUR, printed[0]
        assert published is not None
        note = "the best of 5,000 first requests by noisy costs, flat around it: within 10 %"
        found.append(
            claim(f"Table 11.4, {name}: first request", published, first, _within(published), "h", note)
        )
        for quantile, of in zip(_QUANTILES, printed[3::2], strict=True):
            milestones = from_first(law, float(law.quantile(quantile)))
            cells, agree = cells + 1, agree + (bool(milestones) == (of is not None))
            if of is not None and milestones:
                words = f"Table 11.4, {name}: cost with the quantile {quantile:g} as first request"
                found.append(claim(words, of, normalised(milestones, law), _within(of), note=_MONTE_CARLO))
    note = "whether requests rise is no estimate: all of them"
    words = "Table 11.4: quantiles of which both say that requests rise, or that they do not"
    return [*found, claim(words, cells, agree, exactly(cells), note=note)]


def _lognormal(mean: float, std: float) -> Law:
    return read_law(f"lognormal mean={mean}h std={std}h")


@cache
def scaled(mean: float, std: float) -> dict[str, float]:
    """The costs of each way in the scenario of a batch system, and the best first request in hours."""
    law = _lognormal(mean, std)
    ways = {kind: best_on(grid, law, WAIT) for kind, grid in grids(law, SIZES[-1]).items()}
    ways["brute-force"] = brute_force(law, Setting(WAIT))
    ways |= {rule: by_rule(rule, law, (), Setting(WAIT)) for rule in RULES}
    costs = {way: normalised(milestones, law, WAIT) for way, milestones in ways.items()}
    kind = min(("equal-time", "equal-probability"), key=lambda one: costs[one])
    return costs | {"first": ways[kind][0].work / HOUR}


def _scaled() -> list[Claim]:
    """Figure 11.2, of which the text says how the curves lie."""
    found = [scaled(*one) for one in SCALED]
    ways = ("brute-force", "equal-time", "equal-probability")
    apart = max(max(one[way] for way in ways) / min(one[way] for way in ways) for one in found)
    gain = min(min(one[rule] for rule in RULES) / max(one[way] for way in ways) for one in found)
    close = f"a figure without numbers: within {_CLOSE:g} %"
    clear = "a figure without numbers: by more than 10 %"
    return [
        claim("Figure 11.2: brute force and both grids differ by at most", "very close", 100 * (apart - 1),
              at_most(_CLOSE), "%", close),
        claim("Figure 11.2: the best rule costs more than these, where it does least, by", "clearly better",
              100 * (gain - 1), at_least(_NOISE), "%", clear),
    ]  # fmt: skip


def best(text: str) -> float:
    """What the best sequence costs for a law, as far as any of three ways finds it."""
    law = read_law(text)
    found = [by_force(text), *(best_on(grid, law) for grid in grids(law, SIZES[-1]).values())]
    return min(normalised(one, law) for one in found)


def _optima() -> list[Figure]:
    """Of each law, and how many of the printed ones cannot be."""
    costs = {name: best(text) for name, text in LAWS.items()}
    below = sum((TABLES["heuristics"][name][0] or 0) < round(cost, 2) for name, cost in costs.items())
    return [
        *(figure(f"{name}: the best sequence costs", cost, "times") for name, cost in costs.items()),
        figure(
            "Table 11.3: brute force is printed with less than any sequence costs, for so many laws", below
        ),
    ]


def _exact_scaled() -> list[Figure]:
    found = []
    for mean, std in SCALED:
        costs = scaled(mean, std)
        least = min(costs["equal-time"], costs["equal-probability"])
        found.append(figure(f"mean {mean:g} h, std {std:g} h: the best sequence costs", least, "times"))
        found.append(figure(f"mean {mean:g} h, std {std:g} h: its first request", costs["first"], "h"))
    return found
