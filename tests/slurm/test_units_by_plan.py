"""Batch jobs of a Dask cluster that ask Slurm for as long as a plan says."""

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc
from dask_hpc.cluster.client.adaptive import Lossless
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.reservations import units

pytestmark = [pytest.mark.slow, pytest.mark.slurm]


def test_the_next_job_asks_for_what_the_plan_has_next(slurm, monkeypatch):
    plan = plan_reservation("empirical 1h 2h 4h", "1min", "1min", "cloud")
    first, second = (60 * units.minutes(one.length) for one in plan.requests[:2])
    assert first != second
    later = 0.0
    real = units.monotonic
    monkeypatch.setattr(units, "monotonic", lambda: real() + later)
    with (
        dask_cluster(slurm) as cluster,
        Client(cluster) as client,
        dask_hpc.malleable(cluster, reservation=plan) as manager,
    ):
        cluster.scale(jobs=1)
        client.wait_for_workers(1, 60)
        (one,) = slurm.jobs()
        assert slurm.ask(one, "TimeLimit") == f"{first // 3600:02}:{first % 3600 // 60:02}:00"
        Lossless.around(cluster).look()
        later = 2000.0
        cluster.scale(jobs=2)
        slurm.wait_until(lambda: len(slurm.jobs()) == 2, "the second job")
        (two,) = slurm.jobs().keys() - {one}
        assert slurm.ask(two, "TimeLimit") == f"{second // 3600:02}:{second % 3600 // 60:02}:00"
        slurm.run("scancel", two)

        def told():
            return [row["reason"] for row in manager.story() if row["decision"] == "walltime"]

        slurm.wait_until(lambda: len(told()) == 2, "what the manager tells")
        assert [words.partition("; ")[0] for words in told()] == [
            "new batch jobs ask for p33 of the empirical law: 1 h 1 min",
            f"new batch jobs ask for p67 of the empirical law: {units.show_hours(second)}",
        ]
    slurm.wait_until_empty()
