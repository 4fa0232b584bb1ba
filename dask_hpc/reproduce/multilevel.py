"""What models of commits to several levels plan and predict (seed 003, chapter 6).

Everything is computed, nothing drawn: where the source shows the mean of 200 runs, ours is the exact one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import pairwise

import numpy as np

from dask_hpc.planning.interval import Level, ModelPlan, Pattern, best_pattern, deviation, efficiency, parts
from dask_hpc.planning.interval.models import benoit, by_daly, dauwe, di, moody
from dask_hpc.reproduce.claim import (
    Band,
    Bench,
    Claim,
    Figure,
    Outcome,
    at_least,
    at_most,
    claim,
    direction,
    exactly,
    figure,
)

_MINUTE = 60.0
#: Table 6.1: minutes between failures, shares of severities, minutes of a commit or restart, minutes of work
SYSTEMS: Mapping[str, tuple[float, Sequence[float], Sequence[float], float]] = {
    "M": (6944.45, (0.083, 0.75, 0.167), (0.008, 0.075, 17.53), 1440),
    "B": (333.33, (0.56, 0.28, 0.14, 0.03), (0.17, 0.5, 0.83, 2.5), 1440),
    "D1": (51.42, (0.857, 0.143), (0.333, 0.833), 1440),
    "D2": (24.0, (0.833, 0.167), (0.333, 0.833), 1440),
    "D3": (12.0, (0.833, 0.167), (0.167, 0.667), 1440),
    "D4": (6.0, (0.833, 0.167), (0.167, 0.667), 1440),
    "D5": (12.0, (0.833, 0.167), (0.333, 1.67), 1440),
    "D6": (6.0, (0.833, 0.167), (0.167, 1.67), 720),
    "D7": (4.0, (0.833, 0.167), (0.667, 3.33), 360),
    "D8": (3.13, (0.870, 0.130), (0.833, 5.0), 360),
    "D9": (3.13, (0.870, 0.130), (0.833, 5.0), 180),
}
_HARDEST = ("D7", "D8", "D9")
#: minutes between failures, of which the source names the first, third and last
MTBFS = (26, 20, 15, 9, 3)
#: minutes of a commit to the last level
COMMITS = (10, 20, 30, 40)
_DAY, _SHORT, _LONGER = 1440.0, 30.0, 120.0  # minutes of work
_SHORT_COMMITS = (10, 20)
_MODELS: Mapping[str, Callable[[Sequence[Level], float], ModelPlan]] = {
    "Dauwe": dauwe, "Moody": moody, "Di": di, "Benoit": benoit, "Daly": by_daly,
}  # fmt: skip
THREE = ("Dauwe", "Moody", "Di")
_ONE_PERCENT = 0.01
_COUNT = "how many of them is a count: all"
_ALL_STEPS = "said of all of them: every step"
_AS_MUCH = "as much as that: not more, and at least half of it"


def as_much_as(most: float) -> Band:
    """The largest of several figures, as it is printed: not rounded in our favour, and no small one."""
    return most / 2, most


@cache
def levels_of(mtbf: float, shares: Sequence[float], costs: Sequence[float]) -> tuple[Level, ...]:
    """From minutes."""
    return tuple(
        Level(str(number), cost * _MINUTE, cost * _MINUTE, share / sum(shares) / mtbf / _MINUTE)
        for number, (share, cost) in enumerate(zip(shares, costs, strict=True), 1)
    )


def scenario(commit: float, mtbf: float) -> tuple[Level, ...]:
    """System B with other commits to its last level, and other failures."""
    _, shares, costs, _ = SYSTEMS["B"]
    return levels_of(mtbf, shares, (*costs[:-1], commit))


@cache
def plan_of(model: str, levels: tuple[Level, ...], minutes: float) -> ModelPlan:
    """Of one model, and what comes of it."""
    return _MODELS[model](levels, minutes * _MINUTE)


def _on(system: str, model: str) -> ModelPlan:
    mtbf, shares, costs, minutes = SYSTEMS[system]
    return plan_of(model, levels_of(mtbf, shares, costs), minutes)


def _error(plan: ModelPlan) -> float:
    """Of its prediction, in points."""
    return 100 * (plan.predicted - plan.efficiency)


def _relative_error(plan: ModelPlan) -> float:
    return plan.predicted / plan.efficiency - 1


def _count(facts: Iterable[bool]) -> float:
    return float(sum(facts))


# -- eleven systems (6.4.3) ------------------------------------------------------------------------------


def systems(bench: Bench) -> Outcome:
    """Five models on the eleven systems of Table 6.1 (seed 003, 6.4.3; digest E6.1, 6.1).

    Each plans its own pattern; what comes of it is computed exactly, by the events of the source's simulator.
    Moody's model is the exact recursion with its rule that a restart which fails goes up by a level, planned
    for ever; Di's the same without failures in restarts, on the last two levels; Benoit's and Daly's are
    their formulas. Where Benoit's is said to do so badly, its implementation must have been another: the
    formula as published chooses intervals within a factor of two of the best.
    """
    return Outcome([*_one_level(), *_first_order(), *_three_models()], _of_systems())


def _efficiencies(model: str) -> list[float]:
    return [100 * _on(system, model).efficiency for system in SYSTEMS]


def _one_level() -> list[Claim]:
    daly, number = _efficiencies("Daly"), len(SYSTEMS)
    better = [min(three) for three in zip(*map(_efficiencies, THREE), strict=True)]
    dauwe = _efficiencies("Dauwe")
    relative = max(100 * (1 - low / high) for low, high in zip(daly, dauwe, strict=True))
    points = max(high - low for low, high in zip(daly, dauwe, strict=True))
    worst = "whether it is relative is not said (G18), so both; " + _AS_MUCH
    return [
        claim("systems on which one level, by Daly, is less efficient than several by each of three models",
              number, _count(low < high for low, high in zip(daly, better, strict=True)), exactly(number),
              note=_COUNT),
        claim("Daly's prediction is wrong by at most", "highly accurate",
              max(abs(_error(_on(system, "Daly"))) for system in SYSTEMS), at_most(2), "points",
              "no number is printed: within 2 points"),
        claim("one level is less efficient than several, where it is worst, by", 50.0, relative,
              as_much_as(50), "%", worst),
        claim("the same in points", 50.0, points, as_much_as(50), "points", worst),
    ]  # fmt: skip


def _first_order() -> list[Claim]:
    """What is said of Benoit's model."""
    efficiencies = dict(zip(SYSTEMS, _efficiencies("Benoit"), strict=True))
    harder = list(SYSTEMS)[1:]
    longer = {
        system: [_on(system, "Benoit").pattern.work / _on(system, model).pattern.work for model in THREE]
        for system in SYSTEMS
    }
    ratios = [min(each) for each in longer.values()]
    optimistic = _count(_error(_on(system, "Benoit")) > 0 for system in SYSTEMS)
    falls, rises = efficiencies["M"] - efficiencies["B"], efficiencies["D1"] - efficiencies["B"]
    first_order = "the formula as published, not the implementation that the source had"
    return [
        claim("M: Benoit's is less efficient than the best of three models by", "performs well",
              max(_on("M", model).efficiency for model in THREE) * 100 - efficiencies["M"], at_most(1),
              "points", "no number is printed: within a point"),
        claim("harder systems on which Benoit's is less efficient than one level by Daly", len(harder),
              _count(_on(one, "Benoit").efficiency < _on(one, "Daly").efficiency for one in harder),
              exactly(len(harder)), note=f"{_COUNT}; ours is {first_order}"),
        claim("Benoit's interval is longer than those of three models, at least, times", 2.5, min(ratios),
              at_least(2.5), note=f"a lower bound; ours is {first_order}: {_listed(ratios)}"),
        claim("steps to a harder system at which it is longer by more", len(harder),
              _count(after > before for before, after in pairwise(ratios)), exactly(len(harder)),
              note=_ALL_STEPS),
        claim("systems on which Benoit's prediction is too high", len(SYSTEMS), optimistic,
              exactly(len(SYSTEMS)),
              note=f"{_COUNT}; M and B are not: it plans for ever, where a run ends without a commit"),
        direction("Benoit's efficiency drops from M to B by", "sharply", falls, (0.0, np.inf), "points"),
        direction("and rises from B to D1 by", "increases", rises, (0.0, np.inf), "points"),
    ]  # fmt: skip


