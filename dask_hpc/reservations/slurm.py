"""Slurm, as a chain of batch jobs needs it: asked for jobs and about them, by the commands users have."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from dask_hpc.checkpoint.client.reserved import VARIABLE
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.model.units import parse_duration
from dask_hpc.reservations.chain import AskFor, JobChain, minutes

_PATIENCE = 60.0  # seconds for an answer; Slurm's own patience is less
_FORMAT = "%i|%T|%M|%L|%S|%r|%k"
#: options of sbatch that are ours to give
_OURS = (
    "time", "t", "dependency", "d", "signal", "comment", "requeue", "no-requeue", "array", "a", "job-name",
    "J", "parsable", "kill-on-invalid-dep", "wait", "W", "chdir", "D", "wrap", "test-only", "hold", "H",
)  # fmt: skip


class SlurmTrouble(Exception):
    """A command of Slurm failed; what it said, in one line."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A batch job, as ``squeue`` sees it."""

    id: str
    state: str
    used: str
    left: str
    start: str
    reason: str
    comment: str

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or may."""
        return self.state in _ALIVE


_ALIVE = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "RUNNING",
     "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING")
)  # fmt: skip


def check_options(options: Iterable[str]) -> tuple[str, ...]:
    """Options of a person for ``sbatch``, or ``InputError``."""
    found: list[str] = []
    for one in options:
        allowed = "an option of sbatch such as --cpus-per-task=8, but none that the chain itself gives"
        try:
            words = shlex.split(one)
        except ValueError:
            words = []
        first = words[0] if words else ""
        name = first.lstrip("-").partition("=")[0] if first.startswith("--") else first[1:2]
        fine = first.startswith("-") and bool(name) and name not in _OURS and one.isprintable()
        insist(fine, "--sbatch", one, allowed)
        found += words
    return tuple(found)


def comment_of(chain_id: str, number: int | str = "") -> str:
    """By which a job is known to be a link of a chain."""
    return f"dask-hpc:{chain_id}:{number}"


def script_of(chain: JobChain, number: int, state: Path) -> str:
    """The job script. Its last line takes the shell's place: Slurm tells only the first process of a job that
    its time is over."""
    step = [sys.executable, "-m", "dask_hpc", "submit-step", str(state), "--chain", chain.id]
    words = [*step, "--step", str(number), "--", *chain.command]
    return f"#!/bin/sh\n# step {number} of {chain.name}\nexec {shlex.join(words)}\n"


def sbatch_words(chain: JobChain, ask: AskFor) -> list[str]:
    """The command that asks for a link."""
    words = [
        "sbatch", "--parsable", f"--job-name={chain.name}", f"--time={minutes(ask.length)}",
        f"--comment={comment_of(chain.id, ask.number)}", f"--chdir={chain.directory}",
        f"--output={chain.name}-%j.out", "--open-mode=append", "--requeue",
    ]  # fmt: skip
    if ask.after:
        words += [f"--dependency=afternotok:{ask.after}", "--kill-on-invalid-dep=yes"]
    if ask.margin is not None:
        words += [f"--signal=B:TERM@{min(65535, ceil(ask.margin))}"]
    if ask.memory is not None:
        words += [f"--mem={ceil(ask.memory / 2**20)}M"]
    return [*words, *chain.options]


class SlurmDesk:
    """Its commands. All may block for a minute, and raise ``SlurmTrouble``."""

    def ask_for(self, chain: JobChain, ask: AskFor, state: Path, again: bool = False) -> str:
        """The id of a new job; with ``again`` of one that is there, should an answer have been lost."""
        if again:
            comment = comment_of(chain.id, ask.number)
            for there in self.queue():
                if there.comment == comment and there.is_alive:
                    return there.id
        said = self._run(sbatch_words(chain, ask), script_of(chain, ask.number, state))
        job = said.strip().partition(";")[0]  # of several clusters Slurm says which
        if not job.isdecimal():
            raise SlurmTrouble(f"sbatch said {one_line(said)!r}")
        return job

    def lower(self, job: str, length: float) -> None:
        """A job needs no more time than that."""
        self._run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes(length)}"])

    def keep_out(self, job: str) -> None:
        """A job is not to be put back into the queue."""
        self._run(["scontrol", "update", f"JobId={job}", "Requeue=0"])

    def drop(self, jobs: Sequence[str]) -> None:
        """Cancel them; who is over already is."""
        self._run(["scancel", *jobs])

    def fate_of(self, job: str) -> str:
        """The state of a job in Slurm's word; nothing if it is not known any more."""
        for command, name in (
            (["scontrol", "show", "job", "-o", job], "JobState="),
            (["sacct", "-Xn", "-o", "State%20", "-j", job], ""),
        ):
            try:
                words = self._run(command).split()
            except SlurmTrouble:
                continue
            found = [word.removeprefix(name) for word in words if word.startswith(name)]
            if found:
                return found[0].partition("+")[0]
        return ""

    def longest(self, partition: str | None) -> float | None:
        """Seconds that a job may ask for; None if that has no limit, or nobody knows."""
        try:
            said = self._run(["sinfo", "-h", "-o", "%P|%l", *([f"-p{partition}"] if partition else [])])
        except SlurmTrouble:
            return None
        for line in said.splitlines():
            name, _, limit = line.partition("|")
            if partition or name.endswith("*"):
                return _seconds(limit.strip())
        return None

    def queue(self) -> list[QueuedJob]:
        """The user's jobs, also those that were over a few minutes ago."""
        rows = []
        for line in self._run(["squeue", "-h", "--me", "-t", "all", "-o", _FORMAT]).splitlines():
            parts = line.strip().split("|", 6)
            if len(parts) == 7:
                rows.append(QueuedJob(*parts))
        return rows

    def _run(self, words: Sequence[str], text: str | None = None) -> str:
        # What the job that asks was told of itself is nothing to the one it asks for.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == "SLURM_CONF" or (name != VARIABLE and not name.startswith("SLURM_"))
        }
        try:
            done = subprocess.run(
                words, input=text, capture_output=True, text=True, errors="replace", env=environment,
                timeout=_PATIENCE, stdin=subprocess.DEVNULL if text is None else None,
            )  # fmt: skip
        except FileNotFoundError:
            raise SlurmTrouble(f"there is no {words[0]} here") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise SlurmTrouble(f"{words[0]}: {error.__class__.__name__}") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
            raise SlurmTrouble(one_line(said[-1]))
        return done.stdout


def _seconds(text: str) -> float | None:
    """As ``sinfo`` writes limits: [days-]hours:minutes:seconds, or minutes:seconds."""
    try:
        found = parse_duration(text)
    except InputError:
        return None
    return found if 0 < found < 1e12 else None
