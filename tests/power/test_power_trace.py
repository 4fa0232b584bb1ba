"""What the trace of power tells is what its samples say."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.power.scheduler.trace import LiveTrace


def traced(samples, **how):
    trace = LiveTrace(**how)
    for time, watts, lower, upper in samples:
        trace.add(time, PowerView(watts), lower, upper)
    return trace


def test_an_excursion_longer_than_a_tick_is_one_violation():
    trace = traced([(0, 5, 1, 9), (1, 10, 1, 9), (2, 5, 1, 9), (3, 0, 1, 9), (4, 0, 1, 9), (5.5, 5, 1, 9)])
    assert trace.violation_count == 1
    assert trace.outside_seconds == 3.5
    assert trace.outside_energy == 1 * 1 + 2.5 * 1


def test_one_that_goes_on_is_one():
    trace = traced([(0, 10, 0, 9), (2, 10, 0, 9)])
    assert trace.violation_count == 1
    trace.add(4, PowerView(10.0), 0, 9)
    assert trace.violation_count == 1 and trace.outside_seconds == 4
    trace.add(5, PowerView(10.0), 0, inf)  # the corridor moves, not the power
    assert trace.outside_seconds == 5
    trace.add(9, PowerView(10.0), 0, inf)
    assert trace.violation_count == 1 and trace.outside_seconds == 5


def test_a_reader_comes_back_for_what_is_new():
    trace = traced([(time, 1, 0, 9) for time in range(5)], length=3)
    assert [sample.time for sample in trace.since(0)] == [2, 3, 4]
    assert [sample.time for sample in trace.since(4)] == [4]
    assert not list(trace.since(5)) and trace.count == 5


def test_a_sample_carries_what_was_known():
    trace = LiveTrace()
    assert trace.last is None
    trace.add(1.0, PowerView(7.0, "measured", 0.5, forecast=PowerRange(6, 8), doubt="frozen"))
    assert trace.last == (1.0, 7.0, 0.0, inf, (6, 8), "measured", 0.5, "frozen")


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 10), st.integers(0, 5), st.integers(5, 10))),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_figures_are_those_of_the_whole_series(rows, tick):
    time, samples = 0, []
    for gap, *rest in rows:
        time += gap
        samples.append((time, *rest))
    trace = traced(samples, tick=tick)
    outside = [not low <= watts <= high for _, watts, low, high in samples]
    spans, start = [], None
    for (when, *_), out in zip(samples, outside, strict=True):
        if start is not None and not out:
            spans.append((start, when))
            start = None
        elif start is None and out:
            start = when
    if start is not None:
        spans.append((start, samples[-1][0]))
    assert trace.violation_count == sum(end - begin > tick for begin, end in spans)
    assert trace.outside_seconds == pytest.approx(sum(end - begin for begin, end in spans))
