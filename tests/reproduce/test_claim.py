"""When ours counts as reproduced."""

from math import inf, isnan, nan

import numpy as np
import pytest

from dask_hpc.reproduce.claim import (
    Claim,
    ClaimCount,
    Outcome,
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


def test_a_band_that_ends_at_zero_is_without_it():
    """A tie is no gain; a band around zero, or a size that may be nothing, has it."""
    for text, ours, band, reached in (
        ("more", 0.0, at_least(0), False), ("more", 1e-12, at_least(0), False),
        ("more", 1e-3, at_least(0), True),
        ("less", 0.0, at_most(0), False), ("less", -1e-3, at_most(0), True),
        ("the sign", 0.0, (-8, 0), False), ("the sign", -8.0, (-8, 0), True),
        ("the same", 0.0, exactly(0), True), ("hardly", 0.0, (0, 10), True),
        ("alike", 0.0, around(0, 5), True),
        ("as much", 1.0, at_least(1), True), ("not more", 1.0, at_most(1), True),
    ):  # fmt: skip
        assert claim(text, "said", ours, band).reached is reached, (text, ours)
    level = np.zeros(3)
    assert not direction("c", "more", level, at_least(0)).reached, "the same in every seed"


def test_what_was_reached_by_construction_is_counted_among_what_was_reached():
    rows = [
        claim("a", 1, 1, exactly(1)),
        claim("b", 1, 1, exactly(1), by_construction="fitted: to this"),
        claim("c", 1, 2, exactly(1), by_construction="fitted: to this"),
        direction("d", "more", 1.0, at_least(0), by_construction="what we put in"),
    ]
    found = Outcome(rows).tally
    assert found == ClaimCount(3, 4, 2)
    assert str(found + ClaimCount(1, 1, 0)) == "reached 4 of 5, of which 2 by construction"


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
