"""One brain, two bodies: the same workload and the same policy object, simulated and on a live cluster."""

import threading
from math import inf

import pytest
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.platform import Failures

# name, submitted, nodes, runtime, walltime, and for malleable jobs fewest and most nodes. No two events
# fall on one instant: what "at once" means is part of the simulator's definition, while a live cluster
# sees one event after the other.
RIGID = [
    ("A", 0.0, 3, 61.0, 70.0),
    ("B", 2.0, 2, 40.0, 50.0),
    ("C", 4.0, 2, 42.5, 50.0),
    ("D", 6.0, 1, 43.0, 60.0),
    ("E", 8.0, 1, 80.0, 90.0),
    ("F", 10.0, 4, 20.0, 20.5),
]
MALLEABLE = [
    ("A", 0.0, 2, 610.0, 5000.0, 1, 4),
    ("B", 2.0, 2, 400.0, 5000.0, 1, 3),
    ("C", 71.0, 2, 425.0, 5000.0),
    ("D", 73.0, 1, 430.0, 5000.0, 1, 4),
    ("E", 555.0, 1, 80.0, 5000.0),
    ("F", 557.0, 4, 200.0, 5000.0, 2, 4),
]
SCALING = PowerLaw(0.8)
GATES = {name: threading.Event() for name, *_ in RIGID}


def work(name):
    """Runs until the script says that its job is over."""
    GATES[name].wait(60)


def described(row):
    _, _, nodes, _, walltime, *sizes = row
    described = {"nodes": nodes, "walltime": walltime}
    if sizes:
        described |= {"min_nodes": sizes[0], "max_nodes": sizes[1], "kind": "malleable"}
    if len(sizes) > 2:
        described |= {"kind": "moldable", "commits": True}
    return described


def decisions(plans, name=lambda text: text):
    """What was decided, in order: time, job, nodes, reason."""
    return [
        (plan.time, what, name(one.job), getattr(one, "nodes", 0), name(one.reason))
        for plan in plans
        for what, ones in (("interrupt", plan.interrupts), ("start", plan.starts), ("resize", plan.resizes))
        for one in ones
    ]


def simulated(policy, rows, failures=(), nodes=4):
    """Decisions, and when each job ends. ``failures`` are times and nodes."""
    arrivals = [
        Arrival(Job(id=row[0], submitted=row[1], **described(row)), row[3], speedup=SCALING) for row in rows
    ]
    fail = Failures(trace=failures, repair=1e6, survive=True) if failures else None
    result = simulate(arrivals, policy=policy, platform=Platform(nodes, failures=fail))
    frame = result.jobs
    assert set(frame["state"]) == {"completed"}
    return decisions(result.story), list(zip(frame["end"], frame["id"], strict=True))


def live(policy, rows, ends, failures=(), nodes=4, look=None, asked=()):
    """The same on a cluster: events come when the simulation says, by a scripted clock; and so do the times
    at which the policy wants to be ``asked``. At the end ``look`` is given the status."""
    script = sorted(
        [(row[1], "submit", row[0]) for row in rows]
        + [(t, "end", name) for t, name in ends]
        + [(t, "fail", node) for t, node in failures]
        + [(t, "ask", "") for t in asked]
    )
    found = []

    # Six threads a node: a task that runs on a node its job has given up must not keep others waiting.
    # And nobody waits for such tasks: the simulator's jobs give nodes up at once.
    @gen_cluster(client=True, nthreads=[("", 6)] * nodes, config={"hpc.drain": 0})
    async def run(c, s, *workers):
        for gate in GATES.values():
            gate.clear()
        async with await dask_hpc.manage(c, policy=policy):
            plugin = s.plugins["dask-hpc"]
            plugin.context.clock = lambda: now
            plugin.control.measurements.measure = lambda job, nodes: SCALING.mtct(nodes)
            ids, futures = {}, []

            def told(decision, job):
                return any(h.decision == decision and h.job == ids[job] for h in plugin.story.happenings)

            for now, what, which in script:  # noqa: B007 (the clock reads it)
                if what == "ask":
                    assert plugin.control._again.is_set
                    plugin.context.wake()  # as its timer would, by the scripted clock
                elif what == "fail":
                    worker = next(w for w in workers if w.name == which)
                    # at once: with more time it would hand over what it has
                    await worker.close(executor_wait=False, timeout=0.05)
                    await async_poll_for(lambda w=worker: w.address not in s.workers, 10)
                else:
                    if what == "submit":
                        row = next(row for row in rows if row[0] == which)
                        with dask_hpc.job(which, **described(row)) as context:
                            futures.append(c.submit(work, which, key=f"work-{which}"))
                        ids[which] = context.id
                    else:
                        GATES[which].set()
                    await async_poll_for(lambda what=what, job=which: told(what, job), 10)
                await async_poll_for(lambda: not plugin.context.is_awake, 10)
            await c.gather(futures)
            if look is not None:
                look(plugin.status.whole())
            names = {job_id: job for job, job_id in ids.items()}

            def named(text):
                for job_id, job in names.items():
                    text = text.replace(job_id, job)
                return text

            assert plugin.errors == 0
            found.extend(decisions(plugin.story, named))

    run()
    return found


@pytest.mark.parametrize("name", ["fcfs", "easy-backfill", "conservative-backfill", "max-value"])
def test_same_decisions_for_rigid_jobs(name):
    policy = Policy.load(name)
    predicted, ends = simulated(policy, RIGID)
    assert sorted(job for _, _, job, _, _ in predicted) == [row[0] for row in RIGID]
    assert live(policy, RIGID, ends) == predicted


@pytest.mark.parametrize("name", ["fpsma-pwma", "fpsma-prma", "egs-pwma", "performance-aware", "elastic"])
def test_same_decisions_for_malleable_jobs(name):
    policy = Policy.load(name)
    predicted, ends = simulated(policy, MALLEABLE)
    assert sum(what == "resize" for _, what, *_ in predicted) >= 3, predicted
    assert max(time for time, *_ in predicted) < inf
    assert live(policy, MALLEABLE, ends) == predicted
