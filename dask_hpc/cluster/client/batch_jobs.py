"""What the batch system, or the operating system, says of a cluster's units: queued, running, gone."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic, time
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.model.cluster_view import UnitState
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import parse_duration

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


_TIMEOUT = 20.0  # seconds for one answer of the batch system
_FORMAT = "%A|%T|%M|%L|%e|%r"  # id, state, time used, time left, end, reason
_QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


@dataclass(frozen=True, slots=True)
class JobState:
    """One unit, as its own system sees it."""

    state: UnitState = "unknown"
    why: str = ""
    running_for: float | None = None
    left: float = inf

    def later(self, seconds: float) -> "JobState":
        """The same, as it must be some time after it was asked for."""
        running_for = None if self.running_for is None else self.running_for + seconds
        return JobState(self.state, self.why, running_for, self.left - seconds)


UNKNOWN = JobState()


class BatchJobs:
    """Asks about all units in one call, and no more often than ``poll`` seconds.

    Slurm's jobs are looked up with ``squeue``; a process of this machine is asked itself. Whoever cannot be
    asked is unknown: never gone.
    """

    def __init__(self, poll: float = 5.0) -> None:
        self._poll = poll
        self._asked_at = -inf
        self._slurm: dict[str, JobState] = {}
        self._known: set[str] = set()
        self._ran: set[str] = set()

    async def look(self, units: Mapping[Any, Any], ages: Mapping[Any, float]) -> dict[Any, JobState]:
        """The state of each of these units (objects of the cluster's worker class) now."""
        ids = {
            name: str(unit.job_id)
            for name, unit in units.items()
            if is_slurm(unit) and getattr(unit, "job_id", None)
        }
        now = monotonic()
        if ids and (now - self._asked_at >= self._poll or not self._known.issuperset(ids.values())):
            self._slurm = await self._ask_slurm(set(ids.values()))
            self._known = set(ids.values())
            self._asked_at = now = monotonic()
        since = now - self._asked_at
        found = {}
        for name, unit in units.items():
            if name in ids:
                found[name] = self._slurm.get(ids[name], UNKNOWN).later(since)
            else:
                found[name] = of_process(unit, ages.get(name, 0.0))
        return found

    async def _ask_slurm(self, ids: set[str]) -> dict[str, JobState]:
        # All jobs of this user: asking for a single id that Slurm has forgotten is an error.
        text = await _output("squeue", "-h", "--me", "-t", "all", "-o", _FORMAT)
        found = read_squeue(text or "", time())
        if text is None or (text.strip() and not found):
            return {}
        self._ran = {one for one in ids & set(found) if one in self._ran or found[one].state == "running"}
        return {one: self._judge(one, found.get(one)) for one in ids}

    def _judge(self, one: str, found: JobState | None) -> JobState:
        if found is None:
            return JobState("gone", "Slurm does not know it any more")
        if found.state == "queued" and one in self._ran:
            # After a node's failure it waits there for two minutes and more, before it is even considered.
            return JobState("gone", f"Slurm has put it back into the queue ({found.why})")
        return found


def of_process(unit: Any, age: float) -> JobState:
    """The state of a unit that says it itself, or that is, or knows, a process of this machine."""
    tell = getattr(unit, "state_now", None)
    if tell is not None:
        found: JobState = tell()
        return found
    process = getattr(getattr(unit, "process", None), "proc", None)  # of dask-jobqueue's local backend
    if process is not None:
        if (code := process.poll()) is None:
            return JobState("running", "", age)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return JobState("gone", f"its process {how}")
    status = unit.status.name
    if status in ("closing", "closed", "failed"):
        return JobState("gone", f"its process is {status}")
    if hasattr(unit, "job_id"):  # of a batch system that nobody taught us to ask
        return UNKNOWN
    return JobState("running" if status == "running" else "unknown", "", age if status == "running" else None)


def read_squeue(text: str, now: float) -> dict[str, JobState]:
    """The answer of ``squeue`` at this time of the system's clock, by job id. Lines that make no sense are
    left out. A job that is preempted ends sooner than its walltime says."""
    found = {}
    for line in text.splitlines():
        parts = line.strip().split("|", 5)
        if len(parts) != 6:
            continue
        job, state, used, left, end, reason = parts
        # A job that could not be launched is held, and would wait for ever.
        is_held = "held" in reason.lower() and "launch" in reason.lower()
        if state in _QUEUED and not is_held:
            found[job] = JobState("queued", f"{state.lower()}: {reason}")
        elif state in _RUNNING:
            until_end = float(end) - now if end.isdecimal() else inf
            found[job] = JobState("running", "", _seconds(used, 0.0), min(_seconds(left, inf), until_end))
        else:
            found[job] = JobState(
                "gone", f"Slurm says {state}" + (f" ({reason})" if reason != "None" else "")
            )
    return found


def _seconds(text: str, otherwise: float) -> float:
    try:
        return parse_duration(text)
    except InputError:  # UNLIMITED, NOT_SET, INVALID
        return otherwise


async def _output(*command: str) -> str | None:
    """What a command prints, or None if it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},  # seconds: local times can be ambiguous
        )
    except OSError:
        return None
    try:
        out, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT)
    except BaseException as error:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            return None
        raise
    return out.decode(errors="replace") if process.returncode == 0 else None
