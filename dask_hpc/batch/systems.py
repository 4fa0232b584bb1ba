"""Which batch system a job of dask-jobqueue belongs to."""

from typing import Any

from dask_hpc.batch.grid_engine import GridEngine
from dask_hpc.batch.htcondor import HTCondor
from dask_hpc.batch.lsf import LSF
from dask_hpc.batch.oar import OAR
from dask_hpc.batch.pbs import PBS
from dask_hpc.batch.slurm import Slurm
from dask_hpc.batch.system import BatchSystem, program_of

SYSTEMS: tuple[BatchSystem, ...] = (Slurm(), PBS(), LSF(), GridEngine(), HTCondor(), OAR())


def system_of(job: Any) -> BatchSystem | None:
    """The one that this job is submitted to, or None if nobody taught us to ask it."""
    program = program_of(getattr(job, "submit_command", None))
    found = [system for system in SYSTEMS if program in system.submits]
    if len(found) > 1:  # PBS and Grid Engine: both say qsub
        is_sge = any(kind.__name__.startswith("SGE") for kind in type(job).__mro__)
        found = [system for system in found if isinstance(system, GridEngine) == is_sge]
    return found[0] if found else None


def is_slurm(job: Any) -> bool:
    """Whether a job of dask-jobqueue is one of Slurm's."""
    return isinstance(system_of(job), Slurm)
