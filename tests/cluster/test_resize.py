"""Malleable jobs on a live cluster grow and shrink as the policy decides."""

from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, cluster4, live, plugin_of, until, where

import dask_hpc


def sizes(s, name):
    """Every size the job had, in order."""
    job = live(s, name).id
    happenings = plugin_of(s).story.happenings
    return [len(h.nodes) for h in happenings if h.job == job and h.decision in ("start", "grow", "shrink")]


def addresses(s, job):
    nodes = plugin_of(s).control.nodes
    return {address for name in job.nodes for address in nodes.workers(name)}


@gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.drain": 0})
async def test_grows_when_alone_and_shrinks_for_the_next(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m_blocked = c.submit(blocked, "m-go", key="m-blocked")
            m = await until(s, "m", "running")
            await async_poll_for(lambda: len(m.nodes) == 4, 10)
            with dask_hpc.job("r", nodes=3, walltime="1h"):
                r_blocked = c.map(blocked, ["r-go"] * 6, range(6), pure=False)
            r = await until(s, "r", "running")
            assert sizes(s, "m") == [2, 4, 1] and sizes(s, "r") == [3]
            m_nodes, r_nodes = addresses(s, m), addresses(s, r)
            assert not m_nodes & r_nodes and len(m_nodes | r_nodes) == 4
            spread = c.map(where, range(8), pure=False)
            await Event("m-go").set()  # m's first task may sit on a node that m has given up
            assert set(await c.gather(spread)) <= m_nodes
            await Event("r-go").set()
            assert set(await c.gather(r_blocked)) <= r_nodes
            await until(s, "r", "done")
            await async_poll_for(lambda: len(m.nodes) == 4, 10)
        await m_blocked
        await until(s, "m", "done")
    assert not any(task.worker_restrictions for task in s.tasks.values())


@cluster4
async def test_status_and_story_tell_of_resizes(c, s, *workers):
    async with await dask_hpc.manage(c, policy="egs-pwma") as manager:
        with dask_hpc.job("m", nodes=1, min_nodes=1, max_nodes=4, walltime="1h"):
            future = c.submit(blocked, "go")
            m = await until(s, "m", "running")
            await async_poll_for(lambda: len(m.nodes) == 4, 10)
        status = await manager.status()
        assert [len(job["nodes"]) for job in status["jobs"]] == [4]
        assert {node["job"] for node in status["nodes"]} == {m.id}
        rows = [row for row in await manager.story() if row["decision"] == "grow"]
        assert rows and all(row["reason"] and row["nodes"] for row in rows)
        await Event("go").set()
        await future


@cluster4
async def test_rigid_jobs_are_left_alone(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("r", nodes=2, walltime="1h"):
            future = c.submit(blocked, "go")
        await until(s, "r", "running")
        assert sizes(s, "r") == [2]
        await Event("go").set()
        await future
        await until(s, "r", "done")
