"""Fits of failures: against scipy, and the replayed interval against trying very many."""

import random
from math import exp, floor, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import show_duration
from dask_hpc.planning.interval import best_interval, fit_failures, kept


def times_of(gaps):
    return np.concatenate([[0.0], np.cumsum(gaps)])


def drawn(shape, count=300, seed=3):
    draw = random.Random(seed)
    return [draw.weibullvariate(36000, shape) for _ in range(count)]


@pytest.mark.parametrize("shape", [0.5, 0.8, 1.0, 2.0, 6.0])
def test_as_scipy_fits(shape):
    times = times_of(drawn(shape))
    found, gaps = fit_failures(times), np.diff(times)
    want, _, scale = stats.weibull_min.fit(gaps, floc=0)
    assert found.weibull.shape == pytest.approx(want, rel=1e-3)
    assert found.weibull.scale == pytest.approx(scale, rel=1e-3)
    likelihood = stats.weibull_min.logpdf(gaps, found.weibull.shape, 0, found.weibull.scale).sum()
    assert found.weibull.log_likelihood == pytest.approx(likelihood)
    assert found.weibull.aic == pytest.approx(4 - 2 * likelihood)
    assert found.weibull.mean == pytest.approx(stats.weibull_min.mean(want, 0, scale), rel=1e-3)
    law = stats.weibull_min(found.weibull.shape, 0, found.weibull.scale)
    assert found.weibull.distance == pytest.approx(stats.kstest(gaps, law.cdf).statistic)
    plain = stats.expon(0, gaps.mean())
    assert found.exponential.distance == pytest.approx(stats.kstest(gaps, plain.cdf).statistic)
    assert found.exponential.log_likelihood == pytest.approx(stats.expon.logpdf(gaps, 0, gaps.mean()).sum())
    assert found.exponential.aic == pytest.approx(2 - 2 * found.exponential.log_likelihood)
    assert found.mtbf == pytest.approx(gaps.mean())


def test_an_open_gap_counts_for_the_time_it_has_lasted():
    gaps = drawn(0.7, 40)
    times = times_of(gaps)
    found = fit_failures(times, end=times[-1] + 200_000)
    assert found.open_gap == pytest.approx(200_000)
    assert found.mtbf == pytest.approx((sum(gaps) + 200_000) / 40)

    def against(parameters):
        shape, scale = map(exp, parameters)
        ended = stats.weibull_min.logpdf(gaps, shape, 0, scale).sum()
        return -ended + (200_000 / scale) ** shape

    best = optimize.minimize(against, (log(0.7), log(36000)), method="Nelder-Mead", options={"xatol": 1e-8})
    assert found.weibull.log_likelihood == pytest.approx(-best.fun, abs=1e-4)
    assert found.weibull.shape == pytest.approx(exp(best.x[0]), rel=1e-3)


def test_which_law_is_better_is_said():
    assert "in bursts" in fit_failures(times_of(drawn(0.6))).reason
    assert "more regular" in fit_failures(times_of(drawn(3))).reason
    random_ones = fit_failures(times_of(drawn(1.0)))
    assert "at random" in random_ones.reason
    assert fit_failures(times_of(drawn(0.6))).better.name == "Weibull"


