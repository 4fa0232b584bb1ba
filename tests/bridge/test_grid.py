"""Declarations of streams: what may be said, and where blocks go."""

from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dask_hpc
from dask_hpc.bridge.grid import Asked, StreamGrid, asked_by, key_of

sizes = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=3)

# On a loaded machine a single draw may take a second.
loaded = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@loaded
@given(sizes, st.integers(1, 9))
def test_neighbours_are_together_and_workers_equally_used(chunks, many):
    grid = StreamGrid.declare([sum(one) for one in chunks], chunks)
    workers = [f"w{i}" for i in range(many)]
    places = [grid.place(index, workers) for index in grid.indices()]
    assert places == sorted(places, key=workers.index)  # contiguous
    counts = {worker: places.count(worker) for worker in workers}
    assert counts == grid.expected(workers)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(places) == len(grid) and sum(counts.values()) == len(grid)


@loaded
@given(sizes)
def test_it_travels(chunks):
    grid = StreamGrid.declare([sum(one) for one in chunks], chunks, "f4", when_slow="skip", lost_after="none")
    assert StreamGrid.read(grid.as_plain()) == grid and grid.lost_after == inf
    for index in grid.indices():
        assert grid.read_index(list(index)) == index
        assert grid.block_shape(index) == tuple(one[i] for one, i in zip(chunks, index, strict=True))


def test_one_size_for_all_blocks():
    assert StreamGrid.declare(10, 4).chunks == ((4, 4, 2),)
    assert StreamGrid.declare((10, 3), (4, 3)).chunks == ((4, 4, 2), (3,))
    assert StreamGrid.declare((10, 3), ((1, 9), 1)).chunks == ((1, 9), (1, 1, 1))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shape": 0}, "shape"),
        ({"shape": "x"}, "shape"),
        ({"shape": (4, -1)}, "shape"),
        ({"shape": ()}, "shape"),
        ({"shape": 4.5}, "shape"),
        ({"chunks": (5, 5)}, "chunks"),
        ({"chunks": 0}, "chunks"),
        ({"chunks": "auto"}, "chunks"),
        ({"shape": 10**9, "chunks": 1}, "chunks"),
        ({"dtype": object}, "dtype"),
        ({"dtype": "nonsense"}, "dtype"),
        ({"dtype": [("a", "f8")]}, "dtype"),
        ({"dims": "xy"}, "dims"),
        ({"dims": ("x", "y")}, "dims"),
        ({"dims": (1,)}, "dims"),
        ({"most_steps": 0}, "most_steps"),
        ({"most_steps": True}, "most_steps"),
        ({"when_slow": "cry"}, "allowed: wait, skip, subsample, spill"),
        ({"when_slow": ["wait"]}, "when_slow"),
        ({"lost_after": "soon"}, "lost_after"),
        ({"lost_after": -1}, "lost_after"),
        ({"job": 5}, "job"),
        ({"job": "a/b"}, "job"),
    ],
)
def test_bad_input(given, words):
    with pytest.raises(dask_hpc.InputError, match=words):
        StreamGrid.declare(**{"shape": 16, "chunks": 4} | given)


def test_bad_input_on_the_wire():
    for plain in (None, {}, {"shape": (4,)}, StreamGrid.declare(4, 2).as_plain() | {"more": 1}):
        with pytest.raises(dask_hpc.InputError):
            StreamGrid.read(plain)


@loaded
@given(st.integers(0, 10**6), st.lists(st.integers(0, 99), min_size=1, max_size=3))
def test_keys_say_what_is_asked(step, index):
    asked = Asked("my-heat 2.0123abcd", "t-x", step, tuple(index))
    assert asked_by(key_of(asked)) == asked


def test_other_keys_ask_nothing():
    for key in ("x", ("x", 0), 5, (5, 0), ("external-x", 0), ("external-a/b/c", 0), ("external-a/b/1", "x")):
        assert asked_by(key) is None
    assert np.dtype(StreamGrid.declare(4, 2, np.float32).dtype) == np.float32
