"""What a fit yields runs along with a series exactly as statsmodels would."""

import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest

from dask_hpc.planning import forecast_models
from dask_hpc.planning.forecast_models import BASELINES, MODELS, Unfit, fit

# Where statsmodels is called directly its warnings are none of ours.
theirs_may_warn = pytest.mark.filterwarnings("ignore:Non-stationary", "ignore:Non-invertible")
TIMES = np.arange(240)
SERIES = 1000 + 100 * np.sin(2 * np.pi * TIMES / 24) + np.random.default_rng(5).normal(0, 20, 240)


def path(model, steps=30):
    return model.ahead(steps) @ model.state


def standard(values):
    return (values - values.mean()) / values.std()


@pytest.mark.slow
@theirs_may_warn
def test_arima_is_statsmodels():
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")
    theirs = sarimax.SARIMAX(standard(SERIES), order=(1, 1, 1)).fit(
        disp=False, method="powell", maxiter=50, cov_type="none"
    )
    expected = SERIES.mean() + SERIES.std() * theirs.forecast(30)
    np.testing.assert_allclose(path(fit("arima", SERIES, None, 50)), expected, rtol=1e-6)


@pytest.mark.slow
@theirs_may_warn
def test_sarimax_is_statsmodels():
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")

    def waves(times):
        turns = np.outer(times, 2 * np.pi * np.arange(1, 5) / 24)
        return np.column_stack([np.cos(turns), np.sin(turns)])

    theirs = sarimax.SARIMAX(standard(SERIES), exog=waves(TIMES), order=(1, 1, 1), mle_regression=False).fit(
        disp=False, method="powell", maxiter=50, cov_type="none"
    )
    expected = SERIES.mean() + SERIES.std() * theirs.forecast(30, exog=waves(np.arange(240, 270)))
    np.testing.assert_allclose(path(fit("sarimax", SERIES, 24, 50)), expected, rtol=1e-6)


@pytest.mark.parametrize("season", [None, 24])
def test_holt_winters_is_statsmodels(season):
    holtwinters = pytest.importorskip("statsmodels.tsa.holtwinters")
    theirs = holtwinters.ExponentialSmoothing(
        standard(SERIES), trend="add", damped_trend=True, seasonal="add" if season else None,
        seasonal_periods=season, initialization_method="heuristic",
    ).fit()  # fmt: skip
    expected = SERIES.mean() + SERIES.std() * theirs.forecast(30)
    np.testing.assert_allclose(path(fit("holt-winters", SERIES, season, 200)), expected, rtol=1e-3)


@pytest.mark.slow
@theirs_may_warn
@pytest.mark.parametrize("name", ["arima", "sarimax"])
def test_running_along_is_what_statsmodels_would_say(name):
    """Its Kalman filter on all values, with the parameters of the older half."""
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")
    turns = np.outer(np.arange(270), 2 * np.pi * np.arange(1, 5) / 24)
    waves = np.column_stack([np.cos(turns), np.sin(turns)])
    walk = SERIES + np.cumsum(np.random.default_rng(6).normal(0, 20, 240))
    scaled = (walk - walk[:120].mean()) / walk[:120].std()
    given = {"exog": waves[:120], "mle_regression": False} if name == "sarimax" else {}
    theirs = sarimax.SARIMAX(scaled[:120], order=(1, 1, 1), **given)
    theirs = theirs.fit(disp=False, method="powell", maxiter=50, cov_type="none")
    model = fit(name, walk[:120], 24, 50)
    for value in walk[120:]:
        model = model.after(value)
    if name == "arima":
        expected = theirs.append(scaled[120:]).forecast(30)
        np.testing.assert_allclose(path(model), walk[:120].mean() + walk[:120].std() * expected, rtol=1e-6)
    else:  # theirs goes on learning the waves, ours only when it is fitted again
        expected = theirs.append(scaled[120:], exog=waves[120:240]).forecast(30, exog=waves[240:])
        expected = walk[:120].mean() + walk[:120].std() * expected
        np.testing.assert_allclose(path(model), expected, atol=0.5 * SERIES.std())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in BASELINES])
@pytest.mark.parametrize(
    "values, why",
    [
        (SERIES[:20], "20 samples, fewer than"),
        (np.full(100, 250.0), "the power is constant"),
        (SERIES[:40], "fewer than two seasons"),
    ],
)
def test_why_not(name, values, why):
    with pytest.raises(Unfit, match=why):
        fit(name, values, 24, 50)


@pytest.mark.parametrize("name", ["seasonal naive", "sarimax"])
def test_no_season(name):
    with pytest.raises(Unfit, match="no season found"):
        fit(name, SERIES, None, 50)


@pytest.mark.slow
def test_a_search_that_does_not_end_is_no_fit():
    pytest.importorskip("statsmodels")
    for name in ("arima", "sarimax", "holt-winters"):
        with pytest.raises(Unfit, match="did not converge"):
            fit(name, SERIES, 24, 1)


def test_an_error_in_a_fit_is_told_in_one_line(monkeypatch):
    pytest.importorskip("statsmodels")
    monkeypatch.setattr(forecast_models, "_maximise", lambda model, steps: np.linalg.inv(np.zeros((2, 2))))
    with pytest.raises(Unfit, match=r"^LinAlgError: Singular matrix$"):
        fit("arima", SERIES, None, 50)


def test_without_statsmodels(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "statsmodels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    for name in MODELS:
        if name in BASELINES:
            assert np.isfinite(path(fit(name, SERIES, 24, 50))).all()
        else:
            with pytest.raises(Unfit, match=r"needs statsmodels: pip install \"dask-hpc\[power\]\""):
                fit(name, SERIES, 24, 50)


@pytest.mark.slow
def test_no_warning_leaks():
    """Whatever a fit meets: here every warning would be an error."""
    rng = np.random.default_rng(1)
    strange = [
        np.repeat([100.0, 5000.0], 50),
        np.cumsum(rng.standard_cauchy(100)) + 1e6,
        1e-9 * rng.random(100),
        np.r_[np.zeros(99), 1e9],
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in strange:
            for name in MODELS:
                with suppress(Unfit):
                    assert np.isfinite(path(fit(name, values, 10, 20))).all()
