"""A service's package can be taken away: everything else is imported, and jobs run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dask_hpc.cluster.scheduler

ROOMS = [
    "power", "checkpoint", "in_situ", "bridge", "lanes", "tail", "redistribution", "view", "history",
    "memory_files", "network",
]  # fmt: skip

#: Dask is imported once; each room is taken away in a process forked from there
PROGRAM = """
import contextlib, os, sys
from dask.distributed import Client, LocalCluster

with contextlib.suppress(ImportError):
    import distributed.dashboard.scheduler, xarray

def run(room):
    sys.modules["dask_hpc." + room] = None
    import dask_hpc

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client, dask_hpc.manage(client, "easy-backfill") as manager:
            with dask_hpc.job("a", nodes=1, min_nodes=1, max_nodes=2):
                futures = client.map(lambda i: i + 1, range(8))
            assert client.gather(futures) == list(range(1, 9))
            status = manager.status()
            assert status["state"] == "on" and not status["errors"], status
            assert [job["name"] for job in status["jobs"]] == ["a"]
            manager.snapshot()

assert not any(name.startswith("dask_hpc") for name in sys.modules)
for room in sys.argv[1:]:
    child = os.fork()
    if not child:
        run(room)
        sys.exit()
    print(room, "ran" if os.waitpid(child, 0)[1] == 0 else "failed", flush=True)
"""


@pytest.mark.slow
def test_a_job_runs_without_a_service():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *ROOMS], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [f"{room} ran" for room in ROOMS], done.stderr[-2000:]


def test_the_core_names_no_service():
    # "history" is also that of what was in force, which the core keeps for undo
    name = re.compile(rf"\b({'|'.join(room for room in ROOMS if room != 'history')})\b")
    files = Path(dask_hpc.cluster.scheduler.__file__).parent.glob("*.py")
    lines = [f"{file.name}: {line}" for file in files for line in file.read_text().splitlines()]
    assert [line for line in lines if name.search(line)] == []
