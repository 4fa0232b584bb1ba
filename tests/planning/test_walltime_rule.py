"""No task starts where it cannot finish."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.planning.walltime import Durations, WalltimeVerdict, may_start


def test_the_upper_quantile_of_the_newest():
    durations = Durations()
    assert durations.upper("a") is None
    durations.add("a", 3)
    assert durations.upper("a") == 3
    for seconds in range(1, 101):
        durations.add("a", seconds)
    assert durations.upper("a") == 95  # of 51 to 100
    for kind in range(2000):
        durations.add(str(kind), 1)
    assert durations.upper("a") is None and durations.upper("1999") == 1


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=120))
def test_nine_of_ten_of_the_newest_are_not_above(values):
    durations = Durations()
    for value in values:
        durations.add("a", value)
    newest, upper = values[-50:], durations.upper("a")
    assert upper in newest
    assert sum(value <= upper for value in newest) >= 0.9 * len(newest)


def test_scenario_s8():
    """5 s left, tasks of 3 s: one may start now, none behind it, and none when it is done."""
    assert may_start(5, 0.5, {"t": None}, []) == WalltimeVerdict((), None)
    assert may_start(5, 0.5, {"t": None}, ["t"]) == WalltimeVerdict(("t",), None)
    assert may_start(5, 0.5, {"t": 3}, ["t"]) == WalltimeVerdict((), 1.5)
    assert may_start(5, 0.5, {"t": 3}, ["t"], first_free=3) == WalltimeVerdict(("t",), None)
    assert may_start(2, 0.5, {"t": 3}, ["t"]) == WalltimeVerdict(("t",), None)


def test_only_the_long_kind_does_not_fit():
    verdict = may_start(10, 1, {"long": 60, "short": 2}, [])
    assert verdict == WalltimeVerdict(("long",), None)


def test_nothing_waits():
    assert may_start(1, 5, {}, []) == WalltimeVerdict((), None)


seconds = st.floats(0, 1000)


@given(seconds, seconds, st.dictionaries(st.text(max_size=2), st.none() | seconds), seconds)
def test_what_may_start_ends_in_time(left, reserve, kinds, first_free):
    verdict = may_start(left, reserve, kinds, kinds, first_free)
    for kind, runs in kinds.items():
        in_time = runs is not None and left - reserve - first_free - runs >= 0
        assert (kind in verdict.misfits) != in_time
    if verdict.again is not None:  # until then nothing changes, and after it something does
        later = may_start(left - verdict.again - 1e-6, reserve, kinds, kinds, first_free)
        assert later.misfits and not verdict.misfits
