"""Resize costs: nothing for nothing, otherwise three parts."""

import math

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.simulator.platform import ResizeCost


def test_parts():
    cost = ResizeCost(fixed=2.0, per_process=0.5, bandwidth=100.0)
    assert cost.seconds(4, 4, 1e9) == 0
    assert cost.seconds(4, 8, 300.0) == cost.seconds(8, 4, 300.0) == 2 + 2 + 3
    assert ResizeCost().seconds(1, 100, 1e12) == 0


@pytest.mark.parametrize(
    "fields",
    [{"fixed": -1}, {"per_process": math.nan}, {"bandwidth": 0}, {"bandwidth": None}, {"fixed": "1s"}],
)
def test_bad_costs(fields):
    with pytest.raises(InputError, match=next(iter(fields))):
        ResizeCost(**fields)
