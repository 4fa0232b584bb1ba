"""More nodes for a cluster inside of an allocation: in place where the site permits it, else by satellites.

Slurm gives a job the nodes of another one if its administrators have set ``permit_job_expansion``, which is
rare: a job is submitted to expand ours, and gives up its nodes, which are ours then. Slurm 22.05.8 without
slurmdbd does that as well, but starts no step on these nodes, and changes the job no more: it waits for ever
for the job's number in the accounting. So we do not ask there. A satellite is a batch job
of its own, whose workers join the cluster: one unit, which comes and goes as a whole, and is looked up as
dask-jobqueue's jobs are. When the cluster is gone, its workers end by themselves.
"""

import asyncio
import logging
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import time

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from dask_hpc.cluster.client.node_unit import WorkerWords
from dask_hpc.cluster.client.steps import SlurmSteps, answer, ask
from dask_hpc.model.errors import one_line
from dask_hpc.planning.allocation import AllocatedNode, Allocation, why_no_growth
from dask_hpc.planning.topology import hosts

logger = logging.getLogger(__name__)

_SUBMIT = 60.0  # seconds that sbatch may take
_AT_ONCE = 10  # seconds within which a job that expands ours has to start
_JOB = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Extension:
    """What more nodes are asked for: so many like this one, until then by the system's clock."""

    nodes: int
    like: AllocatedNode
    end: float = inf
    #: of sbatch and salloc: a partition, an account ...
    options: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Options for Slurm."""
        like = self.like
        words = [f"--nodes={self.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={like.cores}"]
        words += [f"--mem={int(like.memory / 2**20)}M"] if like.memory < inf else []
        if self.end < inf:
            words.append(f"--time={max(1, int((self.end - time()) / 60))}")
        return [*words, *self.options]


class Satellite(ProcessInterface):
    """One unit that is a batch job of several nodes."""

    #: for those who ask Slurm about it
    submit_command = "sbatch"

    def __init__(
        self,
        scheduler: str,
        name: str,
        extension: Extension,
        words: WorkerWords,
        environment: Mapping[str, str],
        logs: Path,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.status: Status = Status.created
        self.name = name
        self._scheduler = scheduler
        self._extension = extension
        self._words = words
        self._environment = environment
        self._log = logs / f"{name}-%j.log"
        #: None until it is submitted
        self.job_id: str | None = None

    def script(self) -> str:
        """The batch script: workers on each node, named after the unit and their number."""
        command = self._words.command(self._scheduler, self._extension.like)
        cores = f"--cpus-per-task={self._extension.like.cores}"
        named = ["sh", "-c", 'exec "$@" --name "$0-$SLURM_PROCID"', self.name]
        return f"#!/bin/sh\nexec {shlex.join(['srun', '--mpi=none', '--mem=0', cores, *named, *command])}\n"

    async def start(self) -> None:
        """Submit it."""
        command = ["sbatch", "--parsable", "--job-name=dask-hpc", f"--output={self._log}"]
        command += self._extension.words()
        try:
            self.job_id = await asyncio.to_thread(_submit, command, self.script(), self._environment)
        except BaseException:
            self.status = Status.failed
            raise
        await super().start()

    async def close(self) -> None:
        """Take it back, wherever it is."""
        if self.status == Status.running:
            self.status = Status.closing
            await ask("scancel", str(self.job_id))
        await super().close()


def _submit(command: Sequence[str], script: str, environment: Mapping[str, str]) -> str:
    """The id of the new job. ``RuntimeError`` with Slurm's complaint if there is none."""
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, timeout=_SUBMIT, env=dict(environment)
    )
    found = _JOB.match(done.stdout)
    if done.returncode or not found:
        raise RuntimeError(f"sbatch: {one_line(done.stderr) or f'exit code {done.returncode}'}")
    return found[1]


def grow_in_place(
    job: str, extension: Extension, environment: Mapping[str, str]
) -> tuple[list[AllocatedNode], str]:
    """The nodes that the job has got in addition, and why these are none. Blocks for some seconds. Nodes on
    which no step can be started are given up again."""
    if why := why_no_growth(answer("scontrol", "show", "config")):
        return [], why
    before = _nodes_of(job)
    ask_for = ["salloc", "--no-shell", f"--immediate={_AT_ONCE}", f"--dependency=expand:{job}"]
    told = _complaint([*ask_for, *extension.words()], environment)
    found = re.search(r"Granted job allocation (\d+)", told)
    if not found:
        return [], f"salloc: {told}"
    told = _complaint(["scontrol", "update", f"JobId={found[1]}", "NumNodes=0"], environment)
    names = [name for name in _nodes_of(job) if name not in before]
    if not names:
        answer("scancel", found[1])
        return [], f"scontrol: {told or 'the job has no more nodes than before'}"
    like = extension.like
    new = [AllocatedNode(name, like.cores, like.memory) for name in names]
    for node in new:
        if answer(*SlurmSteps(Allocation((), job)).words(node, ["echo", "here"])).split() != ["here"]:
            answer("scontrol", "update", f"JobId={job}", f"NumNodes={len(before)}")
            return [], f"no step can be started on {node.name}"
    return new, ""


def _nodes_of(job: str) -> list[str]:
    return list(hosts(answer("squeue", "-h", "-j", job, "-o", "%N").strip()))


def _complaint(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a command says beside its output; some tell of success there as well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SUBMIT, env=dict(environment))
    except (OSError, subprocess.SubprocessError) as error:
        return one_line(str(error))
    return one_line(done.stderr)[-200:]
