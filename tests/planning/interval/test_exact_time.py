"""The exact expected time of a run with checkpoints: beside closed forms, published systems, and luck."""

from math import exp, expm1, inf, isclose
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.interval import (
    EXACT,
    TIME,
    Level,
    Pattern,
    daly,
    efficiency,
    failure_rate,
    failures_before,
    hierarchical_efficiency,
    mean_failure,
    period_time,
    run_time,
    young,
)
from dask_hpc.planning.interval.exact import restarts

seconds = st.floats(0.01, 1e4)
rates = st.floats(1e-7, 1e-3)


def system(mtbf, shares, costs):
    """As in table 6.1 of seed 003."""
    return [
        Level(str(number), cost, cost, share / sum(shares) / mtbf)
        for number, (share, cost) in enumerate(zip(shares, costs, strict=True))
    ]


def by_luck(levels, pattern, run, random):
    """One run, event by event, as 003 digest 2.3.2 describes it."""
    rate = failure_rate(levels)
    clock, done, number = 0.0, 0.0, 0
    saved = [(0.0, 0)] * len(levels)  # by level: how much work, after how many commits

    def severity():
        return random.choices(range(len(levels)), [level.failures for level in levels])[0]

    while True:
        work = min(pattern.work, run - done)
        is_last = done + work >= run * (1 - 1e-12)
        level = pattern.level(number + 1)
        length = work + (0 if is_last else levels[level].commit)
        failure = random.expovariate(rate)
        if failure > length:
            clock += length
            if is_last:
                return clock
            done, number = done + work, number + 1
            saved[: level + 1] = [(done, number)] * (level + 1)
            continue
        clock += failure
        at = severity()
        while (failure := random.expovariate(rate)) < levels[at].restart:
            clock += failure
            at = max(at, severity())
        clock += levels[at].restart
        done, number = saved[at]
        saved[:at] = [saved[at]] * at  # what lay below is gone, and is put back with the restart


@given(seconds, rates)
def test_a_stage_costs_its_time_and_that_of_failed_tries(length, rate):
    tries, through = failures_before(length, rate), expm1(rate * length) / rate
    assert isclose(tries * mean_failure(length, rate) + length, through, rel_tol=1e-6)
    assert 0 < mean_failure(length, rate) <= length / 2


@given(st.floats(10, 1e4), st.integers(1, 40), st.floats(0, 100), st.floats(0, 100), rates)
def test_one_level_is_the_closed_form(work, count, commit, restart, rate):
    level = Level("store", commit, restart, rate)
    run = work * count
    # 003, 4.5.2: no commit at the end
    tries = (count - 1) * expm1(rate * (work + commit)) + expm1(rate * work)
    expected = exp(rate * restart) * tries / rate
    assert isclose(run_time([level], Pattern(work), run), expected, rel_tol=1e-9)
    for_ever = rate * work / (exp(rate * restart) * expm1(rate * (work + commit)))
    assert isclose(efficiency([level], Pattern(work)), for_ever, rel_tol=1e-9)
    assert isclose(float(hierarchical_efficiency([level], work, (), count)), run / expected, rel_tol=1e-9)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.floats(1, 100))
def test_without_failures_only_commits_take_time(first, second, periods, work):
    levels = [Level("a", 1, 1, 0), Level("b", 2, 2, 0), Level("c", 3, 3, 0)]
    pattern = Pattern(work, (first, second))
    costs = [levels[pattern.level(number)].commit for number in range(1, pattern.commits * periods + 1)]
    # beyond one period the count goes on as if there were a level above
    costs = [3 if number % pattern.commits == 0 else cost for number, cost in enumerate(costs, 1)]
    run = work * pattern.commits * periods
    assert isclose(run_time(levels, pattern, run), run + sum(costs[:-1]), rel_tol=1e-9)
    rare = [Level(level.name, level.commit, level.restart, 1e-12) for level in levels]
    assert isclose(run_time(rare, pattern, run), run + sum(costs[:-1]), rel_tol=1e-6)


def test_the_order_of_levels():
    pattern = Pattern(1.0, (2, 1))
    assert [pattern.level(number) for number in range(1, 7)] == [0, 0, 1, 0, 0, 2]
    assert pattern.commits == 6 and pattern.every() == (1, 3, 6)
    assert [Pattern(1.0, (0, 2)).level(number) for number in range(1, 4)] == [1, 1, 2]


