"""Nodes that a service has for itself, on clusters that grow and shrink, and in plans that are only told."""

from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for, gen_test, inc, slowinc
from small_cluster import blocked, cluster4, looks, plugin_of, until

import dask_hpc
from dask_hpc import malleable
from dask_hpc.model.lending import NodeDesk, NodeRequest
from dask_hpc.model.node import NodeWish

QUIET = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}


def ask(s, count):
    wish = NodeWish(count, True, "a test wants them")
    plugin_of(s).context.get(NodeDesk).receive(NodeRequest("checkpoint", wish))


def lent(s):
    return plugin_of(s).context.indices.lent


@gen_test()
async def test_an_adaptive_cluster_keeps_them_and_new_nodes_serve_who_asked():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster, policy="favor-checkpoints") as manager:
            ask(s, 2)
            adaptive = cluster.adapt(
                minimum=1, maximum=4, interval="20ms", cool_down=0, idle_grace="0s", target_duration="10ms"
            )
            futures = c.map(slowinc, range(12), delay=0.05, pure=False)
            await async_poll_for(lambda: len(lent(s)) == 2, 20)
            assert await c.gather(futures) == [x + 1 for x in range(12)]
            await async_poll_for(lambda: len(s.workers) == 3, 20)
            await looks(adaptive, 3)
            there = {str(worker.name) for worker in s.workers.values()}
            assert lent(s) < there and len(there) == 3, "and one that works"
            ranked = plugin_of(s).control.sizing.rank({name: [name] for name in there})
            assert ranked[0] not in lent(s)
            assert len((await manager.give_back(1))["nodes"]) == 1
            await async_poll_for(lambda: len(s.workers) == 2, 20)
            assert len(lent(s)) == 1


@cluster4
async def test_a_preview_and_a_dry_run_do_nothing(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs") as manager:
        with dask_hpc.job("a", nodes=4, min_nodes=1, max_nodes=4, kind="malleable"):
            future = c.submit(blocked, "go", pure=False)
        job = await until(s, "a", "running")
        ask(s, 1)
        rows = await manager.preview("favor-checkpoints")
        assert [(row["decision"], row["job"], row["nodes"]) for row in rows] == [
            ("resize", job.id, 3),
            ("lend", "", 1),
        ]
        assert len(job.nodes) == 4 and not lent(s)
        await Event("go").set()
        await future
    async with await dask_hpc.manage(c, policy="favor-checkpoints", dry_run=True) as manager:
        ask(s, 2)
        await async_poll_for(lambda: len(lent(s)) == 2, 5)
        assert not (await manager.status())["holds"]
        assert await c.submit(inc, 1, workers=[workers[0].address]) == 2
        assert len((await manager.give_back(1))["nodes"]) == 1
        assert not plugin_of(s).errors
