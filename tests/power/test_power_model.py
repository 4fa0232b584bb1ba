"""The model of a node's power and its calibration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.power.model import BUSY_WATTS, IDLE_WATTS, PowerModel, calibrate

uses = st.floats(0, 1)


def test_the_default_is_a_typical_server():
    model = PowerModel.default(64)
    assert model.watts(0) == pytest.approx(64 * IDLE_WATTS)
    assert model.watts(1) == pytest.approx(64 * BUSY_WATTS)
    assert model.watts(0.5) == pytest.approx(32 * (IDLE_WATTS + BUSY_WATTS))
    assert model.uncertainty(0.5) == pytest.approx(model.watts(0.5) / 2)
    assert model.watts(7) == model.watts(1) and model.watts(-1) == model.watts(0)


@given(st.floats(1, 500), st.floats(0, 500), st.lists(uses, min_size=3, max_size=20))
def test_a_straight_line_is_found(idle, more, at):
    model = calibrate([(use, idle + more * use) for use in at], 4)
    if max(at) - min(at) > 0.1:
        assert model.idle == pytest.approx(idle, abs=1e-3)
        assert model.busy == pytest.approx(idle + more, abs=1e-3)
        assert model.busy_doubt == pytest.approx(0.02 * model.busy, rel=0.01)
    mean = sum(at) / len(at)
    assert model.watts(mean) == pytest.approx(idle + more * mean, rel=1e-6)  # also if all is at one use


@given(st.lists(st.tuples(uses, st.floats(0, 1e4)), min_size=1, max_size=12))
def test_bounds_hold_whatever_was_measured(points):
    model = calibrate(points, 4)
    assert 0 <= model.idle <= model.busy + 1e-9 and model.idle_doubt >= 0 and model.busy_doubt >= 0


@given(st.lists(st.tuples(uses, st.floats(1, 1e3)), min_size=3, max_size=12), uses, uses)
def test_no_other_line_within_bounds_fits_better(points, a, b):
    if max(u for u, _ in points) - min(u for u, _ in points) < 0.05:
        return
    model = calibrate(points)

    def left(idle, busy):
        return sum((watts - idle - (busy - idle) * use) ** 2 for use, watts in points)

    best = left(model.idle, model.busy)
    for idle in (model.idle * 2 * a, 1000 * a):
        for busy in (model.busy * 2 * b, 1000 * b):
            assert busy < idle or best <= left(idle, busy) + 1e-6 * (1 + best)


def test_scatter_is_doubt():
    clean = calibrate([(0, 100), (0.5, 150), (1, 200)])
    noisy = calibrate([(0, 110), (0.5, 130), (1, 210)])
    assert noisy.busy_doubt > 10 > clean.busy_doubt
    assert "3 measurements" in clean.origin


def test_few_measurements_are_doubted():
    two = calibrate([(0, 100), (1, 300)])
    assert (two.idle, two.busy) == (100, 300) and two.busy_doubt == 75
    one = calibrate([(1, 7)], 2)
    assert one.busy == pytest.approx(7) and one.idle == pytest.approx(7 * IDLE_WATTS / BUSY_WATTS)


@pytest.mark.parametrize("bad", [[], [(2, 3)], [(0.5, -1)], [(0.5,)], [3], [("a", 3)], [(0, float("inf"))]])
def test_bad_measurements_are_refused(bad):
    with pytest.raises(InputError, match="calibrate"):
        calibrate(bad)
