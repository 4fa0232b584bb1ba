"""Jobs that lose nodes: they run on, are given others, and take them from smaller jobs by policy."""

import pytest
from distributed import Event, wait
from distributed.utils_test import async_poll_for, inc
from small_cluster import blocked, cluster2, cluster4, live, lose, plugin_of, until

import dask_hpc
from dask_hpc.checkpoint.scheduler.controller import NAME

STEAL = "queue: {strategy: fcfs}\nfailure: {strategy: node-stealing, when: %s}"


def told(s, decision):
    return [(h.job, h.reason) for h in plugin_of(s).story.happenings if h.decision == decision]


async def started(c, s, name, nodes, count=1, **more):
    """A running job of tasks that wait for the event of its name."""
    with dask_hpc.job(name, nodes=nodes, **more):
        futures = c.map(blocked, [name] * count, range(count), key=[(name, i) for i in range(count)])
    return futures, await until(s, name, "running")


def a_worker_of(workers, job, at=0):
    return next(w for w in workers if w.address in plugin_of(job[0]).context.nodes.workers(job[1].nodes[at]))


def policy(when="now"):
    return dask_hpc.Policy.parse(STEAL % when)


@cluster4
async def test_a_rigid_job_takes_an_idle_node_for_one_that_failed(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        futures, job = await started(c, s, "big", 3, 6)
        waiting = live_later(c, "next", 1)
        await async_poll_for(lambda: len(told(s, "start")) == 2, 10)
        await Event("next").set()
        await c.gather(waiting)
        await until(s, "next", "done")
        await lose(a_worker_of(workers, (s, job)))
        await async_poll_for(lambda: len(job.nodes) == 3, 10)
        assert told(s, "grow") == [(job.id, "takes 1 idle node for as many that failed")]
        assert plugin_of(s).control.indices.lacking == {}
        await Event("big").set()
        assert len(await c.gather(futures)) == 6


def live_later(c, name, nodes, **more):
    with dask_hpc.job(name, nodes=nodes, **more):
        return c.map(blocked, [name], [0], key=[(name, 0)])


@cluster4
async def test_who_waits_comes_after_a_job_that_lost_a_node(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        futures, job = await started(c, s, "big", 3, 3)
        others, _ = await started(c, s, "small", 1)
        late = live_later(c, "late", 1)
        await lose(a_worker_of(workers, (s, job)))
        await async_poll_for(lambda: plugin_of(s).control.indices.lacking == {job.id: 1}, 10)
        await until(s, "late", "waiting")
        await Event("small").set()
        await async_poll_for(lambda: len(job.nodes) == 3, 10)
        assert live(s, "late").state == "waiting"
        await Event("big").set()
        await Event("late").set()
        await c.gather([*futures, *others, *late])


@cluster4
async def test_a_smaller_rigid_job_is_stopped_and_starts_again(c, s, *workers):
    async with await dask_hpc.manage(c, policy()):
        futures, job = await started(c, s, "big", 3, 3)
        others, small = await started(c, s, "small", 1, 5)
        await lose(a_worker_of(workers, (s, job)))
        await async_poll_for(lambda: len(job.nodes) == 3, 10)
        reason = f"job {job.id} lost a node and lacks 1; this is the smallest job that can help"
        assert told(s, "interrupt") == [(small.id, reason)]
        assert small.state == "waiting" and small.nodes == () and small.ahead == 1
        # one has begun, and ends where it is; what was sent there and has not comes back
        await async_poll_for(
            lambda: [s.tasks[key].state for key in small.unfinished].count("no-worker") == 4, 10
        )
        await Event("big").set()
        await until(s, "small", "running")
        assert small.ahead == 0
        await Event("small").set()
        assert len(await c.gather([*futures, *others])) == 8
        assert plugin_of(s).errors == 0


@cluster4
async def test_a_malleable_job_gives_a_node_instead_of_being_stopped(c, s, *workers):
    async with await dask_hpc.manage(c, policy()):
        futures, job = await started(c, s, "big", 2, 2)
        others, small = await started(c, s, "soft", 2, 2, min_nodes=1, max_nodes=2, kind="malleable")
        await lose(a_worker_of(workers, (s, job)))
        await async_poll_for(lambda: len(small.nodes) == 1 or told(s, "hand-over"), 10)
        await Event("soft").set()
        await async_poll_for(lambda: len(job.nodes) == 2, 10)
        assert told(s, "interrupt") == []
        await Event("big").set()
        await c.gather([*futures, *others])
        why = plugin_of(s).story
        rows = [h for h in why.happenings if h.decision in ("shrink", "grow")]
        assert {why.explanation(row).rule for row in rows if why.explanation(row)} == {
            "failure: node-stealing"
        }


async def kept_once(c, s):
    """Results of the job "small", protected for commits every hour: the first is copied, two wait for
    the event "more", and the last for that of its job."""
    with dask_hpc.job("small", nodes=1):
        results = [c.submit(inc, 1, key="first")]
        results += c.map(blocked, ["more"] * 2, results * 2, key=["more-1", "more-2"])
        results += [c.submit(blocked, "small", results, key="last")]
    await dask_hpc.protect(results, name="kept", every={"partner": "1 h"})
    await async_poll_for(lambda: told(s, "commit"), 10)
    return results, await until(s, "small", "running")


@pytest.mark.parametrize("when", ["next-commit", "forced-commit"])
def test_what_a_victim_has_is_kept_first(when):
    @cluster4
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c, policy(when)):
            futures, job = await started(c, s, "big", 2, 2)
            others, _ = await started(c, s, "third", 1)
            kept, small = await kept_once(c, s)
            controller = s.plugins[NAME]
            protected = controller.protected["kept"]
            await Event("more").set()
            await wait(kept[:3])
            assert protected.as_plain()["copied"] == 1  # the others in an hour, or when all is there
            await lose(a_worker_of(workers, (s, job)))
            indices = plugin_of(s).control.indices
            if when == "next-commit":
                await async_poll_for(lambda: indices.stopping == {small.id: job.id}, 10)
                # its only copy may have been on the node that failed
                assert small.state == "running" and protected.as_plain()["copied"] < 3
                await controller.commit("kept")
            await until(s, "small", "waiting")
            assert protected.as_plain()["copied"] == 3 and indices.stopping == {}
            await async_poll_for(lambda: len(job.nodes) == 2, 10)
            for name in ("big", "third", "small"):
                await Event(name).set()
            await c.gather([*futures, *others, *kept])
            assert plugin_of(s).errors == 0 == controller.errors

    run()


@cluster4
async def test_a_victim_that_is_not_needed_any_more_goes_on(c, s, *workers):
    async with await dask_hpc.manage(c, policy("next-commit")):
        futures, job = await started(c, s, "big", 2, 2)
        others, _ = await started(c, s, "third", 1)
        kept, small = await kept_once(c, s)
        await lose(a_worker_of(workers, (s, job)))
        indices = plugin_of(s).control.indices
        await async_poll_for(lambda: indices.stopping, 10)
        await Event("third").set()  # its node is the one that was lacking
        await async_poll_for(lambda: len(job.nodes) == 2, 10)
        await s.plugins[NAME].commit("kept")  # nothing is new
        await async_poll_for(lambda: not indices.stopping, 10)
        assert small.state == "running" and told(s, "interrupt") == []
        for name in ("big", "more", "small"):
            await Event(name).set()
        await c.gather([*futures, *others, *kept])


@cluster4
async def test_who_kept_all_there_is_stops_at_once(c, s, *workers):
    """No commit is to come: nobody waits for one."""
    async with await dask_hpc.manage(c, policy("next-commit")):
        futures, job = await started(c, s, "big", 2, 2)
        others, _ = await started(c, s, "third", 1)
        with dask_hpc.job("small", nodes=1):
            kept = c.submit(inc, 1, key="kept")
            await wait(kept)
            last = c.submit(blocked, "small", key="last")
        await until(s, "small", "running")
        await dask_hpc.protect(kept, name="kept")
        await dask_hpc.protected("kept", wait=True)
        await lose(a_worker_of(workers, (s, job)))
        await until(s, "small", "waiting")
        assert plugin_of(s).control.indices.stopping == {}
        for name in ("big", "third", "small"):
            await Event(name).set()
        await c.gather([*futures, *others, kept, last])


@cluster2
async def test_who_lost_its_last_node_goes_ahead_of_the_queue(c, s, a, b):
    async with await dask_hpc.manage(c, "slack"):
        first, _ = await started(c, s, "first", 1)
        large = live_later(c, "large", 2)
        await until(s, "large", "waiting")
        late, job = await started(c, s, "late", 1)
        await lose(a_worker_of((a, b), (s, job)))
        await until(s, "late", "waiting")
        indices = plugin_of(s).control.indices
        await async_poll_for(lambda: [one.id for one in indices.waiting][:1] == [job.id], 10)
        assert indices.failed == () and job.ahead == 2
        for name in ("first", "late"):
            await Event(name).set()
        await c.gather([*first, *late])
        del large
