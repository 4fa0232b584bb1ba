"""Which worker the next read goes to."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.leaving import FreeWorker, place


def test_where_the_last_one_went():
    openings = [FreeWorker(0.25, "a", 4), FreeWorker(0.5, "b", 4)]
    assert place(openings, None, {}) == "a"
    assert place(openings, "b", {}) == "b"
    assert place(openings, "c", {}) == "a"  # it has no slot


def test_no_thread_is_left_idle():
    assert place([FreeWorker(1.0, "a", 4), FreeWorker(0.75, "b", 4)], "a", {}) == "b"
    assert place([FreeWorker(1.0, "a", 4), FreeWorker(1.25, "b", 4)], "b", {}) == "b"


def test_behind_another_read_goes_nothing_if_others_are_busy_with_something_else():
    openings = [FreeWorker(1.0, "a", 1, 1), FreeWorker(1.0, "b", 1, 0), FreeWorker(1.0, "c", 2, 1)]
    assert place(openings, "a", {}) == "b"
    assert place(openings[::2], "a", {}) == "c"  # one of its threads does not read
    assert place(openings[:1], "a", {}) == "a"


def test_nobody_gets_everything():
    openings = [FreeWorker(0.0, "a", 2), FreeWorker(0.0, "b", 2)]
    assert place(openings, "a", {"a": 3}) == "a"
    assert place(openings, "a", {"a": 4}) == "b"


@given(st.integers(2, 6), st.integers(1, 4), st.integers(10, 60))
def test_all_get_their_share_in_runs(workers, threads, reads):
    """One read after the other, each near the last: runs of neighbours, and nobody is far ahead."""
    openings = [FreeWorker(0.0, str(i), threads) for i in range(workers)]
    given_, places = {}, []
    for _ in range(reads):
        places.append(place(openings, places[-1] if places else None, given_))
        given_[places[-1]] = given_.get(places[-1], 0) + 1
    counts = [given_.get(one.address, 0) for one in openings]
    assert max(counts) - min(counts) <= 2 * threads + 1
    changes = sum(a != b for a, b in pairwise(places))
    assert changes <= reads / (2 * threads) + workers
