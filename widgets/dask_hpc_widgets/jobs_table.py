"""Jobs: how far they are, how large, how well they use their nodes, and what one can do about them."""

from collections.abc import Iterable, Mapping
from typing import Any

import traitlets

from dask_hpc import InputError, protect
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View


class JobDeeds:
    """What can be asked for about a job, by a view of a live cluster."""

    _awaited: Any
    with_client: Any

    async def do_resize(self, asked: Mapping[str, Any]) -> str:
        """Ask for so many more nodes, or fewer."""
        found = await self._awaited.resize(_job(asked), asked.get("nodes"))
        return (
            f"{found['name']} asks for {found['requested'] or len(found['nodes'])} nodes; the policy answers"
        )

    async def do_hold(self, asked: Mapping[str, Any]) -> str:
        """A waiting job is not to start."""
        return f"{(await self._awaited.hold_job(_job(asked), 'held in the control room'))['name']} is held"

    async def do_release(self, asked: Mapping[str, Any]) -> str:
        """It may start again."""
        return f"{(await self._awaited.release_job(_job(asked)))['name']} may start"

    async def do_cancel(self, asked: Mapping[str, Any]) -> str:
        """Stop a job; what it has done stays."""
        return f"{(await self._awaited.cancel(_job(asked)))['name']} is cancelled"

    async def do_protect(self, asked: Mapping[str, Any]) -> str:
        """Keep copies of a running job's results on other nodes."""
        job = _job(asked)
        futures = await self._awaited.results(job)
        if not futures:
            raise InputError(
                f"job {job}: protect", "nobody holds a future of any result of it", "a persisted result"
            )
        await self.with_client(protect, futures, name=job)
        return f"{len(futures)} results of {job} are protected"


class JobsTable(JobDeeds, View):
    """Jobs that run, wait and are over. Search and order them; ask for another size, hold, release, cancel,
    protect results."""

    _esm = module("jobs_table")
    _css = style()
    draws = frozenset({"jobs"})

    height = traitlets.Int(360, help="pixels").tag(sync=True)

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """A line for each job."""
        yield from super().lines(whole)
        yield from job_lines(whole)


def job_lines(whole: Mapping[str, Any]) -> Iterable[str]:
    """A line for each job."""
    for job in whole["jobs"]:
        done = "" if job["progress"] is None else f", {job['progress']:.0%} done"
        failed = f"{job['failed']} tasks failed, " if job["failed"] else ""
        why = failed + (job["waiting_because"] or job["reason"])
        yield f"  {job['name']}: {job['state']}, {job['nodes']} of {job['asks']} nodes{done}; {why}"


def _job(asked: Mapping[str, Any]) -> str:
    return str(asked.get("job"))
