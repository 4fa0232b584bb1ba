"""PBS Pro, OpenPBS and Torque, through ``qstat -f``.

Its JSON (``-F json``) is read as well, but not asked for: versions that are in use print JSON that is none
where a variable of the job's environment holds a quote or a number such as 007 (openpbs issues 2541, 1255),
or only the first of several jobs (2672). The text has been the same for twenty years.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.job_state import Heard, JobState, count_in, limit_in, number_in, seconds_in
from dask_hpc.batch.system import BatchSystem, Command

_QUEUED = {"Q": "queued", "W": "waits for its time", "T": "is being moved"}
_RUNNING = {"R": "", "B": "", "S": "suspended", "U": "suspended"}
_ENDED = {"C": "completed", "F": "finished", "X": "expired", "M": "moved to another server"}


class PBS(BatchSystem):
    """Finished jobs are in the answer where the site keeps them; others are not known any more."""

    name = "PBS"
    submits = ("qsub",)

    def question(self, ids: Sequence[str]) -> Command:
        return ("qstat", "-f", *ids)

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        rows = list(_rows(heard.out))
        if not rows and not _says_that_none_is_known(heard):
            return None
        return {job: state for name, row in rows if (job := _number(name)) and (state := _state(row, now))}

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("qdel", *ids)

    def requeue(self, ids: Sequence[str]) -> Command:
        return ("qrerun", *ids)


def _number(name: str) -> str:
    """Of ``12.server`` the part that dask-jobqueue keeps."""
    found = re.match(r"\d+", name)
    return found[0] if found else ""


def _says_that_none_is_known(heard: Heard) -> bool:
    if "Unknown Job Id" in heard.error or "has finished" in heard.error:
        return True
    return not heard.code and (not heard.out.strip() or '"timestamp"' in heard.out)


def _rows(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Id and attributes of each job; ``Resource_List.walltime`` is one attribute."""
    if text.lstrip().startswith("{"):
        try:
            jobs = json.loads(text).get("Jobs", {})
        except (ValueError, RecursionError, AttributeError):
            return
        for name, row in jobs.items() if isinstance(jobs, dict) else ():
            if isinstance(row, dict):
                inner = {
                    f"{key}.{part}": one
                    for key, value in row.items()
                    if isinstance(value, dict)
                    for part, one in value.items()
                }
                yield name, {**row, **inner}
        return
    name, row, last = "", {}, ""
    for line in text.splitlines():
        if line.startswith("Job Id:"):
            if name:
                yield name, row
            name, row, last = line.partition(":")[2].strip(), {}, ""
        elif line.startswith("\t") and last:  # a long value goes on
            row[last] += line.strip()
        elif match := re.match(r" {4}(\w[\w.]*) = (.*)", line):
            last = match[1] if match[1] not in row else ""
            row.setdefault(match[1], match[2].strip())
    if name:
        yield name, row


def _state(row: Mapping[str, Any], now: float) -> JobState | None:
    letter = str(row.get("job_state"))
    comment = str(row.get("comment", "")).strip()
    starts = count_in(row.get("run_count", row.get("start_count")))
    restarts = None if starts is None else max(0, starts - (letter in (*_RUNNING, "E")))
    if letter in ("Q", "W", "T"):
        at = _when(row.get("estimated.start_time", row.get("Execution_Time")))
        starts_in = None if at is None else max(0.0, at - now)
        return JobState("queued", comment or _QUEUED[letter], starts_in=starts_in, restarts=restarts)
    if letter == "H":
        # PBS holds by itself (s) what it could not start in many attempts: that waits for ever.
        if "s" in str(row.get("Hold_Types", "")) and "too many" in comment:
            return JobState("gone", f"PBS holds it: {comment}", restarts=restarts)
        return JobState("held", comment or f"held ({row.get('Hold_Types', '?')})", restarts=restarts)
    if letter in _RUNNING:
        at = _when(row.get("stime", row.get("start_time")))
        used = seconds_in(row.get("resources_used.walltime"))
        running_for = used if at is None else max(0.0, now - at)
        left = seconds_in(row.get("Walltime.Remaining"))  # Torque
        if left is None:
            limit = limit_in(row.get("Resource_List.walltime"))
            left = inf if running_for is None else limit - running_for
        return JobState("running", _RUNNING[letter], running_for, left, restarts=restarts)
    if letter == "E":
        # It ends, or goes back into the queue: only the next answer tells.
        return JobState("unknown", "PBS says that it exits", restarts=restarts)
    if letter in _ENDED:
        status = row.get("Exit_status", row.get("exit_status"))
        how = f" with exit status {status}" if status is not None else ""
        return JobState("gone", f"PBS says that it {_ENDED[letter]}{how}", restarts=restarts)
    return None


def _when(found: object) -> float | None:
    at = number_in(found)
    return at if at is not None else read_local_time(found)
