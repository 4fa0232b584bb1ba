"""What tasks of each kind need, as workers tell it."""

import pytest

from dask_hpc.together.scheduler.peaks import KindPeaks


def said(nbytes, inputs=0, tasks=3):
    return {"bytes": nbytes, "inputs": inputs, "tasks": tasks}


@pytest.fixture
def peaks():
    return KindPeaks()


def need(peaks, kind="a"):
    return peaks.of(kind, 0.0).peak


def test_inputs_count(peaks):
    assert peaks.hear_kinds("w", {"a": said(5, 2)}) == ["a"] and need(peaks) == 7


def test_the_most_that_any_worker_says_until_that_one_says_less(peaks):
    assert peaks.hear_kinds("w", {"a": said(5)}) == ["a"]
    assert peaks.hear_kinds("v", {"a": said(3)}) == [] and need(peaks) == 5
    assert peaks.hear_kinds("v", {"a": said(8)}) == ["a"] and need(peaks) == 8
    assert peaks.hear_kinds("w", {"a": said(4)}) == [] and need(peaks) == 8
    assert peaks.hear_kinds("v", {"a": said(8)}) == []
    assert peaks.hear_kinds("v", {"a": said(2)}) == ["a"] and need(peaks) == 2


def test_what_is_remembered_counts_until_some_have_ended(peaks):
    peaks.recall({"a": 9.0, "b": 9.0})
    peaks.hear_kinds("w", {"b": said(20)})
    peaks.recall({"b": 5.0})
    assert need(peaks) == 9 and need(peaks, "b") == 20
    assert peaks.hear_kinds("w", {"a": said(4, tasks=2)}) == [] and need(peaks) == 9
    assert peaks.hear_kinds("w", {"a": said(4, tasks=3)}) == ["a"] and need(peaks) == 4
    peaks.recall({"c": 9.0, "d": 9.0})
    assert peaks.hear_kinds("w", {"c": said(4, tasks=3)}) == ["c"] and need(peaks, "c") == 4
    assert peaks.hear_kinds("w", {"d": said(12, tasks=1)}) == ["d"] and need(peaks, "d") == 12


def test_only_what_was_measured_is_remembered(peaks):
    peaks.recall({"old": 9.0})
    peaks.assume("nobody said", 0.0)
    peaks.hear_kinds("w", {"a": said(5), "none yet": said(5, tasks=0)})
    assert [kind for kind, _ in peaks.measured()] == ["a"]
    assert {kind for kind, _ in peaks.known()} == {"old", "nobody said", "a", "none yet"}


def test_growth_of_what_nobody_knows(peaks):
    assert peaks.of("a", 5.0) == peaks.of("a", 6.0) and need(peaks) is None
    peaks.hear_growth({"a": [2.0, 100]}, 10.0)
    assert (peaks.of("a", 11.0).grown, peaks.of("a", 11.0).seconds) == (100, 3.0)
    peaks.hear_growth({"a": [1.0, 50]}, 12.0)  # another worker
    assert (peaks.of("a", 12.0).grown, peaks.of("a", 12.0).seconds) == (100, 4.0)
    assert peaks.hear_running([["k", "a", 0.0, 300]], 13.0) == ["a"]
    assert (peaks.of("a", 13.0).grown, peaks.of("a", 13.0).seconds) == (300, 5.0)
    peaks.hear_growth({"a": [9.0, 10]}, 14.0)
    assert peaks.of("a", 14.0).seconds == 9.0
    peaks.hear_kinds("w", {"a": said(7)})
    peaks.hear_growth({"a": [9.0, 100]}, 14.0)
    assert need(peaks) == 7 and peaks.of("a", 14.0).grown == 0


def test_one_that_runs_and_has_grown_further_is_heard(peaks):
    peaks.hear_kinds("w", {"a": said(50)})
    assert peaks.hear_running([["k", "a", 0.0, 40], ["l", "a", 0.0, 50]], 1.0) == [] and need(peaks) == 50
    assert peaks.hear_running([["k", "a", 0.0, 60]], 1.0) == ["a"] and need(peaks) == 60


def test_no_more_than_so_many_are_remembered(peaks):
    for number in range(1500):
        peaks.hear_kinds("w", {f"k{number}": said(1)})
        peaks.hear_growth({f"g{number}": [1.0, 1]}, 1.0)
    assert len(list(peaks.known())) == 1000 and not peaks.is_known("k0") and peaks.is_known("k1499")
    assert len(peaks._growing) == 1000
