"""Slurm, as a chain of batch jobs needs it: asked for jobs, and told what becomes of them."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from time import time

from dask_hpc.batch.job_state import JobState
from dask_hpc.batch.slurm import Slurm, read_squeue, rows_of
from dask_hpc.batch.slurm_queue import read_partitions
from dask_hpc.checkpoint.client.reserved import VARIABLE
from dask_hpc.model.errors import insist, one_line
from dask_hpc.reservations.chain import AskFor, JobChain, minutes

_PATIENCE = 60.0  # seconds for an answer; Slurm's own patience is less
#: options of sbatch that are ours to give
_OURS = (
    "time", "t", "dependency", "d", "signal", "comment", "requeue", "no-requeue", "array", "a", "job-name",
    "J", "parsable", "kill-on-invalid-dep", "wait", "W", "chdir", "D", "wrap", "test-only", "hold", "H",
)  # fmt: skip


class SlurmTrouble(Exception):
    """A command of Slurm failed; what it said, in one line."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A batch job of the user's: its id, its state in Slurm's word and in ours, what it waits for, and the
    comment it was given."""

    id: str
    word: str
    state: JobState
    reason: str = ""
    comment: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or may. One that could not be launched may yet, if somebody releases it."""
        return self.state.state != "gone" or self.word in ("PENDING", "REQUEUE_HOLD")


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
        with suppress(SlurmTrouble):
            for there in self.queue():
                if there.id == job:
                    return there.word
        with suppress(SlurmTrouble):  # months of jobs are known there, where there is one
            words = self._run(["sacct", "-Xn", "-o", "State%20", "-j", job]).split()
            return words[0].partition("+")[0] if words else ""
        return ""

    def longest(self, partition: str | None) -> float | None:
        """Seconds that a job may ask for; None if that has no limit, or nobody knows."""
        try:
            known = read_partitions(self._run(["scontrol", "-a", "-o", "show", "partition"]))
        except SlurmTrouble:
            return None
        names = [one.name for one in known.values() if one.is_default]
        names = names if partition is None else partition.split(",")
        found = max((known[name].max_time for name in names if name in known), default=inf)
        return found if found < inf else None

    def queue(self) -> list[QueuedJob]:
        """The user's jobs, also those that were over a few minutes ago."""
        said = self._run(Slurm().question(()), SLURM_TIME_FORMAT="%s", LC_ALL="C")
        states = read_squeue(said, time())
        return [
            QueuedJob(row["JobID"], row["State"], states[row["JobID"]], row["Reason"], row["Comment"])
            for row in rows_of(said)
        ]

    def _run(self, words: Sequence[str], text: str | None = None, **more: str) -> str:
        """What a command prints; ``more`` is for its environment."""
        # What the job that asks was told of itself is nothing to the one it asks for.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "SLURM_CONF" or (name != VARIABLE and not name.startswith("SLURM_"))
        }
        try:
            done = subprocess.run(
                words, input=text, capture_output=True, text=True, errors="replace", env={**kept, **more},
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
