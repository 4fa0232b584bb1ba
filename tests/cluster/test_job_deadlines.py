"""Deadlines and values of live jobs: they reach the policy, and nobody is stopped for one."""

import re

import pytest
from distributed import Event
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster2, live, plugin_of, until

import dask_hpc
from dask_hpc import InputError, Policy


def told(s, decision):
    return [(h.job, h.reason) for h in plugin_of(s).story.happenings if h.decision == decision]


@cluster2
async def test_they_reach_the_policy_counted_from_the_submission(c, s, a, b):
    async with await dask_hpc.manage(c, "slack"):
        plugin_of(s).context.clock = lambda: 100.0
        with dask_hpc.job("first", nodes=2):
            first = c.submit(blocked, "first")
        await until(s, "first", "running")
        others = []
        for name, deadline in (("late", "3h"), ("early", "1h")):
            with dask_hpc.job(name, deadline=deadline, soft_deadline="20 min", value=3, walltime="10 min"):
                others.append(c.submit(blocked, name, key=name))
        await until(s, "early", "waiting")
        model = live(s, "early").model
        assert (model.deadline, model.soft_deadline, model.value) == (3700.0, 1300.0, 3)
        assert [job.id for job in plugin_of(s).control.indices.waiting] == [
            live(s, "early").id,
            live(s, "late").id,
        ]
        await Event("first").set()
        await first
        await until(s, "late", "running")
        assert [job for job, _ in told(s, "start")] == [live(s, n).id for n in ("first", "early", "late")]
        await Event("early").set()
        await Event("late").set()
        await c.gather(others)


@cluster2
async def test_a_deadline_that_is_over_is_told_once_and_the_job_goes_on(c, s, a, b):
    async with await dask_hpc.manage(c, "slack"):
        with dask_hpc.job("x", deadline="50 ms"):
            future = c.submit(blocked, "x")
        await async_poll_for(lambda: told(s, "deadline"), 10)  # nothing else wakes anybody
        job = live(s, "x")
        assert told(s, "deadline") == [(job.id, "its deadline is over, with 1 tasks that are not done")]
        assert job.state == "running"
        await Event("x").set()
        await future
        await until(s, "x", "done")
        assert len(told(s, "deadline")) == 1


@cluster2
async def test_a_policy_that_may_give_up_does(c, s, a, b):
    policy = Policy.load("slack").with_(**{"queue.drop": True})
    async with await dask_hpc.manage(c, policy) as manager:
        with dask_hpc.job("first", nodes=2):
            first = c.submit(blocked, "first")
        await until(s, "first", "running")
        with dask_hpc.job("hopeless", deadline="1h", walltime="2h"):
            future = c.submit(blocked, "hopeless", key="hopeless")
        job = await until(s, "hopeless", "done")
        ((dropped, reason),) = told(s, "drop")
        assert dropped == job.id
        assert re.fullmatch("given up, with 1 tasks: would miss its deadline by 60.0 min at least", reason)
        await async_poll_for(lambda: future.status == "cancelled", 10)
        row = next(row for row in await manager.story() if row["decision"] == "drop")
        assert row["rule"] == "queue: slack"
        await Event("first").set()
        await first


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"deadline": "soon"}, "job 'x': deadline: "),
        ({"deadline": 0}, "job 'x': deadline: found 0.0; allowed: later than its submission"),
        (
            {"deadline": "1h", "soft_deadline": "2h"},
            "soft_deadline: found 7200.0; allowed: no later than its",
        ),
        ({"value": -1}, "job 'x': value: found -1; allowed: a number, 0 or more"),
        ({"value": float("nan")}, "job 'x': value: found nan"),
    ],
)
def test_what_cannot_be_is_said_where_it_is_said(fields, message):
    with pytest.raises(InputError, match=re.escape(message)):
        dask_hpc.job("x", **fields)
