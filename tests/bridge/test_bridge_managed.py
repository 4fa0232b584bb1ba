"""Bridges on a cluster that is managed, adapted, or fails tasks that wait."""

import numpy as np
import pytest
from bridge_parts import close, declare, plugin_of, put, shelf_of, whole
from distributed import Client, LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster, gen_test
from small_cluster import cluster4, decisions, until

import dask_hpc
from dask_hpc.bridge.worker import NAME


@cluster4
async def test_blocks_go_to_the_workers_of_a_job(c, s, *workers):
    """And to others while it has none; its tasks that take blocks are not held up by its gate."""
    async with (
        await dask_hpc.manage(c, "fcfs"),
        await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4, job="front") as reader,
    ):
        stream = plugin_of(s).streams["heat"]
        await async_poll_for(lambda: len(stream.workers) == 4, 10)
        async with dask_hpc.job("front", nodes=2, walltime="1h"):
            futures = [c.compute(reader.array("t", step).data.sum()) for step in range(3)]
            job = await until(s, "front", "running")
            bridge = await declare(s, job="front")
            await put(bridge, [0])  # hears of the job now, if not before
            assert await futures[0] == whole(0).sum()
            await async_poll_for(lambda: set(bridge._workers) == job.workers, 10)
            await put(bridge, [1])
            assert await futures[1] == whole(1).sum()
            assert {w.address for w in workers if 1 in shelf_of(w).steps} == job.workers
            await put(bridge, [2])
            assert await futures[2] == whole(2).sum()
        await until(s, "front", "done")
        assert ("bridge", "") in decisions(s, "bridge")
        await close(bridge)
    assert NAME not in s.plugins


@pytest.mark.slow
@gen_test()
async def test_adapting_keeps_somebody_for_those_who_wait():
    """Tasks that wait for producers are work to come: the last worker stays for them."""
    async with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as c,
        await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4) as reader,
    ):
        s = cluster.scheduler
        future = c.compute(reader.array("t", 0).data.sum())
        await async_poll_for(lambda: plugin_of(s)._status()["waiting"] == 4, 10)
        cluster.adapt(
            Adaptive=dask_hpc.HPCAdaptive, minimum=0, maximum=2, interval="20ms", idle_grace=0, cool_down=0
        )
        await async_poll_for(lambda: len(s.workers) == 1, 20)
        assert s.adaptive_target() == 1  # Dask's own rule, too
        sizing = s.plugins["dask-hpc"].control.sizing
        decide, looks = sizing.decide, []
        sizing.decide = lambda *given: looks.append(len(s.workers)) or decide(*given)
        await async_poll_for(lambda: len(looks) > 20, 20)
        assert set(looks) == {1}
        bridge = await declare(s)
        assert all(await put(bridge, [0]))
        assert await future == whole(0).sum()
        await close(bridge)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_workers_with_blocks_are_not_closed_for_being_idle(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        assert len(s.workers_to_close(n=2)) == 2
        await put(bridge, [0], [0, 1])
        await async_poll_for(lambda: plugin_of(s).streams["heat"].newest == 0, 10)
        (there,) = plugin_of(s)._having_blocks()  # who was ready first has them
        assert s.workers_to_close(n=2) == [one.address for one in (a, b) if one.address != there]
        await put(bridge, [0], [2, 3])
        assert await c.compute(reader.array("t", 0).data.sum()) == whole(0).sum()
        await close(bridge)


@gen_cluster(client=True, nthreads=[("", 1)], config={"distributed.scheduler.no-workers-timeout": "300ms"})
async def test_tasks_may_wait_longer_than_for_workers(c, s, a):
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4) as reader:
        future = c.compute(reader.array("t", 0).data.sum())
        other = c.submit(np.sum, 1, resources={"never": 1})
        await async_poll_for(lambda: other.status == "error", 10)
        bridge = await declare(s)
        await put(bridge, [0])
        assert await future == whole(0).sum()
        await close(bridge)
