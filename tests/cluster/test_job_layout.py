"""A job that has declared a layout has its arrays in it after every change of its size."""

from asyncio import Lock

import dask.array as da
import numpy as np
import pytest
from distributed import Event, Worker, wait
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster2, cluster4, decisions, live, plugin_of, until

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import spread as live_spread
from dask_hpc.model.errors import InputError


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(live_spread, "QUIET", 0.2)


def where(s, x):
    return [compat.holders(compat.find_task(s, (x.name, i))) for i in range(x.npartitions)]


def is_laid_out(s, x, job, layout):
    there, many = where(s, x), len(job.workers)
    if {len(one) for one in there} != {1} or {one[0] for one in there} != job.workers:
        return False
    if layout == "cyclic":
        return all(one == there[i % many] for i, one in enumerate(there))
    share = x.npartitions // many
    return all(one == there[i // share * share] for i, one in enumerate(there))


@pytest.mark.parametrize("layout", ["block", "cyclic"])
def test_growing(layout):
    @cluster2
    async def test(c, s, a, b):
        async with await dask_hpc.manage(c, "fcfs-malleable"):
            with dask_hpc.job("m", min_nodes=1, nodes=2, max_nodes=4, layout=layout):
                x = c.persist(da.arange(1000, chunks=125))
                await wait(x)
                keep = c.submit(blocked, "go")
            job = await until(s, "m", "running")
            async with Worker(s.address, nthreads=1), Worker(s.address, nthreads=1):
                await async_poll_for(lambda: len(job.nodes) == 4, 5)
                await async_poll_for(lambda: is_laid_out(s, x, job, layout), 20)
                assert np.array_equal(await c.compute(x), np.arange(1000))
                reasons = [h.reason for h in plugin_of(s).story.happenings if h.decision == "move"]
                assert any(f"{layout} on 4 workers" in reason for reason in reasons)
                await Event("go").set()
                await keep  # perhaps it is on one of the workers that go now

    test()


@pytest.mark.parametrize("layout", ["block", "cyclic"])
def test_shrinking_and_losing_a_node(layout):
    @cluster4
    async def test(c, s, *workers):
        async with await dask_hpc.manage(c, policy="fpsma-pwma"):
            with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h", layout=layout):
                keep = c.submit(blocked, "go")
                job = await until(s, "m", "running")
                await async_poll_for(lambda: len(job.nodes) == 4, 20)
                await Event("go").set()
                await keep
                x = c.persist(da.arange(1200, chunks=100))
                await wait(x)
                with dask_hpc.job("r", nodes=1, walltime="1h"):
                    other = c.submit(blocked, "r")
                await until(s, "r", "running")
                await async_poll_for(lambda: len(job.nodes) == 3 and is_laid_out(s, x, job, layout), 20)
                await s.remove_worker(next(iter(job.workers)), stimulus_id="test")
                await async_poll_for(lambda: len(job.nodes) == 2 and is_laid_out(s, x, job, layout), 20)
                await Event("r").set()
                await other
                assert np.array_equal(await c.compute(x), np.arange(1200))

    test()


@cluster2
async def test_what_dask_holds_twice_is_laid_out_once(c, s, a, b):
    """Or Dask's memory manager may drop the copy that counts as in place."""
    s.extensions["amm"].stop()
    async with await dask_hpc.manage(c):
        with dask_hpc.job("m", nodes=2, layout="block"):
            x = c.persist(da.arange(1000, chunks=125))
            keep = c.submit(blocked, "go")
            await wait(x)
        job = await until(s, "m", "running")
        for worker in (a, b):
            compat.copy_to(s, worker.address, [(x.name, i) for i in range(4)], "test")
        await async_poll_for(lambda: all(len(there) == 2 for there in where(s, x)[:4]), 5)
        plugin_of(s).control.spread.grown(job.workers)
        await async_poll_for(lambda: is_laid_out(s, x, job, "block"), 10)
        await Event("go").set()
        await keep


class Asked(Lock):
    asked = 0

    async def acquire(self):
        self.asked += 1
        return await super().acquire()


@cluster4
async def test_results_are_moved_by_one_plan_at_a_time(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=4, min_nodes=1, walltime="1h", layout="block"):
            x = c.persist(da.arange(1200, chunks=100))
            await wait(x)
            job = live(s, "m")
            before, job.moving = where(s, x), Asked()
            async with job.moving:  # by us
                plugin_of(s).control.spread.grown(job.workers)
                with dask_hpc.job("r", nodes=1, walltime="1h"):
                    other = c.submit(blocked, "r")
                await async_poll_for(lambda: job.moving.asked == 3, 10)
                assert where(s, x) == before and not decisions(s, "shrink")
            await async_poll_for(lambda: len(job.nodes) == 3 and is_laid_out(s, x, job, "block"), 20)
            await Event("r").set()
            await other


@cluster2
async def test_what_a_job_cannot_declare(c, s, a, b):
    for wrong in ("blocks", "replicated", ["block"], 3):
        with pytest.raises(InputError, match=r"layout: found .*; allowed: block, cyclic"):
            dask_hpc.job("m", layout=wrong)
    async with await dask_hpc.manage(c):
        with dask_hpc.job("m", layout="cyclic"):
            await c.submit(int, 1)
        assert live(s, "m").layout == "cyclic"
        with dask_hpc.job("n"):
            await c.submit(int, 2)
        assert live(s, "n").layout == ""
