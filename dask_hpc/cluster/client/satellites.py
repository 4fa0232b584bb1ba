"""More nodes for a cluster inside of an allocation: in place where the site permits it, else by satellites.

Slurm gives a job the nodes of another one if its administrators have set ``permit_job_expansion``, which is
rare: a job is submitted to expand ours, gives up its nodes, and ours takes them. A satellite is a batch job
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
from time import sleep, time

from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from dask_hpc.cluster.client.node_unit import WorkerWords
from dask_hpc.cluster.client.steps import answer, ask
from dask_hpc.model.errors import one_line
from dask_hpc.planning.allocation import AllocatedNode, permits_expansion
from dask_hpc.planning.topology import hosts

logger = logging.getLogger(__name__)

_SUBMIT = 60.0  # seconds that sbatch may take
_AT_ONCE = 10  # seconds within which a job that expands ours has to start
_TRIES, _PAUSE = 10, 1.0  # to change the size of a job; seconds in between
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
    job: str, extension: Extension, environment: Mapping[str, str], where: Path
) -> tuple[list[str], str]:
    """Names of the nodes that the job has got in addition, and why these are none. Blocks for some seconds.
    ``where`` is a directory for scripts that Slurm writes at a change of size."""
    if not permits_expansion(answer("scontrol", "show", "config")):
        return [], "this site does not permit it (permit_job_expansion)"
    before = _nodes_of(job)
    ask = ["salloc", "--no-shell", f"--immediate={_AT_ONCE}", f"--dependency=expand:{job}"]
    done = _run([*ask, *extension.words()], environment, where)
    found = re.search(r"Granted job allocation (\d+)", done.stderr)
    if not found:
        return [], f"salloc: {one_line(done.stderr.strip())[-200:]}"
    more = found[1]
    for command in (
        ["scontrol", "update", f"JobId={more}", "NumNodes=0"],
        ["scontrol", "update", f"JobId={job}", "NumNodes=ALL"],
    ):
        for _ in range(_TRIES):
            done = _run(command, environment, where)
            if "try again" not in done.stderr:  # while it waits for its accounting
                break
            sleep(_PAUSE)
        if done.returncode:
            answer("scancel", more)
            return [], f"scontrol: {one_line(done.stderr)}"
    new = [name for name in _nodes_of(job) if name not in before]
    answer("scancel", more)  # it has nothing left
    return new, "" if new else "Slurm says that it worked, and the job has no more nodes than before"


def _nodes_of(job: str) -> list[str]:
    return list(hosts(answer("squeue", "-h", "-j", job, "-o", "%N").strip()))


def _run(
    command: Sequence[str], environment: Mapping[str, str], where: Path
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SUBMIT, env=dict(environment), cwd=where
        )
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))
