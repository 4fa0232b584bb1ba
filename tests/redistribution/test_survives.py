"""A worker dies in the middle of a redistribution, and in the end everything lies as asked."""

import asyncio

import dask.array as da
import numpy as np
import pytest
from distributed import Event, Nanny, Worker, wait
from distributed.utils_test import BlockedGetData, async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.redistribution.carrier import LostError

quiet = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
three = gen_cluster(client=True, nthreads=[("", 1)] * 3, config=quiet)


def where(s, array):
    return [set(compat.holders(compat.find_task(s, key))) for key in array.__dask_keys__()]


@three
async def test_the_source_dies_while_it_gives(c, s, a, b, d):
    """What it had is computed again elsewhere; with chunks that move, and with chunks that are cut."""
    for number, layout in enumerate(("cyclic", "block-cyclic:7")):
        x = await BlockedGetData(s.address, name=f"x-{layout}")
        array = c.persist(number + da.arange(60, chunks=10), workers=[x.address], allow_other_workers=True)
        await wait(array)
        doing = asyncio.create_task(
            dask_hpc.redistribute(array, workers=[a.address, b.address], layout=layout)
        )
        await x.in_get_data.wait()
        await s.remove_worker(x.address, close=False, stimulus_id="test")
        new = await doing
        assert {frozenset(there) for there in where(s, new)} == {
            frozenset([a.address]),
            frozenset([b.address]),
        }
        assert np.array_equal(await c.compute(new), number + np.arange(60))
        x.block_get_data.set()
        await x.close()


@three
async def test_a_target_dies_and_another_takes_its_place(c, s, a, b, d):
    x = await BlockedGetData(s.address, name="x")
    for number, layout in enumerate(("cyclic", "block-cyclic:7")):
        y = await Worker(s.address, name=f"y-{layout}")
        x.in_get_data.clear()
        x.block_get_data.clear()
        array = c.persist(number + da.arange(60, chunks=10), workers=[x.address])
        await wait(array)
        doing = asyncio.create_task(
            dask_hpc.redistribute(array, workers=[y.address, b.address], layout=layout)
        )
        await x.in_get_data.wait()
        await s.remove_worker(y.address, stimulus_id="test")
        x.block_get_data.set()
        new = await doing
        there = set().union(*where(s, new))
        assert len(there) == 2 and b.address in there and y.address not in there
        assert all(len(one) == 1 for one in where(s, new))
        assert np.array_equal(await c.compute(new), number + np.arange(60))
        await y.close()
        del array, new
    await x.close()


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 4, Worker=Nanny, timeout=60, config=quiet)
async def test_a_process_is_killed(c, s, *nannies):
    """It had results, and was to get others."""

    def late(block):
        Event("go").wait(30)
        return block

    plain = np.arange(4000.0).reshape(40, 100)
    array = c.persist(da.from_array(plain, chunks=(4, 25)).map_blocks(late, dtype=float))
    doing = asyncio.create_task(dask_hpc.redistribute(array, 3, layout="block-cyclic:3"))
    await Event("go").set()
    await async_poll_for(lambda: any("redistributed-" in str(key) for key in s.tasks), 20)
    victim = next(address for address in s.workers)
    await c._run(lambda: __import__("os")._exit(1), workers=[victim], on_error="ignore")
    new = await doing
    keys = [key for row in new.__dask_keys__() for key in row]
    there = {w for key in keys for w in compat.holders(compat.find_task(s, key))}
    assert len(there) == 3
    assert np.array_equal(await c.compute(new), plain)


@three
async def test_a_chunk_that_is_lost_later_is_computed_again(c, s, a, b, d):
    array = c.persist(da.arange(30, chunks=10))
    new = await dask_hpc.redistribute(array, workers=[a.address, b.address], layout="block-cyclic:7")
    del array
    await s.remove_worker(a.address, stimulus_id="test")
    await s.remove_worker(b.address, stimulus_id="test")
    assert np.array_equal(await c.compute(new), np.arange(30))


@three
async def test_scattered_data_that_is_lost_is_said_to_be(c, s, a, b, d):
    x = await BlockedGetData(s.address, name="x")
    future = await c.scatter(np.ones(100), workers=[x.address])
    array = da.from_delayed(future, (100,), float)
    array = c.persist(array, workers=[x.address])
    await wait(array)
    doing = asyncio.create_task(dask_hpc.redistribute(array, workers=[a.address, b.address]))
    await x.in_get_data.wait()
    await s.remove_worker(x.address, close=False, stimulus_id="test")
    with pytest.raises(LostError, match="lost"):
        await doing
    assert "dask-hpc-redistribution" not in s.plugins
    x.block_get_data.set()
    await x.close()


@three
async def test_nothing_can_take_the_place_of_a_worker(c, s, a, b, d):
    x = await BlockedGetData(s.address, name="x")
    array = c.persist(da.arange(60, chunks=10), workers=[x.address])
    await wait(array)
    await d.close()
    await b.close()
    doing = asyncio.create_task(dask_hpc.redistribute(array, workers=[x.address, a.address], layout=[20, 40]))
    await x.in_get_data.wait()
    await s.remove_worker(a.address, stimulus_id="test")
    with pytest.raises(RuntimeError, match="nothing can take its place"):
        await doing
    x.block_get_data.set()
    await x.close()
