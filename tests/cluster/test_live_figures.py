"""Figures of a managed cluster: what waits, what is used, and what the phases of a change of size take."""

from unittest import mock

import dask.array as da
import pytest
from distributed import Event, Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, cluster4, live, lose, plugin_of, until

import dask_hpc
from dask_hpc.cluster.scheduler import hand_over, spread
from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.planning.figures import PHASES, SizeChange


def later(s):
    """A clock that jumps when it is told to, and else hardly goes."""
    context, jumps = plugin_of(s).context, []
    before = context.clock
    context.clock = lambda: before() + sum(jumps)
    return jumps.append


def slow(module, jump, seconds):
    """Results take so long to move."""
    plain = module.carry_out

    async def carry_out(*args, **more):
        jump(seconds)
        return await plain(*args, **more)

    return mock.patch.object(module, "carry_out", carry_out)


@cluster4
async def test_phases_of_a_shrink(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as manager:
        jump = later(s)
        async with dask_hpc.job("m", nodes=4, min_nodes=1, max_nodes=4, kind="evolving"):
            results = c.map(inc, range(40))
            await wait(results)
            m = live(s, "m")
            futures = c.map(blocked, ["go"] * 4, range(4))
            await async_poll_for(lambda: all(w.state.executing_count for w in workers), 10)
            plugin_of(s).control.lifecycle.ask(m, -3)
            jump(1000)  # before the decision
            await async_poll_for(lambda: plugin_of(s).control.indices.running[m.id].target, 10)
            with slow(hand_over, jump, 10):
                jump(100)
                await Event("go").set()
                await wait(futures)
                await async_poll_for(lambda: len(m.nodes) == 1, 10)
        await until(s, "m", "done")
        status = await manager.status()
        (job,) = status["jobs"]
        found = job["adaptation"]
        assert (found["from"], found["to"]) == (4, 1)
        assert 1000 <= found["decision"] < 1010 and 100 <= found["drain"] < 110, found
        assert 10 <= found["move"] < 40 and found["move"] % 10 < 9, "once for each time it moved anything"
        assert found["total"] == pytest.approx(sum(found[phase] for phase in PHASES if phase != "total"))
        changes = status["figures"]["adaptation"]
        assert changes["grow"]["count"] == 0 and changes["grow"]["total"]["mean"] is None
        assert changes["shrink"]["count"] == 1
        for phase in PHASES:
            assert set(changes["shrink"][phase].values()) == {found[phase]}
        row = next(row for row in await manager.story() if row["decision"] == "shrink")
        assert "its tasks there ended in 1.7 min, its results moved in" in row["reason"]
        assert job["waited"] < 10 < 1100 < job["response"] < status["time"]


@cluster2
async def test_what_spreads_after_growth_counts_as_a_move(c, s, a, b):
    async with await dask_hpc.manage(c, "fcfs") as manager:
        jump = later(s)
        with slow(spread, jump, 7), mock.patch.object(spread, "QUIET", 0.01):
            async with dask_hpc.job("m", nodes=1, min_nodes=1, max_nodes=2, kind="evolving") as m:
                x = c.persist(da.ones(20, chunks=1))
                await wait(x)
                await m.request(+1)

                def changes():
                    return plugin_of(s).context.get(Figures).as_status()["adaptation"]["grow"]

                await async_poll_for(lambda: changes()["move"]["last"], 10)
            found = changes()
            m_job = live(s, "m")
            m_job.figures.adaptation = SizeChange(2, 1)  # another change is under way, and not counted yet
            plugin_of(s).context.get(Figures).spread(m_job, 3.0)
            assert (
                plugin_of(s).context.get(Figures).as_status()["adaptation"]["shrink"]["move"]["last"] is None
            )
            assert found["count"] == 1 and found["drain"]["last"] == 0
            assert 7 <= found["move"]["last"] < 9 and found["decision"]["last"] < 2
            parts = sum(found[phase]["last"] for phase in ("move", "decision", "window"))
            assert found["total"]["largest"] == pytest.approx(parts)
        assert (await manager.status())["figures"]["adaptation"]["shrink"]["count"] == 0


@gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"hpc.drain": 0})
async def test_what_is_used_of_nodes_that_come_and_go(c, s, *workers):
    """With a clock that stands still between events: 10 s each."""
    async with await dask_hpc.manage(c, "fcfs"):
        context = plugin_of(s).context
        now = [0.0]
        context.clock = lambda: now[0]
        figures = context.get(Figures)

        def used():
            found = figures.as_status()
            return found["node_seconds_used"], found["node_seconds"]

        async with Worker(s.address):  # comes and goes before the first job: until then nothing counts
            await async_poll_for(lambda: figures.run.there == 4, 10)
        await async_poll_for(lambda: figures.run.there == 3, 10)
        now[0] = 50.0
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=2):
            future = c.submit(blocked, "go")
        m = await until(s, "m", "running")
        with dask_hpc.job("r", nodes=2):
            other = c.submit(inc, 1)
        await until(s, "r", "waiting")
        now[0] = 60.0
        assert used() == (20, 30)
        victim = next(w for w in workers if w.address in m.workers)
        await lose(victim)  # m goes on with one of two
        await async_poll_for(lambda: len(m.nodes) == 1 and figures.run.there == 2, 10)
        now[0] = 70.0
        assert used() == (30, 50)
        await lose(next(w for w in workers if w.address in m.workers))  # and waits again
        await async_poll_for(lambda: figures.run.there == 1, 10)
        now[0] = 80.0
        assert used() == (30, 60) and live(s, "m").figures.waited == 0
        plugin_of(s).calls.cancel(m.id)
        plugin_of(s).calls.cancel(live(s, "r").id)
        found = figures.as_status()
        assert (found["cancelled"], found["completed"]) == (2, 0)
        assert (found["mean_wait"], found["mean_response"]) == (0, 30), "r never ran"
        assert found["utilisation"] == 0.5
        del future, other
    assert used() == (30, 60)
    now[0] = 200.0
    assert used() == (30, 60), "control is off"


@cluster2
async def test_more_work_after_the_end_and_the_job_has_not_ended(c, s, a, b):
    async with await dask_hpc.manage(c, "fcfs") as manager:
        with dask_hpc.job("m", nodes=1) as m:
            await c.submit(inc, 1)
        job = await until(s, "m", "done")
        assert (await manager.status())["figures"]["completed"] == 1
        plugin_of(s).control.graph_arrives(c.id, {"id": m.id, "name": "m", "nodes": 1}, [])
        figures = plugin_of(s).context.get(Figures)
        assert figures.run.completed == 0 and job.figures.response is None
        await until(s, "m", "done")
