"""How often failures are to be expected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.strategies.checkpoint.rates import expected_rate

DAY = 86400.0
mtbfs = st.floats(1.0, 1000 * DAY)
spans = st.floats(0.0, 1e9)


def test_what_is_seen_at_once_counts_at_once():
    """One death in the first minute says that this is another kind of cluster, two how bad it is."""
    assert expected_rate(30 * DAY, 1, 80.0) == pytest.approx(1 / 80, rel=0.5)
    assert expected_rate(30 * DAY, 3, 240.0) == pytest.approx(1 / 80, rel=0.3)


def test_one_death_in_ten_days_is_what_was_said():
    assert expected_rate(30 * DAY, 1, 10 * DAY) == pytest.approx(1 / (20 * DAY), rel=0.1)
    assert expected_rate(30 * DAY, 0, 10 * DAY) < 1 / (30 * DAY) < expected_rate(30 * DAY, 0, DAY)


def test_many_are_believed():
    assert expected_rate(30 * DAY, 1000, 1000 * 60.0) == pytest.approx(1 / 60, rel=0.01)
    assert expected_rate(60.0, 10, 10 * 30 * DAY) == pytest.approx(1 / (30 * DAY), rel=0.2)


def test_before_anything_is_seen_the_first_minutes_are_doubted():
    """Of three clusters in ten nobody knows anything: a fifth of a failure in a minute."""
    assert expected_rate(30 * DAY, 0, 0.0) == pytest.approx(0.3 * 0.2 / 60, rel=0.01)
    assert expected_rate(30 * DAY, 0, 3600.0) < 1 / DAY


@given(mtbf=mtbfs, seen=st.integers(0, 1000), seconds=spans)
def test_more_failures_are_more_to_come_and_more_time_is_fewer(mtbf, seen, seconds):
    found = expected_rate(mtbf, seen, seconds)
    assert 0 < found < float("inf")
    assert expected_rate(mtbf, seen + 1, seconds) > found * (1 - 1e-9)
    assert expected_rate(mtbf, seen, seconds * 1.1 + 1) < found * (1 + 1e-9)
