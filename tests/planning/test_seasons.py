"""Whether a series has a season, and how long it is."""

import numpy as np
import pytest

from dask_hpc.planning.forecast_models import season_length

TIMES = np.arange(600)


@pytest.mark.parametrize("season", [4, 7, 24, 60, 97, 180])
@pytest.mark.parametrize("shape", ["sine", "square", "sawtooth"])
def test_found(season, shape):
    phase = TIMES % season / season
    wave = {"sine": np.sin(2 * np.pi * phase), "square": 1.0 * (phase < 0.4), "sawtooth": phase}[shape]
    noise = np.random.default_rng(season).normal(0, 0.1, 600)
    drift = TIMES / 300
    found = season_length(1000 + 100 * (wave + noise + drift))
    assert found == pytest.approx(season, rel=0.01)


@pytest.mark.parametrize("season", [7.3, 20.5, 33.4, 62.83, 88.8])
def test_found_between_two_samples(season):
    noise = np.random.default_rng(3).normal(0, 20, 600)
    assert season_length(1000 + 100 * np.sin(2 * np.pi * TIMES / season) + noise) == pytest.approx(
        season, rel=0.005
    )


@pytest.mark.parametrize("seed", range(10))
def test_not_found_where_there_is_none(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(1000, 50, 600)
    step = np.where(rng.integers(50, 550) > TIMES, 0, 300)
    assert season_length(noise) is None
    assert season_length(noise + step) is None
    assert season_length(noise + TIMES) is None


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 100, list(range(100))])
def test_nothing_to_find(values):
    assert season_length(np.array(values, dtype=float)) is None
