"""Resize costs: nothing for nothing, otherwise three parts."""

import math

import pytest

from dask_hpc import simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform
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


def test_what_changes_of_size_take_is_a_metric():
    m = Job(id="m", nodes=2, min_nodes=1, max_nodes=4, kind="malleable", walltime=5000.0)
    arrivals = [Arrival(m, 800.0), Arrival(Job(id="r", nodes=3, submitted=50.0, walltime=10.0), 10.0)]
    platform = Platform(4, resize=ResizeCost(fixed=1.0, per_process=0.5))
    found = simulate(arrivals, platform=platform, policy="fpsma-pwma").metrics
    # 2 to 4, 4 to 1, 1 to 4 nodes: one second, and half of one for each that comes or goes
    assert found["resizes"] == 3 and found["max_adaptation"] == 2.5
    assert found["mean_adaptation"] == pytest.approx((2 + 2.5 + 2.5) / 3)
    assert math.isnan(simulate(arrivals[1:], nodes=4, policy="fcfs").metrics["mean_adaptation"])
