"""Workloads of publications: the modified ESP mix, I/O intensity, MEBF, and jobs in a power corridor."""

import random
from functools import lru_cache
from math import inf
from typing import Annotated, Literal

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.speedup import Constraint, Linear, Speedup
from dask_hpc.policy import Policy
from dask_hpc.simulator.application import Application, Fixed, Phase, Split, Task, io_demand, quiet_runtime
from dask_hpc.simulator.built_in.ours import Exponent, Share, Walltime, by_type, scaling, walltime_of
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.platform import Metering, Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.workload import Arrival, Workload, malleable_overlay

#: numpy wants it not negative
Seed = Annotated[int, 0, inf]

#: seed 000, 8.2.1 and table 9.1: sizes are fractions of a machine of 32 nodes; of the source's 34 they are no
#: whole numbers
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
    malleable: Share = 0.0,
    seed: int = 0,
    choice: int = 0,
    speedup: Exponent = 1.0,
    walltime: Walltime = 1.0,
    interval: Annotated[float, 0, 10**9] = 30.0,
    constraints: bool = True,
) -> Workload:
    """The modified ESP mix: 230 jobs of 14 types on 32 nodes, one every 30 s, in pseudo-random order.

    ``seed`` orders the jobs, ``choice`` chooses the ``malleable`` share of them: two draws, so that the
    same jobs are malleable whatever the order of strategies tried. The source gives neither its seeds,
    nor how its application scales (``speedup``: the exponent of a power law, linear by default), nor the
    time limits (``walltime``: a factor of the runtime, or one time for all).
    """
    rows = [
        (kind, nodes, seconds, constraint if constraints else "any")
        for kind, nodes, count, seconds, constraint in TYPES
        for _ in range(count)
    ]
    random.Random(seed).shuffle(rows)
    arrivals = by_type(rows, interval, walltime)
    workload = Workload("esp", arrivals, platform=Platform(NODES))
    return malleable_overlay(workload, malleable, choice, "constraint", scaling(speedup))


MACHINE = Platform(nodes=500, speed=100e9, link=12.5e9, file_system=48e9)
_COMPUTE, _WRITE = 200e12, 256 * 2.0**30
_SMALLEST, _LARGEST = 2, 20
_PEAKS, _PEAK_LENGTH = (447, 1283, 2414, 3355), 200
_JOBS = 4000


