"""A generator of synthetic days: rigid jobs whose sizes, lengths and arrivals look like a site's.

Sizes are powers of two, runtimes log-normal, walltimes rounded up from a crude overestimate, arrivals a
Poisson process that is three times busier at noon than at midnight. The rate is set so that the jobs
ask for ``load`` times what the machine has.
"""

import math
import random
from collections.abc import Iterator

from dask_hpc.model.job import Job
from dask_hpc.simulator.workload import Arrival

_WALLTIMES = [600.0 * k for k in (1, 2, 3, 6, 9, 12, 18, 24, 36, 48, 72, 144, 288)]
_MEDIAN, _SIGMA = 1200.0, 1.3


def synthetic_day(jobs: int, nodes: int, *, load: float = 0.8, seed: int = 0) -> Iterator[Arrival]:
    """Arrivals in order, made one by one: a million of them take no more memory than one."""
    draw = random.Random(seed)
    sizes = [2**k for k in range(max(1, int(math.log2(nodes)) - 2))]
    weights = [1 / (1 + k) for k in range(len(sizes))]
    mean_size = sum(s * w for s, w in zip(sizes, weights, strict=True)) / sum(weights)
    mean_runtime = _MEDIAN * math.exp(_SIGMA**2 / 2)
    rate = load * nodes / (mean_size * mean_runtime)
    time = 0.0
    for number, size in enumerate(draw.choices(sizes, weights, k=1)[0] for _ in range(jobs)):
        # thinning: candidates at the noon rate, kept with the probability of their hour
        while True:
            time += draw.expovariate(1.5 * rate)
            if draw.random() * 1.5 <= 1.0 - 0.5 * math.cos(2 * math.pi * time / 86400.0):
                break
        runtime = float(round(min(draw.lognormvariate(math.log(_MEDIAN), _SIGMA), _WALLTIMES[-1])))
        guess = runtime * draw.uniform(1.0, 4.0)
        walltime = next((w for w in _WALLTIMES if w >= guess), _WALLTIMES[-1])
        job = Job(id=str(number + 1), nodes=size, walltime=walltime, submitted=float(round(time)))
        yield Arrival(job, runtime)
