"""One brain, two bodies: the same workload and the same policy object, simulated and on a live cluster."""

import threading

import pytest
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival

# name, submitted, nodes, runtime, walltime. No two events fall on one instant: what "at once" means is
# part of the simulator's definition, while a live cluster sees one event after the other.
JOBS = [
    ("A", 0.0, 3, 61.0, 70.0),
    ("B", 2.0, 2, 40.0, 50.0),
    ("C", 4.0, 2, 42.5, 50.0),
    ("D", 6.0, 1, 43.0, 60.0),
    ("E", 8.0, 1, 80.0, 90.0),
    ("F", 10.0, 4, 20.0, 20.5),
]
GATES = {name: threading.Event() for name, *_ in JOBS}


def work(name):
    """Runs until the script says that its job is over."""
    GATES[name].wait(60)


def simulated(policy):
    arrivals = [
        Arrival(Job(id=name, nodes=nodes, walltime=wall, submitted=at), runtime)
        for name, at, nodes, runtime, wall in JOBS
    ]
    result = simulate(arrivals, nodes=4, policy=policy)
    decisions = [(plan.time, s.job, s.nodes, s.reason) for plan in result.story for s in plan.starts]
    frame = result.jobs
    ends = list(zip(frame["end"], frame["id"], strict=True))
    return decisions, ends


@pytest.mark.parametrize("name", ["fcfs", "easy-backfill", "conservative-backfill"])
def test_same_decisions_in_the_same_order(name):
    policy = Policy.load(name)
    predicted, ends = simulated(policy)
    script = sorted([(at, "submit", name) for name, at, *_ in JOBS] + [(t, "end", name) for t, name in ends])
    live = []

    @gen_cluster(client=True, nthreads=[("", 1)] * 4)
    async def run(c, s, *workers):
        for gate in GATES.values():
            gate.clear()
        async with await dask_hpc.manage(c, policy=policy):
            plugin = s.plugins["dask-hpc"]
            plugin.clock = lambda: now
            ids, futures = {}, []

            def told(decision, job):
                return any(h.decision == decision and h.job == ids[job] for h in plugin.story.happenings)

            for now, what, job in script:  # noqa: B007 (the clock reads it)
                if what == "submit":
                    _, _, nodes, _, wall = next(one for one in JOBS if one[0] == job)
                    with dask_hpc.job(job, nodes=nodes, walltime=wall) as context:
                        futures.append(c.submit(work, job, key=f"work-{job}"))
                    ids[job] = context.id
                    await async_poll_for(lambda job=job: told("submit", job), 10)
                else:
                    GATES[job].set()
                    await async_poll_for(lambda job=job: told("end", job), 10)
                await async_poll_for(lambda: not plugin._is_scheduled, 10)
            await c.gather(futures)
            names = {value: key for key, value in ids.items()}
            for plan in plugin.story:
                for start in plan.starts:
                    reason = start.reason
                    for job_id, job in names.items():
                        reason = reason.replace(job_id, job)
                    live.append((plan.time, names[start.job], start.nodes, reason))

    run()
    assert live == predicted
    assert sorted(job for _, job, _, _ in live) == [job for job, *_ in JOBS]
