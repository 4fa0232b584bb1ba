"""4,000 jobs that compute and write, with four peaks of writing (seed 002, 4.2.5 and table 4.3)."""

import numpy as np

from dask_hpc.model.errors import InputError
from dask_hpc.model.io_demand import IoDemand
from dask_hpc.model.job import Job, Kind
from dask_hpc.simulator.amount import Split
from dask_hpc.simulator.application import Application, Phase, Task
from dask_hpc.simulator.application_demand import quiet_runtime
from dask_hpc.simulator.builtin.parameters import checked, walltime_of
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

MACHINE = Platform(nodes=500, speed=100e9, link=12.5e9, file_system=48e9)
_COMPUTE, _WRITE = 200e12, 256 * 2.0**30
_SMALLEST, _LARGEST = 2, 20
_PEAKS, _PEAK_LENGTH = (447, 1283, 2414, 3355), 200
_JOBS = 4000


def io_intensity(
    *,
    jobs: int = _JOBS,
    malleable: float = 0.2,
    seed: int = 0,
    gap: float = 0.0,
    peaks: bool = True,
    walltime: float | str = "unlimited",
) -> Workload:
    """4,000 jobs on 500 nodes that compute and checkpoint 10 to 25 times, with four peaks of writing.

    Each repetition computes Beta(1,1) times 200 Tflop and writes Beta(2,8) times 256 GiB, in a peak
    Beta(1,0.1) times 256 GiB. The source leaves open: when jobs arrive (all at once here, or Poisson with
    a mean ``gap``); how size follows from load (2 to 20 nodes by the mean of both loads, which is also
    where malleable jobs start); whether loads are per repetition (yes) and a peak's number is its first
    job (yes, counted from 0); and time limits (``walltime``: none, or a factor of the time on a quiet
    machine). With fewer ``jobs`` the peaks move and shrink in proportion.
    """
    if type(jobs) is not int:
        raise InputError("jobs", f"found {jobs!r}", "a whole number")
    checked("jobs", jobs, 1, 10**6)
    checked("malleable", malleable, 0, 1)
    checked("gap", gap, 0, 1e9)
    # one stream per quantity, so that a change of one parameter leaves the other draws alone
    streams = [np.random.default_rng([checked_seed(seed), quantity]) for quantity in range(6)]
    compute = streams[0].beta(1, 1, jobs) * _COMPUTE
    write = streams[1].beta(2, 8, jobs) * _WRITE
    if peaks:
        high = streams[2].beta(1, 0.1, jobs) * _WRITE
        in_peak = _in_peak(jobs)
        write[in_peak] = high[in_peak]
    repetitions = streams[3].integers(10, 26, jobs)
    flexible = np.zeros(jobs, bool)
    flexible[streams[4].permutation(jobs)[: round(malleable * jobs)]] = True
    submitted = np.cumsum(streams[5].exponential(gap, jobs)) if gap else np.zeros(jobs)
    spread = (compute / _COMPUTE + write / _WRITE) / 2
    sizes = np.clip(np.rint(_SMALLEST + (_LARGEST - _SMALLEST) * spread), _SMALLEST, _LARGEST)
    arrivals = []
    for index in range(jobs):
        arrivals.append(
            _arrival(
                str(index),
                int(sizes[index]),
                "malleable" if flexible[index] else "rigid",
                (float(compute[index]), float(write[index]), int(repetitions[index])),
                float(submitted[index]),
                walltime,
            )
        )
    return Workload("io-intensity", arrivals, platform=MACHINE)


def checked_seed(seed: int) -> int:
    """numpy wants it whole and not negative."""
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InputError("seed", f"found {seed!r}", "a whole number, 0 or more")
    return seed


def _in_peak(jobs: int) -> np.ndarray:
    found = np.zeros(jobs, bool)
    for peak in _PEAKS:
        first = peak * jobs // _JOBS
        found[first : first + max(1, _PEAK_LENGTH * jobs // _JOBS)] = True
    return found


def _arrival(
    name: str,
    nodes: int,
    kind: Kind,
    load: tuple[float, float, int],
    submitted: float,
    walltime: float | str,
) -> Arrival:
    compute, write, repetitions = load
    phase = Phase((Task("compute", Split(compute)), Task("write", Split(write))), repetitions)
    application = Application((phase,))
    quiet = quiet_runtime(application, MACHINE, nodes)
    flexible = kind == "malleable"
    job = Job(
        id=name,
        kind=kind,
        nodes=nodes,
        min_nodes=_SMALLEST if flexible else nodes,
        max_nodes=_LARGEST if flexible else nodes,
        walltime=walltime_of(walltime, quiet),
        submitted=submitted,
        io_intensity=IoDemand(
            compute=compute * repetitions,
            data=write * repetitions,
            speed=MACHINE.speed,
            link=MACHINE.link,
            file_system=MACHINE.file_system,
        ),
    )
    return Arrival(job, quiet, application=application)
