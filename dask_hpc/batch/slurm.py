"""Slurm, through ``squeue``."""

from collections.abc import Iterator, Sequence
from math import inf

from dask_hpc.batch.job_state import Heard, JobState, count_in, limit_in, number_in, seconds_in
from dask_hpc.batch.system import BatchSystem, Command

SEPARATOR = "|"
#: what is asked of each job, and the room for it: without a width, squeue cuts after 20 characters
FIELDS = {
    "JobID": 24, "State": 24, "TimeUsed": 24, "TimeLeft": 24, "EndTime": 24, "StartTime": 24,
    "RestartCnt": 12, "Comment": 60, "Reason": 120,
}  # fmt: skip
_REASON = {"Reason": FIELDS["Reason"]}  # the last one: it may hold anything
#: the same of everybody's jobs, whose comments may hold anything too
OF_ALL = {key: width for key, width in FIELDS.items() if key not in ("Comment", "Reason")} | {
    "Partition": 120, "NumNodes": 12, "tres-alloc": 200, "TimeLimit": 24, "SubmitTime": 24,
    "PriorityLong": 24, "UserName": 60, "NodeList": 1000, "QOS": 60, "OverSubscribe": 12, "ArrayTaskID": 120,
} | _REASON  # fmt: skip
_UNLIMITED = 180 * 86400.0  # seconds until an end that Slurm takes for that of a job without a limit
_SLACK = 5.0  # seconds by which times that Slurm has rounded may differ
_QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"})
_HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


class Slurm(BatchSystem):
    """All jobs of this user: asking for a single id that Slurm has forgotten is an error."""

    name = "Slurm"
    submits = ("sbatch",)

    def question(self, ids: Sequence[str]) -> Command:
        return ("squeue", "-h", "--me", "-t", "all", "-O", _format(FIELDS))

    def question_of_all(self) -> Command:
        return ("squeue", "-h", "-a", "-t", "all", "-O", _format(OF_ALL))

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        found = read_squeue(heard.out, now)
        return None if heard.code or (heard.out.strip() and not found) else found

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("scancel", *ids)

    def requeue(self, ids: Sequence[str]) -> Command:
        return ("scontrol", "requeue", ",".join(ids))


def _format(fields: dict[str, int]) -> str:
    return ",".join(f"{field}:{width}{SEPARATOR}" for field, width in fields.items())


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """The jobs in an answer of ``squeue``, ours or everybody's. Lines that make no sense are left out."""
    for line in text.splitlines():
        fields = OF_ALL if line.count(SEPARATOR) >= len(OF_ALL) - 1 else FIELDS
        parts = [part.strip() for part in line.split(SEPARATOR, len(fields) - 1)]
        if len(parts) == len(fields) and parts[0].isdecimal():
            parts[-1] = parts[-1].rstrip(f" {SEPARATOR}")
            yield dict(zip(fields, parts, strict=True))


def read_squeue(text: str, now: float) -> dict[str, JobState]:
    """The answer of ``squeue`` at this time of the system's clock, by job id. Lines that make no sense are
    left out. A job that is preempted ends sooner than its walltime says, by which alone it can be told.

    A job that completes may be over, or go back into the queue: only the next answer tells.
    """
    found = {}
    for row in rows_of(text):
        job, state, reason, restarts = row["JobID"], row["State"], row["Reason"], row["RestartCnt"]
        is_held = state in _HELD or "held" in reason.lower()
        # A job that could not be launched is held, and would wait for ever.
        is_lost = is_held and "launch" in reason.lower()
        again = count_in(restarts)
        if (state in _QUEUED or state in _HELD) and not is_lost:
            at = number_in(row["StartTime"])
            found[job] = JobState(
                "held" if is_held else "queued",
                f"{state.lower()}: {reason}",
                starts_in=None if at is None or is_held else max(0.0, at - now),
                restarts=again,
            )
        elif state in _RUNNING:
            until_end = number_in(row["EndTime"])
            ends_in = inf if until_end is None else until_end - now
            until = limit_in(row["TimeLeft"])
            found[job] = JobState(
                "running",
                "",
                seconds_in(row["TimeUsed"]) or 0.0,
                min(until, ends_in),
                is_preempted=ends_in < min(until, _UNLIMITED) - _SLACK,
                restarts=again,
            )
        elif state == "COMPLETING":
            found[job] = JobState("unknown", "Slurm says COMPLETING", restarts=again)
        else:
            why = f"Slurm says {state}" + (f" ({reason})" if reason not in ("None", "") else "")
            found[job] = JobState("gone", why, restarts=again)
    return found
