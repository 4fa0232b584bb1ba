"""Node stealing in both bodies: the same nodes fail in a simulation and live, and jobs go on."""

import pytest
from distributed.utils_test import async_poll_for, gen_cluster
from test_two_bodies import GATES, SCALING, described, work

import dask_hpc
from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.platform import Failures

FIRST = [  # as in test_two_bodies; then a node that fails, and when
    ("A", 0.0, 2, 200.0, 900.0),
    ("B", 2.0, 1, 90.0, 900.0),
    ("C", 4.0, 1, 60.0, 900.0),
    ("D", 6.0, 1, 50.0, 900.0),
]
MALLEABLE = [
    ("A", 0.0, 2, 200.0, 900.0),
    ("B", 2.0, 2, 150.0, 900.0, 1, 2),
    ("C", 4.0, 1, 60.0, 900.0),
]
LARGE = [  # the victim has more than is lacking: it is first in line for what is left, and too large
    ("A", 0.0, 3, 200.0, 900.0),
    ("B", 2.0, 2, 90.0, 900.0),
    ("C", 4.0, 1, 60.0, 900.0),
]
ALONE = [("A", 0.0, 3, 200.0, 900.0), ("B", 2.0, 1, 90.0, 900.0), ("C", 4.0, 2, 60.0, 900.0)]


def decisions(plans, name=lambda text: text):
    return [
        (plan.time, what, name(one.job), getattr(one, "nodes", 0), name(one.reason))
        for plan in plans
        for what, ones in (
            ("interrupt", plan.interrupts),
            ("start", plan.starts),
            ("resize", plan.resizes),
        )
        for one in ones
    ]


def simulated(policy, rows, failures):
    arrivals = [
        Arrival(Job(id=row[0], submitted=row[1], **described(row)), row[3], speedup=SCALING) for row in rows
    ]
    nodes = 5 if rows is LARGE else 4
    platform = Platform(nodes, failures=Failures(trace=failures, repair=1e6, survive=True))
    result = simulate(arrivals, policy=policy, platform=platform)
    frame = result.jobs
    assert set(frame["state"]) == {"completed"}
    return decisions(result.story), list(zip(frame["end"], frame["id"], strict=True))


def live(policy, rows, ends, failures):
    script = sorted(
        [(row[1], "submit", row[0]) for row in rows]
        + [(t, "end", name) for t, name in ends]
        + [(t, "fail", node) for t, node in failures]
    )
    found = []

    nodes = 5 if rows is LARGE else 4

    @gen_cluster(client=True, nthreads=[("", 6)] * nodes, config={"hpc.drain": 0})
    async def run(c, s, *workers):
        for gate in GATES.values():
            gate.clear()
        async with await dask_hpc.manage(c, policy=policy):
            plugin = s.plugins["dask-hpc"]
            plugin.context.clock = lambda: now
            ids, futures = {}, []

            def told(decision, job):
                return any(h.decision == decision and h.job == ids[job] for h in plugin.story.happenings)

            for now, what, which in script:  # noqa: B007 (the clock reads it)
                if what == "fail":
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
            names = {job_id: job for job, job_id in ids.items()}

            def named(text):
                for job_id, job in names.items():
                    text = text.replace(job_id, job)
                return text

            assert plugin.errors == 0
            found.extend(decisions(plugin.story, named))

    run()
    return found


@pytest.mark.parametrize(
    ("rows", "failures", "deed"),
    [
        (FIRST, ((20.0, 0),), ("interrupt", "C", 0)),  # of equally small ones the latest
        (MALLEABLE, ((20.0, 1),), ("resize", "B", 1)),  # who can give a node is not stopped
        (MALLEABLE, ((20.0, 3), (40.0, 0)), ("resize", "A", 2)),  # C ends, and A takes its node
        (ALONE, ((20.0, 2), (30.0, 0)), ("interrupt", "B", 0)),
        (LARGE, ((20.0, 0),), ("interrupt", "B", 0)),
    ],
)
def test_same_victims(rows, failures, deed):
    policy = Policy.load("node-stealing").with_(**{"queue.strategy": "fcfs"})
    predicted, ends = simulated(policy, rows, failures)
    assert deed in [(what, job, nodes) for _, what, job, nodes, _ in predicted], predicted
    assert live(policy, rows, ends, failures) == predicted


def test_without_a_failure_strategy_idle_nodes_take_the_place_of_failed_ones():
    predicted, ends = simulated(Policy.load("fcfs"), FIRST, ((20.0, 0),))
    grown = [(time, job, nodes) for time, what, job, nodes, _ in predicted if what == "resize"]
    assert grown == [(64.0, "A", 2)]  # when C has ended, before D starts
    assert live(Policy.load("fcfs"), FIRST, ends, ((20.0, 0),)) == predicted
