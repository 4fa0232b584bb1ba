"""What a run costs where seconds do not cost the same: energy, parts of time, other rules, and the spread."""

from dataclasses import astuple, replace
from math import expm1, inf, isclose, sqrt
from random import Random
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.planning.interval import (
    BENOIT,
    DI,
    MOODY,
    TIME,
    Level,
    Parts,
    Pattern,
    Rules,
    Weights,
    best_pattern,
    cost,
    deviation,
    efficiency,
    energy_weights,
    failure_rate,
    hierarchical_efficiency,
    parts,
    period_time,
    run_time,
)

MINUTE = 60.0
KINDS = ("computing", "commits", "failed_commits", "restarts", "failed_restarts")
some_weights = st.builds(Weights, *[st.floats(0.1, 10)] * 5)


@st.composite
def settings_of_runs(draw, most=4):
    """Levels, a pattern, and a run of a few periods."""
    number = draw(st.integers(1, most))
    levels = [
        Level(str(this), draw(st.floats(0, 30)), draw(st.floats(0, 30)), 10 ** draw(st.floats(-6, -3)))
        for this in range(number)
    ]
    pattern = Pattern(draw(st.floats(1, 500)), tuple(draw(st.integers(0, 4)) for _ in levels[1:]))
    return levels, pattern, pattern.work * pattern.commits * draw(st.floats(0.1, 3))


def luck(levels, pattern, run, random, weights=TIME, rules=Rules()):  # noqa: B008
    """The seconds of each kind that one run takes, event by event (003 digest, 2.3.2)."""
    rates = [level.failures for level in levels]
    spent = dict.fromkeys(KINDS, 0.0)
    done, number, saved = 0.0, 0, [(0.0, 0)] * len(levels)

    def severity():
        return random.choices(range(len(levels)), rates)[0]

    while True:
        work = min(pattern.work, run - done)
        is_last = done + work >= run * (1 - 1e-12)
        level = pattern.level(number + 1)
        commit = 0.0 if is_last else levels[level].commit
        failure = random.expovariate(sum(rates))
        if failure > work + commit * rules.in_commits:
            spent["computing"] += work
            spent["commits"] += commit
            if is_last:
                return spent
            done, number = done + work, number + 1
            saved[: level + 1] = [(done, number)] * (level + 1)
            continue
        spent["computing"] += min(work, failure)
        spent["failed_commits"] += max(0.0, failure - work)
        at = severity()
        while rules.in_restarts and (failure := random.expovariate(sum(rates))) < levels[at].restart:
            spent["failed_restarts"] += failure
            again = severity()
            at = min(at + 1, len(levels) - 1) if rules.escalate and again == at else max(at, again)
        spent["restarts"] += levels[at].restart
        done, number = saved[at]
        saved[:at] = [saved[at]] * at


@given(settings_of_runs(), some_weights)
def test_costs_are_those_of_the_parts(setting, weights):
    levels, pattern, run = setting
    for of, time in ((run, run_time(levels, pattern, run)), (inf, period_time(levels, pattern))):
        found = parts(levels, pattern, of)
        assert isclose(found.total, time, rel_tol=1e-9)
        assert isclose(found.cost(weights), cost(levels, pattern, of, weights), rel_tol=1e-9)
        assert found.work == (run if of == run else pattern.work * pattern.commits)
        assert min(astuple(found)) >= 0


def test_parts_without_failures():
    levels = [Level("a", 1, 1, 0), Level("b", 5, 1, 0)]
    none = dict.fromkeys(("recomputation", "failed_commits", "restarts", "failed_restarts"), 0.0)
    assert parts(levels, Pattern(10, (2,))) == Parts(work=30, commits=7, **none)
    assert parts(levels, Pattern(10, (2,)), 55) == Parts(work=55, commits=1 + 1 + 5 + 1 + 1, **none)


