"""Resize costs: nothing for nothing, otherwise three parts, and a fourth by size and direction."""

import math

import pytest
from scripted import scripted

from dask_hpc import simulate
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.platform import RESIZE_COSTS, ResizeCost
from dask_hpc.simulator.readers.yaml_workload import read_platform

PUBLISHED = RESIZE_COSTS["published"]


def test_parts():
    cost = ResizeCost(fixed=2.0, per_process=0.5, bandwidth=100.0)
    assert cost.seconds(4, 4, 1e9) == 0
    assert cost.seconds(4, 8, 300.0) == cost.seconds(8, 4, 300.0) == 2 + 2 + 3
    assert ResizeCost().seconds(1, 100, 1e12) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"fixed": -1},
        {"per_process": math.nan},
        {"bandwidth": 0},
        {"bandwidth": None},
        {"fixed": "1s"},
        {"expand": ((2, 1.0),)},
        {"expand": ((2, 1.0), (2, 1.0))},
        {"shrink": ((2, 1.0), (16, -1.0))},
        {"shrink": ((2, 1.0), (16.0, 1.0))},
        {"shrink": 3},
    ],
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


@pytest.mark.parametrize(
    ("before", "after", "seconds"), [(1, 2, 0.11), (15, 16, 1.29), (2, 1, 0.05), (16, 15, 2.25)]
)
def test_the_published_points(before, after, seconds):
    """Seed 001, 7.5: exactly these."""
    assert PUBLISHED.seconds(before, after) == seconds


def test_between_beyond_and_several_nodes_at_once():
    """Digest 3.5: 0.0843 s for each node more when it grows, 0.157 s when it gives one."""
    assert PUBLISHED.seconds(8, 9) == pytest.approx(0.11 + 7 * 1.18 / 14)
    assert PUBLISHED.seconds(9, 8) == pytest.approx(0.05 + 7 * 2.2 / 14)
    assert PUBLISHED.seconds(31, 32) == pytest.approx(0.11 + 30 * 1.18 / 14)
    assert PUBLISHED.seconds(4, 16) == PUBLISHED.seconds(15, 16), "one change, with all its processes"
    assert PUBLISHED.seconds(16, 4) == PUBLISHED.seconds(16, 15)
    assert PUBLISHED.seconds(5, 5) == 0
    steep = ResizeCost(fixed=1.0, bandwidth=10.0, expand=((8, 0.0), (9, 2.0)))
    assert steep.seconds(8, 10, 20.0) == pytest.approx(1 + 2 + 4)
    assert steep.seconds(2, 3) == 1.0, "no line leads below nothing"
    assert steep.seconds(3, 2) == 1.0


def test_a_job_stands_still_for_it():
    """It grows from 8 to 16 nodes when it begins, and from there on takes half as long."""
    job = Job(id="a", nodes=8, kind="malleable", min_nodes=1, max_nodes=16)
    result = simulate([Arrival(job, 100.0)], policy="fpsma-pwma", platform=Platform(16, resize=PUBLISHED))
    assert result.metrics["makespan"] == pytest.approx(1.29 + 50)


def test_as_people_write_it():
    points = {"expand": {"2": 1}, "shrink": None}
    assert read_platform({"nodes": 2, "resize": "published"}).resize == PUBLISHED
    written = {"expand": {2: "0.11 s", 16: 1.29}, "shrink": {16: "2.25 s", 2: "50 ms"}}
    assert read_platform({"nodes": 2, "resize": written}).resize == PUBLISHED
    assert read_platform({"nodes": 2, "resize": "none"}).resize == ResizeCost()
    for wrong, message in (
        ("publishd", "resize: found 'publishd' .nearest: published.; allowed: none, published, or a mapping"),
        (points, "resize.expand: .*whole numbers"),
        ({"expand": {2: 1}}, "resize: expand: .*two numbers of nodes"),
        (7, "resize"),
    ):
        with pytest.raises(InputError, match=message):
            read_platform({"nodes": 2, "resize": wrong})


def test_what_a_job_gives_is_its_own_while_it_stands_still():
    """Four nodes for 10 s and 5 s more, then two for the 180 s that are left."""
    arrivals = [
        Arrival(Job(id="m", nodes=4, min_nodes=2, kind="malleable"), 100.0),
        Arrival(Job(id="r", nodes=1, submitted=10.0), 1.0),
    ]
    platform = Platform(5, resize=ResizeCost(fixed=5.0))
    result = simulate(arrivals, platform=platform, policy=scripted({10.0: [("m", 2)]}))
    assert result.jobs["end"][0] == 195.0
    assert result.record.details[0].node_seconds == 4 * 15.0 + 2 * 180.0