GAPS = st.lists(st.floats(1, 5000), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(GAPS, st.floats(5, 100), st.floats(0, 100))
def test_no_interval_keeps_more_of_the_gaps(gaps, commit, restart):
    best = best_interval(gaps, commit, restart)
    share = kept(gaps, best, commit, restart)
    assert 0 <= share < 1
    for work in np.geomspace(0.01, 5000, 700):
        room = sum(floor(max(gap - restart, 0) / (work + commit)) for gap in gaps)
        assert work * room / sum(gaps) <= share + 1e-9


def test_replay_by_hand():
    # gaps of 100 s and 60 s; a restart takes 10 s, a commit 5 s: 90 s and 50 s are left
    assert kept([100, 60], 40, 5, 10) == pytest.approx(40 * 3 / 160)  # 2 and 1 commits
    assert kept([100, 60], inf, 5, 10) == 0
    # 50/1 - 5 = 45: one in 90 s, and one in 50 s -> 90
    # 90/2 - 5 = 40: three -> 120; 90/3 - 5 = 25: 3 + 1 -> 100
    # 50/2 - 5 = 20: 3 + 2 -> 100; 90/4 - 5: 17.5 x (4 + 2) = 105
    assert best_interval([100, 60], 5, 10) == pytest.approx(40)
    assert best_interval([10, 12], 5, 10) == inf


def test_intervals_beside_each_other():
    found = fit_failures(times_of(drawn(0.6)), commit="150 s", restart=100)
    assert [one.name for one in found.intervals] == ["these failures", "this plan", "Daly", "Young"]
    best = found.intervals[0].efficiency
    assert all(one.efficiency <= best for one in found.intervals)
    # for failures at random our plan is the best: its search ends within a thousandth of the work, which by
    # the square of that is less than a millionth of the time
    wanted, planned = found.intervals[:2]
    assert all(one.expected <= planned.expected + 1e-7 for one in found.intervals)
    assert wanted.efficiency > planned.efficiency
    lost = f"{100 * (wanted.efficiency - planned.efficiency):.2g} %"
    assert f"would have wanted a commit every {show_duration(wanted.work)} of work" in found.reason
    assert f"the plan's {show_duration(planned.work)} would have lost {lost} of the time" in found.reason


def test_which_law_is_far_from_the_gaps():
    """By hand: of the largest differences one is just before a gap's end and one just after it."""
    late = fit_failures(times_of([9, 10, 11, 30])).exponential  # none for long: the law is above
    assert late.distance == pytest.approx(1 - exp(-9 / 15))
    early = fit_failures(times_of([1, 1.1, 1.2, 60])).exponential  # most at once: it is below
    assert early.distance == pytest.approx(3 / 4 - (1 - exp(-1.2 / early.scale)))


def test_formulas_are_asked_for_these_failures():
    found = fit_failures(times_of(drawn(1.0)), commit=150, restart=100)
    by_name = {one.name: one.work for one in found.intervals}
    assert by_name["Young"] == pytest.approx((2 * 150 * found.mtbf) ** 0.5)
    assert by_name["Daly"] == pytest.approx(by_name["Young"], rel=0.05)
    assert by_name["this plan"] == pytest.approx(by_name["Young"], rel=0.1)


def test_failures_at_once_are_one_and_order_does_not_matter():
    times = list(times_of(drawn(0.7, 30)))
    twice = [*times, *times[5:9]]
    random.Random(1).shuffle(twice)
    found, plain = fit_failures(twice), fit_failures(times)
    assert found.at_once == 4 and plain.at_once == 0
    assert found.weibull == plain.weibull


@pytest.mark.parametrize(
    ("times", "more", "words"),
    [
        ([], {}, "no failure"),
        ([1, 2, 3], {}, "3 failures at different times"),
        ([1, 1, 1, 1, 1], {}, "1 failure at"),
        ([0, 10, 20, 30, 40], {}, "alike"),
        ([0, 1, float("nan"), 5], {}, "times: 3: found nan"),
        ([0, 1, "x", 5], {}, "times: 3: found 'x'"),
        ([0, 1, True, 5], {}, "times: 3"),
        ("12", {}, "a list of seconds"),
        (7, {}, "a list of seconds"),
        ([0, 1, 3, 7], {"end": 5}, "end: found 5"),
        ([0, 1, 3, 7], {"commit": 0}, "commit: found 0"),
        ([0, 1, 3, 7], {"commit": "much"}, "commit: found 'much'"),
        ([0, 1, 3, 7], {"commit": 1, "restart": -1}, "restart: found -1"),
        ([0, 1, 3, 7], {"restart": 1}, "no commit"),
        ([0, 1, 3, 1e9], {"commit": 1e-9}, "too short"),
    ],
)
def test_bad_input(times, more, words):
    with pytest.raises(InputError, match=words):
        dask_hpc.fit_failures(times, **more)
