"""On a managed cluster a redistribution stays within the nodes of the job that the results belong to."""

import asyncio

import dask.array as da
import numpy as np
import pytest
from distributed import Event, wait
from small_cluster import blocked, cluster4, live, plugin_of, until

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError


def places(s, array):
    keys = [(array.name, i) for i in range(array.npartitions)]
    return {where for key in keys for where in compat.holders(compat.find_task(s, key))}


@cluster4
async def test_results_of_a_job_stay_on_its_nodes(c, s, *workers):
    async with await dask_hpc.manage(c):
        outside = c.persist(da.arange(40, chunks=5) + 1)
        await wait(outside)
        async with dask_hpc.job("a", nodes=2):
            x = c.persist(da.arange(40, chunks=5))
            await wait(x)
            job = live(s, "a")
            for layout in ("cyclic", "block-cyclic:7"):  # in the context of the job, where tasks are its own
                y = await dask_hpc.redistribute(x, layout=layout)
                assert places(s, y) == set(job.workers)
                assert np.array_equal(await c.compute(y), np.arange(40))
            for layout in ("cyclic", "block-cyclic:7"):
                one = await dask_hpc.redistribute(outside, layout=layout)
                assert places(s, one) == set(s.workers) - set(job.workers)
            with pytest.raises(InputError, match="from 1 to 2"):
                await dask_hpc.redistribute(x, 3)
            story = [one for one in plugin_of(s).story.happenings if one.decision == "move"]
            assert any("cyclic on 2 nodes" in one.reason for one in story)
        await until(s, "a", "done")
        y = await dask_hpc.redistribute(x, layout="block-cyclic:3")  # nobody's any more
        assert places(s, y) == set(s.workers)
        assert np.array_equal(await c.compute(y), np.arange(40))


@cluster4
async def test_a_job_that_waits_is_waited_for(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("first", nodes=3):
            f = c.submit(blocked, "go")
            await until(s, "first", "running")
        async with dask_hpc.job("second", nodes=2):
            x = da.arange(40, chunks=5)
            doing = asyncio.create_task(dask_hpc.redistribute(x, layout="block-cyclic:7"))
            await until(s, "second", "waiting")
            await Event("go").set()
            y = await doing
            assert places(s, y) == set(live(s, "second").workers)
            assert np.array_equal(await c.compute(y), np.arange(40))
        await f
