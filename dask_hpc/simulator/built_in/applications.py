"""The ESP mix with applications that differ: each malleable job scales as its class does.

Where all jobs follow one law, who communicates most is who has most nodes, and a policy that measures decides
as one that counts.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from dask_hpc.model.speedup import PhasedSpeedup, PowerLaw, Speedup
from dask_hpc.simulator.built_in.ours import Share, Walltime
from dask_hpc.simulator.built_in.published import esp
from dask_hpc.simulator.workload import Arrival, Workload

#: made up, from hardly any communication to mostly that: exponents of power laws, several if the job has as
#: many equal phases
CLASSES: Mapping[str, tuple[float, ...]] = {
    "sweep": (0.98,),  # runs that know nothing of each other
    "stencil": (0.9,),  # neighbours exchange what is on their borders
    "solver": (0.75,),  # sums over all nodes in every step
    "transform": (0.6,),  # every node sends to every other
    "coupled": (0.95, 0.6, 0.95, 0.6),  # two codes that take turns
}


def law_of(name: str) -> Speedup:
    """How the jobs of a class scale."""
    laws = [PowerLaw(exponent) for exponent in CLASSES[name]]
    return laws[0] if len(laws) == 1 else PhasedSpeedup(tuple((1 / len(laws), law) for law in laws))


def applications(
    *,
    malleable: Share = 1.0,
    seed: int = 0,
    choice: int = 0,
    walltime: Walltime = 1.0,
    interval: Annotated[float, 0, 10**9] = 30.0,
    constraints: bool = True,
) -> Workload:
    """The ESP mix with five classes of applications, from nearly linear to n ** 0.6, one of which changes.

    Sizes, lengths, limits and order are those of ``esp``. ``seed`` draws the class of each malleable job,
    too: sweep (n ** 0.98), stencil (0.9), solver (0.75), transform (0.6), or coupled, which goes from 0.95 to
    0.6 and back with every quarter of its work. Nobody declares how a job scales: a policy knows what is
    measured of those that run, and limits follow the sizes as if all scaled linearly.
    """
    mix = esp(
        malleable=malleable,
        seed=seed,
        choice=choice,
        walltime=walltime,
        interval=interval,
        constraints=constraints,
    )
    draw = random.Random(seed)
    arrivals = [_scaling(arrival, draw.choice(list(CLASSES))) for arrival in mix]
    return replace(mix, name="applications", arrivals=arrivals)


def _scaling(arrival: Arrival, name: str) -> Arrival:
    job = arrival.job
    if not job.resizable:
        return arrival
    return replace(arrival, job=replace(job, speedup=None), speedup=law_of(name))
