"""The nodes that a batch system gave to a job, read from the variables that it sets; who may use which.

Of Slurm: ``SLURM_JOB_NODELIST`` (what ``scontrol show hostnames`` says of it, if that can be asked),
``SLURM_JOB_CPUS_PER_NODE``, ``SLURM_MEM_PER_NODE`` or ``SLURM_MEM_PER_CPU``, ``SLURM_JOB_END_TIME``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.planning.topology import hosts

_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,7})\))?")
_SETTING = re.compile(r"^(\w+)[ \t]*=[ \t]*(\S*)", re.MULTILINE)
_MB = 2.0**20
#: a variable that each of these sets inside of a job, other than Slurm
OTHERS = {"PBS_NODEFILE": "PBS", "LSB_HOSTS": "LSF", "OAR_NODEFILE": "OAR", "PE_HOSTFILE": "SGE"}
#: programs that start the processes of an MPI program themselves, on the nodes that the variables name
LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"})
#: what Slurm says a job got; srun would take some of it for options of a step
_OF_A_STEP = re.compile(r"SLURM_(?!CONF$|CLUSTER_NAME$|TMPDIR$)|SRUN_|PMI|OMPI_")


@dataclass(frozen=True, slots=True)
class AllocatedNode:
    """What one node gives us."""

    name: str
    cores: int
    #: bytes; inf if nobody says
    memory: float = inf


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one batch job has, or this machine if ``job`` is empty."""

    nodes: tuple[AllocatedNode, ...]
    job: str = ""
    #: when it ends, by the system's clock; inf if nobody says
    end: float = inf


def read_slurm_job(environment: Mapping[str, str], names: Sequence[str] = ()) -> Allocation:
    """What Slurm gave to the job of these variables. ``names`` are those of its nodes, if Slurm was asked."""
    job = environment.get("SLURM_JOB_ID", "")
    insist(job != "", "SLURM_JOB_ID", job, "a program inside of sbatch or salloc")
    text = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", "")
    with within("SLURM_JOB_NODELIST"):
        found = tuple(names) or tuple(hosts(text))
        insist(bool(found), "", text, "names of nodes, such as n[1-4]")
    cores = _cores(environment, len(found))
    nodes = tuple(
        AllocatedNode(name, count, _memory(environment, count))
        for name, count in zip(found, cores, strict=True)
    )
    end = environment.get("SLURM_JOB_END_TIME", "")
    return Allocation(nodes, job, float(end) if end.isascii() and end.isdecimal() else inf)


def counts(text: str) -> list[int]:
    """The numbers that Slurm means by ``"72(x2),36"``."""
    found: list[int] = []
    for one in text.split(","):
        match = _COUNT.fullmatch(one.strip())
        if match is None:
            raise InputError("", f"found {shown(text)}", "numbers such as 72(x2),36")
        insist(int(match[2] or 1) <= 1_000_000, "", text, "at most 1,000,000 nodes")
        found += repeat(int(match[1]), int(match[2] or 1))
    return found


def write_counts(numbers: Sequence[int]) -> str:
    """As Slurm writes them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join(f"{number}(x{times})" if times > 1 else f"{number}" for number, times in runs)


def _cores(environment: Mapping[str, str], nodes: int) -> list[int]:
    where = "SLURM_JOB_CPUS_PER_NODE"
    text = environment.get(where, "")
    if not text:
        where = "SLURM_CPUS_ON_NODE"
        text = environment.get(where, "1")
    with within(where):
        found = counts(text)
        if len(found) == 1:
            found *= nodes
        insist(len(found) == nodes and min(found) >= 1, "", text, f"numbers of cores of {nodes} nodes")
    return found


def _memory(environment: Mapping[str, str], cores: int) -> float:
    for name, times in (("SLURM_MEM_PER_NODE", 1), ("SLURM_MEM_PER_CPU", cores)):
        text = environment.get(name, "")
        if text.isascii() and text.isdecimal() and int(text):  # 0: all there is, and nobody says how much
            return int(text) * _MB * times
    return inf


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables, without those that ``srun`` would take for options, or an MPI library for its own."""
    return {name: value for name, value in environment.items() if not _OF_A_STEP.match(name)}


def beside_environment(environment: Mapping[str, str], nodes: Sequence[AllocatedNode]) -> dict[str, str]:
    """These variables, as a job that has nothing but these nodes would have them: what starts the processes
    of an MPI program looks there."""
    names = ",".join(node.name for node in nodes)
    found = dict(environment)
    for name in ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NODELIST"):
        found.pop(name, None)
    if "SLURM_JOB_ID" in found:
        cores = write_counts([node.cores for node in nodes])
        found |= dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), names)
        found |= dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), str(len(nodes)))
        found |= dict.fromkeys(("SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE"), cores)
    return found | {"DASK_HPC_NODES": names}


def beside_command(
    command: Sequence[str], nodes: Sequence[AllocatedNode], job: str, tasks_per_node: int = 1
) -> list[str]:
    """What to start so that this command runs on these nodes of a job: ``srun`` is told, ``mpirun`` finds
    out by its variables, anything else is started by ``srun``, so many times on each node. Without a job it
    is started once, as it is."""
    words = [str(word) for word in command]
    insist(bool(words) and bool(words[0]), "beside", command, "a command: a list of words")
    program = words[0].rpartition("/")[2]
    if not job or program in LAUNCHERS:
        return words
    where = [f"--nodes={len(nodes)}", f"--nodelist={','.join(node.name for node in nodes)}", "--overlap"]
    if program == "srun":
        return [words[0], *where, *words[1:]]
    return ["srun", f"--jobid={job}", *where, f"--ntasks-per-node={tasks_per_node}", *words]


def why_no_growth(config: str) -> str:
    """Why a job cannot be given the nodes of another one, by what ``scontrol show config`` prints; empty if
    it can."""
    found = {key.lower(): value for key, value in _SETTING.findall(config)}
    if "permit_job_expansion" not in found.get("schedulerparameters", "").split(","):
        return "this site does not permit it (permit_job_expansion)"
    if not found.get("accountingstoragetype", "").endswith("slurmdbd"):
        return "Slurm here has no slurmdbd, without which it starts no steps on new nodes"
    return ""
