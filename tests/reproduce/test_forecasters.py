"""The made-up power of the forecasters study, and what is measured along it."""

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.reproduce import forecasters
from dask_hpc.reproduce.claim import Bench

pytest.importorskip("statsmodels")


def test_power_is_that_of_32_nodes_and_the_same_for_a_seed():
    for load in ("synthetic", "seasonal"):
        values = forecasters.power(load, 3)
        assert len(values) == 1200 and (values == forecasters.power(load, 3)).all()
        assert (values != forecasters.power(load, 4)).any()
        assert 32 * 71 * 0.9 < values.min() < values.max() < 32 * 250 * 1.1


def test_only_the_seasonal_load_has_a_season():
    def peak(load):
        """The largest autocorrelation at a lag from 40 to 120 s, over what there is between."""
        values = forecasters.power(load, 0)
        rest = values - values.mean()
        each = [rest[:-lag] @ rest[lag:] / (rest @ rest) for lag in range(15, 121)]
        return max(each[25:]) - min(each)

    assert peak("seasonal") > 1 > peak("synthetic")


def test_a_model_that_knows_what_comes_has_no_error():
    """A level line: whatever says that all stays as it is is right, and no season is found."""
    found = forecasters._tried(np.full(1200, 5000.0))
    for name in ("as chosen", "last value", "ARIMA", "seasonal ARIMA", "least", "most"):
        assert found[name] == pytest.approx(0, abs=1e-6), name
    assert found["has a season"] == found["is chosen"] == 0


def test_without_a_season_the_seasonal_arima_is_the_arima(monkeypatch):
    monkeypatch.setattr(forecasters, "_WINDOW", 120)
    found = forecasters._tried(forecasters.power("synthetic", 0, 300))
    assert found["has a season"] == 0
    assert found["seasonal ARIMA"] == found["ARIMA"] > 0
    assert found["seasonal naive"] == found["last value"]


def test_without_statsmodels_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(forecasters, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="statsmodels"):
        forecasters.run(Bench(1))