@pytest.mark.parametrize(
    "levels, work, counts, periods, exact, model",
    [
        (system(6944.45, (0.083, 0.75, 0.167), (0.008, 0.075, 17.53)), 38.92, (0, 36), 1, 0.9782, 0.9782),
        (system(333.33, (0.56, 0.28, 0.14, 0.03), (0.17, 0.5, 0.83, 2.5)), 15, (1, 0, 5), 8, 0.9206, 0.9206),
        (system(51.42, (0.857, 0.143), (0.333, 0.833)), 5.647, (2,), 85, 0.8430, 0.8436),
        (system(6, (0.833, 0.167), (0.167, 0.667)), 1.2, (3,), 300, 0.6304, 0.6349),
        (system(4, (0.833, 0.167), (0.667, 3.33)), 2.069, (2,), 58, 0.1815, 0.2056),
        (system(3.13, (0.870, 0.130), (0.833, 5.0)), 1.552, (3,), 58, 0.0661, 0.0865),
    ],
)
def test_systems_of_the_document(levels, work, counts, periods, exact, model):
    # the figures are of the seed's digest, 6.1, minutes
    pattern = Pattern(work, counts)
    run = work * pattern.commits * periods
    assert efficiency(levels, pattern, run) == pytest.approx(exact, abs=2e-4)
    assert float(hierarchical_efficiency(levels, work, counts, periods)) == pytest.approx(model, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("run", [360, 351.3])
def test_many_runs_with_luck_take_as_long_on_average(run):
    levels = system(4, (0.833, 0.167), (0.667, 3.33))
    levels = [Level(level.name, level.commit, level.restart * 1.5, level.failures) for level in levels]
    pattern, random = Pattern(1.5, (3,)), Random(7)
    runs = [by_luck(levels, pattern, run, random) for _ in range(400)]
    assert run_time(levels, pattern, run) == pytest.approx(mean(runs), abs=3 * stdev(runs) / 20)


def test_a_run_that_never_ends():
    levels = [Level("store", 1e5, 1e5, 1.0)]
    assert period_time(levels, Pattern(1e5)) == inf and efficiency(levels, Pattern(1e5)) == 0


def test_dalys_formula_by_hand():
    assert daly(50, 1 / 100) == pytest.approx(100 * (1 + 1 / 6 + 1 / 36) - 50)
    assert daly(200, 1 / 100) == 100


@given(st.floats(1e-3, 1e3), rates)
def test_formulas_for_one_level_are_near_the_best(commit, rate):
    for rule in (young, daly):
        assert rule(commit, 0.0) == inf
    if commit * rate < 0.01:
        level = Level("store", commit, 0, rate)
        shares = [efficiency([level], Pattern(daly(commit, rate) * f)) for f in (1, 0.9, 1.1)]
        assert shares[0] == max(shares)


def one_by_one(levels, pattern, count):
    """The expected time of so many commits: what it takes to get through each interval for the first time."""
    rate = failure_rate(levels)
    restart, reached = restarts(tuple(levels), rate, TIME, EXACT)
    spent, saved = 0.0, [0.0] * len(levels)
    for number in range(1, count + 1):
        level = pattern.level(number)
        length = pattern.work + levels[level].commit
        back = sum(share * (spent - at) for share, at in zip(reached, saved, strict=True))
        failures, lost = failures_before(length, rate), mean_failure(length, rate)
        spent += length + failures * (lost + restart + back)
        saved[: level + 1] = [spent] * (level + 1)
    return spent


@given(st.integers(1, 4), st.randoms(use_true_random=False), st.floats(1.0, 1000.0))
def test_powers_of_maps_are_one_interval_after_the_other(number, random, work):
    levels = [
        Level(str(this), random.uniform(0.1, 30), random.uniform(0.1, 30), 10 ** random.uniform(-7, -3.5))
        for this in range(number)
    ]
    pattern = Pattern(work, tuple(random.randint(0, 5) for _ in range(number - 1)))
    assert isclose(period_time(levels, pattern), one_by_one(levels, pattern, pattern.commits), rel_tol=1e-9)
    periods = random.randint(1, 3)
    commits = random.randint(1, pattern.commits) + (periods - 1) * pattern.commits
    # a run ends without a commit: one that is free makes no difference
    free = [Level(one.name, 0.0, one.restart, one.failures) for one in levels]
    assert isclose(run_time(free, pattern, commits * work), one_by_one(free, pattern, commits), rel_tol=1e-9)


def test_a_million_commits_take_no_longer_than_a_few():
    levels = system(3600, (90, 9, 1e-4), (0.01, 0.1, 10))
    assert 0.9 < efficiency(levels, Pattern(2.0, (999, 999))) < 1
