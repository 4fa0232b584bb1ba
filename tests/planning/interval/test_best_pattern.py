"""The best pattern: no worse than what an exhaustive search found, and none where none pays."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.interval import Level, Pattern, best_pattern, daly, efficiency

MINUTE = 60.0


def system(mtbf, shares, costs):
    """As in table 6.1 of seed 003, in minutes."""
    return [
        Level(str(number), cost * MINUTE, cost * MINUTE, share / sum(shares) / mtbf / MINUTE)
        for number, (share, cost) in enumerate(zip(shares, costs, strict=True))
    ]


@pytest.mark.parametrize(
    "mtbf, shares, costs, run, known",
    [
        (6944.45, (0.083, 0.75, 0.167), (0.008, 0.075, 17.53), 1440, 0.9782),
        (333.33, (0.56, 0.28, 0.14, 0.03), (0.17, 0.5, 0.83, 2.5), 1440, 0.9206),
        (51.42, (0.857, 0.143), (0.333, 0.833), 1440, 0.8430),
        (24.0, (0.833, 0.167), (0.333, 0.833), 1440, 0.7675),
        (12.0, (0.833, 0.167), (0.167, 0.667), 1440, 0.7348),
        (6.0, (0.833, 0.167), (0.167, 0.667), 1440, 0.6304),
        (12.0, (0.833, 0.167), (0.333, 1.67), 1440, 0.6075),
        (6.0, (0.833, 0.167), (0.167, 1.67), 720, 0.5193),
        (4.0, (0.833, 0.167), (0.667, 3.33), 360, 0.1834),
        (3.13, (0.870, 0.130), (0.833, 5.0), 360, 0.0663),
        (3.13, (0.870, 0.130), (0.833, 5.0), 180, 0.0672),
    ],
)
def test_systems_of_the_document(mtbf, shares, costs, run, known):
    levels = system(mtbf, shares, costs)
    pattern = best_pattern(levels, run * MINUTE)
    found = efficiency(levels, pattern, run * MINUTE)
    assert found >= known - 1e-4
    assert found == pytest.approx(known, abs=0.002)


levels_of_two = st.tuples(
    st.floats(0.1, 10), st.floats(1, 20), st.floats(1e-6, 1e-3), st.floats(1e-7, 1e-4), st.floats(0.5, 2)
).map(lambda v: [Level("near", v[0], v[0] * v[4], v[2]), Level("far", v[0] * v[1], v[0] * v[1] * v[4], v[3])])


@settings(max_examples=25, deadline=None)
@given(levels_of_two, st.integers(0, 60), st.floats(0.1, 10))
def test_nobody_guesses_a_better_one(levels, count, factor):
    best = best_pattern(levels)
    guess = Pattern(best.work * factor, (count,))
    assert efficiency(levels, best) >= efficiency(levels, guess) * (1 - 1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 100), st.floats(1e-6, 1e-4))
def test_one_level_without_an_end_is_dalys(commit, rate):
    level = Level("store", commit, commit, rate)
    found, known = best_pattern([level]), Pattern(daly(commit, rate))
    assert efficiency([level], found) >= efficiency([level], known) * (1 - 1e-6)
    assert found.work == pytest.approx(known.work, rel=0.1)


def test_where_committing_does_not_pay():
    assert best_pattern([Level("store", 10, 10, 0.0)]) is None
    assert best_pattern([Level("store", 600, 600, 1e-6)], run=3600) is None
    two = [Level("near", 1, 1, 1e-3), Level("far", 600, 600, 1e-7)]
    short = best_pattern(two, run=3600)
    assert short.work * short.commits >= 3600  # nothing goes to the far level


def test_a_free_commit():
    free = [Level("near", 0, 1, 1e-3)]
    assert efficiency(free, best_pattern(free)) > 0.99


@pytest.mark.parametrize(
    "levels, run", [([], inf), ([Level("a", 1, 1, 1)] * 7, inf), ([Level("a", 1, 1, 1)], 0)]
)
def test_what_cannot_be(levels, run):
    with pytest.raises(InputError):
        best_pattern(levels, run)
