"""``ask="fit"`` on a busy real Slurm: a hole is filled that the configured walltime does not fit into."""

import json
import subprocess
import sys

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client
from distributed.utils_test import slowinc

import dask_hpc
from dask_hpc.model.errors import InputError

pytestmark = [pytest.mark.slow, pytest.mark.slurm]


def busy(slurm, nodes, minutes):
    """Somebody else's job."""
    what = ("-N", nodes, "--exclusive", "-t", minutes, "-o", "/dev/null", "--wrap", "sleep 600")
    return slurm.run("sbatch", "-J", "others", *what).split()[-1]


@pytest.fixture
def full(slurm):
    """Three nodes busy for five minutes; then all four are wanted. One is free until then."""
    first, last = busy(slurm, 3, 5), busy(slurm, 4, 30)
    slurm.wait_until(lambda: slurm.jobs() == {first: "RUNNING", last: "PENDING"}, "a busy machine")
    return last


def test_what_fits_is_asked_for_and_told(slurm, full):
    told = subprocess.run(
        [sys.executable, "-m", "dask_hpc", "holes", "--json"], capture_output=True, text=True, check=True
    )
    hole = next(one for one in json.loads(told.stdout)["holes"] if one["partition"] == "debug")
    assert hole["nodes"] == 1 and 180 <= hole["seconds"] <= 300 and hole["until"] == f"job {full} starts"
    with (
        dask_cluster(slurm, walltime="00:30:00", job_name="me") as cluster,
        Client(cluster) as client,
        dask_hpc.malleable(cluster) as manager,
    ):
        for bad in ({"budget": "much"}, {"qos": 3}, {"walltime": 1}, "best"):
            with pytest.raises(InputError, match="adapt: ask"):
                cluster.adapt(maximum_jobs=3, ask=bad)
        settings = {"least": "1 min", "overhead": "5s", "gain": "10s", "budget": "2 node-hours"}
        futures = client.map(slowinc, range(400), delay=1.0, pure=False)
        cluster.adapt(maximum_jobs=3, ask=settings, poll=2.0, interval="300ms")
        slurm.wait_until(lambda: "RUNNING" in slurm.jobs(name="me").values(), "a job in the hole")
        (job,) = [job for job, state in slurm.jobs(name="me").items() if state == "RUNNING"]
        assert slurm.ask(job, "TimeLimit") < "00:05:01"  # with 30 min it would not have started
        asks = slurm.wait_until(manager.asks, "asks that wait")
        client.wait_for_workers(1, timeout=60)
        waiting = slurm.jobs(name="me")
        assert len(waiting) <= 3
        for ask in asks:
            assert ask["why"] and ask["partition"] == "debug" and ask["nodes"] == 1
            if ask["starts_in"] is not None:
                assert ask["low"] <= ask["starts_in"] <= ask["high"]
        told = [row["reason"] for row in manager.story() if row["decision"] == "ask"]
        assert "starts now" in told[0]
        assert slurm.jobs()[full] == "PENDING"
        client.cancel(futures)


def test_a_budget_is_kept(slurm):
    with (
        dask_cluster(slurm, walltime="00:30:00", job_name="me") as cluster,
        Client(cluster) as client,
        dask_hpc.malleable(cluster) as manager,
    ):
        settings = {"least": "1 min", "overhead": "0s", "budget": "8 node-minutes"}
        futures = client.map(slowinc, range(10_000), delay=1.0, pure=False)
        cluster.adapt(maximum_jobs=20, ask=settings, poll=1.0, interval="300ms")

        def told():
            return [row["reason"] for row in manager.story() if row["decision"] == "ask"]

        slurm.wait_until(lambda: any("nothing more" in one for one in told()), "a word of the budget")
        minutes = [int(slurm.ask(job, "TimeLimit").split(":")[1]) for job in slurm.jobs(name="me")]
        assert 6 <= sum(minutes) * 2 / 3 <= 8, "each has two of the three cores of a node"
        client.cancel(futures)
