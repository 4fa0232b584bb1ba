"""A Dask cluster of batch jobs on the small Slurm, as dask-jobqueue makes them."""

import os
import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster

#: ``exec``: the first process of the job is the nanny, and not a shell (why: see small_slurm)
EXEC = f"exec {sys.executable}"


def dask_cluster(slurm, *, cores=2, processes=1, python=EXEC, walltime="00:10:00", prologue=(), **options):
    """A cluster without workers. Two cores per job: a node each; one core: two jobs share a node.

    Batch jobs import what the test imports, and leave their files beside those of Slurm.
    """
    imports = os.pathsep.join(path for path in sys.path if path)
    files = Path(slurm.directory)
    settings = {
        "cores": cores,
        "processes": processes,
        "memory": "1 GB",
        "queue": "debug",
        "interface": "lo",
        "walltime": walltime,
        "python": python,
        "job_script_prologue": [f"export PYTHONPATH={imports}", *prologue],
        "local_directory": str(files / "workers"),
        "log_directory": str(files / "logs"),
        "scheduler_options": {"dashboard_address": ":0"},
    }
    return SLURMCluster(**settings | options)
