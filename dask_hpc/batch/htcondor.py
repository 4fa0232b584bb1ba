"""HTCondor, through ``condor_q``."""

import json
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any

from dask_hpc.batch.job_state import Heard, JobState, count_in, number_in
from dask_hpc.batch.system import BatchSystem, Command

ATTRIBUTES = (
    "ClusterId", "ProcId", "JobStatus", "HoldReason", "HoldReasonCode", "JobCurrentStartDate", "NumJobStarts",
    "AllowedJobDuration", "AllowedExecuteDuration",
)  # fmt: skip
_BY_SOMEBODY = frozenset({1, 15, 16})  # hold codes: by request, at submission, while files are spooled


class HTCondor(BatchSystem):
    """All jobs of this user that are not over."""

    name = "HTCondor"
    submits = ("condor_submit",)
    silent = "when an idle job will start, why it waits, and how an ended one ended"

    def question(self, ids: Sequence[str]) -> Command:
        return ("condor_q", "-json", "-attributes", ",".join(ATTRIBUTES))

    def options(self, submit: Sequence[str]) -> Command:
        """Another schedd or pool than the usual one."""
        found: list[str] = []
        for word, value in pairwise(submit):
            if word in ("-name", "-pool", "-remote"):
                found += ["-name" if word == "-remote" else word, value]
        return tuple(found)

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        if heard.code:
            return None
        if not heard.out.strip():
            return {}
        try:
            rows = json.loads(heard.out)
        except (ValueError, RecursionError):
            return None
        if not isinstance(rows, list):
            return None
        found = {}
        for row in rows:
            if isinstance(row, dict):
                cluster, process = count_in(row.get("ClusterId")), count_in(row.get("ProcId"))
                state = _state(row, now)
                if cluster is not None and process is not None and state is not None:
                    found[f"{cluster}.{process}"] = state
        return found

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("condor_rm", *ids)

    def requeue(self, ids: Sequence[str]) -> Command:
        return ("condor_vacate_job", *ids)


def _state(row: dict[str, Any], now: float) -> JobState | None:
    status, starts = count_in(row.get("JobStatus")), count_in(row.get("NumJobStarts"))
    restarts = None if starts is None else max(0, starts - (1 if status in (2, 6, 7) else 0))
    if status == 1:
        return JobState("queued", "idle", restarts=restarts)
    if status in (2, 6, 7):
        at = number_in(row.get("JobCurrentStartDate"))
        running_for = None if at is None else max(0.0, now - at)
        limits = (number_in(row.get(f"Allowed{what}Duration")) for what in ("Job", "Execute"))
        limit = min((one for one in limits if one is not None), default=inf)
        left = inf if running_for is None else limit - running_for
        return JobState("running", "suspended" if status == 7 else "", running_for, left, restarts=restarts)
    if status == 5:
        reason = str(row.get("HoldReason", "held"))
        # What HTCondor holds by itself, for want of memory or of a file, waits for a person for ever.
        is_wanted = count_in(row.get("HoldReasonCode")) in _BY_SOMEBODY
        state = JobState("held", reason, restarts=restarts)
        return state if is_wanted else JobState("gone", f"HTCondor holds it: {reason}", restarts=restarts)
    if status in (3, 4):
        what = "removed" if status == 3 else "completed"
        return JobState("gone", f"HTCondor has {what} it", restarts=restarts)
    return None