def peaks_of(jobs: int) -> list[slice]:
    """Which of so many jobs write more than others."""
    lasts = max(1, _PEAK_LENGTH * jobs // _JOBS)
    return [slice(first, first + lasts) for first in (peak * jobs // _JOBS for peak in _PEAKS)]


def io_intensity(
    *,
    jobs: Annotated[int, 1, 10**6] = _JOBS,
    malleable: Share = 0.2,
    seed: Seed = 0,
    gap: Annotated[float, 0, 10**9] = 0.0,
    peaks: bool = True,
    walltime: Walltime = "unlimited",
) -> Workload:
    """4,000 jobs on 500 nodes that compute and checkpoint 10 to 25 times, with four peaks of writing.

    Each repetition computes Beta(1,1) times 200 Tflop and writes Beta(2,8) times 256 GiB, in a peak
    Beta(1,0.1) times 256 GiB. The source leaves open: when jobs arrive (all at once here, or Poisson with
    a mean ``gap``); how size follows from load (2 to 20 nodes by the mean of both loads, which is also
    where malleable jobs start); whether loads are per repetition (yes) and a peak's number is its first
    job (yes, counted from 0); and time limits (``walltime``: none, or a factor of the time on a quiet
    machine). With fewer ``jobs`` the peaks move and shrink in proportion.
    """
    # one stream per quantity, so that a change of one parameter leaves the other draws alone
    streams = [np.random.default_rng([seed, quantity]) for quantity in range(6)]
    compute = streams[0].beta(1, 1, jobs) * _COMPUTE
    write = streams[1].beta(2, 8, jobs) * _WRITE
    if peaks:
        high = streams[2].beta(1, 0.1, jobs) * _WRITE
        for peak in peaks_of(jobs):
            write[peak] = high[peak]
    repetitions = streams[3].integers(10, 26, jobs)
    flexible = np.zeros(jobs, bool)
    flexible[streams[4].permutation(jobs)[: round(malleable * jobs)]] = True
    submitted = np.cumsum(streams[5].exponential(gap, jobs)) if gap else np.zeros(jobs)
    spread = (compute / _COMPUTE + write / _WRITE) / 2
    sizes = np.clip(np.rint(_SMALLEST + (_LARGEST - _SMALLEST) * spread), _SMALLEST, _LARGEST)
    arrivals = []
    for index in range(jobs):
        nodes, times = int(sizes[index]), int(repetitions[index])
        operations, data = float(compute[index]), float(write[index])
        phase = Phase((Task("compute", Split(operations)), Task("write", Split(data))), times)
        application = Application((phase,))
        quiet = quiet_runtime(application, MACHINE, nodes)
        job = Job(
            id=str(index),
            kind="malleable" if flexible[index] else "rigid",
            nodes=nodes,
            min_nodes=_SMALLEST if flexible[index] else nodes,
            max_nodes=_LARGEST if flexible[index] else nodes,
            walltime=walltime_of(walltime, quiet),
            submitted=float(submitted[index]),
            io_intensity=MACHINE.io_demand(operations * times, data * times),
            recorded=quiet or None,
        )
        arrivals.append(Arrival(job, quiet, application=application))
    return Workload("io-intensity", arrivals, platform=MACHINE)


Load = Literal["compute", "write", "read", "mixed"]
#: shares of a job's time: computing, reading and scattering at the start, gathering and writing
_SHARES = {"compute": (0.9, 0.05, 0.05), "write": (0.5, 0.05, 0.45), "read": (0.5, 0.45, 0.05)}
#: a mixed workload is half compute-, a quarter read- and a quarter write-intensive jobs
_MIXED = ("compute", "read", "compute", "write")
_LINK, _SPEED = 12.5e9, 100e9


def mebf(
    *,
    jobs: Annotated[int, 1, 10**5] = 100,
    load: Load = "mixed",
    seed: Seed = 0,
    malleable: Share = 1.0,
    smallest: Annotated[int, 1, 500] = 16,
    largest: Annotated[int, 1, 500] = 128,
    shrinks: Share = 0.25,
    grows: Annotated[float, 1, 500] = 2.0,
    prefers: Annotated[float, 1, 500] = 1.0,
    runtime: Annotated[float, 1, 10**9] = 2400.0,
    iterations: Annotated[int, 1, 10**5] = 20,
    priorities: Annotated[int, 1, 10**6] = 10,
    file_system: float = 48e9,
    walltime: Walltime = 2.0,
) -> Workload:
    """100, 200 or 300 jobs on 500 nodes, all known at the start, of which most can change size.

    ``load`` is compute, write, read or mixed. A job is made for ``smallest`` to ``largest`` nodes (uniform),
    can use from ``shrinks`` to ``grows`` times as many and asks for ``prefers`` times as many; alone on the
    nodes it is made for it takes between half and one and a half times ``runtime`` seconds. ``priorities`` is
    how many levels there are, drawn uniformly. ``walltime`` is a factor of the time on a quiet machine, or
    one time for all.
    """
    if largest < smallest:
        raise InputError("largest", f"found {largest}", f"a whole number, {smallest} to 500")
    machine = Platform(nodes=500, speed=_SPEED, link=_LINK, file_system=file_system)
    draw = np.random.default_rng(seed)
    sizes = draw.integers(smallest, largest + 1, jobs)
    lengths = draw.uniform(0.5, 1.5, jobs) * runtime
    levels = draw.integers(1, priorities + 1, jobs)
    flexible = np.zeros(jobs, bool)
    flexible[draw.permutation(jobs)[: round(malleable * jobs)]] = True
    kinds = _MIXED if load == "mixed" else (load,)
    arrivals = []
    for index in range(jobs):
        nodes, kind = int(sizes[index]), kinds[index % len(kinds)]
        application = _application(kind, nodes, float(lengths[index]), iterations, machine)
        quiet = quiet_runtime(application, machine, nodes)
        job = Job(
            id=str(index + 1),
            kind="malleable" if flexible[index] else "rigid",
            nodes=min(machine.nodes, int(prefers * nodes)) if flexible[index] else nodes,
            min_nodes=max(1, int(shrinks * nodes)) if flexible[index] else nodes,
            max_nodes=min(machine.nodes, int(grows * nodes)) if flexible[index] else nodes,
            priority=float(levels[index]),
            user=kind,
            walltime=walltime_of(walltime, quiet),
            io_intensity=io_demand(application, machine, nodes),
            recorded=quiet,
        )
        arrivals.append(Arrival(job, quiet, application=application))
    return Workload("mebf", arrivals, platform=machine)


def _application(kind: str, nodes: int, seconds: float, iterations: int, machine: Platform) -> Application:
    """The root reads and scatters; then computing, gathering at the root and writing by all, again and
    again. Half of each input share is reading, half scattering; output goes over the root's link, then
    to the file system."""
    compute, start, end = (share * seconds for share in _SHARES[kind])
    root_rate = min(machine.link, machine.file_system)
    read = start / (1 / root_rate + 1 / machine.link)
    rate = min(nodes * machine.link, machine.file_system)
    written = end / (1 / machine.link + 1 / rate) / iterations
    tasks = (
        Task("compute", Split(compute * nodes * machine.speed / iterations)),
        Task("communicate", Fixed(written)),
        Task("write", Split(written)),
    )
    begin = (Task("read", Fixed(read), root_only=True), Task("communicate", Fixed(read)))
    return Application((Phase(tasks, iterations),), on_start=begin)


_NODES = 14
_IDLE, _POWERS = 71.0, {"pi": 170.0, "heat": 250.0}
_EACH = 10  # jobs of either kind
_BOUNDS = ((1700.0, 2500.0), (1000.0, 1700.0), (2500.0, 3500.0))
_MAKESPAN = 13.75 * 60  # under static backfilling

#: kind, nodes to start with, length over the mean
_Rows = tuple[tuple[str, int, float], ...]


def power_batch(
    *,
    seed: int = 0,
    speedup: Exponent = 0.5,
    spread: Annotated[float, 0, 0.99] = 0.5,
    second: float = 550.0,
    third: float = 800.0,
    tick: Annotated[float, 0.1, 10**6] = 10.0,
) -> Workload:
    """Ten Pi and ten heat jobs on 14 nodes, with a corridor that moves twice (seed 000, 9.2.4).

    The source gives the kinds, 170 and 250 W of a node, 71 W of an idle one, 1 to 4 nodes to start with and
    1 to 14 as the range, one submission every 2 s, the bounds, and that backfilling needs 13.75 minutes;
    order and start sizes are drawn. Lengths, which it does not give, are drawn from ``1 +- spread`` times
    a mean, the one with which backfilling needs those minutes. ``speedup`` is the exponent of a power law.
    The corridor moves at ``second`` and ``third`` seconds. The scheduler's passes, of which nothing is said,
    come once a ``tick``; the corridor is read anew at once.
    """
    draw = random.Random(seed)
    kinds = [kind for kind in _POWERS for _ in range(_EACH)]
    draw.shuffle(kinds)
    rows = tuple((kind, draw.randint(1, 4), draw.uniform(1 - spread, 1 + spread)) for kind in kinds)
    if not 0 < second < third:
        raise InputError("second", f"found {shown(second)} and third={shown(third)}", "0 < second < third")
    steps = tuple((at, *bounds) for at, bounds in zip((0.0, second, third), _BOUNDS, strict=True))
    platform = Platform(
        _NODES,
        idle_power=_IDLE,
        active_power=max(_POWERS.values()),
        tick=tick,
        only_ticks=True,
        metering=Metering(corridor=Corridor(steps)),
    )
    return Workload(
        "power-batch", _arrivals(rows, _mean_length(rows, tick), scaling(speedup)), platform=platform
    )


def _arrivals(rows: _Rows, mean: float, law: Speedup) -> list[Arrival]:
    arrivals = []
    for number, (kind, nodes, length) in enumerate(rows):
        job = Job(
            id=f"{kind}-{number + 1}",
            nodes=nodes,
            kind="malleable",
            min_nodes=1,
            max_nodes=_NODES,
            walltime=mean * length,
            submitted=2.0 * number,
            power=PowerRange(_POWERS[kind], _POWERS[kind]),
            user=kind,
            speedup=law,
        )
        arrivals.append(Arrival(job, mean * length, law))
    return arrivals


@lru_cache(maxsize=256)
def _mean_length(rows: _Rows, tick: float) -> float:
    """With which backfilling needs as long as the source says, as nearly as there is one: the makespan jumps
    where jobs come to start in another order. A coarse search, then finer ones beside the best."""
    backfill, platform = Policy.load("easy-backfill"), Platform(_NODES, tick=tick, only_ticks=True)

    def miss(mean: float) -> float:
        Engine(platform, backfill, record := Record(), story=0).run(_arrivals(rows, mean, Linear()))
        return abs(max(record.end) - min(record.submit) - _MAKESPAN)

    best, step = _MAKESPAN / 4, _MAKESPAN / 4 / 50
    for _ in range(5):
        best = min((best + step * k for k in range(-20, 21)), key=miss)
        step /= 12
    return best
