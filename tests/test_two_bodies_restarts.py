"""Jobs that are started again on another size, in both bodies; live, after a commit."""

from distributed import Event, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from test_two_bodies import SCALING, decisions, described, live

import dask_hpc
from dask_hpc import Policy, simulate
from dask_hpc.checkpoint.scheduler.controller import NAME
from dask_hpc.cluster.scheduler.service import Service
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, DeclaredCheckpoint

ROWS = [
    ("A", 0.0, 4, 14_400.0, 50_000.0, 1, 4, "moldable, and it commits"),
    ("B", 2000.0, 2, 3600.0, 7200.0),
    ("C", 9000.0, 1, 100.0, 200.0),
]
#: that costs nothing: what is compared is who is restarted, when and why
COMMITS = DeclaredCheckpoint(0.0, 1e9, ("store",))


def test_same_restarts():
    policy = Policy.load("restart-malleable")
    arrivals = [
        Arrival(
            Job(id=row[0], submitted=row[1], **described(row)),
            row[3],
            speedup=SCALING,
            checkpoint=COMMITS if len(row) > 5 else None,
        )
        for row in ROWS
    ]
    result = simulate(arrivals, nodes=4, policy=policy)
    ends = list(zip(result.jobs["end"], result.jobs["id"], strict=True))
    predicted = decisions(result.story)
    resizes = [(time, job, nodes) for time, what, job, nodes, _ in predicted if what == "resize"]
    assert resizes == [(2000.0, "A", 2), (5600.0, "A", 4), (9000.0, "A", 3), (10_800.0, "A", 4)]
    assert live(policy, ROWS, ends, asked=[10_800.0]) == predicted


class SlowToKeep(Service):
    """Keeps results when it is told to."""

    def __init__(self, context):
        super().__init__(context)
        self.asked = []

    def keeps_first(self, is_theirs, at_once, done):
        self.asked.append(done)
        return True


def blocked(x):
    Event("go").wait(60)
    return x


@gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.drain": 0})
async def test_what_is_protected_is_copied_before_it_gives_its_nodes(c, s, *workers):
    policy = Policy.load("restart-malleable").with_(**{"malleability.pause": "0 s"})
    async with await dask_hpc.manage(c, policy):
        plugin = s.plugins["dask-hpc"]
        more = {"min_nodes": 1, "max_nodes": 4, "kind": "moldable", "commits": True, "walltime": "10 h"}
        async with dask_hpc.job("m", nodes=4, **more) as m:
            kept = c.map(inc, range(3), key=[("kept", i) for i in range(3)])
            await wait(kept)
            last = c.submit(blocked, 1, key="last")
            await dask_hpc.protect([*kept, last], name="kept", every={"partner": "1 h"})
            protected = s.plugins[NAME].protected["kept"]
            assert protected.as_plain()["copied"] == 0
            with dask_hpc.job("head", nodes=2, walltime="1 h"):
                head = c.submit(inc, 1)
            assert await head == 2
            assert protected.as_plain()["copied"] == 3
            job = plugin.control.jobs[m.id]
            rows = [
                h for h in plugin.story.happenings if h.job == m.id and h.decision in ("shrink", "hand-over")
            ]
            assert rows[0].reason.startswith("restarted after a commit: gives 2 nodes so that job head-")
            await Event("go").set()
            assert await c.gather([*kept, last]) == [1, 2, 3, 1]
        assert job.failures == 0 == plugin.errors


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_a_job_that_is_over_before_its_commit_changes_no_more(c, s, *workers):
    policy = Policy.load("restart-malleable").with_(**{"malleability.pause": "0 s"})
    async with await dask_hpc.manage(c, policy):
        context, control = s.plugins["dask-hpc"].context, s.plugins["dask-hpc"].control
        slow = SlowToKeep(context)
        context.services.append(slow)
        more = {"min_nodes": 1, "max_nodes": 2, "kind": "moldable", "commits": True, "walltime": "10 h"}
        async with dask_hpc.job("m", nodes=2, **more) as m:
            first = c.submit(blocked, 1, key="last")
            await async_poll_for(lambda: m.id in control.indices.running, 10)
            with dask_hpc.job("head", nodes=1, walltime="1 h"):
                head = c.submit(inc, 1)
            await async_poll_for(lambda: slow.asked, 10)
            assert control.indices.running[m.id].target == 1
            await m.cancel()
        await Event("go").set()  # a thread that works cannot be stopped, and may be the one head is given
        assert await head == 2
        for done in slow.asked:
            done()
        assert m.id not in control.indices.running and s.plugins["dask-hpc"].errors == 0
        del first
