"""S1: an adaptive cluster of batch jobs with two workers each loses nothing and computes nothing twice."""

from time import monotonic, sleep

import pytest
from batch_cluster import names_of
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

TASKS = 60
IDLE = 10.0  # seconds with nothing to do, and all results still wanted


def effect(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\n")
    sleep(0.2)
    return number


def adapted(slurm, name, log, ours):
    """Executions, jobs submitted, and whether in the end the plan is what is connected."""
    with dask_cluster(slurm, processes=2, job_name=name) as cluster, Client(cluster) as client:
        manager = dask_hpc.malleable(cluster) if ours else None
        # ours would otherwise keep both jobs while this test is idle
        grace = {"idle_grace": "3s"} if ours else {}
        cluster.adapt(minimum=0, maximum_jobs=2, interval="500ms", **grace)
        futures = client.map(effect, range(TASKS), log=str(log), pure=False)
        client.gather(futures)
        idle_until = monotonic() + IDLE
        slurm.wait_until(lambda: monotonic() > idle_until, "the end of the idle time")
        assert client.gather(futures) == list(range(TASKS))

        def is_settled():
            return {str(worker) for worker in names_of(client)} == {
                f"{name}{group}" for name, s in cluster.worker_spec.items() for group in s["group"]
            }

        settled = True
        if ours:
            slurm.wait_until(lambda: len(slurm.jobs(name=name)) == 1, "one job left, with all results")
            slurm.wait_until(is_settled, "plan = connected")
            assert client.gather(futures) == list(range(TASKS))
        else:
            settled = is_settled()
        submitted = len(slurm.jobs(name=name, states="all"))
        if manager:
            for row in manager.story():
                print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
            manager.close()
    slurm.clear()
    return len(log.read_text().splitlines()), submitted, settled


def test_grouped_jobs_that_come_and_go_lose_nothing(slurm, tmp_path, report):
    plain, plain_jobs, plain_settled = adapted(slurm, "plain-groups", tmp_path / "plain", ours=False)
    ours, our_jobs, our_settled = adapted(slurm, "our-groups", tmp_path / "ours", ours=True)
    what = f"of {TASKS} tasks, groups of 2, on Slurm"
    report.add("S1", f"executions {what}", plain=plain, ours=ours, bound=TASKS)
    report.add("S1", f"jobs submitted {what}", plain=plain_jobs, ours=our_jobs, bound=2)
    report.add("S1", f"plan = connected {what}", plain=plain_settled, ours=our_settled, bound=True)
    assert plain > TASKS
    assert ours == TASKS
    assert our_jobs <= 2
    assert our_settled
