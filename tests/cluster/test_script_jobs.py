"""Clients of a script: what they submit outside of jobs belongs to one job, which gives way when idle."""

import pytest
from distributed import Client, Event
from distributed.utils_test import async_poll_for, inc
from small_cluster import blocked, cluster2, cluster4, decisions, live, plugin_of, until

import dask_hpc
from dask_hpc.cluster.request import make_request

REQUEST = {"id": "script-1", **make_request("script", nodes=1, min_nodes=1, max_nodes=2)}


async def works_for(client, request=REQUEST):
    await client.scheduler.hpc_script(client=client.id, request=request)


@cluster4
async def test_all_outside_of_jobs_is_one_job(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"), Client(s.address, asynchronous=True) as other:
        await works_for(c)
        await works_for(other)
        f = c.submit(blocked, "go")  # it would give way to the other job if it had nothing to run
        g = other.submit(inc, 2)
        async with dask_hpc.job("own", nodes=2, client=c):
            h = c.submit(inc, 3)
        assert await h == 4
        await Event("go").set()
        assert await g == 3
        assert {job.name for job in plugin_of(s).control.jobs.values()} == {"script", "own"}
        assert {job.script for job in plugin_of(s).control.jobs.values()} == {"script-1"}
        job = live(s, "script")
        assert job.clients == {c.id, other.id} and job.state == "running" and len(job.nodes) == 1
        await f
        f = c.submit(inc, 10)
        await f
        assert decisions(s, "submit", "start", "end").count(("submit", "script-1")) == 1
        await other.close()
        assert job.state == "running"


@cluster4
async def test_the_job_ends_with_its_last_client_and_comes_back_with_the_next(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        for number in range(2):
            async with Client(s.address, asynchronous=True, set_as_default=False) as other:
                await works_for(other)
                assert await other.submit(inc, number) == number + 1
                assert await other.submit(inc, number + 10) == number + 11
                assert live(s, "script").state == "running"
            await until(s, "script", "done")
        kinds = [decision for decision, job in decisions(s, "submit", "start", "end")]
        assert kinds == ["submit", "start", "end"] * 2
        assert not plugin_of(s).control.lifecycle.script_of


@cluster2
async def test_an_idle_script_does_not_give_way_to_a_job_that_is_not_to_start(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as manager:
        await works_for(c, REQUEST | {"nodes": 2})
        f = c.submit(blocked, "go")
        async with dask_hpc.job("own", nodes=2, client=c):
            g = c.submit(inc, 1)
        own = await until(s, "own", "waiting")
        await manager.hold_job(own.id)
        await Event("go").set()
        await f
        assert await c.submit(inc, 2) == 3
        assert not decisions(s, "end")
        await manager.release_job(own.id)
        assert await g == 2


@cluster2
async def test_an_idle_script_gives_way_to_its_own_jobs_and_goes_on_after_them(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        await works_for(c, REQUEST | {"nodes": 2})
        kept = c.submit(inc, 1)
        assert await kept == 2
        async with dask_hpc.job("own", nodes=2, client=c):
            inner = c.submit(inc, kept)  # would wait for ever if the script kept its nodes
            assert await inner == 3
        assert await c.submit(inc, inner) == 4
        rows = [(d, j.partition("-")[0]) for d, j in decisions(s, "start", "end")]
        assert rows[:4] == [("start", "script"), ("end", "script"), ("start", "own"), ("end", "own")]
        assert rows[4] == ("start", "script")


@cluster2
async def test_a_busy_script_does_not_give_way(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        await works_for(c, REQUEST | {"nodes": 2})
        f = c.submit(blocked, "go")
        await until(s, "script", "running")
        async with dask_hpc.job("other", nodes=2, client=c):
            g = c.submit(inc, 1)
        await until(s, "other", "waiting")
        assert live(s, "script").state == "running"
        await Event("go").set()
        await f
        assert await g == 2


@cluster2
async def test_arguments_are_checked(c, s, *workers):
    async with await dask_hpc.manage(c):
        for client, request in ((3, REQUEST), ("nobody", REQUEST), (c.id, {"id": "x"}), (c.id, None)):
            with pytest.raises(dask_hpc.InputError):
                await c.scheduler.hpc_script(client=client, request=request)
        assert not plugin_of(s).control.lifecycle.script_of


@cluster2
async def test_lost_results_are_counted_and_told(c, s, a, b):
    async with await dask_hpc.manage(c) as m:
        futures = c.map(inc, range(6), workers=[a.address])
        data = await c.scatter([1, 2], workers=[a.address])
        await c.gather(futures)
        assert (await m.status())["results_lost"] == 0
        await s.remove_worker(a.address, stimulus_id="as if it had died")
        await async_poll_for(lambda: plugin_of(s).status.lost, 10)
        assert (await m.status())["results_lost"] == 8
        (row,) = [row for row in await m.story() if row["decision"] == "lost"]
        assert "6 results are computed again, 2 scattered ones are gone" in row["reason"]
        del data
