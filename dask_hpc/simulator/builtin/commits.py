"""Jobs that commit on a machine whose nodes fail; ours, with made-up figures."""

import random
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw
from dask_hpc.simulator.builtin.parameters import checked
from dask_hpc.simulator.commits.declared import Checkpoint, read_checkpoint
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

_GB = 1e9
_HOUR = 3600.0
_NODES, _JOBS = 64, 24
_PER_NODE = 16 * _GB  # bytes of a commit


def commits(
    *,
    every: str = "auto",
    levels: str = "partner+store",
    asynchronous: bool = True,
    mtbf: float = 500.0,
    seed: int = 0,
) -> Workload:
    """24 jobs that commit, on 64 nodes that fail: what an interval and its levels save and cost.

    A job has 4 to 32 nodes for 2 to 16 hours and commits 16 GB of each; half of them may also be resized.
    ``every`` is a rule (auto, young, daly), a time ("30 min"), or none; ``levels`` are partner, store or
    both with a plus. A node fails every ``mtbf`` hours on average. Links have 10 GB/s, the file system 20.
    """
    checked("mtbf", mtbf, 0.1, inf)
    dice = random.Random(seed)
    arrivals = []
    time = 0.0
    for number in range(_JOBS):
        nodes = dice.choice((4, 8, 16, 32))
        runtime = dice.uniform(2, 16) * _HOUR
        is_malleable = dice.random() < 0.5
        job = Job(
            id=f"c{number + 1}",
            nodes=nodes,
            kind="malleable" if is_malleable else "rigid",
            min_nodes=nodes // 2 if is_malleable else nodes,
            max_nodes=min(2 * nodes, _NODES) if is_malleable else nodes,
            submitted=time,
        )
        checkpoint = _checkpoint(every, levels, asynchronous, nodes)
        arrivals.append(Arrival(job, runtime, PowerLaw(0.9), data=_PER_NODE * nodes, checkpoint=checkpoint))
        time += dice.expovariate(1 / _HOUR)
    failures = Failures(mtbf=mtbf * _HOUR, repair=_HOUR, seed=seed)
    machine = Platform(_NODES, link=10 * _GB, file_system=20 * _GB, failures=failures)
    return Workload("commits", arrivals, platform=machine)


def _checkpoint(every: str, levels: str, asynchronous: bool, nodes: int) -> Checkpoint | None:
    if every == "none":
        return None
    if not levels:
        raise InputError("levels", f"found {shown(levels)}", "partner, store, partner+store")
    found = {"bytes": _PER_NODE * nodes, "every": every, "asynchronous": asynchronous}
    return read_checkpoint({**found, "levels": levels.split("+")})