def _three_models() -> list[Claim]:
    found = []
    steps = len(SYSTEMS) - 1
    apart = 0.0
    for model in THREE:
        efficiencies = _efficiencies(model)
        note = f"{_ALL_STEPS}; ours: {_listed(efficiencies)}. D9 is half as long as D8, and else the same"
        falls = _count(after < before for before, after in pairwise(efficiencies))
        words = f"{model}: steps to a harder system at which the efficiency falls"
        found.append(claim(words, steps, falls, exactly(steps), note=note))
        errors = [abs(_error(_on(system, model))) for system in SYSTEMS]
        words = f"{model}: predictions for the three hardest systems are worse than for the three easiest by"
        more = float(np.mean(errors[-3:]) - np.mean(errors[:3]))
        found.append(direction(words, "slightly", more, (0.0, np.inf), "points"))
    for system in SYSTEMS:
        three = [100 * _on(system, model).efficiency for model in THREE]
        apart = max(apart, max(three) - three[0])
    words = "another of three models is more efficient than Dauwe's by at most"
    return [*found, claim(words, "within 1", apart, at_most(1.0), "points", "a bound (6.5)")]


def _of_systems() -> list[Figure]:
    return [
        figure(f"{system}, {model}: {what}", 100 * value, "%")
        for system in SYSTEMS
        for model in _MODELS
        for what, value in (
            ("efficiency", _on(system, model).efficiency),
            ("predicts", _on(system, model).predicted),
        )
    ]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


