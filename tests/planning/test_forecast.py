"""The model that was best lately answers, with an interval that its errors justify."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning import forecast as module
from dask_hpc.planning.forecast import Edge, Forecaster, forecast
from dask_hpc.planning.forecast_models import BASELINES, MODELS, Unfit


def samples(values, period=1.0):
    return [(place * period, value) for place, value in enumerate(values)]


def noise(count, seed=0, level=1000.0, spread=20.0):
    return np.random.default_rng(seed).normal(level, spread, count)


def wave(count, season=20):
    return noise(count) + 200 * np.sin(2 * np.pi * np.arange(count) / season)


def test_the_last_value_answers_alone():
    found = forecast(samples(noise(200)), 10, models=["last value"])
    assert found.model == "last value" and len(found.mean) == 10
    assert found.times == tuple(200.0 + step for step in range(10))
    assert all(
        0 <= low <= mid <= high for low, mid, high in zip(found.lower, found.mean, found.upper, strict=True)
    )
    assert found.range.least <= min(found.mean) and found.range.most >= max(found.mean)
    assert found.dropped == {}


def test_a_season_is_found_and_used():
    found = forecast(samples(wave(400)), 10, models=BASELINES)
    assert (found.model, found.season) == ("seasonal naive", 20)
    assert found.mape["seasonal naive"] < 0.5 * found.mape["last value"]


def test_a_season_may_be_given():
    assert forecast(samples(wave(400)), 10, models=BASELINES, season=40).season == 40


@pytest.mark.slow
def test_the_better_model_answers():
    pytest.importorskip("statsmodels")
    found = forecast(samples(wave(400)), 10)
    assert found.model in ("sarimax", "holt-winters")
    assert set(found.mape) == set(MODELS) and found.mape[found.model] == min(found.mape.values())
    assert found.mape[found.model] < found.mape["seasonal naive"]
    truth = 1000 + 200 * np.sin(2 * np.pi * np.arange(400, 410) / 20)
    assert np.abs(np.array(found.mean) - truth).max() < 25


def test_too_few_samples_are_no_forecast():
    assert forecast([], 10) is None
    assert forecast(samples(noise(25)), 10, models=["last value"]) is None
    early = forecast(samples(wave(58)), 10, models=BASELINES, season=10)
    assert early.model == "last value" and "too few errors" in early.dropped["seasonal naive"]
    assert forecast(samples(noise(40)), 10, models=["last value"]) is not None


def test_constant_power():
    found = forecast(samples([250.0] * 200), 10)
    assert found.model == "last value" and found.range == (250, 250)
    assert set(found.mean) == {250.0} and found.mape["last value"] == 0
    assert found.dropped["seasonal naive"] == "no season found"
    if "statsmodels" in sys.modules:
        assert found.dropped["arima"] == "the power is constant"


@pytest.mark.slow
def test_a_failing_fit_is_told_and_the_next_model_answers(monkeypatch):
    best = forecast(samples(wave(400)), 10).model
    real = module.fit

    def fit(name, values, season, budget):
        if name == best:
            raise Unfit("did not converge")
        return real(name, values, season, budget)

    monkeypatch.setattr(module, "fit", fit)
    found = forecast(samples(wave(400)), 10)
    assert found.model != best and found.model == min(found.mape, key=found.mape.get)
    assert found.dropped[best] == "did not converge"


def test_a_model_that_was_dropped_comes_back_with_a_past(monkeypatch):
    series = wave(600)
    forecaster = Forecaster(10, models=BASELINES)
    for time, watts in samples(series[:300]):
        forecaster.add(time, watts)
    real = module.fit
    monkeypatch.setattr(module, "fit", lambda *given: (_ for _ in ()).throw(Unfit("no")))
    forecaster.refit()
    found = forecaster.forecast()
    assert found.model == "last value" and found.dropped == {"seasonal naive": "no"}
    monkeypatch.setattr(module, "fit", real)
    forecaster.refit()
    found = forecaster.forecast()
    assert found.model == "seasonal naive" and found.dropped == {}


def test_a_forecast_that_runs_away_is_dropped(monkeypatch):
    real = module.fit

    def explosive(name, values, season, budget):
        model = real("last value", values, season, budget)
        return model if name == "last value" else replace(model, move=model.move * 1e40)

    monkeypatch.setattr(module, "fit", explosive)
    forecaster = Forecaster(10, models=BASELINES, season=20)
    with np.errstate(all="ignore"):
        for time, watts in samples(noise(100)):
            forecaster.add(time, watts)
        forecaster.refit()
        for time, watts in samples(noise(120))[100:]:
            forecaster.add(time, watts)
    found = forecaster.forecast()
    assert found.model == "last value" and found.dropped == {"seasonal naive": "its forecast ran away"}


def test_uneven_samples():
    forecaster = Forecaster(5, period=2.0, models=["last value"])
    for time, watts in [(10, 1), (12.4, 2), (12.6, 9), (13.9, 3), (18.2, 4), (18.0, 7), (15, 7)]:
        forecaster.add(time, watts)
    assert forecaster.values.tolist() == [1, 2, 3, 3, 4]
    assert not forecaster.add(18.4, 5.0)  # of this step there is one already
    assert not forecaster.add(20.0, float("nan")) and not forecaster.add(float("inf"), 1.0)
    assert forecaster.add(20.0, 6.0)


def test_a_long_gap_is_the_end_of_what_was_known():
    forecaster = Forecaster(5, models=["last value"])
    for time, watts in samples(noise(100)):
        forecaster.add(time, watts)
    assert forecaster.forecast() is not None
    forecaster.add(150.0, 1000.0)
    assert forecaster.values.tolist() == [1000.0] and forecaster.forecast() is None


@pytest.mark.slow
def test_the_same_samples_give_the_same_forecast():
    assert forecast(samples(wave(300)), 10) == forecast(samples(wave(300)), 10)


@pytest.mark.parametrize(
    "parameters, where",
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2.5}, "horizon"),
        ({"level": 1.0}, "level"),
        ({"level": float("nan")}, "level"),
        ({"period": 0}, "period"),
        ({"window": 50}, "window"),
        ({"season": 1}, "season"),
        ({"season": 500}, "season"),
        ({"models": ["prophet"]}, "models"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_parameters(parameters, where):
    with pytest.raises(InputError) as caught:
        Forecaster(**parameters)
    assert caught.value.where == where


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1e7) | st.sampled_from([0.0, 250.0]), min_size=60, max_size=150))
def test_whatever_the_samples_the_answer_is_sound(values):
    found = forecast(samples(values), 10, window=100, models=BASELINES)
    numbers = [*found.lower, *found.mean, *found.upper, *found.range, *found.mape.values()]
    assert np.isfinite(numbers).all() and min(numbers) >= 0
    assert (np.diff([found.lower, found.mean, found.upper], axis=0) >= 0).all()
    assert found.range.least <= found.range.most
    assert found.model in found.mape and not set(found.mape) & set(found.dropped)


# --- edges


GRID = np.linspace(0.0, 1.0, 1001)[:, None]  # as errors, their quantiles are what shares are left out


def left_out(edge, sign=1):
    """The share of errors beyond the edge."""
    return 1 - sign * float(edge.offsets(sign * GRID)[0])


def missed(edge, errors, coming, sign=1):
    """Which of the values that come lie beyond the edge, which learns from each."""
    found = []
    for value in coming:
        found.append(sign * value > sign * float(edge.offsets(errors)[0]))
        edge.learn(np.array([found[-1]]), np.array([True]))
    return found


@pytest.mark.parametrize("sign", [-1, 1])
def test_an_edge_leaves_out_what_was_promised_of_values_like_those_before(sign):
    rng = np.random.default_rng(3)
    errors = rng.normal(0.0, 1.0, (600, 1))
    for lately in (0, 300):
        edge = Edge(sign, 1, 0.05, lately=lately)
        share = np.mean(missed(edge, errors, rng.normal(0.0, 1.0, 4000), sign))
        assert 0.035 <= share <= 0.055, (lately, share)


def test_an_edge_grows_narrow_where_errors_were_larger_before_than_they_are_now():
    rng = np.random.default_rng(4)
    errors, coming = rng.normal(0.0, 1.3, (600, 1)), rng.normal(0.0, 1.0, 3000)
    wide = missed(Edge(1, 1, 0.05), errors, coming)
    narrow = missed(Edge(1, 1, 0.05, lately=300), errors, coming)
    assert np.mean(wide) < 0.018 < 0.024 < np.mean(narrow[300:]) < 0.05
    # and never more of any 300 than were promised, but for those of a few steps
    assert max(np.convolve(narrow, np.ones(300), "valid")) <= 0.05 * 300 + 5


def test_an_edge_widens_at_once_when_values_grow_wild():
    rng = np.random.default_rng(5)
    errors = rng.normal(0.0, 1.5, (600, 1))
    edge = Edge(1, 1, 0.05, lately=300)
    missed(edge, errors, rng.normal(0.0, 1.0, 1000))
    assert left_out(edge) > 0.06
    missed(edge, errors, [100.0] * 7)
    assert left_out(edge) < 0.05
    missed(edge, errors, [100.0] * 20)
    assert left_out(edge) < 0.0, "beyond the largest error"


@given(st.lists(st.tuples(st.integers(1, 80), st.booleans()), max_size=12), st.sampled_from([0, 1, 20, 100]))
@settings(max_examples=100, deadline=None)
def test_an_edge_leaves_out_more_than_promised_only_as_far_as_it_left_out_less(runs, lately):
    edge, past = Edge(1, 1, 0.1, lately=lately), []
    for count, miss in runs:
        for _ in range(count):
            edge.learn(np.array([miss]), np.array([True]))
            past.append(miss)
    allowed = 0.1 * min(lately, len(past)) - sum(past[len(past) - lately :] if lately else [])
    assert left_out(edge) <= 0.1 + (max(0.0, allowed) / lately if lately else 0.0) + 2e-3


def test_an_edge_that_missed_too_often_comes_back_to_the_promise():
    edge = Edge(1, 1, 0.1, lately=1000)
    for miss in [True] * 40 + [False] * 300:
        edge.learn(np.array([miss]), np.array([True]))
    assert left_out(edge) == pytest.approx(0.1, abs=2e-3)


def test_what_was_not_known_was_not_spared():
    edge = Edge(1, 1, 0.05, lately=300)
    for is_known in [False] * 300 + [True] * 60:
        edge.learn(np.array([False]), np.array([is_known]))
    assert left_out(edge) == pytest.approx(0.05 + 0.05 * 60 / 300, abs=2e-3)


def test_where_nothing_was_said_nothing_is_learned():
    edge = Edge(1, 2, 0.05, lately=100)
    for _ in range(200):
        edge.learn(np.array([False, True]), np.array([True, False]))
    first, second = edge.offsets(np.hstack([GRID, GRID]))
    assert 1 - first == pytest.approx(0.1, abs=2e-3) and 1 - second == pytest.approx(0.05, abs=2e-3)


def test_intervals_of_power_that_calms_down_grow_narrow_in_time(monkeypatch):
    series = np.concatenate([noise(300, 1, spread=30.0), noise(500, 2, spread=20.0)])

    def inside():
        forecaster, found = Forecaster(10, window=300, models=["last value"]), []
        for time, watts in samples(series):
            known = forecaster.forecast()
            if time >= 400 and known is not None:
                coming = series[int(time) : int(time) + 10]
                found += [
                    low <= one <= high
                    for low, high, one in zip(known.lower, known.upper, coming, strict=False)
                ]
            forecaster.add(time, watts)
        return np.mean(found)

    narrow = inside()
    monkeypatch.setattr(module, "Edge", lambda *given, lately=0: Edge(*given))
    assert 0.9 <= narrow <= inside() - 0.01


def test_the_range_is_ready_for_what_is_rare():
    """Power that jumps for three seconds every two minutes: before it does, the range says it may."""
    values = noise(800, spread=5.0)
    jumps = range(130, 800, 130)
    for start in jumps:
        values[start : start + 3] += 500.0
    forecaster, said = Forecaster(10, models=["last value"]), []
    for time, watts in samples(values):
        if time in jumps:
            said.append(forecaster.forecast())
        forecaster.add(time, watts)
    assert said[0].range.most < 1100, "nobody could know"
    assert all(one.range.most > 1400 for one in said[1:])
