"""For whatever true powers and intervals, the energy is right to the counter's step, or not known."""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from dask_hpc.power.worker.sensors import EnergyCounter

STEP = 61e-6  # joules of one step of a usual counter
SPAN = round(65_536 / STEP) * STEP
BOUND = 500.0  # watts

intervals = st.lists(
    st.tuples(st.floats(0.5, BOUND), st.floats(0.02, 3 * SPAN / BOUND)), min_size=1, max_size=20
)


def seen(joules):
    """What the counter shows."""
    return round(joules / STEP) * STEP % SPAN


@given(intervals, st.floats(0, SPAN))
@example([(499.0, 3 * SPAN / BOUND)], 0.0)
@example([(0.5, 0.25), (500.0, 132.0)], 1272.875)
@example([(400.0, 1.9 * SPAN / BOUND)], 0.0)
def test_the_energy_is_right_or_not_known(steps, start):
    counter = EnergyCounter(SPAN, BOUND)
    now, true = 0.0, start
    counter.look(now, seen(true), 1)
    for watts, seconds in steps:
        now, true = now + seconds, true + watts * seconds
        found = counter.look(now, seen(true), 1).watts
        if found is not None:
            assert abs(found * seconds - watts * seconds) <= 2 * STEP + 1e-9 * now * watts + 1e-9 * true
        if watts * seconds >= SPAN + 2 * STEP:
            assert found is None  # a full turn and more can look like anything


@given(
    st.lists(st.tuples(st.floats(1, BOUND), st.floats(0.02, 0.99 * SPAN / BOUND)), min_size=1, max_size=30)
)
def test_without_several_wraps_all_energy_is_counted(steps):
    counter = EnergyCounter(SPAN, BOUND)
    now = true = total = 0.0
    counter.look(now, seen(true), 1)
    for watts, seconds in steps:
        assume(watts * seconds > 2 * STEP and watts * seconds < 0.999 * BOUND * seconds)
        before = now
        now, true = now + seconds, true + watts * seconds
        total += counter.look(now, seen(true), 1).watts * (now - before)
    assert abs(total - true) <= STEP + 1e-9 * true


@given(st.floats(0.02, 1e6), st.floats(-1e6, 1e12, allow_nan=False) | st.just(float("nan")))
def test_nothing_absurd_comes_out(seconds, joules):
    counter = EnergyCounter(SPAN, BOUND)
    counter.look(0, 100.0, 1)
    watts = counter.look(seconds, joules, 1).watts
    assert watts is None or 0 < watts * seconds <= BOUND * seconds + 1e-3


def test_a_counter_without_a_span_never_wraps():
    counter = EnergyCounter(None, BOUND)
    assert counter.look(0, 1e9, 0).watts is None
    assert counter.look(1e6, 1e9 + 1e8, 0).watts == 100
    assert "set back" in counter.look(1e6 + 1, 0, 0).problem
