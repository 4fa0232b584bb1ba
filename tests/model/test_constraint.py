"""Size constraints against brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.speedup import CONSTRAINTS, is_legal, largest_legal, next_legal_down, smallest_legal

TOP = 300
LEGAL = {
    "any": set(range(1, TOP)),
    "even": set(range(2, TOP, 2)),
    "odd": set(range(1, TOP, 2)),
    "pof2": {2**i for i in range(9)},
    "cube": {i**3 for i in range(1, 7)},
    "square": {i**2 for i in range(1, 18)},
}

constraints = st.sampled_from(CONSTRAINTS)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_is_legal(constraint):
    found = {size for size in range(-5, TOP) if is_legal(constraint, size)}
    assert found == LEGAL[constraint]


@given(constraints, st.integers(-5, TOP - 1), st.integers(-5, TOP - 1))
def test_largest_and_smallest(constraint, low, high):
    inside = {size for size in LEGAL[constraint] if low <= size <= high}
    assert largest_legal(constraint, low, high) == max(inside, default=None)
    assert smallest_legal(constraint, low, high) == min(inside, default=None)


@given(constraints, st.integers(1, TOP - 1), st.integers(-5, TOP - 1))
def test_next_down(constraint, size, low):
    below = {other for other in LEGAL[constraint] if low <= other < size}
    assert next_legal_down(constraint, size, low) == max(below, default=None)


@given(constraints, st.integers(1, 10**18))
def test_large_sizes(constraint, n):
    """Roots are exact where floats are not."""
    size = largest_legal(constraint, 1, n)
    if size is None:
        assert (constraint, n) == ("even", 1)
        return
    assert size <= n
    assert is_legal(constraint, size)
    above = smallest_legal(constraint, n + 1, 10**19)
    assert above is not None
    assert is_legal(constraint, above)
    assert largest_legal(constraint, n + 1, above - 1) is None
