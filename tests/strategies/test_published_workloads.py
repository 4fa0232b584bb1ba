"""Whole runs of the seeds' small workloads on the simulator."""

import pytest

from dask_hpc import simulate
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw
from dask_hpc.simulator import Arrival

#: seed 001, section 7.4: nodes and seconds of its job types
TYPES = {"C": (8, 1204.0), "D": (4, 513.0), "G": (2, 696.0), "J": (1, 522.0), "Z": (16, 458.0)}


def experiment_b(kind):
    """In the order that the digest (3.4) found to match, one job a minute."""
    for i, name in enumerate(["D", "Z", "J", "C", "J", "D", "C", "G", "G", "G"]):
        nodes, seconds = TYPES[name]
        more = {"kind": kind, "min_nodes": 1, "max_nodes": 16} if kind == "malleable" else {}
        yield Arrival(
            Job(id=f"{name}{i}", nodes=nodes, walltime=seconds, submitted=60.0 * i, **more), seconds
        )


def minutes(kind, policy):
    jobs = simulate(experiment_b(kind), nodes=16, policy=policy).jobs
    wait, response = (jobs["start"] - jobs["submit"]).mean(), (jobs["end"] - jobs["submit"]).mean()
    return jobs["end"].max() / 60, wait / 60, response / 60


def test_rigid_reference():
    """Vector 10."""
    assert minutes("rigid", "fcfs") == pytest.approx((47.85, 16.19, 27.90), abs=0.01)


def test_malleable_jobs_save_a_fifth():
    """The digest's own simulation, with a tick, has 37.4 min for FPSMA with priority to waiting jobs."""
    makespan, wait, _ = minutes("malleable", "fpsma-pwma")
    assert makespan == pytest.approx(37.4, abs=0.3) and wait < 8.0
    ours = minutes("malleable", "elastic")
    assert ours[0] <= makespan + 0.1 and ours[2] <= minutes("malleable", "fpsma-pwma")[2]


#: seed 001, section 7.3, with the durations that the digest (3.3) fitted
EXPERIMENT_A = ((4, 700.0), (16, 200.0), (6, 700.0), (10, 550.0), (8, 400.0))


def experiment_a(policy, malleable=True):
    arrivals, curve = [], PowerLaw(0.4)
    for i, (nodes, seconds) in enumerate(EXPERIMENT_A):
        job = Job(id=f"J{i + 1}", nodes=nodes, walltime=seconds, submitted=100.0 * i)
        if malleable:
            job = Job(
                id=job.id,
                nodes=nodes,
                min_nodes=4,
                max_nodes=16,
                kind="malleable",
                walltime=seconds,
                submitted=job.submitted,
                speedup=curve,
            )
        arrivals.append(Arrival(job, seconds, curve))
    return simulate(arrivals, nodes=16, policy=policy, allotments=True)


@pytest.mark.parametrize(
    ("policy", "makespan"),
    [("fpsma-pwma", 1308), ("fpsma-prma", 1488), ("egs-pwma", 1429), ("egs-prma", 1484)],
)
def test_experiment_a(policy, makespan):
    """The totals of the digest's model (e = 0.4)."""
    jobs = experiment_a(policy).jobs
    assert jobs["end"].max() == pytest.approx(makespan, abs=2)
    assert jobs["end"].iloc[0] == pytest.approx(402, abs=1)  # J1 grew to 16


def test_experiment_a_rigid():
    jobs = experiment_a("fcfs", malleable=False).jobs
    assert jobs["end"].max() == pytest.approx(1850, abs=2)
    assert list(jobs["start"] - jobs["submit"])[1:3] == [600.0, 700.0]  # vector 9
