"""A program in a batch job whose time is over hands its state to the job after it, by its checkpoint."""

import sys

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

N = 60

PROGRAM = """
import os, sys, time
from pathlib import Path
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
import dask_hpc

place = Path(sys.argv[1])
number = int(sys.argv[2])

def late(block):
    time.sleep(0.3)
    return block * 1.5 + 1

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1") as cluster,
        Client(cluster),
        dask_hpc.Checkpoint("run", str(place / "store"), every=1000) as ck,
    ):
        u = ck.add("u", da.zeros(6, chunks=3).persist())
        (place / "ready").touch()
        while not (place / "go").exists():
            time.sleep(0.05)
        for i in ck.loop(range(number)):
            u = u.map_blocks(late).persist()
            wait(u)
            ck.update(u=u)
            with open(place / f"iterations-{os.environ['SLURM_JOB_ID']}", "a") as log:
                log.write(f"{i}\\n")
        np.save(place / "result.npy", u.compute())
"""


def submit(slurm, place, *options):
    """A job of the program; its number."""
    script = place / "job.sh"
    imports = ":".join(path for path in sys.path if path)
    (place / "program.py").write_text(PROGRAM)
    script.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={imports}\nexec {sys.executable} {place}/program.py {place} {N}\n"
    )
    what = ["--parsable", "--time=10", "--cpus-per-task=2", "--mem=1000", f"--output={place}/out-%j"]
    return slurm.run("sbatch", *what, *options, script).strip()


def done(place, job):
    """Which iterations a job did."""
    log = place / f"iterations-{job}"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def expected():
    u = np.zeros(6)
    for _ in range(N):
        u = u * 1.5 + 1
    return u


def successor_finishes(slurm, place, first):
    second = submit(slurm, place, f"--dependency=afterany:{first}")
    slurm.wait_until(lambda: first not in slurm.jobs(), "the end of the first job", 100)
    slurm.wait_until(lambda: second not in slurm.jobs(), "the end of the second job", 120)
    said = (place / f"out-{second}").read_text()
    assert (place / "result.npy").exists(), said
    np.testing.assert_array_equal(np.load(place / "result.npy"), expected())
    return done(place, second)


def test_a_job_that_is_told_to_end_commits_and_no_iteration_is_repeated(slurm, tmp_path):
    first = submit(slurm, tmp_path)
    (tmp_path / "go").touch()
    slurm.wait_until(lambda: len(done(tmp_path, first)) >= 5, "five iterations")
    # as Slurm does with cgroups, or with --signal=B:TERM@SECONDS: the job's first process is told
    slurm.run("scancel", "--batch", "--signal=TERM", first)
    after = successor_finishes(slurm, tmp_path, first)
    before = done(tmp_path, first)
    assert len(before) < N
    assert before + after == list(range(N))


def test_a_job_that_knows_its_walltime_commits_before_it_is_over(slurm, tmp_path):
    first = submit(slurm, tmp_path)
    slurm.wait_until((tmp_path / "ready").exists, "the program")
    slurm.run("scontrol", "update", f"JobId={first}", "EndTime=now+8")
    (tmp_path / "go").touch()
    after = successor_finishes(slurm, tmp_path, first)
    before = done(tmp_path, first)
    assert 0 < len(before) < N
    assert after[0] > 0, "there was no commit before the end"
    # what was being computed when all processes were told to end is lost; nothing that was committed is
    assert after == list(range(after[0], N)) and len(before) - after[0] <= 1
