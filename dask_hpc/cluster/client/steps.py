"""How workers are started on nodes of an allocation: by ``srun`` where Slurm gave it, else as processes here.

Each is started with a pipe as its standard input; when that is closed, it ends by itself
(``worker.until_stdin_ends``). A step of ``srun`` sees all cores and all memory of ours on its node, and
overlaps with other steps: what they share is divided by Dask, by threads and memory limits. So nothing waits
for cores that Slurm has given to another step, and parts of a node are not bound to the same cores.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Protocol

from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from dask_hpc.cluster.worker.farewell import end_of_slurm_job
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.planning.allocation import (
    OTHERS,
    AllocatedNode,
    Allocation,
    read_slurm_job,
    step_environment,
)

_TAIL = 4000  # bytes of a log that are looked at for last words
_ASK = 10.0  # seconds that Slurm may take to answer
_KILL = 10.0  # seconds between SIGTERM and SIGKILL
_MOST_HERE = 4  # nodes of one machine when nobody says how many
#: of a node's states: Slurm has lost it. Nodes that drain go on with the jobs they have.
_LOST = ("DOWN", "FAIL", "UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "REBOOT")


class StepMaker(Protocol):
    """Starts commands on nodes."""

    allocation: Allocation
    #: the address under which everybody is reached; None: as Dask finds out
    host: str | None

    def words(self, node: AllocatedNode, command: Sequence[str]) -> list[str]:
        """What to start here so that this command runs there."""
        ...

    def environment(self) -> dict[str, str]:
        """Variables for what is started."""
        ...

    async def why_lost(self, node: AllocatedNode) -> str:
        """Why a node must not be used again; empty if it may."""
        ...


class SlurmSteps:
    """On the nodes of a Slurm job."""

    host: str | None = None

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    @classmethod
    def of_this_job(cls) -> "SlurmSteps":
        """The job that this program runs in."""
        nodes = os.environ.get("SLURM_JOB_NODELIST", "")
        found = read_slurm_job(os.environ, _hostnames(nodes))
        end = found.end if found.end < inf else end_of_slurm_job()
        return cls(Allocation(found.nodes, found.job, inf if end is None else end))

    def words(self, node: AllocatedNode, command: Sequence[str]) -> list[str]:
        """A step of one task, on all that is ours of the node."""
        where = [f"--jobid={self.allocation.job}", "--nodes=1", "--ntasks=1", f"--nodelist={node.name}"]
        what = [f"--cpus-per-task={node.cores}", "--mem=0", "--overlap", "--mpi=none"]
        return ["srun", *where, *what, "--job-name=dask-hpc", *command]

    def environment(self) -> dict[str, str]:
        """What the job's variables say must not become options of a step."""
        return step_environment(os.environ)

    async def why_lost(self, node: AllocatedNode) -> str:
        """What Slurm says of it."""
        command = ("sinfo", "-h", "-N", "-n", node.name, "-o", "%T")
        return lost_by_state(await ask(*command))


class LocalSteps:
    """Processes of this machine, which is taken for several nodes."""

    host: str | None = "127.0.0.1"

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    @classmethod
    def of_this_machine(cls, nodes: int | None) -> "LocalSteps":
        """So many nodes, which share cores and memory evenly."""
        count = min(CPU_COUNT, _MOST_HERE) if nodes is None else nodes
        cores, memory = max(1, CPU_COUNT // count), MEMORY_LIMIT / count
        return cls(Allocation(tuple(AllocatedNode(f"node-{i}", cores, memory) for i in range(count))))

    def words(self, node: AllocatedNode, command: Sequence[str]) -> list[str]:
        """The command itself."""
        return list(command)

    def environment(self) -> dict[str, str]:
        """Ours."""
        return dict(os.environ)

    async def why_lost(self, node: AllocatedNode) -> str:
        """This machine is there."""
        return ""


def steps_here(nodes: int | None = None) -> StepMaker:
    """For the Slurm job that this runs in; for this machine without one, or if ``nodes`` are given."""
    fine = nodes is None or (type(nodes) is int and 1 <= nodes <= 1000)
    insist(fine, "AllocationCluster: nodes", nodes, "a number of nodes that this machine is taken for")
    if nodes is None and os.environ.get("SLURM_JOB_ID"):
        return SlurmSteps.of_this_job()
    for name, system in OTHERS.items():
        if nodes is None and os.environ.get(name):
            found = f"found a job of {system}, in which we cannot start anything on other nodes"
            raise InputError("AllocationCluster", found, "a job of Slurm; or nodes=2, on this machine alone")
    return LocalSteps.of_this_machine(nodes)


def lost_by_state(text: str) -> str:
    """Why a node whose state ``sinfo`` gives so must not be used again; empty if it may."""
    states = text.upper().split()
    for state in states:
        if state.rstrip("*~#!%$@^-+").startswith(_LOST) or state.endswith("*"):
            return f"Slurm says it is {state.lower()}"
    return ""


def _hostnames(text: str) -> list[str]:
    """As Slurm expands them; none if it cannot be asked, or says anything strange."""
    return answer("scontrol", "show", "hostnames", text).split()


async def ask(*command: str) -> str:
    """As ``answer``, beside the event loop; but when a script ends there are no threads to be had."""
    try:
        return await asyncio.to_thread(answer, *command)
    except RuntimeError:
        return answer(*command)


def answer(*command: str) -> str:
    """What a program of Slurm prints; nothing if it is not there, fails, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


class StepProcess:
    """One command that runs on a node."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str], log: Path) -> "StepProcess":
        """Start it; what it says goes to that file. Ctrl-C on our terminal is not for it."""
        with open(log, "ab") as out:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Of the process on this machine."""
        return self._process.pid

    async def wait(self) -> str:
        """Until it ends. How it ended, in words."""
        code = await self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        last = self.last_words()
        return f"its process {how}" + (f": {last}" if last else "")

    async def end(self, patience: float) -> None:
        """Let it end, in so many seconds; then make it."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for seconds, number in ((patience, signal.SIGTERM), (_KILL, signal.SIGKILL), (_KILL, None)):
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
                return
            if number is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def last_words(self) -> str:
        """The last line that it has said, but for what it says when all is well."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return one_line(
            next((line for line in reversed(lines) if line.strip() and " - INFO - " not in line), "")
        )[:200]
