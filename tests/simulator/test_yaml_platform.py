"""The power of a machine, as our own workload form describes it."""

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import Corridor
from dask_hpc.simulator import Metering, NodeType, Platform
from dask_hpc.simulator.readers.yaml_workload import read_platform


def test_power():
    found = read_platform(
        {
            "nodes": 16,
            "idle_power": "71 W",
            "active_power": "0.25 kW",
            "power": {
                "ramp": "10 s",
                "noise": "3 %",
                "seed": 4,
                "corridor": [{"at": 0, "upper": "2 kW"}, {"at": "1 min", "lower": "1 kW"}],
            },
        }
    )
    corridor = Corridor(((0, 0, 2000), (60, 1000, float("inf"))))
    metering = Metering(ramp=10, noise=0.03, seed=4, corridor=corridor)
    assert found == Platform(16, idle_power=71, active_power=250, metering=metering)


def test_recorded_and_nothing_more():
    assert read_platform({"nodes": 2, "power": {}}) == Platform(2, metering=Metering())
    assert read_platform({"nodes": 2}).metering is None


def test_types():
    types = [{"count": 1, "idle": "50 W", "active": 200}, {"count": 2, "idle": 70, "active": "1 kW"}]
    found = read_platform({"nodes": 3, "power": {"types": types}})
    assert found.metering == Metering(types=(NodeType(1, 50, 200), NodeType(2, 70, 1000)))
    assert [(node.idle_power, node.active_power) for node in found.node_list()] == [
        (50, 200), (70, 1000), (70, 1000),
    ]  # fmt: skip


def test_a_known_machine():
    assert read_platform({"machine": "marconi100"}).nodes == 980
    found = read_platform({"machine": "frontier", "nodes": 10, "active_power": "3 kW"})
    assert found == Platform(10, idle_power=626, active_power=3000)


@pytest.mark.parametrize(
    ("platform", "message"),
    [
        ({"machine": "fronteir"}, "machine.*nearest: frontier"),
        ({"nodes": 2, "power": {"noise": "-3 %"}}, "power.noise.*share"),
        ({"nodes": 2, "power": {"noise": "a bit %"}}, "power.noise"),
        ({"nodes": 2, "power": {"ramp": "inf"}}, "power.ramp"),
        ({"nodes": 2, "power": {"rampe": 3}}, "rampe.*nearest: ramp"),
        ({"nodes": 2, "power": 7}, "power"),
        ({"nodes": 2, "power": {"types": []}}, "power.types"),
        ({"nodes": 2, "power": {"types": [{"count": 2, "idle": 1}]}}, r"power.types: \[0\]: active"),
        ({"nodes": 2, "power": {"types": [{"count": 1, "idle": 1, "active": 2}]}}, "power.types.*1 nodes"),
        ({"nodes": 2, "power": {"types": [{"count": 2, "idle": 3, "active": 2}]}}, "idle <= active"),
        ({"nodes": 2, "power": {"corridor": {"lower": 3, "upper": 2}}}, "power.corridor.*lower <= upper"),
    ],
)
def test_complaints(platform, message):
    with pytest.raises(InputError, match=message):
        read_platform(platform)