# -- an exascale machine (6.4.4, 6.4.5) ------------------------------------------------------------------


def exascale(bench: Bench) -> Outcome:
    """Twenty scenarios of an exascale machine, and where the time goes on the eleven systems (seed 003, 6.4.4
    and 6.4.5; digest E6.2, E6.3, 6.2).

    The scenarios are system B with commits to its last level of 10 to 40 min and a failure every 26 to 3 min,
    under a run of a day. Efficiencies and the parts of a run's time are exact.
    """
    return Outcome([*_limits(), *_levels_that_help(), *_accuracy(), *_lost()], _of_scenarios())


def _in(commit: float, mtbf: float, model: str = "Dauwe", minutes: float = _DAY) -> ModelPlan:
    return plan_of(model, scenario(commit, mtbf), minutes)


def _percent(commit: float, mtbf: float, model: str = "Dauwe") -> float:
    return 100 * _in(commit, mtbf, model).efficiency


def _limits() -> list[Claim]:
    """The three statements in prose."""
    longest = [commit for commit in COMMITS if commit > 10]
    drops = {
        mtbf: max(_percent(COMMITS[0], mtbf, model) - _percent(COMMITS[-1], mtbf, model) for model in THREE)
        for mtbf in MTBFS
    }
    by_mtbf = max(_percent(commit, MTBFS[0]) - _percent(commit, MTBFS[-1]) for commit in COMMITS)
    return [
        claim("commits of 10 min, a failure every 26 min: efficiency", "over 60", _percent(10, 26),
              at_least(60), "%", "a bound"),
        claim("where it is least, a failure every 3 min: efficiency", "less than 1",
              min(_percent(commit, 3) for commit in COMMITS), at_most(1), "%", "a bound"),
        claim("a failure every 3 min, commits of more than 10 min: efficiency, at most", "less than 1",
              max(_percent(commit, 3) for commit in longest), at_most(1), "%", "a bound"),
        claim("a failure every 15 min, commits of more than 10 min: efficiency, at most", "less than 50",
              max(_percent(commit, 15, model) for commit in longest for model in THREE), at_most(50), "%",
              "a bound, of all three models"),
        claim("commits of 40 min instead of 10 min lower the efficiency, where they do most, by", 40.0,
              max(drops.values()), as_much_as(40), "points", _AS_MUCH),
        direction("a failure every 3 instead of 26 min lowers it by more than that, by", "more impacted",
                  by_mtbf - max(drops.values()), (0.0, np.inf), "points"),
    ]  # fmt: skip


