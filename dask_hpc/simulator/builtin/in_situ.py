"""Three in situ pipelines that do not stay as they were declared; ours, with made-up figures."""

from math import inf

from dask_hpc.model.job import Job, Kind
from dask_hpc.model.partition import Analysis, Simulation
from dask_hpc.simulator.builtin.parameters import checked
from dask_hpc.simulator.in_situ.pipeline import Drift, Pipeline
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

_GB = 1e9
_MACHINE = Platform(26, link=1 * _GB)
_CORES, _MEMORY = 8, 32 * _GB
#: name -> seconds on a single core, peak, bytes moved
_ANALYSES = {
    "spectrum": (12.0, 16 * _GB, 4 * _GB),
    "front": (24.0, 32 * _GB, 2 * _GB),
    "pdf": (6.0, 40 * _GB, 1 * _GB),
    "modes": (48.0, 24 * _GB, 3 * _GB),
}


def in_situ(
    *,
    iterations: int = 200,
    slower: float = 10.0,
    jitter: float = 0.05,
    seed: int = 0,
    change_cost: float = 2.0,
) -> Workload:
    """Three in situ pipelines on 26 nodes of 8 cores: one analysis slows down, one creeps, one gets nodes.

    Each iteration of a simulation needs 256 core-seconds and 128 GB, and four analyses look at it. In
    "steps" the analysis spectrum takes ``slower`` times as long after 30 % of the iterations; in "creeps"
    the analysis modes gets six times slower between 20 and 80 %, little by little; "grows" asks for 10
    nodes instead of 6 at half of its iterations. Every time jitters by a lognormal factor. "steps" may also
    be resized.
    """
    checked("slower", slower, 0.01, 1000)
    if type(iterations) is int:
        checked("iterations", iterations, 10, 100_000)
    drifts = {
        "steps": (Drift("spectrum", 3 * iterations // 10, float(slower)),),
        "creeps": (Drift("modes", iterations // 5, 6.0, 3 * iterations // 5),),
        "grows": (),
    }
    kinds: dict[str, tuple[int, Kind]] = {
        "steps": (8, "malleable"),
        "creeps": (8, "rigid"),
        "grows": (6, "evolving"),
    }
    arrivals = []
    for at, (name, (nodes, kind)) in enumerate(kinds.items()):
        pipeline = Pipeline(
            iterations=iterations,
            simulation=Simulation(time=256.0, memory=128 * _GB),
            analyses=tuple(
                Analysis(name=one, time=time, memory=memory, moved=moved)
                for one, (time, memory, moved) in _ANALYSES.items()
            ),
            cores=_CORES,
            memory=_MEMORY,
            drifts=drifts[name],
            jitter=jitter,
            seed=3 * seed + at,
            change_cost=change_cost,
        )
        least, most = (6, 10) if kind != "rigid" else (nodes, nodes)
        job = Job(id=name, nodes=nodes, kind=kind, min_nodes=least, max_nodes=most, walltime=inf)
        requests = ((0.5, most),) if kind == "evolving" else ()
        quiet = pipeline.quiet_runtime(nodes, _MACHINE)
        arrivals.append(Arrival(job, quiet, application=pipeline, requests=requests))
    return Workload("in-situ", arrivals, platform=_MACHINE)
