"""The curve, the violations and the energies, against sums over small steps."""

from math import exp, inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_hpc.model.power import Corridor
from dask_hpc.simulator.power import PowerRecord, power_trace


def recorded(steps, bounds=(), ramp=0.0, tick=0.0, end=100.0):
    """Steps of ``(time, level)``, from nothing."""
    record = PowerRecord(ramp, tick)
    watts = since = level = 0.0
    for time, new in steps:
        watts = level + (watts - level) * exp(-(time - since) / ramp) if ramp else new
        since, level = time, new
        record.step(time, watts, level)
    for time, lower, upper in bounds:
        record.bound(time, Corridor(((time, lower, upper),)))
    record.end = end
    return record


def test_without_a_corridor_nothing_is_outside():
    found = power_trace(recorded([(0, 100), (50, 300)]), 0)
    assert found.energy == 100 * 50 + 300 * 50
    assert (found.violations, found.time_outside, found.energy_outside) == ((), 0, 0)
    assert not found.has_corridor and set(found.lower) == {0} and set(found.upper) == {inf}


def test_steps_by_hand():
    record = recorded([(0, 100), (10, 250), (12, 120), (50, 300)], [(0, 110, 200), (60, 110, 350)], tick=5)
    found = power_trace(record, 0)
    # below for 10 s, above for 2 s (one stretch of 12 s), above for 10 s until the corridor rises
    assert found.violations == ((0, 12), (50, 60))
    assert found.time_outside == 22
    assert found.energy_outside == 10 * 10 + 2 * 50 + 10 * 100
    assert found.energy == 10 * 100 + 2 * 250 + 38 * 120 + 50 * 300
    assert list(found.time) == [0, 10, 12, 50, 60, 100]
    assert list(found.watts) == [100, 250, 120, 300, 300, 300]
    assert list(found.upper) == [200, 200, 200, 200, 350, 350]


def test_what_one_tick_sets_right_is_no_violation():
    steps = [(0, 100), (10, 250), (15, 100), (30, 250), (36, 100)]
    assert power_trace(recorded(steps, [(0, 0, 200)], tick=5), 0).violations == ((30, 36),)
    assert len(power_trace(recorded(steps, [(0, 0, 200)]), 0).violations) == 2


def test_exactly_at_a_bound_is_inside():
    level = sum([0.1] * 3)  # a little more than 0.3
    assert power_trace(recorded([(0, level)], [(0, 0.3, 0.3)]), 0).violations == ()


def test_only_what_happens_during_the_run_counts():
    found = power_trace(recorded([(0, 500), (40, 100)], [(0, 0, 200)], end=60), 30)
    assert found.violations == ((30, 40),)
    assert (found.time[0], found.time[-1]) == (30, 60)


def test_a_ramp_crosses_when_it_does():
    found = power_trace(recorded([(0, 400)], [(0, 0, 200)], ramp=10), 0)
    (violation,) = found.violations
    assert violation == pytest.approx((10 * np.log(2), 100))
    assert found.energy == pytest.approx(400 * 100 - 4000 * (1 - exp(-10)))


numbers = st.integers(0, 40).map(lambda n: 10.0 * n)


@given(
    st.lists(st.tuples(st.integers(0, 95), numbers), min_size=1, max_size=8, unique_by=lambda s: s[0]),
    st.lists(
        st.tuples(st.integers(0, 95), numbers, numbers), min_size=1, max_size=4, unique_by=lambda s: s[0]
    ),
    st.sampled_from([0.0, 3.0, 30.0]),
)
@example([(53, 0.0)], [(0, 50.0, 50.0)], 3.0)
@settings(deadline=None)
def test_closed_forms_agree_with_sums(steps, bounds, ramp):
    """Against the same curve, looked at every hundredth of a second."""
    steps = [(0, 50.0)] + [(time + 1, level) for time, level in sorted(steps)]
    bounds = [(0, 0.0, 500.0)] + [(time + 1, min(a, b), max(a, b)) for time, a, b in sorted(bounds)]
    record = recorded(steps, bounds, ramp)
    found = power_trace(record, 0)
    time = np.arange(0.005, 100, 0.01)
    step = np.searchsorted([t for t, _ in steps], time, side="right") - 1
    # steps of the same level are one
    level = np.array([level for _, level in steps])[step]
    watts = level
    if ramp:
        at = np.searchsorted(np.array(record.time), time, side="right") - 1
        begun, first = np.array(record.time)[at], np.array(record.watts)[at]
        watts = level + (first - level) * np.exp(-(time - begun) / ramp)
    bound = np.searchsorted([t for t, _, _ in bounds], time, side="right") - 1
    lower, upper = (np.array([b[i] for b in bounds])[bound] for i in (1, 2))
    over, under = np.maximum(watts - upper, 0), np.maximum(lower - watts, 0)
    assert found.energy == pytest.approx(watts.sum() * 0.01, rel=1e-3)
    assert found.energy_outside == pytest.approx((over + under).sum() * 0.01, rel=2e-3, abs=3)
    # a ramp that ends at a bound comes ever closer to it: seen from afar it may count as there, or not yet
    surely, at_most = (((over > slack) | (under > slack)).sum() * 0.01 for slack in (1e-6, 0))
    assert surely - 0.2 <= found.time_outside <= at_most + 0.2
    assert found.time_outside == pytest.approx(sum(b - a for a, b in found.violations), abs=1e-3)
    assert all(a[1] < b[0] for a, b in zip(found.violations, found.violations[1:], strict=False))
