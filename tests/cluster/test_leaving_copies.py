"""Copies that a leaving worker keeps of protected results are on others before it goes."""

import asyncio

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.utils_test import async_poll_for, gen_cluster, gen_test
from small_cluster import cluster4, plugin_of
from worker_process import empty_cluster, terminate, worker_process

import dask_hpc
from dask_hpc import malleable
from dask_hpc.checkpoint.scheduler.service import CheckpointService

NAME = "dask-hpc-checkpoint"


def block(i):
    return np.arange(1000) + i


def reasons(s, decision):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision == decision]


class FewestCopies:
    """The fewest agents that any content has had since this began to look."""

    def __init__(self, s):
        self._catalogue = s.plugins[NAME].catalogue
        self.fewest = 10
        lost = self._catalogue.lost

        def look(*args):
            had = lost(*args)
            found = [len(copies.where) for copies in self._catalogue.contents.values()]
            self.fewest = min([self.fewest, *found])
            return had

        self._catalogue.lost = look


async def protected(c, worker):
    futures = c.map(block, range(12), workers=[worker], pure=False, allow_other_workers=True)
    await wait(futures)
    await dask_hpc.protect(futures, name="x", client=c)
    await dask_hpc.protected("x", wait=True, client=c)
    return futures


@cluster4
async def test_retired_workers_are_drained(c, s, a, b, d, e):
    async with await dask_hpc.manage(c):
        futures = await protected(c, a.address)
        seen = FewestCopies(s)
        assert s.plugins[NAME].catalogue.on(b.address)
        assert set(await c.retire_workers([b.address, d.address])) == {b.address, d.address}
        assert seen.fewest == 1
        assert "copies from 2 agents that leave are on others now" in reasons(s, "drain")[0]
        await a.close()
        found = await c.gather(futures)
        assert all(np.array_equal(one, block(i)) for i, one in enumerate(found))
        assert not s.plugins[NAME].errors and not plugin_of(s).errors


@gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"hpc.drain": "100ms"})
async def test_no_longer_than_the_budget(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await protected(c, a.address)

        async def for_ever(addresses):
            await asyncio.Event().wait()

        s.plugins[NAME].drain = for_ever
        assert list(await asyncio.wait_for(c.retire_workers([b.address]), 10)) == [b.address]
        assert len(futures) == 12 and not plugin_of(s).errors


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_errors_of_a_drain_stop_nobody(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await protected(c, a.address)

        async def broken(addresses):
            raise ZeroDivisionError("ours")

        plugin_of(s).context.get(CheckpointService).drain = broken
        assert list(await c.retire_workers([b.address])) == [b.address]
        assert plugin_of(s).errors == 1 and len(futures) == 12
        assert reasons(s, "error") == ["in a departure: ZeroDivisionError: ours"]


@gen_test()
async def test_a_cluster_that_adapts_keeps_the_nodes_that_copies_need():
    quiet = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}
    async with LocalCluster(n_workers=0, **quiet) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster) as manager:
            cluster.adapt(maximum=4, interval="20ms", cool_down=0, idle_grace="50ms")
            futures = c.map(block, range(3), pure=False)
            await wait(futures)
            await dask_hpc.protect(futures, name="x", client=c)
            await dask_hpc.protected("x", wait=True, client=c)
            known = s.plugins[NAME]
            known.choice.wanted = 3
            await async_poll_for(lambda: len(s.workers) == 3, 20)
            where = known.catalogue.where
            await async_poll_for(lambda: all(where(future.key)[1] for future in futures), 20)
            story = await manager.story()
            assert any("copies of results on 3 nodes" in row["reason"] for row in story)
            known.choice.wanted = 2
            await async_poll_for(lambda: len(s.workers) == 2, 20)
            assert (await c.gather(futures))[0][0] == 0
            assert all(where(future.key)[1] for future in futures)


@pytest.mark.slow
def test_a_worker_that_hears_of_its_end_is_drained():
    with empty_cluster() as cluster, Client(cluster) as client:
        s = cluster.scheduler
        with (
            worker_process(cluster, "a", "--no-nanny", fork=True),
            worker_process(cluster, "b") as dying,
            worker_process(cluster, "d", "--no-nanny", fork=True),
        ):
            client.wait_for_workers(3)
            names = {w.name: w.address for w in s.workers.values()}
            with dask_hpc.manage(client):
                futures = client.map(block, range(12), workers=[names["a"]], pure=False)
                wait(futures)
                dask_hpc.protect(futures, name="x", client=client)
                dask_hpc.protected("x", wait=True, client=client)
                assert s.plugins[NAME].catalogue.on(names["b"])
                seen = FewestCopies(s)
                terminate(dying)
                dying.wait(30)
                client.sync(gone, s, names["b"])
                assert seen.fewest == 1 and "leave are on others" in reasons(s, "drain")[0]


async def gone(s, address):
    await async_poll_for(lambda: address not in s.workers, 10)
