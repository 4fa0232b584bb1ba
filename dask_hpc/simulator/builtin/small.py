"""Small workloads whose every decision can be followed by hand."""

from dask_hpc.model.job import Job
from dask_hpc.simulator.builtin.parameters import checked, scaling, walltime_of
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.overlay import malleable_overlay
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

#: seed 001, 7.3: nodes, and seconds fitted to what the text reports (digest 3.3)
_FIVE = ((4, 700.0), (16, 200.0), (6, 700.0), (10, 550.0), (8, 400.0))
#: seed 001, 7.4: type -> nodes, seconds
_TEN = {"C": (8, 1204.0), "D": (4, 513.0), "G": (2, 696.0), "J": (1, 522.0), "Z": (16, 458.0)}
#: one of the orders that fit the baselines which the source's numbers imply (digest 3.4)
_TEN_ORDER = "DZJCJDCGGG"


def five_jobs(*, malleable: float = 1.0, speedup: float = 0.4, walltime: float | str = 1.0) -> Workload:
    """Five jobs on 16 nodes, one every 100 s: what malleability gains (seed 001, 7.3).

    The source gives neither durations nor scaling; these durations make its 59 % utilisation, and with
    an exponent of 0.4 they reproduce its decisions. Malleable jobs use 4 to 16 nodes.
    """
    checked("malleable", malleable, 0, 1)
    arrivals = []
    for index, (nodes, runtime) in enumerate(_FIVE):
        limit = walltime_of(walltime, runtime)
        job = Job(id=f"J{index + 1}", nodes=nodes, walltime=limit, submitted=100.0 * index)
        arrivals.append(Arrival(job, runtime))
    workload = Workload("five-jobs", arrivals, platform=Platform(16))
    return malleable_overlay(workload, malleable, 0, lambda job, machine: (4, 16), scaling(speedup))


def ten_jobs(
    *, malleable: float = 1.0, choice: int = 0, speedup: float = 1.0, walltime: float | str = 1.0
) -> Workload:
    """Ten ESP jobs on 16 nodes, one every 60 s, the second as large as the machine (seed 001, 7.4).

    The source gives neither order nor scaling. Malleable jobs use 1 to 16 nodes, without constraints.
    """
    checked("malleable", malleable, 0, 1)
    seen: dict[str, int] = {}
    arrivals = []
    for index, kind in enumerate(_TEN_ORDER):
        nodes, runtime = _TEN[kind]
        seen[kind] = seen.get(kind, 0) + 1
        job = Job(
            id=f"{kind}{seen[kind]}",
            nodes=nodes,
            walltime=walltime_of(walltime, runtime),
            submitted=60.0 * index,
            user=kind,
        )
        arrivals.append(Arrival(job, runtime))
    workload = Workload("ten-jobs", arrivals, platform=Platform(16))
    return malleable_overlay(workload, malleable, choice, "constraint", scaling(speedup))


def node_stealing(*, failure: bool = True) -> Workload:
    """Five rigid jobs on 8 nodes; the third node fails at 1 s and is back at 6 s (seed 002, 3.1)."""
    jobs = ((1, 8.0), (1, 5.0), (6, 10.0), (6, 10.0), (1, 2.0))
    arrivals = [
        Arrival(Job(id=f"J{index + 1}", nodes=nodes, walltime=runtime), runtime)
        for index, (nodes, runtime) in enumerate(jobs)
    ]
    failures = Failures(trace=((1.0, 2),), repair=5.0) if failure else None
    return Workload("node-stealing", arrivals, platform=Platform(8, failures=failures))
