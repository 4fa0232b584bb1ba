"""Slow nodes in virtual time: stages end sooner, the node is named, and equal nodes are left alone."""

import asyncio
import time

import pytest
from distributed import get_worker

import dask_hpc

SLOW = "w1"


def slept(i, seconds, times):
    """A task of one stage; on one worker it takes so many times as long."""
    time.sleep(seconds * (times if get_worker().name == SLOW else 1))
    return i


async def stages(client, steps, each, times, seconds=1.0):
    for step in range(steps):
        numbers = range(step * each, (step + 1) * each)
        futures = client.map(slept, numbers, seconds=seconds, times=times)
        assert await client.gather(futures) == list(numbers)


async def stories(manager, word):
    return [row for row in await manager.story() if row["decision"] == word]


def seconds_of(virtual_cluster, policy, times, steps=20, each=4, seconds=1.0):
    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy) as manager:
            began = cluster.time()
            await stages(client, steps, each, times, seconds)
            took = cluster.time() - began
            await asyncio.sleep(30)
            told = (await manager.status())["backup"]
            assert told["running"] == 0 and (await manager.status())["errors"] == 0
            named = [node for row in await stories(manager, "slow-node") for node in row["nodes"]]
            prefix = cluster.scheduler.task_prefixes["slept"]
            assert prefix.state_counts["memory"] == steps * each
            return took, told, named

    return virtual_cluster(main, workers=4)


@pytest.mark.slow
def test_stages_end_sooner(virtual_cluster):
    plain, nothing, unnamed = seconds_of(virtual_cluster, "easy-backfill", 5)
    ours, told, named = seconds_of(virtual_cluster, "backup-tasks", 5)
    assert plain / ours > 1.5
    assert nothing["made"] == 0 and unnamed == []
    assert told["first"] > 0 and set(named) == {SLOW}


@pytest.mark.parametrize(
    "seconds, each", [(1.0, 4), (0.05, 40), (0.12, 42)], ids=["alone", "behind others", "unevenly"]
)
def test_equal_nodes_are_left_alone(virtual_cluster, seconds, each):
    """Also if tasks wait behind others on their workers, and are as short as the time between two looks."""
    plain, _, _ = seconds_of(virtual_cluster, "easy-backfill", 1, 5, each, seconds)
    ours, told, named = seconds_of(virtual_cluster, "backup-tasks", 1, 5, each, seconds)
    assert ours / plain < 1.01
    assert told["made"] == 0 and named == []


def test_a_slow_node_is_named_held_and_tried_again(virtual_cluster):
    async def main(cluster):
        client = await cluster.client()
        policy = dask_hpc.Policy.load("backup-tasks").with_(**{"tail.hold": True})
        async with await dask_hpc.manage(client, policy) as manager:
            await stages(client, 1, 60, 3)
            await asyncio.sleep(5)
            (row,) = await stories(manager, "slow-node")
            assert row["nodes"] == [SLOW] and row["reason"].startswith("takes 3.0 times as long as others")
            (held,) = (await manager.status())["holds"]
            assert held["why"] == ["slow"]
            (known,) = (await manager.status())["backup"]["slow_nodes"]
            assert known["node"] == SLOW and 2.9 < known["ratio"] < 3.1
            await asyncio.sleep(130)
            assert (await manager.status())["holds"] == []
            assert (await stories(manager, "slow-node"))[-1]["reason"] == "is not known to be slow any more"
            assert (await manager.status())["backup"]["slow_nodes"] == []

    virtual_cluster(main, workers=4)
