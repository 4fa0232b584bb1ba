"""Answering evolving jobs: what they give back is always taken, what they ask for is given if it is idle."""

from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal


def answers(snapshot: Snapshot, idle: int) -> list[Resize]:
    """Resizes that answer the requests, oldest job first; a request may be met in part, or wait.

    Every policy does this, whatever else it does about malleability. A request beyond the job's range
    is cut to it.
    """
    if not snapshot.requests:
        return []
    resizes = []
    for running in snapshot.resizable:
        wanted = snapshot.requests.get(running.job.id)
        if wanted is None:
            continue
        job, size = running.job, len(running.nodes)
        wanted = max(job.min_nodes, min(wanted, job.max_nodes))
        target = largest_legal(job.constraint, job.min_nodes, min(wanted, size + idle))
        if target is None or target == size or (target < size <= wanted):
            continue
        if target > size:
            idle -= target - size
        resizes.append(Resize(job.id, target, f"it asked for {wanted} nodes"))
    return resizes