def _levels_that_help() -> list[Claim]:
    """Two levels against four."""
    where = [
        (commit, mtbf)
        for commit in COMMITS
        for mtbf in MTBFS
        if max(_percent(commit, mtbf, model) for model in THREE) > 1
    ]
    gaps = [min(_percent(*at), _percent(*at, "Moody")) - _percent(*at, "Di") for at in where]
    apart = max(_percent(*at, "Moody") - _percent(*at) for at in where)
    return [
        claim("scenarios with more than 1 % efficiency in which Di's is below the two others", len(where),
              _count(gap > 0 for gap in gaps), exactly(len(where)), note=_COUNT),
        claim("Moody's is more efficient than Dauwe's by at most", "within 1", apart, at_most(1.0), "points",
              "a bound (6.5)"),
    ]  # fmt: skip


def _accuracy() -> list[Claim]:
    """How predictions get worse with more failures and with longer commits."""
    found = []
    readings = {
        "in points": ("hardly any points are left with a failure every 3 min", _error),
        "relatively": ("which is meant is not said", _relative_error),
    }
    for model in THREE:
        for how, (why, error_of) in readings.items():
            errors = {(c, m): abs(error_of(_in(c, m, model))) for c in COMMITS for m in MTBFS}
            steps = [errors[c, m] > errors[c, before] for c in COMMITS for before, m in pairwise(MTBFS)]
            steps += [errors[c, m] > errors[before, m] for m in MTBFS for before, c in pairwise(COMMITS)]
            words = f"{model}: steps to more failures or longer commits with a worse prediction, {how}"
            note = f"{_ALL_STEPS}; {why}"
            found.append(claim(words, len(steps), _count(steps), exactly(len(steps)), note=note))
    return found


@cache
def _shares(system: str, model: str = "Dauwe") -> dict[str, float]:
    """Where the time goes, in per cent."""
    plan = _on(system, model)
    found = parts(plan.levels, plan.pattern, SYSTEMS[system][-1] * _MINUTE)
    return {name: 100 * seconds / found.total for name, seconds in asdict(found).items()}


def _failed(system: str, model: str = "Dauwe") -> float:
    shares = _shares(system, model)
    return shares["failed_commits"] + shares["failed_restarts"]


def _lost() -> list[Claim]:
    """Commits and restarts that fail (6.4.4)."""
    others = [system for system in SYSTEMS if system not in _HARDEST]
    apart = max(abs(_shares("D8")[name] - _shares("D9")[name]) for name in _shares("D8"))
    return [
        *(claim(f"{system}: time of commits and restarts that fail, with the plan of whom it is most",
                "at least 30", max(_failed(system, model) for model in THREE), at_least(30), "%",
                "a bound, of the most extreme cases, three systems; ours of Dauwe's, Moody's and Di's: "
                + _listed(_failed(system, model) for model in THREE)) for system in _HARDEST),
        direction("on these three systems it is more than on any other, by", "a greater degree",
                  min(map(_failed, _HARDEST)) - max(map(_failed, others)), (0.0, np.inf), "points"),
        claim("D8 and D9 differ in any part of the time by at most", "almost identical", apart, at_most(1.0),
              "points", "no number is printed: within a point"),
    ]  # fmt: skip


def _of_scenarios() -> list[Figure]:
    return [
        *(
            figure(f"commits of {commit} min, a failure every {mtbf} min, {model}: efficiency",
                   _percent(commit, mtbf, model), "%")
            for commit in COMMITS for mtbf in MTBFS for model in THREE
        ),
        *(
            figure(f"{system}: time of {name.replace('_', ' ')}", share, "%")
            for system in SYSTEMS for name, share in _shares(system).items()
        ),
    ]  # fmt: skip


# -- short runs (6.4.6) ----------------------------------------------------------------------------------


def short(bench: Bench) -> Outcome:
    """Runs that are too short for commits to the last level (seed 003, 6.4.6; digest E6.4, 6.2).

    Ten scenarios with commits of 10 and 20 min to the last level, under a run of 30 min. Gains are over the
    best pattern that does commit to it, as Moody's is said to. As a model for ever Moody's own pattern comes
    to the last level later than that in most of them, and then hardly differs: it is shown beside.
    """
    return Outcome([*_left_out(), *_gains(), *_longer_runs()], _of_short_runs())


_CASES = tuple((commit, mtbf) for commit in _SHORT_COMMITS for mtbf in MTBFS)


