"""The modified ESP mix: 230 jobs of 14 types (seed 000, 8.2.1 and table 9.1)."""

import random

from dask_hpc.model.constraint import Constraint
from dask_hpc.model.job import Job
from dask_hpc.simulator.builtin.parameters import checked, scaling, walltime_of
from dask_hpc.simulator.overlay import malleable_overlay
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

#: sizes are the source's fractions of a machine of 32 nodes: of its 34 they are not whole numbers
NODES = 32
#: type, nodes, how many, seconds, constraint
TYPES: tuple[tuple[str, int, int, float, Constraint], ...] = (
    ("A", 1, 75, 267, "any"),
    ("B", 2, 9, 322, "pof2"),
    ("C", 16, 3, 534, "any"),
    ("D", 8, 3, 616, "even"),
    ("E", 16, 3, 315, "any"),
    ("F", 2, 9, 1846, "pof2"),
    ("G", 4, 6, 1334, "even"),
    ("H", 5, 6, 1067, "odd"),
    ("I", 1, 24, 1432, "any"),
    ("J", 2, 24, 725, "pof2"),
    ("K", 3, 15, 487, "any"),
    ("L", 4, 36, 366, "even"),
    ("M", 8, 15, 187, "any"),
    ("Z", 32, 2, 100, "any"),
)


def esp(
    *,
    malleable: float = 0.0,
    seed: int = 0,
    choice: int = 0,
    speedup: float = 1.0,
    walltime: float | str = 1.0,
    interval: float = 30.0,
    constraints: bool = True,
) -> Workload:
    """The modified ESP mix: 230 jobs of 14 types on 32 nodes, one every 30 s, in pseudo-random order.

    ``seed`` orders the jobs, ``choice`` chooses the ``malleable`` share of them: two draws, so that the
    same jobs are malleable whatever the order of strategies tried. The source gives neither its seeds,
    nor how its application scales (``speedup``: the exponent of a power law, linear by default), nor the
    time limits (``walltime``: a factor of the runtime, or one time for all).
    """
    checked("interval", interval, 0, 1e9)
    checked("malleable", malleable, 0, 1)
    types = [one for one in TYPES for _ in range(one[2])]
    random.Random(seed).shuffle(types)
    seen: dict[str, int] = {}
    arrivals = []
    for index, (kind, nodes, _, seconds, constraint) in enumerate(types):
        seen[kind] = seen.get(kind, 0) + 1
        job = Job(
            id=f"{kind}{seen[kind]}",
            nodes=nodes,
            constraint=constraint if constraints else "any",
            walltime=walltime_of(walltime, seconds),
            submitted=index * float(interval),
            user=kind,
        )
        arrivals.append(Arrival(job, float(seconds)))
    workload = Workload("esp", arrivals, platform=Platform(NODES))
    return malleable_overlay(workload, malleable, choice, "constraint", scaling(speedup))