@given(st.floats(1, 1000), st.floats(0, 100), st.floats(0, 100), st.floats(1e-6, 1e-2))
def test_parts_of_one_interval_by_hand(work, commit, restart, rate):
    found = parts([Level("store", commit, restart, rate)], Pattern(work))
    failures = expm1(rate * (work + commit))
    assert found.commits == commit
    assert isclose(found.failed_commits, expm1(rate * commit) / rate - commit, rel_tol=1e-6, abs_tol=1e-6)
    assert isclose(found.restarts, failures * restart, rel_tol=1e-9)
    tries = expm1(rate * restart)
    expected = failures * (tries / rate - restart)
    assert isclose(found.failed_restarts, expected, rel_tol=1e-6, abs_tol=1e-6 * (1 + failures * restart))


SYSTEM = [
    Level("near", 0.667, 1.0, 0.833 / 4), Level("far", 3.33, 5.0, 0.167 / 4)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rules", [Rules(), MOODY, DI, BENOIT], ids=["exact", "Moody", "Di", "Benoit"])
def test_many_runs_cost_as_much_and_vary_as_much(rules):
    """Of each kind of seconds its mean, and of a cost of all of them how it varies."""
    pattern, run, random = Pattern(1.5, (3,)), 31.3, Random(11)
    weights = Weights(3.0, 1.0, 0.7, 2.0, 1.5)
    runs = [luck(SYSTEM, pattern, run, random, rules=rules) for _ in range(4000)]
    for kind in KINDS:
        seconds = [one[kind] for one in runs]
        only = replace(Weights(0, 0, 0, 0, 0), **{kind: 1.0})
        near = 3.5 * stdev(seconds) / sqrt(len(runs)) + 1e-9
        assert cost(SYSTEM, pattern, run, only, rules) == pytest.approx(mean(seconds), abs=near), kind
    costs = [sum(getattr(weights, kind) * one[kind] for kind in KINDS) for one in runs]
    assert deviation(SYSTEM, pattern, run, weights, rules) == pytest.approx(stdev(costs), rel=0.06)


@given(settings_of_runs())
def test_what_models_leave_out_saves_time(setting):
    levels, pattern, run = setting
    time = cost(levels, pattern, run)
    slack = time * 1e-9
    di, benoit = (cost(levels, pattern, run, rules=rules) for rules in (DI, BENOIT))
    assert benoit <= di + slack and di <= time + slack
    if len(levels) == 1:
        assert isclose(cost(levels, pattern, run, rules=MOODY), time, rel_tol=1e-12), "nothing is above it"


def test_rules_by_hand():
    level, rate = Level("store", 7.0, 11.0, 1e-2), 1e-2
    failures = expm1(rate * 50)
    benoit = failures / rate + failures * 11 + 7
    assert cost([level], Pattern(50), rules=BENOIT) == pytest.approx(benoit)
    failures = expm1(rate * 57)
    assert cost([level], Pattern(50), rules=DI) == pytest.approx(failures / rate + failures * 11)
    # a restart from the near level that fails by the same again starts from the far one
    near, far = Level("near", 1, 10, 0.9 * rate), Level("far", 1, 40, 0.1 * rate)
    p, q = np.exp(-rate * 10), np.exp(-rate * 40)
    far_time = (1 / q - 1) / rate
    mean_cut = 1 / rate - 10 / expm1(rate * 10)
    near_time = p * 10 + (1 - p) * (mean_cut + far_time)
    expected = 0.9 * near_time + 0.1 * far_time
    found = parts([near, far], Pattern(50, (0,)), rules=MOODY)
    failures = expm1(rate * 51)
    assert found.restarts + found.failed_restarts == pytest.approx(failures * expected)


NODES, MTBF = 120_000, 2.5 * 365.25 * 86400
WATTS = energy_weights(750.0, 150.0 + 200 / 12 + 15 - 10 / 3)  # 178.33 W (003 digest, G11)


@pytest.mark.parametrize(
    "percent, fast, frugal, saving",
    [
        (1, 0.987, 0.984, 0.2),
        (10, 0.871, 0.846, 1.5),
        (25, 0.680, 0.641, 3.3),
        (50, 0.402, 0.372, 4.8),
        (100, 0.089, 0.085, 3.8),
    ],
)
def test_energy_of_one_level_to_the_digits(percent, fast, frugal, saving):
    """The specification's table of 003, 5.6.2."""
    nodes, run = NODES * percent / 100, 86400.0
    commit = 32 / 600 * nodes / 12
    levels = [Level("store", commit, commit, nodes / MTBF)]
    quick, least = best_pattern(levels, run), best_pattern(levels, run, WATTS)
    assert round(efficiency(levels, quick, run), 3) == fast
    assert round(efficiency(levels, least, run), 3) == frugal
    joules = [cost(levels, pattern, run, WATTS) for pattern in (quick, least)]
    assert round(100 * (1 - joules[1] / joules[0]), 1) == saving
    assert least.work < quick.work, "committing needs less power than computing again"


@settings(max_examples=15, deadline=None)
@given(settings_of_runs(2), st.floats(0.05, 3), st.integers(0, 30), st.floats(0.2, 5))
def test_nobody_guesses_one_of_less_energy(setting, committing, count, factor):
    levels, watts = setting[0], energy_weights(1.0, committing)
    levels = [replace(level, commit=1 + level.commit) for level in levels]
    best = best_pattern(levels, weights=watts)
    guess = Pattern(best.work * factor, (count,) * len(best.counts))
    joules = [cost(levels, one, weights=watts) / (one.work * one.commits) for one in (best, guess)]
    assert joules[0] <= joules[1] * (1 + 1e-4)


@given(settings_of_runs(), st.floats(0.1, 10))
def test_the_documents_energy_without_failures_and_with_equal_powers(setting, watts):
    levels, pattern, _ = setting
    asked = (pattern.work, pattern.counts, 2)
    alike = hierarchical_efficiency(levels, *asked, energy_weights(watts, watts))
    assert isclose(float(alike), float(hierarchical_efficiency(levels, *asked)), rel_tol=1e-9)
    rare = [replace(level, failures=level.failures * 1e-12) for level in levels]
    weights, run = energy_weights(1.0, watts), 2 * pattern.work * pattern.commits
    weights = replace(weights, restarts=7.0)  # of which there are hardly any
    found = run / float(hierarchical_efficiency(rare, *asked, weights))
    assert isclose(found, cost(rare, pattern, run, weights), rel_tol=1e-6)


def test_the_documents_energy_of_one_level_is_exact():
    level, weights = Level("store", 60, 60, 1e-4), energy_weights(5.0, 1.0)
    found = 10 * 600 * 5 / float(hierarchical_efficiency([level], 600, (), 10, weights))
    assert found == pytest.approx(cost([level], Pattern(600), 6000, weights), rel=0.02)


@given(st.floats(50, 1000), st.floats(1e-3, 5e-3))
def test_the_spread_of_one_stretch_by_hand(work, rate):
    """The time until so many seconds pass without a failure."""
    x = rate * work
    variance = (np.exp(2 * x) - 1 - 2 * x * np.exp(x)) / rate**2
    found = deviation([Level("store", 0, 0, rate)], Pattern(work), work)
    assert isclose(found, sqrt(variance), rel_tol=1e-6)


def without_failures(seconds, rate):
    """Mean and mean square of the time until so many seconds pass without a failure."""
    x = rate * seconds
    mean = expm1(x) / rate
    return mean, (np.exp(2 * x) - 1 - 2 * x * np.exp(x)) / rate**2 + mean**2


@pytest.mark.parametrize("shares", [(1.0,), (0.7, 0.3), (0.2, 0.3, 0.5)])
def test_the_spread_of_restarts_by_hand(shares):
    """Those from any level take equally long, and so do all of them."""
    work, restart, rate = 50.0, 30.0, 1e-2
    levels = [Level(str(share), 0.0, restart, share * rate) for share in shares]
    mean, square = without_failures(restart, rate)
    failures = expm1(rate * work)
    cut = 1 / rate - work / failures
    cut_square = 2 / rate**2 - (work**2 + 2 * work / rate) / failures
    lost = failures * (cut_square + 2 * cut * mean + square) + (failures * (cut + mean)) ** 2
    found = deviation(levels, Pattern(work, (0,) * (len(levels) - 1)), work)
    assert found == pytest.approx(sqrt(lost))
    sure = failures * (cut_square + 2 * cut * restart + restart**2) + (failures * (cut + restart)) ** 2
    found = deviation(levels, Pattern(work, (0,) * (len(levels) - 1)), work, rules=DI)
    assert found == pytest.approx(sqrt(sure))


@given(settings_of_runs(), some_weights, st.floats(0.1, 10))
def test_the_spread_adds_up_and_scales(setting, weights, factor):
    levels, pattern, _ = setting
    period = pattern.work * pattern.commits
    one = deviation(levels, pattern, inf, weights)
    end = deviation(levels, pattern, period, weights)
    assert isclose(deviation(levels, pattern, 5 * period, weights), sqrt(4 * one**2 + end**2), rel_tol=1e-9)
    scaled = Weights(*(factor * weight for weight in astuple(weights)))
    assert isclose(deviation(levels, pattern, inf, scaled), factor * one, rel_tol=1e-9)


def spread_one_by_one(levels, pattern, count):
    """The variance of so many intervals whose restarts take no time, one after the other."""
    rate = failure_rate(levels)
    shares = [level.failures / rate for level in levels]
    spent, total = 0.0, 0.0
    saved, saved_total = [0.0] * len(levels), [0.0] * len(levels)
    for number in range(1, count + 1):
        level = pattern.level(number)
        length = pattern.work + levels[level].commit
        times = (np.arange(20_000) + 0.5) * length / 20_000
        density = np.exp(-rate * times) / np.exp(-rate * times).sum()
        cut, square = density @ times, density @ times**2
        back = [spent - at for at in saved]
        mean_lost = cut + np.dot(shares, back)
        more = sum(
            share * (2 * cut * one + one**2 + total - at)
            for share, one, at in zip(shares, back, saved_total, strict=True)
        )
        failures = expm1(rate * length)
        spent += length + failures * mean_lost
        total += failures * (square + more) + (failures * mean_lost) ** 2
        saved[: level + 1], saved_total[: level + 1] = [spent] * (level + 1), [total] * (level + 1)
    return sqrt(total)


@settings(max_examples=10, deadline=None)
@given(settings_of_runs(3))
def test_the_spread_is_that_of_one_interval_after_the_other(setting):
    levels, pattern, _ = setting
    levels = [replace(level, restart=0.0, failures=max(level.failures, 1e-5)) for level in levels]
    pattern = replace(pattern, counts=tuple(min(count, 2) for count in pattern.counts))
    found = deviation(levels, pattern)
    assert isclose(found, spread_one_by_one(levels, pattern, pattern.commits), rel_tol=1e-4)


def test_what_never_ends_never_ends():
    levels = [Level("store", 1e5, 1e5, 1.0)]
    assert deviation(levels, Pattern(1e5)) == inf == cost(levels, Pattern(1e5), weights=WATTS)
    # its mean is a number yet, and the square of that is none
    assert cost([Level("store", 1.0, 1.0, 0.9)], Pattern(400.0)) < inf
    assert deviation([Level("store", 1.0, 1.0, 0.9)], Pattern(400.0)) == inf
    assert deviation([Level("store", 1.0, 1.0, 0.0)], Pattern(10), 1000) == 0
