"""The first process of a batch job is the one that Slurm tells of the job's end: it must not be a shell.

Where Slurm tracks processes by cgroups, as nearly everywhere, ``scancel`` and the walltime's end send SIGTERM
to the shell of the job script only. It dies of it, the job is over with it, and the worker is killed without
a word. With ``exec`` in front of the worker's command the worker, or its nanny, is that first process.
"""

from collections.abc import Callable
from typing import Any

from dask_hpc.live import compat

TOLD = "new batch jobs exec their workers, so that these learn when Slurm ends the job"


def is_slurm(job: Any) -> bool:
    """Whether a job of dask-jobqueue is one of Slurm's."""
    command = str(getattr(job, "submit_command", None) or "")
    return "sbatch" in command.split("/")[-1].split()


def exec_workers(cluster: Any) -> Callable[[], None] | None:
    """Let the worker be the first process of all new jobs of such a cluster. Gives what undoes it, or None
    if there is nothing to do: it is no cluster of Slurm's jobs, or the worker is that process already, or
    the script goes on after it.
    """
    job = compat.batch_job_of(cluster)
    if not is_slurm(job):
        return None
    python, is_module, _ = job.job_script().rstrip().splitlines()[-1].partition(" -m distributed.")
    if not is_module or python.split()[0] == "exec":
        return None
    options = cluster.new_spec["options"]
    before = options.get("python")
    options["python"] = f"exec {python}"
    return lambda: options.update(python=before)
