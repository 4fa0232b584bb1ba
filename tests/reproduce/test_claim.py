"""When ours counts as reproduced."""

from math import inf, nan

from dask_hpc.reproduce.band import around, at_least, at_most, exactly, rounded
from dask_hpc.reproduce.claim import Claim, Measured, claim, direction


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
    unsure = Measured(1.0, 2.0)
    assert claim("c", 1, unsure, at_least(0)).reached
    assert not direction("c", "more", unsure, at_least(0)).reached
    assert direction("c", "more", Measured(1.0, 0.5), at_least(0)).reached
    assert direction("c", "less", Measured(-1.0, 0.5), at_most(0)).reached
    assert direction("c", "more", Measured(1.0), at_least(0)).reached, "one seed has no interval"


def test_scale_turns_mean_and_interval():
    one = claim("c", 2, Measured(120.0, 60.0), exactly(2), "min", scale=lambda seconds: seconds / 60)
    assert (one.ours, one.half_width) == (2.0, 1.0)
    assert Measured(3.0, 1.0).negative == Measured(-3.0, 1.0)
