"""LSF, through ``bjobs``."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import Any

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.job_state import Heard, JobState, limit_in, number_in
from dask_hpc.batch.system import BatchSystem, Command

FIELDS = "jobid stat pend_reason run_time time_left estimated_start_time exit_reason"
_RUNNING = frozenset({"RUN", "USUSP", "SSUSP", "PROV"})
_HALF_A_YEAR = 183 * 86400.0


class LSF(BatchSystem):
    """All jobs of this user, with those that have ended not long ago."""

    name = "LSF"
    submits = ("bsub",)
    silent = "how often a job was put back into the queue"

    def question(self, ids: Sequence[str]) -> Command:
        return ("bjobs", "-a", "-json", "-o", FIELDS)

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        try:
            rows = json.loads(heard.out)["RECORDS"]
        except (ValueError, RecursionError, KeyError, TypeError):
            # "No job found" goes to either stream
            return {} if "job found" in f"{heard.out}{heard.error}" else None
        found = {}
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(job := row.get("JOBID"), str):
                state = _state(row, now)
                if state is not None:
                    found[job.partition("[")[0]] = state
        return found

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("bkill", *ids)

    def requeue(self, ids: Sequence[str]) -> Command:
        return ("brequeue", *ids)


def _state(row: dict[str, Any], now: float) -> JobState | None:
    stat = str(row.get("STAT", ""))
    why = str(row.get("PEND_REASON", "")).strip().rstrip(";")
    if stat in ("PEND", "WAIT"):
        at = _month_and_day(row.get("ESTIMATED_START_TIME"), now)
        return JobState("queued", why or "pending", starts_in=None if at is None else max(0.0, at - now))
    if stat == "PSUSP":
        return JobState("held", why or "suspended while pending")
    if stat in _RUNNING:
        run = re.match(r"\s*(\d+)", str(row.get("RUN_TIME", "")))
        left = re.match(r"\s*(\d+:\d+(?::\d+)?)", str(row.get("TIME_LEFT", "")))
        is_suspended = "" if stat in ("RUN", "PROV") else "suspended"
        in_time = limit_in(_hours(left[1])) if left else inf
        return JobState("running", is_suspended, number_in(run[1]) if run else None, in_time)
    if stat in ("DONE", "EXIT"):
        reason = str(row.get("EXIT_REASON", "")).strip(" -;")
        return JobState("gone", f"LSF says {stat}" + (f" ({reason})" if reason else ""))
    if stat in ("UNKWN", "ZOMBI"):
        return JobState("unknown", f"LSF says {stat}: its host does not answer")
    return None


def _hours(text: str) -> str:
    """LSF's ``1:30`` is an hour and a half; with seconds it is as anywhere."""
    return text if text.count(":") == 2 else f"{text}:00"


def _month_and_day(found: object, now: float) -> float | None:
    """``Mar 25 10:00``, of this year or the one that is nearer, or a full date."""
    text = str(found or "").strip()
    match = re.match(r"([A-Z][a-z]{2}) +(\d{1,2}) +(\d{2}:\d{2}(?::\d{2})?)(?: +(\d{4}))?", text)
    if match is None:
        return None
    month, day, at, year = match.groups()
    clock = at if at.count(":") == 2 else f"{at}:00"
    if year:
        return read_local_time(f"Mon {month} {day} {clock} {year}")
    try:
        this_year = datetime.fromtimestamp(now).year
    except (ValueError, OverflowError, OSError):
        return None
    years = range(this_year - 1, this_year + 2)
    dates = (read_local_time(f"Mon {month} {day} {clock} {one}") for one in years)
    near = [date for date in dates if date is not None and abs(date - now) <= _HALF_A_YEAR]
    return near[0] if near else None