def _left_out() -> list[Claim]:
    """Who commits to the last level, and whose prediction is best."""
    number = len(_CASES)
    commits = {
        model: _count(_comes_to_last(_in(*at, model, _SHORT), _SHORT) for at in _CASES) for model in THREE
    }
    errors = [{model: abs(_error(_in(*at, model, _SHORT))) for model in THREE} for at in _CASES]
    return [
        *(claim(f"{model}: cases without a commit to the last level", number, number - commits[model],
                exactly(number), note=_COUNT) for model in ("Dauwe", "Di")),
        claim("Moody: cases with one", number, commits["Moody"], exactly(number),
              note=f"{_COUNT}; for ever, it pays so rarely that the run has ended by then"),
        claim("cases in which Dauwe's prediction is the closest of three", "most",
              _count(min(each.values()) == each["Dauwe"] for each in errors), at_least(number // 2 + 1),
              note="most of them: more than half"),
        claim("cases in which the run is shorter than the time between failures that need the last level",
              number, _count(_is_shorter(*at, _SHORT) for at in _CASES), exactly(number), note=_COUNT,
              by_construction="what we put in: a share of 3 % of the failures"),
    ]  # fmt: skip


def _gains() -> list[Claim]:
    """Over a commit to the last level."""
    gains = {at: _gain(*at, _SHORT) for at in _CASES}
    times = {at: _worth(*at, _SHORT, commits=False) / _worth(*at, _SHORT, commits=True) for at in _CASES}
    most = {commit: max(gains[commit, mtbf] for mtbf in MTBFS) for commit in _SHORT_COMMITS}
    number, steps = len(_CASES), len(_SHORT_COMMITS) * (len(MTBFS) - 1)
    found = [
        *(claim(f"commits of {commit} min: none to the last level gain, where they do most,", 20.0, gain,
                as_much_as(20), "points", _AS_MUCH) for commit, gain in most.items()),
        claim("cases with a gain", number, _count(gain > 0 for gain in gains.values()), exactly(number),
              note="all are said to be significant; ours are exact"),
    ]  # fmt: skip
    for how, each in {"in points": gains, "relatively": times}.items():
        note = f"{_ALL_STEPS}; whether it is relative is not said"
        harder = [each[c, m] > each[c, before] for c in _SHORT_COMMITS for before, m in pairwise(MTBFS)]
        slower = [each[20, mtbf] > each[10, mtbf] for mtbf in MTBFS]
        found += [
            claim(f"steps to more failures at which the gain grows, {how}", steps, _count(harder),
                  exactly(steps), note=note),
            claim(f"failures for which it grows with the time of a commit, {how}", len(slower),
                  _count(slower), exactly(len(slower)), note=note),
        ]  # fmt: skip
    for what in ("time", "efficiency"):
        wider = _count(_varies(*at, what, commits=False) > _varies(*at, what, commits=True) for at in _CASES)
        note = f"{_COUNT}; the text says time, and its figure shows the efficiency, ours to first order"
        words = f"cases in which the {what} varies more without a commit to the last level"
        found.append(claim(words, number, wider, exactly(number), note=note))
    return found


def _longer_runs() -> list[Claim]:
    """Of 120 min."""
    where = [at for at in _CASES if _is_shorter(*at, _LONGER)]
    number = len(where)
    return [
        claim("a run of 120 min, shorter than the time between such failures: cases without a commit",
              number, _count(not _comes_to_last(_in(*at, "Dauwe", _LONGER), _LONGER) for at in where),
              exactly(number), note=_COUNT),
        claim("a run of 120 min: cases in which they gain less", len(_CASES),
              _count(_gain(*at, _LONGER) < _gain(*at, _SHORT) for at in _CASES), exactly(len(_CASES)),
              note=f"{_COUNT}: it is said to be so to a lesser extent"),
    ]  # fmt: skip


def _of_short_runs() -> list[Figure]:
    return [
        figure(f"commits of {commit} min, a failure every {mtbf} min: {what}", 100 * value, unit)
        for commit, mtbf in _CASES
        for what, value, unit in (
            ("efficiency of Dauwe's", _in(commit, mtbf, "Dauwe", _SHORT).efficiency, "%"),
            ("efficiency of Moody's", _in(commit, mtbf, "Moody", _SHORT).efficiency, "%"),
            ("efficiency with a commit to the last level", _worth(commit, mtbf, _SHORT, commits=True), "%"),
            ("gain in a run of 120 min", _gain(commit, mtbf, _LONGER) / 100, "points"),
        )
    ]


def _is_shorter(commit: float, mtbf: float, minutes: float) -> bool:
    """Than the time between failures that need the last level."""
    return minutes * _MINUTE < 1 / scenario(commit, mtbf)[-1].failures


def _comes_to_last(plan: ModelPlan, minutes: float) -> bool:
    return plan.pattern.work * plan.pattern.commits < minutes * _MINUTE * (1 - 1e-9)


@cache
def _best(commit: float, mtbf: float, minutes: float, commits: bool) -> Pattern:
    """The best pattern that does commit to the last level, or that does not."""
    levels, run = scenario(commit, mtbf), minutes * _MINUTE

    def worth(pattern: Pattern) -> float:
        ends = pattern.work * pattern.commits >= run * (1 - 1e-9)
        return 0.0 if ends is commits else efficiency(levels, pattern, run)

    return best_pattern(levels, run, worth=worth) or Pattern(run, (0,) * (len(levels) - 1))


def _worth(commit: float, mtbf: float, minutes: float, *, commits: bool) -> float:
    return efficiency(scenario(commit, mtbf), _best(commit, mtbf, minutes, commits), minutes * _MINUTE)


def _gain(commit: float, mtbf: float, minutes: float) -> float:
    """Of no commit to the last level over at least one, in points."""
    none, some = (_worth(commit, mtbf, minutes, commits=one) for one in (False, True))
    return 100 * (none - some)


def _varies(commit: float, mtbf: float, what: str, *, commits: bool) -> float:
    """The standard deviation of the time of the run, or of its efficiency, but for a factor."""
    pattern = _best(commit, mtbf, _SHORT, commits)
    seconds = deviation(scenario(commit, mtbf), pattern, _SHORT * _MINUTE)
    return seconds if what == "time" else seconds * _worth(commit, mtbf, _SHORT, commits=commits) ** 2


# -- predictions (6.4.7) ---------------------------------------------------------------------------------


def error(bench: Bench) -> Outcome:
    """How wrong the predictions of three models are in the twenty scenarios (seed 003, 6.4.7; digest E6.5).

    Predicted minus exact efficiency. Our two other models differ from the exact one in a single rule each, so
    that they err as the source says why they do, and by less: Moody's is a Markov chain in a steady state,
    and what else Di's leaves out is not said.
    """
    cases = [(commit, mtbf) for commit in COMMITS for mtbf in MTBFS]
    errors = {model: np.array([_error(_in(*at, model)) for at in cases]) for model in THREE}
    number = len(cases)
    least = {model: float(np.abs(each).mean()) for model, each in errors.items()}
    rule = "the formula itself: it differs from ours in nothing that would"
    moody_under, di_over = _count(errors["Moody"] < 0), _count(errors["Di"] > 0)
    tends = "it is said to tend to: more than half"
    claims = [
        claim("scenarios in which Moody's predicts too little", "tends to", moody_under,
              at_least(number // 2 + 1), note=tends, by_construction=f"{rule} save time"),
        claim("scenarios in which Di's predicts too much", "tends to", di_over, at_least(number // 2 + 1),
              note=tends, by_construction=f"{rule} cost time"),
        claim("Moody's predicts too little by as much as", 7.3, float(-errors["Moody"].min()),
              as_much_as(7.3), "points", _AS_MUCH),
        claim("Di's predicts too much by as much as", 14.4, float(errors["Di"].max()), as_much_as(14.4),
              "points", _AS_MUCH),
        *(
            direction(f"{other}'s is wrong by more than Dauwe's, on average, by", "benefit",
                      least[other] - least["Dauwe"], (0.0, np.inf), "points")
            for other in ("Moody", "Di")
        ),
    ]  # fmt: skip
    beside = [
        figure(f"commits of {commit} min, a failure every {mtbf} min: error of {model}'s", wrong, "points")
        for model, each in errors.items()
        for (commit, mtbf), wrong in zip(cases, map(float, each), strict=True)
    ]
    return Outcome(claims, beside)
