"""OAR, through ``oarstat``."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from dask_hpc.batch.job_state import Heard, JobState, count_in, number_in, seconds_in
from dask_hpc.batch.system import BatchSystem, Command

_QUEUED = frozenset({"Waiting", "toLaunch", "toAckReservation", "Launching"})
_RUNNING = frozenset({"Running", "Suspended", "Resuming"})


class OAR(BatchSystem):
    """All jobs of this user that are not over.

    A besteffort job that was killed for another one, if it may run again, goes on under a new id, which says
    which one it had before.
    """

    name = "OAR"
    submits = ("oarsub",)
    silent = "how an ended job ended; and it cannot put a running job back into the queue"

    def question(self, ids: Sequence[str]) -> Command:
        return ("oarstat", "-u", "-J")

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        if heard.code:
            return None
        text = heard.out.strip()
        try:
            rows = json.loads(text or "{}")
        except (ValueError, RecursionError):
            return None
        if rows in (None, []):  # nobody is there
            return {}
        if not isinstance(rows, dict):
            return None
        found: dict[str, JobState] = {}
        before: dict[str, str] = {}
        for job, row in rows.items():
            if isinstance(row, dict) and job.isdecimal() and (state := _state(row, now)) is not None:
                found[job] = state
                if first := count_in(row.get("resubmit_job_id")):
                    before[job] = str(first)
        for job, old in before.items():
            if old not in found or found[old].state == "gone":
                found[old] = replace(found[job], restarts=1, now_id=job)
        return found

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("oardel", *ids)


def _state(row: dict[str, Any], now: float) -> JobState | None:
    state, message = str(row.get("state", "")), str(row.get("message") or "").strip()
    start = number_in(row.get("startTime")) or None  # 0: it has not started
    if state in _QUEUED:
        at = number_in(row.get("scheduledStart")) or start
        return JobState("queued", message or state, starts_in=None if at is None else max(0.0, at - now))
    if state == "Hold":
        return JobState("held", message or "held")
    if state in _RUNNING:
        running_for = None if start is None else max(0.0, now - start)
        limit = seconds_in(row.get("walltime"))
        if limit is None and (wanted := re.search(r"\bW=(\d+:\d+:\d+)", message)):
            limit = seconds_in(wanted[1])
        left = inf if limit is None or running_for is None else limit - running_for
        return JobState("running", "" if state == "Running" else "suspended", running_for, left)
    if state in ("Finishing", "toError"):
        return JobState("unknown", f"OAR says {state}")
    if state in ("Terminated", "Error"):
        return JobState("gone", f"OAR says {state}" + (f" ({message})" if message else ""))
    return None
