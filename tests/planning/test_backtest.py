"""Acceptance: the interval covers what it promises, and the choice of a model costs next to nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.planning.forecast import Forecaster, backtest

KINDS = ("noise", "steps", "seasons", "squares", "drift")


def series(kind, seed, count):
    """Made-up power of a machine, one value each second."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    times = np.arange(count)
    level = rng.uniform(500, 5000)
    noise = rng.normal(0, rng.uniform(0.01, 0.05), count)
    if kind == "steps":  # jobs start and end at no time that anybody could know
        lengths = rng.exponential(60, count).astype(int) + 5
        shape = np.repeat(rng.uniform(0.5, 1.5, count), lengths)[:count]
    elif kind == "seasons":
        phase = 2 * np.pi * times / rng.integers(15, 90) + rng.uniform(0, 7)
        shape = 1 + 0.25 * np.sin(phase) + 0.1 * np.sin(2 * phase)
    elif kind == "squares":  # computing and communicating in turn
        season = rng.integers(20, 90)
        shape = 1 + 0.3 * (times % season < 0.4 * season)
    elif kind == "drift":
        shape = 1 + rng.uniform(-0.4, 0.8) * times / count
    else:
        shape = np.ones(count)
    return level * (shape + noise)


def check(kind, seed, count, window, retrain=120):
    found = backtest(series(kind, seed, count), Forecaster(30, window=window), retrain)
    assert 0.85 <= found.coverage <= 0.97, (kind, seed, found)
    assert found.behind <= 0.05, (kind, seed, found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_newer_half_of_a_series(kind):
    pytest.importorskip("statsmodels")
    window = 600 if kind == "steps" else 300  # a smaller one has too few steps to learn from
    check(kind, 100, 2 * window, window)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_newer_halves_of_many_series(kind):
    """With one thread for matrices, as where forecasts are made, and if need be in a process of its own for
    that: they are small, and several threads burn four times the processor time on them."""
    pytest.importorskip("statsmodels")
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        check_many(kind)
        return
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", f"import test_backtest; test_backtest.check_many({kind!r})"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def check_many(kind):
    """Each series by itself, and the ranges of all together: there are only some twenty in a half that do
    not overlap."""
    found = [check(kind, seed, 1200, 600, retrain=200) for seed in range(3)]
    assert 0.85 <= np.mean([one.range_coverage for one in found]) <= 0.97, found


def test_without_statsmodels_too():
    found = backtest(series("steps", 7, 800), Forecaster(20, window=400, models=["last value"]))
    assert 0.85 <= found.coverage <= 0.97 and found.behind == 0
    assert found.chosen == {"last value": 381}


def test_an_error_is_of_what_came():
    """Doubles at once in the newer half: the last value is half of what comes, and only once."""
    values = [100.0] * 120 + [200.0] * 120
    found = backtest(values, Forecaster(10, window=120, models=["last value"]))
    assert found.mape == found.alone["last value"] == pytest.approx(50 / 111)


@pytest.mark.parametrize("values", [[1.0] * 20, [1.0] * 50, [-1.0] * 500, [float("nan")] * 500])
def test_series_that_cannot_be_judged(values):
    with pytest.raises(InputError, match="values"):
        backtest(values, Forecaster(10, window=100, models=["last value"]))
