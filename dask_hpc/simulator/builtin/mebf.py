"""Jobs that read, scatter, compute, gather and write, known from the start (seed 002, 4.1.2).

The source gives the machine, how many jobs there are and their kinds; not their sizes, lengths, ranges,
priorities or volumes. Those are parameters here, with defaults of our own: sizes from 16 to 128 nodes and
runtimes around 40 minutes make 100 mixed jobs keep 500 nodes busy for about ten hours, which is the order
of magnitude the source reports.
"""

from typing import Literal, get_args

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.simulator.amount import Fixed, Split
from dask_hpc.simulator.application import Application, Phase, Task
from dask_hpc.simulator.application_demand import io_demand, quiet_runtime
from dask_hpc.simulator.builtin.io_intensity import checked_seed
from dask_hpc.simulator.builtin.parameters import checked, walltime_of
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

Load = Literal["compute", "write", "read", "mixed"]
#: shares of a job's time: computing, reading and scattering at the start, gathering and writing
_SHARES = {"compute": (0.9, 0.05, 0.05), "write": (0.5, 0.05, 0.45), "read": (0.5, 0.45, 0.05)}
#: a mixed workload is half compute-, a quarter read- and a quarter write-intensive jobs
_MIXED = ("compute", "read", "compute", "write")
_LINK, _SPEED = 12.5e9, 100e9


def mebf(
    *,
    jobs: int = 100,
    load: Load = "mixed",
    seed: int = 0,
    malleable: float = 1.0,
    smallest: int = 16,
    largest: int = 128,
    shrinks: float = 0.25,
    grows: float = 2.0,
    runtime: float = 2400.0,
    iterations: int = 20,
    priorities: int = 10,
    file_system: float = 48e9,
    walltime: float | str = 2.0,
) -> Workload:
    """100, 200 or 300 jobs on 500 nodes, all known at the start, of which most can change size.

    ``load`` is compute, write, read or mixed. A job prefers ``smallest`` to ``largest`` nodes (uniform) and
    can use from ``shrinks`` to ``grows`` times as many; alone on its preferred nodes it takes between half
    and one and a half times ``runtime`` seconds. ``priorities`` is how many levels there are, drawn
    uniformly. ``walltime`` is a factor of the time on a quiet machine, or one time for all.
    """
    if load not in get_args(Load):
        raise InputError("load", f"found {shown(load)}", ", ".join(get_args(Load)))
    counts = (
        ("jobs", jobs, 1, 10**5), ("smallest", smallest, 1, 500), ("largest", largest, smallest, 500),
        ("iterations", iterations, 1, 10**5), ("priorities", priorities, 1, 10**6),
    )  # fmt: skip
    _check(counts, (("malleable", malleable, 0, 1), ("shrinks", shrinks, 0, 1), ("grows", grows, 1, 500),
                    ("runtime", runtime, 1, 1e9)))  # fmt: skip
    machine = Platform(nodes=500, speed=_SPEED, link=_LINK, file_system=file_system)
    draw = np.random.default_rng(checked_seed(seed))
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
        ranges = (nodes, nodes)
        if flexible[index]:
            ranges = max(1, int(shrinks * nodes)), min(machine.nodes, int(grows * nodes))
        job = Job(
            id=str(index + 1), kind="malleable" if flexible[index] else "rigid", nodes=nodes,
            min_nodes=ranges[0], max_nodes=ranges[1], priority=float(levels[index]), user=kind,
            walltime=walltime_of(walltime, quiet_runtime(application, machine, nodes)),
            io_intensity=io_demand(application, machine, nodes),
        )  # fmt: skip
        arrivals.append(Arrival(job, quiet_runtime(application, machine, nodes), application=application))
    return Workload("mebf", arrivals, platform=machine)


_Bounds = tuple[tuple[str, float, float, float], ...]


def _check(counts: _Bounds, numbers: _Bounds) -> None:
    for name, number, low, high in counts:
        if type(number) is not int or not low <= number <= high:
            raise InputError(name, f"found {shown(number)}", f"a whole number, {low} to {high}")
    for name, number, low, high in numbers:
        checked(name, number, low, high)


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
