"""The public function behind ``dask-hpc plan partition``: human units in, one line for what is wrong."""

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.plan import partition

SIMULATION = {"time": "30 min", "memory": "2 TiB", "serial": 0.0005}
ANALYSES = [
    {"name": "spectrum", "time": "90 s", "memory": "300 GiB"},
    {"name": "front", "time": "3 min", "memory": "200 GiB", "moved": "20 GiB"},
    {"name": "isosurface", "time": 240, "memory": 250 * 2**30, "serial": 0.001},
]
GOOD = {
    "nodes": 50, "cores": 8, "memory": "64 GiB", "bandwidth": "10 GB/s",
    "simulation": SIMULATION, "analyses": ANALYSES,
}  # fmt: skip


def test_units():
    plan = dask_hpc.plan_partition(**GOOD)
    machine, simulation = plan.problem.nodes, plan.problem.simulation
    assert (machine.memory, machine.bandwidth) == (64 * 2**30, 10e9)
    assert (simulation.time, simulation.memory, simulation.serial) == (1800, 2 * 2**40, 0.0005)
    spectrum, front, isosurface = plan.problem.analyses
    assert spectrum.volume == 300 * 2**30 and front.volume == 20 * 2**30
    assert (isosurface.time, isosurface.memory, isosurface.serial) == (240, 250 * 2**30, 0.001)
    assert plan.partition == partition(plan.problem)


def test_what_it_is_compared_with():
    plan = dask_hpc.plan_partition(**GOOD)
    assert plan.bound <= plan.partition.iteration <= plan.all_in_transit.iteration
    assert "memory does not suffice" not in plan.all_in_situ.warning
    assert plan.partition.iteration <= plan.all_in_situ.iteration
    assert plan.reason.startswith("limited by ") and "of the 64 GiB of each simulation node" in plan.reason
    sync = dask_hpc.plan_partition(**GOOD | {"mode": "sync", "order": "decreasing-time"})
    assert sync.partition.mode == "sync" and sync.order == "decreasing-time"
    assert dask_hpc.plan_partition(1, 4, simulation={"time": 1}).all_in_transit.nodes == 1
    one = dask_hpc.plan_partition(1, 4, simulation={"time": 1}, analyses=[{"name": "a", "time": 1}])
    assert one.all_in_transit is None and "memory is not limited" in one.reason


def test_a_plan_is_made_of_what_does_not_fit():
    plan = dask_hpc.plan_partition(**GOOD | {"memory": "1 GiB"})
    assert plan.reason == plan.partition.warning and "memory does not suffice" in plan.reason


@pytest.mark.parametrize(
    "change, message",
    [
        ({"nodes": 0}, "nodes: found 0; allowed: a whole number from 1"),
        ({"nodes": 2.5}, "nodes: found 2.5"),
        ({"cores": True}, "cores: found True"),
        ({"nodes": 10**6}, "nodes: found 1,000,000 of 8 cores; allowed: 4,000,000 cores in all"),
        ({"memory": "64 GB/s"}, "memory: found the unit 'GB/s'"),
        ({"memory": -1}, "nodes.memory: found -1.0; allowed: more than 0"),
        ({"bandwidth": "10 GB"}, "bandwidth: found the unit 'GB' in '10 GB'; allowed: units B/s, kB/s"),
        ({"bandwidth": "10 Gb/s"}, "bandwidth: found the unit 'Gb/s'; allowed: GB/s for bytes, Gbit/s for"),
        ({"mode": "asynch"}, "mode: found 'asynch' \\(nearest: async\\); allowed: async, sync"),
        ({"order": ["exact"]}, "order: found \\['exact'\\]"),
        ({"simulation": {}}, "simulation.time: is missing"),
        ({"simulation": {"time": "long"}}, "simulation: time: found 'long'"),
        ({"simulation": {"time": 1, "serial": 2}}, "simulation.serial: found 2; allowed: 0 to 1"),
        ({"simulation": {"time": 1, "size": 2}}, "simulation.size: unknown key"),
        ({"simulation": 5}, "simulation: found 5"),
        ({"analyses": "front"}, "analyses: found 'front'; allowed: a list"),
        ({"analyses": ["front"]}, "analysis 1: found 'front'; allowed: a mapping"),
        ({"analyses": [{"name": "front"}]}, "analysis 'front': time: is missing"),
        ({"analyses": [{"time": 2}]}, "analysis 1: name: is missing"),
        ({"analyses": [{"name": 3, "time": 2}]}, "analyses.name: found 3"),
        ({"analyses": [{"name": "a", "time": 2, "moved": None}]}, "analysis 'a': moved: found None"),
        ({"analyses": [{"name": "a", "time": "inf"}]}, "analysis a.time: found inf; allowed: 0 or more"),
        ({"analyses": [{"name": "a", "time": 2}] * 2}, "analyses: found 'a' more than once"),
        ({"analyses": [{"name": f"{n}", "time": 2} for n in range(1001)]}, "analyses: found 1,001"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(change, message):
    with pytest.raises(InputError, match=message) as caught:
        dask_hpc.plan_partition(**GOOD | change)
    assert "\n" not in str(caught.value)
