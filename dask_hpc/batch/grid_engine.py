"""Grid Engine (SGE, Son of Grid Engine, Univa, Open Cluster Scheduler), through ``qstat``."""

from collections.abc import Iterator, Sequence
from math import inf
from xml.etree import ElementTree

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.job_state import Heard, JobState, limit_in
from dask_hpc.batch.system import BatchSystem, Command

_MOST = 50_000_000  # characters of an answer


class GridEngine(BatchSystem):
    """All jobs of this user that are not over. What a job asked for (``h_rt``) comes with ``-r``."""

    name = "Grid Engine"
    submits = ("qsub",)
    silent = "when a queued job will start, and how an ended one ended"

    def question(self, ids: Sequence[str]) -> Command:
        return ("qstat", "-r", "-xml")

    def read(self, heard: Heard, now: float) -> dict[str, JobState] | None:
        if heard.code or len(heard.out) > _MOST or "<!" in heard.out:  # no entities: they could grow
            return None
        try:
            root = ElementTree.fromstring(heard.out)
        except (ElementTree.ParseError, ValueError):
            return None
        if root.tag.rpartition("}")[2] != "job_info":
            return None
        return dict(_jobs(root, now))

    def cancel(self, ids: Sequence[str]) -> Command:
        return ("qdel", *ids)

    def requeue(self, ids: Sequence[str]) -> Command:
        return ("qmod", "-rj", *ids)


def _jobs(root: ElementTree.Element, now: float) -> Iterator[tuple[str, JobState]]:
    for row in root.iter("job_list"):
        job, letters = row.findtext("JB_job_number", "").strip(), row.findtext("state", "").strip()
        if not job.isdecimal() or not letters:
            continue
        restarts = 1 if "R" in letters else 0  # it says that there was one, not how many
        if "E" in letters:  # an error that only a person can clear: it would wait for ever
            why = f"Grid Engine says {letters}: it could not be started"
            yield job, JobState("gone", why, restarts=restarts)
        elif "d" in letters:
            yield job, JobState("unknown", "Grid Engine is ending it", restarts=restarts)
        elif "h" in letters and "q" in letters:
            yield job, JobState("held", f"held ({letters})", restarts=restarts)
        elif "q" in letters or "w" in letters:
            yield job, JobState("queued", f"waits ({letters})", restarts=restarts)
        elif set(letters) & set("rtsSTN"):
            at = read_local_time(row.findtext("JAT_start_time"))
            running_for = None if at is None else max(0.0, now - at)
            limit = min(map(_limit, row.iter("hard_request")), default=inf)
            left = inf if running_for is None else limit - running_for
            is_suspended = "suspended" if set(letters) & set("sSTN") else ""
            yield job, JobState("running", is_suspended, running_for, left, restarts=restarts)


def _limit(request: ElementTree.Element) -> float:
    return limit_in(request.text) if request.get("name") in ("h_rt", "s_rt") else inf
