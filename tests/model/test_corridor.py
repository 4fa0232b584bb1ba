"""The corridor: steps over time, the first also before its time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError


def test_constant():
    assert Corridor.constant(10, 20).at(-5) == (10, 20)
    assert Corridor.constant().at(1e9) == (0, math.inf)


def test_steps():
    corridor = Corridor([(0, 0, 100), (60, 10, 50)])
    assert corridor.steps == ((0, 0, 100), (60, 10, 50))
    assert [corridor.at(t) for t in (-1, 0, 59.9, 60, 1e6)] == [
        (0, 100), (0, 100), (0, 100), (10, 50), (10, 50),
    ]  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), unique=True, min_size=1), st.floats(-2e6, 2e6))
def test_against_a_plain_search(times, when):
    steps = [(time, 0.0, float(number)) for number, time in enumerate(sorted(times))]
    past = [step for step in steps if step[0] <= when] or steps[:1]
    assert Corridor(tuple(steps)).at(when) == past[-1][1:]


@pytest.mark.parametrize(
    "steps",
    [
        (),
        5,
        ((0, 1),),
        ((0, 5, 4),),
        ((0, -1, 4),),
        ((0, math.nan, 4),),
        ((0, 1, math.nan),),
        ((math.nan, 1, 4),),
        ((math.inf, 1, 4),),
        (("now", 1, 4),),
        ((5, 0, 1), (5, 0, 2)),
        ((5, 0, 1), (4, 0, 2)),
    ],
)
def test_bad_corridors(steps):
    with pytest.raises(InputError, match="corridor") as caught:
        Corridor(steps)
    assert len(str(caught.value).splitlines()) == 1
