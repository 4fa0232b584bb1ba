"""Nodes in place of those that failed, for the jobs that run on without them."""

from operator import attrgetter

from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.units import count_nodes


def replacements(snapshot: Snapshot) -> list[Resize]:
    """Idle nodes for the jobs that lack some, whoever waits; the job that started first comes first.

    Every policy does this: by seed 002, section 3.1, what failed goes before all that waits. A job runs on
    with what it has left, so that each node helps it, also on a size that it could not have started on.
    """
    idle, resizes = snapshot.idle, []
    for running in in_need(snapshot):
        found = min(snapshot.lacking[running.job.id], idle)
        if found and running.target is None and running.resized_at != snapshot.now:
            reason = f"takes {count_nodes(found, 'idle')} for as many that failed"
            resizes.append(Resize(running.job.id, len(running.nodes) + found, reason))
            idle -= found
    return resizes


def in_need(snapshot: Snapshot) -> list[Running]:
    """The running jobs that lack nodes, in order of start."""
    return sorted((snapshot.running[job] for job in snapshot.lacking), key=attrgetter("order"))
