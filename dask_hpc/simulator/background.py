"""A site's load on a machine: what other people submit, for those who study how to ask beside them.

Sizes and run times follow the model of Lublin and Feitelson (2003), as published: a quarter of the jobs is
serial, of the others three quarters have a power of two of nodes, log-sizes are two-stage uniform, and the
logarithm of the run time is one of two gamma laws, the longer one for the larger jobs less often. Ours are
the arrivals (a Poisson process, so that a few hours look like a few hours of anybody's day), the walltimes
that people ask for (run times over a share that they use, rounded up to what people write), and the cut: run
times are cut at the longest walltime.
"""

import math
import random
from collections.abc import Iterator

from dask_hpc.model.job import Job
from dask_hpc.simulator.built_in.batch_model import (
    LEAST,
    LONG,
    MIDDLE_BELOW,
    MOST_ARE_BELOW,
    POWERS_OF_TWO,
    SERIAL,
    SHORT,
    SHORT_CHANCE,
    SHORT_LESS,
)
from dask_hpc.simulator.workload import Arrival

#: minutes that people write
_WRITTEN = (5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1080, 1440, 2880)
_FULL = 0.15  # so many jobs run into their walltime


def background_load(
    nodes: int,
    seconds: float,
    *,
    load: float = 0.95,
    longest: float = 86_400.0,
    largest: float = 1.0,
    seed: int = 0,
) -> Iterator[Arrival]:
    """Arrivals in order, for so long, that keep such a share of the machine's nodes busy on average. No job
    has more than ``largest`` of the nodes."""
    dice = random.Random(seed)
    most = max(1, int(largest * nodes))
    sample = random.Random(0)
    areas = [size * time for size, time, _ in (_draw(sample, most, longest) for _ in range(4000))]
    rate = load * nodes / (sum(areas) / len(areas))
    time = 0.0
    number = 0
    while (time := time + dice.expovariate(rate)) < seconds:
        number += 1
        size, runtime, walltime = _draw(dice, most, longest)
        yield Arrival(Job(id=f"bg{number}", nodes=size, walltime=walltime, submitted=time), runtime)


def _draw(dice: random.Random, most: int, longest: float) -> tuple[int, float, float]:
    """Nodes, run time and walltime of one job."""
    size = 1
    if most > 1 and dice.random() >= SERIAL:
        high = math.log2(most)
        middle = max(high - MIDDLE_BELOW, min(LEAST, high))
        low = min(LEAST, high)
        log_size = dice.uniform(low, middle) if dice.random() < MOST_ARE_BELOW else dice.uniform(middle, high)
        if dice.random() < POWERS_OF_TWO / (1 - SERIAL):
            log_size = round(log_size)
        size = min(most, max(1, round(2**log_size)))
    share_short = max(0.0, min(1.0, -SHORT_LESS * size + SHORT_CHANCE))
    shape = SHORT if dice.random() < share_short else LONG
    runtime = min(math.exp(dice.gammavariate(*shape)), longest)
    if dice.random() < _FULL:
        walltime = _written(runtime, longest)
        return size, walltime, walltime
    asked = runtime / dice.uniform(0.05, 1.0)
    return size, runtime, _written(asked, longest)


def _written(asked: float, longest: float) -> float:
    """What people write who want at least that much, and may have so much at most."""
    return min(next((60.0 * one for one in _WRITTEN if 60.0 * one >= asked), math.inf), longest)
