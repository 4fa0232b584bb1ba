"""Models as small matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.forecast_models import first, last_value, seasonal_naive, shift, side_by_side

values = st.lists(st.floats(0, 1e6), min_size=12, max_size=40).map(np.array)


@given(values)
def test_the_last_value_stays(series):
    model = last_value(series[:5])
    for value in series[5:]:
        model = model.after(value)
    np.testing.assert_allclose(model.ahead(3) @ model.state, series[-1], atol=1e-6)


@pytest.mark.slow
@given(values, st.integers(2, 6))
def test_a_season_comes_again(series, season):
    model = seasonal_naive(series[:6], season)
    for value in series[6:]:
        model = model.after(value)
    again = np.tile(series[-season:], 3)[: 2 * season]
    np.testing.assert_allclose(model.ahead(2 * season) @ model.state, again, atol=1e-6)


def test_looking_ahead_is_moving_without_errors():
    model = seasonal_naive(np.arange(5.0), 5).scaled(100.0, 2.0)
    path = model.ahead(7) @ model.state
    for expected in path:
        assert model.look @ model.state == expected
        model = model.after(expected)
    assert path.tolist() == [100, 102, 104, 106, 108, 100, 102]


def test_blocks():
    assert shift(3).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert first(2).tolist() == [1, 0]
    assert side_by_side(np.full((1, 1), 7.0), shift(2)).tolist() == [[7, 0, 0], [0, 0, 1], [0, 1, 0]]
