"""What is read off a simulation of jobs that compute and write; and four jobs in pairs."""

import numpy as np
import pytest

from dask_hpc.model.job import Job
from dask_hpc.policy import Policy
from dask_hpc.reproduce import io_intensity
from dask_hpc.simulator import Arrival, Platform, Workload, simulate
from dask_hpc.simulator.application import Application, Phase, Split, Task
from dask_hpc.simulator.platform import FileSystem

#: a node computes 1 a second, writes 1 a second; the file system takes what two nodes write
MACHINE = Platform(4, speed=1.0, link=1.0, file_system=2.0)


def arrival(name, compute, write, nodes=2):
    """It computes, and then writes; so much on each node."""
    tasks = (Task("compute", Split(compute * nodes)), Task("write", Split(write * nodes)))
    demand = MACHINE.io_demand(compute * nodes, write * nodes)
    return Arrival(
        Job(id=name, nodes=nodes, io_intensity=demand),
        compute + write,
        application=Application((Phase(tasks, 1),)),
    )


def played(*arrivals):
    jobs = [one.job for one in arrivals]
    return simulate(Workload("few", arrivals, platform=MACHINE), policy="fcfs", allotments=True), jobs


def test_how_far_what_runs_is_off_the_workload():
    """Two that only compute run for 10 s, while one waits that computes for 10 s and writes for 30."""
    result, jobs = played(arrival("a", 10, 0), arrival("b", 10, 0), arrival("c", 10, 30))
    assert jobs[2].io_intensity.intensity(2) == pytest.approx(0.75)
    # what runs has none; all three have a third of 0.75. Afterwards nobody waits.
    assert io_intensity.off(result, jobs) == pytest.approx(0.25)
    result, jobs = played(arrival("a", 10, 30))
    assert io_intensity.off(result, jobs) == 0.0, "nobody ever waits"


def test_how_busy_the_file_system_is_where_a_peak_is():
    """a computes for 10 s and writes for 10 s on two nodes, which fill the file system; b only computes."""
    result, _ = played(arrival("a", 10, 10), arrival("b", 30, 0))
    assert result.record.loads == [(10.0, 2), (20.0, 0)]
    found = io_intensity.in_peaks(result, {0})
    assert found["file system in peaks"] == pytest.approx(50), "while a runs: 10 of 20 s"
    assert found["computing in peaks"] == pytest.approx((100 + 50) / 2)
    found = io_intensity.in_peaks(result, {0, 1})
    assert found["file system in peaks"] == pytest.approx(100 * (10 * 4) / (20 * 4 + 10 * 2)), "by nodes"
    found = io_intensity.in_peaks(result, {1})
    assert found["file system in peaks"] == pytest.approx(100 * 10 / 30)
    assert found["computing in peaks"] == pytest.approx((10 * 100 + 10 * 50 + 10 * 50) / 30)


def test_one_node_that_writes_is_half_of_what_the_file_system_takes():
    result, _ = played(arrival("a", 10, 10, nodes=1))
    found = io_intensity.in_peaks(result, {0})
    assert found["file system in peaks"] == pytest.approx(25), "half of it for half of the time"
    assert found["computing in peaks"] == pytest.approx(12.5)


def test_four_nodes_that_write_are_no_more_than_the_file_system_takes():
    result, _ = played(arrival("a", 10, 5, nodes=4))
    found = io_intensity.in_peaks(result, {0})
    assert found["file system in peaks"] == pytest.approx(50), "10 s for what four nodes write in 5"


def test_transfers_that_are_given_up_load_nothing():
    system = FileSystem(Platform(3, link=1.0, file_system=2.0))
    system.loads = []
    system.begin(1.0, "a", 2, 10.0)
    system.begin(2.0, "b", 1, 10.0)
    system.abandon(3.0, "a")
    assert system.loads == [(1.0, 2), (2.0, 3), (3.0, 1)]


def test_what_is_watched_changes_nothing():
    """The same figures as without, and first come, first served keeps the order."""
    policy = Policy.load("fcfs-malleable")
    found = io_intensity.watched(policy, 0, 100)
    plain = simulate("builtin:io-intensity?jobs=100&seed=0", policy=policy).metrics
    assert {name: found[name] for name in io_intensity._METRICS} == {
        name: plain[name] for name in io_intensity._METRICS
    }
    assert found["order"] == 0
    ours = io_intensity.watched(io_intensity._named("B", {"queue.alpha": 0.6}), 0, 100)
    assert ours["order"] > 0


def test_four_jobs_in_pairs():
    """Alone each takes an hour; two that compute much hardly meet at the file system, two that write do."""
    row = io_intensity._paired(0)
    assert row["like writing"] > row["mixed writing"] > 3600
    assert row["mixed computing"] > row["like computing"] >= 3600 - 1e-6
    assert row["mixed"] < row["like"] < 4 * 3600
    alone = io_intensity._job(0, 0.5, 10)
    machine = io_intensity._PAIR_MACHINE
    assert simulate(Workload("one", [alone], platform=machine), policy="fcfs").metrics[
        "makespan"
    ] == pytest.approx(3600)


def test_a_weighted_mean_over_steps():
    value = io_intensity._Steps([(2.0, 4.0), (4.0, 0.0)])
    weight = io_intensity._Steps([(0.0, 1.0), (3.0, 3.0), (5.0, 0.0)])
    # 4 from 2 to 4: one of these seconds with weight 1, one with weight 3
    assert value.mean(weight) == pytest.approx((4 * 1 + 4 * 3) / (3 * 1 + 2 * 3))
    assert np.allclose(value.until(np.array([0.0, 2.0, 3.0, 9.0])), [0, 0, 4, 8])
