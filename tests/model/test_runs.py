"""Neighbours become one run, and nothing else changes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.job import runs


@given(st.sets(st.integers(0, 30)))
def test_runs(numbers):
    found = runs(numbers)
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < following[0] for one, following in pairwise(found))
