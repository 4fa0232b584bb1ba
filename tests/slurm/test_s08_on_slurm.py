"""S8: batch jobs with a walltime of one minute, and more work than fits into it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from time import monotonic, sleep

import dask
import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

JOBS = 3  # of one worker with one thread each; with successors, and plain Dask beside: nine of twelve cores
SECONDS = 2.0  # of each task
TASKS = 125  # so that the first jobs end before the work does
PATIENCE = 95.0  # seconds for plain Dask, which may never be done


def effect(number, log):
    with open(log, "a") as file:
        file.write(f"start {number}\n")
    sleep(SECONDS)
    with open(log, "a") as file:
        file.write(f"end {number}\n")
    return number


def working(dask_scheduler):
    """How many workers work or may: not those that are held with nothing left to do."""
    workers = dask_scheduler.workers.values()
    return sum(worker in dask_scheduler.running or bool(worker.processing) for worker in workers)


def worked(slurm, name, log):
    """Executions by what was written, and the fewest workers at work while there was some for all."""
    with (
        dask_cluster(slurm, cores=1, job_name=name, walltime="00:01:00") as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) if name.startswith("ours") else nullcontext() as manager,
    ):
        cluster.adapt(minimum_jobs=JOBS, maximum_jobs=JOBS, interval="500ms")
        client.wait_for_workers(JOBS, timeout=60)
        futures = client.map(effect, range(TASKS), log=str(log), pure=False)
        fewest, before, until = JOBS, JOBS, monotonic() + PATIENCE
        while monotonic() < until and (left := sum(not future.done() for future in futures)):
            if left > 2 * JOBS:
                # who has tried a task of unknown length is idle for a moment: seen twice, or not
                now = client.run_on_scheduler(working)
                fewest, before = min(fewest, max(now, before)), now
            sleep(0.2)
        if manager:
            for row in manager.story():
                print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
            assert client.gather(futures) == list(range(TASKS))
            assert len(slurm.jobs(name=name, states="all")) >= 2 * JOBS
            assert not [row for row in manager.story() if row["decision"] in ("error", "lost")]
    return Counter(line.split()[0] for line in log.read_text().splitlines()), fewest


def test_work_goes_on_beyond_the_walltime(slurm, tmp_path, report):
    # Who hands over finishes what it runs, however small the drain budget: it is not at its end yet.
    with dask.config.set({"hpc.drain": "100ms"}), ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda name: worked(slurm, name, tmp_path / name), ["plain-walltime", "ours-walltime"]
        )
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
    report.add("S8", "fewest workers meanwhile", plain=plain_fewest, ours=ours_fewest, bound=f">= {JOBS - 1}")
    assert plain["start"] > plain["end"] or plain["end"] > TASKS
    assert ours == {"start": TASKS, "end": TASKS}
    assert ours_fewest >= JOBS - 1
