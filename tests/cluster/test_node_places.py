"""Where nodes of a live cluster are: as a file says, or as Slurm tells their workers."""

import os
from unittest.mock import patch

import pytest
from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, live, plugin_of, until

import dask_hpc
from dask_hpc import InputError, Policy
from dask_hpc.checkpoint.scheduler.controller import NAME


def cluster(topology):
    return gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.topology": topology})


def places(s):
    return {name: node.place for name, node in plugin_of(s).control.indices.nodes.items()}


def test_a_file_says_it_and_jobs_are_where_the_policy_wants_them(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text("left: [0, 2]\nright: [1, 3]\n")

    @cluster(str(path))
    async def run(c, s, *workers):
        policy = Policy.load("fcfs").with_(**{"nodes.strategy": "contiguous"})
        async with await dask_hpc.manage(c, policy) as manager:
            await async_poll_for(lambda: places(s)["3"] == ("right",), 10)
            with dask_hpc.job("a", nodes=1):
                one = c.submit(blocked, "a")
            await until(s, "a", "running")
            with dask_hpc.job("b", nodes=2):
                two = c.submit(blocked, "b")
            await until(s, "b", "running")
            assert live(s, "a").nodes == ("0",) and live(s, "b").nodes == ("1", "3")
            status = await manager.status()
            assert [node["place"] for node in status["nodes"]] == [["left"], ["right"]] * 2
            await manager.set(**{"nodes.strategy": "spread"})
            assert type(plugin_of(s).control.indices.picker).__name__ == "SpreadOut"
            await Event("a").set()
            await Event("b").set()
            await c.gather([one, two])
            kept = c.map(str, range(4))
            await dask_hpc.protect(kept, name="kept", client=c)
            agents = s.plugins[NAME].agents
            assert [agents.domain_of(w.address) for w in workers] == ["left", "right"] * 2
            await c.gather(kept)

    run()


@patch.dict(os.environ, {"SLURM_TOPOLOGY_ADDR": "root.leaf.host"})
@cluster("slurm")
async def test_slurm_tells_the_workers(c, s, *workers):
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: set(places(s).values()) == {("root", "leaf")}, 10)
        await workers[0].close()
        await async_poll_for(lambda: len(plugin_of(s).topology._told) == 3, 10)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_nobody_is_asked_if_nobody_wants_to_know(c, s, a, b):
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: "dask-hpc-farewell" in a.plugins, 10)
        assert plugin_of(s).topology._told == {} and set(places(s).values()) == {()}


def test_a_file_that_cannot_be_used_is_told(tmp_path):
    @cluster(str(tmp_path / "none"))
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c) as manager:
            await async_poll_for(lambda: plugin_of(s).story.counts["warning"], 10)
            (row,) = [one for one in await manager.story() if one["decision"] == "warning"]
            assert row["reason"].startswith("hpc.topology: ") and "cannot be read" in row["reason"]
            assert await c.submit(lambda: 1) == 1

    run()


@cluster("slurm")
async def test_what_a_worker_says_is_checked(c, s, *workers):
    async with await dask_hpc.manage(c):
        for wrong in ({"place": "x"}, {"place": [1]}, {"place": [""]}, {"host": 3}, {"place": ["x"] * 21}):
            with pytest.raises(InputError):
                await c.scheduler.hpc_worker_at(**({"address": "a", "host": "h", "place": []} | wrong))
        assert await c.scheduler.hpc_worker_at(address="gone", host="h", place=[]) == "OK"
