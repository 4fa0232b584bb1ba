"""When ours counts as reproduced."""

from math import inf, isnan, nan

import numpy as np
import pytest

from dask_hpc.reproduce.claim import (
    Claim,
    around,
    at_least,
    at_most,
    change,
    claim,
    direction,
    exactly,
    figure,
    rounded,
)


def test_bands():
    assert rounded(38) == (37.5, 38.5)
    assert rounded(90, 10) == (85, 95)
    assert exactly(3) == (3, 3)
    assert around(10, 2) == (8, 12)
    assert at_least(3) == (3, inf)
    assert at_most(3) == (-inf, 3)


def test_reached_is_within_the_band_and_forgives_rounding_errors():
    assert Claim("c", 1, 1.0 + 1e-12, 1, 1).reached
    assert not Claim("c", 1, 1.001, 1, 1).reached
    assert Claim("c", 1, 5.0, 1, inf).reached
    assert not Claim("c", 1, nan, 1, 2).reached


def test_a_mean_counts_alone_but_a_direction_needs_the_whole_interval():
    unsure, sure = np.array([0.0, 1.0, 2.0]), np.array([0.9, 1.0, 1.1])
    assert claim("c", 1, unsure, at_least(0)).reached
    assert not direction("c", "more", unsure, at_least(0)).reached
    assert direction("c", "more", sure, at_least(0)).reached
    assert direction("c", "less", -sure, at_most(0)).reached
    assert direction("c", "more", np.array([1.0]), at_least(0)).reached, "one seed has no interval"


def test_what_has_a_value_for_each_seed_is_a_mean_with_its_interval():
    for one in (claim("c", 2, np.array([1.0, 3.0]), exactly(2)), figure("f", np.array([1.0, 3.0]))):
        assert one.ours == 2.0 and one.half_width == pytest.approx(12.706, rel=1e-4), "t of one degree"
    assert isnan(claim("c", 2, 2, exactly(2)).half_width)
    assert change(np.array([1.5, 1.0]), np.array([1.0, 2.0])) == pytest.approx([50, -50])
