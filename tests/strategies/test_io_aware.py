"""The I/O-aware scheduler on the seed's vectors."""

import pytest
from small_machine import decided, machine, sizes

from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import IoDemand
from dask_hpc.strategies.io.io_aware import IoAware, IoAwareQueue, IoBalance, choices


def demand(intensity):
    """The same intensity on every number of nodes."""
    return IoDemand(compute=1 - intensity, data=intensity, link=1.0)


def job(name, nodes, intensity, **more):
    return Job(id=name, nodes=nodes, walltime=100.0, io_intensity=demand(intensity), **more)


def vector(nodes=80):
    """Seed 002, vector 7: (0.2, 10 nodes) and (0.6, 30 nodes) run, (0.1, 40 nodes) waits."""
    indices = machine(nodes, now=0.0)
    for name, size, intensity in (("a", 10, 0.2), ("b", 30, 0.6)):
        indices.waiting.add(job(name, size, intensity))
        indices.start(name, size)
    indices.waiting.add(job("c", 40, 0.1))
    return indices


def test_intensities():
    snapshot = Snapshot(vector())
    table = choices(snapshot, None, True)
    balance = IoBalance(
        *table.of_running(snapshot).running, table.preferred_load.sum(), table.preferred_nodes.sum()
    )
    assert balance.system() == pytest.approx(0.5)
    assert balance.workload(None) == pytest.approx(0.30)
    assert balance.workload(40) == pytest.approx(0.60)
    assert (balance.running_load + table.load[0]) / 80 == pytest.approx(0.30)  # vector 8


def test_the_demand_of_the_replication():
    """12.5 GB/s links saturate 48 GB/s at four nodes; 100 GFLOP/s."""
    demand = IoDemand(compute=1e14, data=96e9, speed=1e11, link=12.5e9, file_system=48e9)
    assert demand.intensity(2) == pytest.approx(3.84 / (3.84 + 500))
    assert demand.intensity(10) == pytest.approx(2 / (2 + 100))
    assert IoDemand(compute=0, data=0).intensity(3) == 0
    with pytest.raises(InputError, match="data"):
        IoDemand(compute=1, data=-1)


def test_order_or_balance():
    """Vector 9: alpha 0 is the first in the queue, 1 the smallest imbalance."""

    def case():
        indices = vector(90)
        indices.waiting.remove("c")
        for name, intensity in (("first", 0.9), ("second", 0.1)):
            indices.waiting.add(job(name, 20, intensity))
        return indices  # W is (2+18+18+2)/80 = 0.5; with first 38/60, with second 22/60

    assert decided(case(), IoAwareQueue(alpha=0))[0] == ["first", "second"]
    assert decided(case(), IoAwareQueue(alpha=1))[0][0] in ("first", "second")
    indices = case()
    indices.waiting.add(job("third", 20, 0.5))
    assert decided(indices, IoAwareQueue(alpha=1))[0][0] == "third"


def test_head_of_line_waits_and_greedy_does_not():
    def case():
        indices = machine(10, now=0.0)
        indices.waiting.add(job("large", 20, 0.5))
        indices.waiting.add(job("small", 5, 0.5))
        return indices

    assert decided(case(), IoAwareQueue(alpha=0.0))[0] == []
    assert decided(case(), IoAwareQueue(alpha=0.0, reading="greedy"))[0] == ["small"]


def test_one_candidate_is_no_division_by_zero():
    assert decided(vector(), IoAwareQueue())[0] == ["c"]


def test_the_table_follows_the_queue():
    indices = vector(200)
    table = choices(Snapshot(indices), None, True)
    indices.waiting.add(job("d", 4, 0.3, kind="malleable", min_nodes=2, max_nodes=6))
    indices.waiting.remove("c")
    indices.revision += 1
    table = choices(Snapshot(indices), table, True)
    assert [one.id for one in table.jobs] == ["d"] and list(table.nodes) == [2, 3, 4, 5, 6]
    indices.waiting.add(job("ahead", 4, 0.3), ahead=1)
    indices.revision += 1
    assert [one.id for one in choices(Snapshot(indices), table, True).jobs] == ["ahead", "d"]


def test_a_job_grows_towards_the_balance():
    indices = machine(20, now=0.0)
    for name, intensity in (("io", 0.8), ("cpu", 0.0)):
        indices.waiting.add(job(name, 4, intensity, kind="malleable", min_nodes=1, max_nodes=10))
        indices.start(name, 4)
    indices.waiting.add(job("w", 50, 0.9))
    assert sizes(indices, IoAware()) == {"io": 10}  # S 0.4 is below W 0.83
    assert sizes(indices, IoAware(shrink="queued")) == {"io": 10, "cpu": 1}
    # nothing that waits would fit and come closer
    assert sizes(indices, IoAware(shrink="better")) == {"io": 10}
