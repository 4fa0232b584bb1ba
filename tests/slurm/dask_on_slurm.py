"""A Dask cluster of batch jobs on the small Slurm, as dask-jobqueue makes them."""

import os
import sys

from dask_jobqueue import SLURMCluster, config


def job_settings(slurm, *, cores=2, processes=1, walltime="00:10:00", prologue=()):
    """What dask-jobqueue wants to know. Two cores per job: a node each; one core: three jobs share a node.

    Batch jobs import what the test imports, and leave their files beside those of Slurm.
    """
    imports = os.pathsep.join(path for path in sys.path if path)
    logs = slurm.directory / "logs"
    logs.mkdir(exist_ok=True)  # dask-jobqueue makes it too, but two of its clusters at once cannot
    return {
        "cores": cores,
        "processes": processes,
        "memory": "1 GB",
        "queue": "debug",
        "interface": "lo",
        "walltime": walltime,
        "python": sys.executable,
        "job-script-prologue": [f"export PYTHONPATH={imports}", *prologue],
        "local-directory": str(slurm.directory / "workers"),
        "log-directory": str(logs),
    }


def dask_cluster(slurm, *, cores=2, processes=1, walltime="00:10:00", prologue=(), **options):
    """A cluster without workers."""
    config.reconfigure()  # distributed's tests clear Dask's configuration
    settings = job_settings(slurm, cores=cores, processes=processes, walltime=walltime, prologue=prologue)
    settings = {name.replace("-", "_"): value for name, value in settings.items()}
    return SLURMCluster(**{"scheduler_options": {"dashboard_address": ":0"}, **settings, **options})
