"""``builtin:production``: a workload that looks like a production machine's log, of any size, at any load."""

from typing import Annotated

import numpy as np

from dask_hpc.model.job import Job
from dask_hpc.simulator.built_in.batch_model import (
    LONGEST,
    Calendar,
    Numbers,
    draw_gaps,
    draw_runtimes,
    draw_sizes,
)
from dask_hpc.simulator.built_in.estimates import draw_estimates
from dask_hpc.simulator.built_in.ours import Share
from dask_hpc.simulator.built_in.published import Seed
from dask_hpc.simulator.built_in.sessions import Sessions, draw_offsets, draw_sessions
from dask_hpc.simulator.overlay import Law, Overlay
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

#: ours: jobs of one session are alike; the logarithms of their run times differ by so much
JITTER = 0.2


def production(
    *,
    jobs: Annotated[int, 1, 10**6] = 5000,
    nodes: Annotated[int, 2, 10**6] = 1024,
    load: Annotated[float, 0.01, 10] = 0.9,
    malleable: Share = 0.0,
    rule: str = "half-double",
    law: Law = "mixed",
    declared: bool = True,
    seed: Seed = 0,
    choice: int = 0,
) -> Workload:
    """Jobs as in the logs of production machines: sizes, run times, users, days and weeks, wrong estimates.

    Sizes and run times follow the model of Lublin and Feitelson, arrivals its day and a week, users repeat
    their jobs and say round times that are far too long: see ``batch_model``, ``sessions``, ``estimates``.
    The jobs' node-seconds are ``load`` times those of the machine from the first to the last submission; a
    day stays a day at any load. A ``malleable`` share of the jobs, drawn with ``choice``, can change size as
    ``rule`` says (half-double, wide: 1 to all nodes under constraints that differ, ...) and scales by
    ``law``: see ``Overlay``, which does the same to any trace. Time 0 is midnight before a Monday.
    """
    streams = [np.random.default_rng([seed, quantity]) for quantity in range(6)]
    sessions = draw_sessions(jobs, streams[0])
    sizes = draw_sizes(sessions.count, nodes, streams[1])[sessions.application]
    runtimes = draw_runtimes(sizes, nodes, streams[2])[sessions.application]
    sizes = sizes[sessions.of_job]
    runtimes = runtimes[sessions.of_job] * np.exp(JITTER * streams[3].standard_normal(jobs))
    runtimes = np.clip(np.rint(runtimes), 1.0, LONGEST)
    estimates, runtimes = draw_estimates(sessions, runtimes, streams[4])
    span = float((sizes * runtimes).sum()) / (nodes * load)
    times = _times(sessions, runtimes, span, streams[5])
    order = np.argsort(times, kind="stable").tolist()
    users = sessions.user[sessions.of_job]
    columns = [column.tolist() for column in (sizes, runtimes, estimates, times, users)]
    arrivals = []
    for number, at in enumerate(order, 1):
        size, runtime, estimate, time, user = (column[at] for column in columns)
        job = Job(id=str(number), nodes=size, walltime=estimate, submitted=time, user=f"u{user + 1}")
        arrivals.append(Arrival(job, runtime))
    workload = Workload("production", arrivals, platform=Platform(nodes))
    return Overlay(malleable=malleable, rule=rule, law=law, declared=declared).over(workload, choice)


def _times(sessions: Sessions, runtimes: Numbers, span: float, rng: np.random.Generator) -> Numbers:
    """When jobs are submitted, in ``span`` seconds. What would come after the end comes at the beginning,
    like what is left of sessions that began before: so there is neither a slow start nor a long end. All goes
    by the people's clock, waiting and thinking, too: who would come back at night comes in the morning."""
    calendar = Calendar()
    people = float(calendar.people(np.array([span]))[0])
    gaps = draw_gaps(sessions.count, rng)
    # one session begins at the beginning; the least gap is the last one, so that the load is what was asked
    gaps = np.roll(gaps, -1 - int(gaps.argmin()))
    starts = (np.cumsum(gaps) - gaps) * (people / gaps.sum())
    offsets = draw_offsets(sessions, runtimes, rng)
    times = np.mod(starts[sessions.of_job] + offsets, people)
    return np.rint(calendar.wall(times))
