"""What a person is told of a chain: what its file says, and what the batch system says, put together."""

from collections.abc import Mapping
from typing import Any

from dask_hpc.reservations.chain import JobChain, Link, minutes
from dask_hpc.reservations.slurm import QueuedJob


def report(chain: JobChain, queue: Mapping[str, QueuedJob] | None) -> dict[str, Any]:
    """As plain data. ``queue`` has jobs by id; None if nobody could be asked."""
    open_links = [link for link in chain.links if link.is_open]
    found = {link.number: _found(link, queue) for link in open_links}
    state = chain.state
    if not chain.over and queue is not None:
        alive = [link for link in open_links if found[link.number] is not None]
        running = [link for link in alive if _is_running(found[link.number])]
        state = "running" if running else "waiting" if alive else "gone"
    return {
        "name": chain.name,
        "state": state,
        "why": chain.story[-1][1] if chain.story else "",
        "saved": chain.saved,
        "tried": chain.tried,
        "resumable": chain.is_resumable,
        "checkpoint": chain.commit,
        "restart": chain.restore,
        "asked": queue is not None,
        "steps": [_step(link, found.get(link.number)) for link in chain.links],
        "plan": chain.plan.as_plain(),
        "story": [list(row) for row in chain.story],
    }


def _found(link: Link, queue: Mapping[str, QueuedJob] | None) -> QueuedJob | None:
    job = None if queue is None else queue.get(link.job)
    return job if job is not None and job.is_alive else None


def _is_running(job: QueuedJob | None) -> bool:
    return job is not None and job.state != "PENDING"


def _step(link: Link, job: QueuedJob | None) -> dict[str, Any]:
    return {
        "number": link.number,
        "job": link.job,
        "asked": 60.0 * minutes(link.length),
        "limit": link.limit or None,
        "commits": link.commits,
        "began": link.began,
        "ended": link.ended,
        "fate": link.fate,
        "saved": link.saved,
        "code": link.code,
        "slurm": "" if job is None else job.state,
        "reason": "" if job is None or job.reason == "None" else job.reason,
        "left": "" if job is None else job.left,
    }
