"""What tasks of each kind need, as workers tell it."""

import pytest

from dask_hpc.together.scheduler.peaks import KindPeaks

MB = 1_000_000


def said(nbytes, inputs=0, tasks=3):
    return {"bytes": nbytes, "inputs": inputs, "tasks": tasks}


@pytest.fixture
def peaks():
    return KindPeaks()


def need(peaks, kind="a"):
    return peaks.of(kind).peak


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


def growth(peaks):
    known = peaks.of("a")
    return known.grown / MB, known.still


def test_growth_of_what_nobody_knows(peaks):
    assert growth(peaks) == (0, 0) and need(peaks) is None
    peaks.hear_growth({"a": [2.0, 100 * MB]}, 10.0)
    assert growth(peaks) == (100, 0)  # perhaps just now
    peaks.hear_growth({"a": [1.0, 50 * MB]}, 12.0)  # another worker
    assert growth(peaks) == (100, 2)
    peaks.hear_growth({"a": [5.0, 108 * MB]}, 13.0)  # that is no growth
    assert growth(peaks) == (108, 3)
    peaks.hear_growth({"a": [6.0, 116 * MB]}, 14.0)  # but twice that is
    assert growth(peaks) == (116, 0)
    assert peaks.hear_running([["k", "a", 0.0, 300 * MB]], 15.0) == ["a"]
    assert growth(peaks) == (300, 0)
    peaks.hear_growth({"a": [9.0, 10 * MB]}, 18.0)
    assert growth(peaks) == (300, 3)
    peaks.hear_kinds("w", {"a": said(7)})
    peaks.hear_growth({"a": [9.0, 100 * MB]}, 19.0)
    assert need(peaks) == 7 and growth(peaks) == (0, 0)


def test_what_needs_next_to_nothing_has_never_grown(peaks):
    peaks.hear_growth({"a": [2.0, 3 * MB]}, 10.0)
    assert growth(peaks) == (3, 2)
    peaks.hear_growth({"a": [2.5, 4 * MB]}, 10.5)
    assert growth(peaks) == (4, 2.5)


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
