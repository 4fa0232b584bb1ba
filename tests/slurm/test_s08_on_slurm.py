"""S8: batch jobs with a walltime of one minute, and more work than fits into it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from time import monotonic, sleep

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

JOBS = 2  # of one worker with one thread each
SECONDS = 2.0  # of each task
TASKS = 85  # so that the first two jobs end before the work does
PATIENCE = 95.0  # seconds for plain Dask, which may never be done


def effect(number, log):
    with open(log, "a") as file:
        file.write(f"start {number}\n")
    sleep(SECONDS)
    with open(log, "a") as file:
        file.write(f"end {number}\n")
    return number


def worked(slurm, name, log):
    """Executions by what was written, and the fewest workers while there was work for all."""
    with (
        dask_cluster(slurm, cores=1, job_name=name, walltime="00:01:00") as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) if name == "ours" else nullcontext() as manager,
    ):
        cluster.adapt(minimum_jobs=JOBS, maximum_jobs=JOBS, interval="500ms")
        client.wait_for_workers(JOBS, timeout=60)
        futures = client.map(effect, range(TASKS), log=str(log), pure=False)
        fewest, until = JOBS, monotonic() + PATIENCE
        while monotonic() < until and (left := sum(not future.done() for future in futures)):
            if left > 2 * JOBS:
                fewest = min(fewest, len(client.nthreads()))
            sleep(0.2)
        if manager:
            for row in manager.story():
                print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
            assert client.gather(futures) == list(range(TASKS))
            assert len(slurm.jobs(name=name, states="all")) > JOBS
            assert not [row for row in manager.story() if row["decision"] in ("error", "lost")]
    return Counter(line.split()[0] for line in log.read_text().splitlines()), fewest


def test_work_goes_on_beyond_the_walltime(slurm, tmp_path, report):
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: worked(slurm, name, tmp_path / name), ["plain", "ours"])
        (plain, plain_fewest), (ours, ours_fewest) = found
    what = f"{TASKS} tasks of {SECONDS:g} s on {JOBS} jobs with a walltime of 1 min"
    report.add(
        "S8",
        f"tasks cut off by the walltime, {what}",
        plain=plain["start"] - plain["end"],
        ours=ours["start"] - ours["end"],
        bound=0,
    )
    report.add("S8", f"executions completed, {what}", plain=plain["end"], ours=ours["end"], bound=TASKS)
    report.add("S8", "fewest workers meanwhile", plain=plain_fewest, ours=ours_fewest, bound=JOBS - 1)
    assert plain["start"] > plain["end"] or plain["end"] > TASKS
    assert ours == {"start": TASKS, "end": TASKS}
    assert ours_fewest >= JOBS - 1
