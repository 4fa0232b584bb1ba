"""Scratch files in a chain of batch jobs: a program beside the cluster writes some, they are staged out at
the end of the job, and the next job reads them."""

import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

FIRST = """
import subprocess, sys
from distributed import Client, LocalCluster
import dask_hpc

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("chain", block="4 kiB", stage_out=sys.argv[1]) as files,
    ):
        files.fs.pipe_file(files.url("by-the-job"), b"1" * 10_000)
        subprocess.run([sys.executable, sys.argv[2], files.url(), files.socket], check=True)
"""
BESIDE = """
import sys
import fsspec

fs = fsspec.filesystem("hpcmemory", socket=sys.argv[2])
with fs.open(sys.argv[1] + "/by-another-program", "wb") as file:
    file.write(fs.cat_file(sys.argv[1] + "/by-the-job") + b"2" * 10_000)
"""
SECOND = """
import sys
from pathlib import Path
from distributed import Client, LocalCluster
import dask_hpc

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("chain") as files,
    ):
        files.fs.put(sys.argv[1] + "/", files.url(), recursive=True)
        found = files.fs.cat_file(files.url("by-another-program"))
        Path(sys.argv[1], "result").write_text(f"{found.count(b'1')} {found.count(b'2')}")
"""


def submitted(words, ways):
    """The number of a batch job that runs a program."""
    ways = ["--parsable", "--cpus-per-task=2", "--mem=900", "--open-mode=append", *ways]
    line = f"--wrap={' '.join(words)}"
    run = subprocess.run(["sbatch", *ways, line], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_next_job_reads_what_was_staged_out(slurm, tmp_path):
    for name, text in (("first", FIRST), ("beside", BESIDE), ("second", SECOND)):
        (tmp_path / f"{name}.py").write_text(text)
    out = tmp_path / "out"
    ways = [f"--output={tmp_path}/log"]
    first = submitted([sys.executable, f"{tmp_path}/first.py", str(out), f"{tmp_path}/beside.py"], ways)
    ways += [f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes"]
    submitted([sys.executable, f"{tmp_path}/second.py", str(out)], ways)
    end = time.monotonic() + 90
    while not (out / "result").exists():
        assert time.monotonic() < end, (tmp_path / "log").read_text()
        time.sleep(0.1)
    assert (out / "result").read_text() == "10000 10000"
    assert (out / "by-another-program").stat().st_size == 20_000
