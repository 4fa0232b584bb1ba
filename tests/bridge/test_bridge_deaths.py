"""Workers and producers that die, come back, or come late."""

import asyncio

import pytest
from bridge_parts import close, declare, make, plugin_of, put, shelf_of, whole
from distributed import Event, Worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import lose

import dask_hpc

cluster2 = gen_cluster(client=True, nthreads=[("", 1)] * 2)


def held_up(block):
    Event("go").wait(60)
    return block


async def cut_off(bridge):
    """The producer is gone without a word, as a killed process is."""
    bridge._loop.run_sync(abort, bridge)
    bridge._is_closed = True
    await asyncio.to_thread(bridge._loop.stop)


async def abort(bridge):
    bridge._listening.cancel()
    bridge._comm.abort()
    await bridge._pool.close()


@cluster2
async def test_a_worker_dies_with_what_nobody_has_had(c, s, a, b):
    """Steps that wait on it are put again, elsewhere; whoever waited for them never knows."""
    bridge = await declare(s, most_steps=2)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        assert all(await put(bridge, [0, 1]))
        futures = [c.compute(reader.array("t", step).data.sum()) for step in (1, 2)]
        assert await futures[0] == whole(1).sum()
        futures[0].release()  # or its loss would be one more reason to ask for the blocks
        early = c.compute(reader.array("t", 0).data.map_blocks(held_up, dtype=float))
        await async_poll_for(lambda: len(s.workers[b.address].processing) == 2, 10)
        await lose(b)
        await async_poll_for(lambda: plugin_of(s).streams["heat"].workers == (a.address,), 10)
        await Event("go").set()
        assert (await early).sum() == whole(0).sum()
        assert all(await put(bridge, [2]))
        assert await futures[1] == whole(2).sum()
        assert await reader.skipped() == {}
        # what had been consumed there was not put again
        assert {index for _, index in shelf_of(a).steps.get(1, {})} <= {(0,), (1,)}
        await close(bridge)


@cluster2
async def test_what_is_not_kept_is_lost_and_told(c, s, a, b):
    bridge = await declare(s, keep=0)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        assert all(await put(bridge, [0]))
        await async_poll_for(lambda: plugin_of(s).streams["heat"].newest == 0, 10)
        await b.close()
        with pytest.raises(LookupError, match="the worker that had it has died"):
            await c.compute(reader.array("t", 0).data.sum())
        assert list(await reader.skipped()) == [0]
        assert all(await put(bridge, [1]))
        assert await c.compute(reader.array("t", 1).data.sum()) == whole(1).sum()
        await close(bridge)


@cluster2
async def test_a_late_worker_is_used(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        await put(bridge, [0])
        async with Worker(s.address, nthreads=1, name=9) as late:
            await async_poll_for(lambda: late.address in bridge._workers, 10)
            assert await c.compute(reader.array("t", 0).data.sum()) == whole(0).sum()
            await put(bridge, [1])
            assert {index for _, index in shelf_of(late).steps[1]} == {(3,)}
            assert await c.compute(reader.array("t", 1).data.sum()) == whole(1).sum()
        await async_poll_for(lambda: len(bridge._workers) == 2, 10)
        await put(bridge, [2])
        assert await c.compute(reader.array("t", 2).data.sum()) == whole(2).sum()
        await close(bridge)


@cluster2
async def test_blocks_do_not_go_to_a_worker_that_is_paused(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat"):
        await async_poll_for(lambda: len(bridge._workers) == 2, 10)
        s.handle_worker_status_change("paused", a.address, "test")
        await async_poll_for(lambda: bridge._workers == (b.address,), 10)
        s.handle_worker_status_change("running", a.address, "test")
        await async_poll_for(lambda: len(bridge._workers) == 2, 10)
        await close(bridge)


@cluster2
async def test_a_producer_dies_in_mid_step_and_returns(c, s, a, b):
    """It repeats the step, and goes on: every block is there once."""
    one, two = await declare(s, 0), await declare(s, 1)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        futures = [c.compute(reader.array("t", step).data.sum()) for step in range(2)]
        await put(one, [0], [0, 1])
        await put(two, [0], [2])
        await async_poll_for(lambda: plugin_of(s).streams["heat"].newest == 0, 10)
        await cut_off(two)
        producers = plugin_of(s).streams["heat"].producers
        await async_poll_for(lambda: producers[1].comm is None, 10)
        two = await declare(s, 1)
        await put(two, [0, 1], [2, 3])
        await put(one, [1], [0, 1])
        assert await c.gather(futures) == [whole(0).sum(), whole(1).sum()]
        await async_poll_for(lambda: shelf_of(a).has_room() and shelf_of(b).has_room(), 10)
        await close(one, two)


@cluster2
async def test_a_producer_does_not_return(c, s, a, b):
    one = await declare(s, 0, lost_after="0.3s")
    two = await declare(s, 1, lost_after="0.3s")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        whole_step, rest = reader.array("t", 1).data, reader.array("t", 1).data[:8]
        future, other = c.compute(whole_step.sum()), c.compute(rest.sum())
        await put(one, [0], [0, 1])
        await put(two, [0], [2, 3])
        await put(one, [1], [0, 1])
        await cut_off(two)
        with pytest.raises(LookupError, match="producer 1 has gone and did not return in 0"):
            await future
        assert await other == sum(make(i, 1).sum() for i in (0, 1))  # the others' blocks are there
        back = await declare(s, 1, lost_after="0.3s")
        await put(back, [2], [2, 3])
        await put(one, [2], [0, 1])
        assert await c.compute(reader.array("t", 2).data.sum()) == whole(2).sum()
        await close(one, back)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_the_cluster_is_gone(c, s, a, b):
    bridge = await declare(s, timeout="2s")
    await put(bridge, [0])
    await c.close()
    await asyncio.gather(a.close(), b.close())
    await s.close()
    with pytest.raises(dask_hpc.InputError, match=r"gone|no worker"):
        await put(bridge, [1])
    await close(bridge)


@gen_cluster(client=True, nthreads=[])
async def test_no_worker_yet(c, s):
    bridge = await declare(s, timeout="300ms")
    with pytest.raises(dask_hpc.InputError, match="no worker took a block"):
        await put(bridge, [0])
    await close(bridge)
