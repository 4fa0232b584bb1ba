"""Consumers that are slow: what a producer does then, and what is left of the steps."""

import asyncio
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from bridge_parts import close, declare, known, plugin_of, put, shelf_of, whole
from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc

cluster2 = gen_cluster(client=True, nthreads=[("", 2)] * 2)
STALL = 0.2


def slow(block):
    Event("go").wait(60)
    return block.sum()


def held_up(reader, step):
    """A task for each block that holds it until the event "go"."""
    return reader.array("t", step).data.map_blocks(lambda x: np.array([slow(x)]), chunks=(1,), dtype=float)


@cluster2
async def test_wait(c, s, a, b):
    """The third step waits for room as long as it takes, and nothing is lost."""
    bridge = await declare(s, most_steps=2, stall=STALL)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        futures = [c.compute(held_up(reader, step)) for step in range(4)]
        await known(s, *futures)
        assert all(await put(bridge, [0, 1]))
        third = asyncio.create_task(put(bridge, [2, 3]))
        done, _ = await asyncio.wait([third], timeout=3 * STALL)
        assert not done and [len(shelf_of(worker).steps) for worker in (a, b)] == [2, 2]
        await Event("go").set()
        assert all(await third)
        for step, found in enumerate(await c.gather(futures)):
            assert found.sum() == whole(step).sum()
        assert await reader.skipped() == bridge.skipped == {}
        assert bridge.stalled(2) >= 2 * STALL and bridge.stalled(0) < 2 * STALL
        await close(bridge)


@cluster2
async def test_skip(c, s, a, b):
    """What finds no room in time is dropped on all workers, and those who wait for it are told."""
    bridge = await declare(s, most_steps=2, stall=STALL, when_slow="skip")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        futures = [c.compute(held_up(reader, step)) for step in range(5)]
        await known(s, *futures)
        assert all(await put(bridge, [0, 1]))
        since = monotonic()
        assert not any(await put(bridge, [2, 3]))
        assert monotonic() - since >= 2 * STALL
        assert all(bridge.stalled(step) < STALL + 1 for step in range(4))
        for future in futures[2:4]:
            with pytest.raises(LookupError, match="the consumers were slow: there was no room for 0"):
                await future
        assert [len(shelf_of(worker).steps) for worker in (a, b)] == [2, 2]
        await Event("go").set()
        await c.gather(futures[:2])
        assert all(await put(bridge, [4]))
        assert (await futures[4]).sum() == whole(4).sum()
        assert list(await reader.skipped()) == list(bridge.skipped) == [2, 3]
        await close(bridge)


@cluster2
async def test_a_step_is_dropped_whole(c, s, a, b):
    """One worker has room, the other has not: no half of the step is kept, and the other producer hears."""
    one = await declare(s, 0, most_steps=1, stall=STALL, when_slow="skip")
    two = await declare(s, 1, most_steps=1, stall=STALL, when_slow="skip")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        held = c.compute(held_up(reader, 0)[2:])
        futures = [c.compute(reader.array("t", step).data.sum()) for step in range(2)]
        await async_poll_for(lambda: plugin_of(s)._status()["waiting"] == 8, 10)
        await put(one, [0], [0, 1])
        await async_poll_for(lambda: shelf_of(a).is_consumed(0), 10)
        assert all(await put(one, [1], [0, 1]))
        await put(two, [0], [2, 3])
        assert not any(await put(two, [1], [2, 3]))
        with pytest.raises(LookupError, match="no room"):
            await futures[1]
        await async_poll_for(lambda: 1 not in shelf_of(a).steps and 1 in one.skipped, 10)
        assert await put(one, [1], [0]) == [False]
        await Event("go").set()
        assert await futures[0] == whole(0).sum()
        del held
        await close(one, two)


@cluster2
async def test_subsample(c, s, a, b):
    """After the first step without room only every second one comes, and after the next only every fourth."""
    bridge = await declare(s, most_steps=1, stall=STALL, when_slow="subsample")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        futures = [c.compute(held_up(reader, 0)), c.compute(reader.array("t", 3).data.sum())]
        await known(s, *futures)
        await put(bridge, [0])
        assert await put(bridge, [1], [0]) == [False]
        await async_poll_for(lambda: plugin_of(s).streams["heat"].stride == 2, 10)
        await async_poll_for(lambda: bridge._strides, 10)
        since = monotonic()
        assert await put(bridge, [3], [0]) == [False]
        assert monotonic() - since < STALL and bridge.stalled(3) == 0  # left out without waiting
        await Event("go").set()
        await futures[0]
        assert all(await put(bridge, [4]))
        with pytest.raises(LookupError, match="only every 2nd step came"):
            await futures[1]
        found = await reader.skipped()
        assert list(found) == [1, 2, 3] or list(found) == [1, 3]
        await close(bridge)


@cluster2
async def test_spill(c, s, a, b):
    """What finds no room in memory in time waits in files, and is gone from there in the end."""
    bridge = await declare(s, most_steps=1, stall=STALL, when_slow="spill")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        futures = [c.compute(held_up(reader, step)) for step in range(4)]
        await known(s, *futures)
        assert all(await put(bridge, range(4)))
        in_files = [
            sum(bool(block.path) for block in blocks.values())
            for worker in (a, b)
            for blocks in shelf_of(worker).steps.values()
        ]
        assert in_files == [0, 2, 2, 2] * 2
        files = [path for worker in (a, b) for path in Path(worker.local_directory).rglob("*.npy")]
        assert len(files) == 12
        await Event("go").set()
        for step, found in enumerate(await c.gather(futures)):
            assert found.sum() == whole(step).sum()
        assert await reader.skipped() == {}
        assert not any(path.exists() for path in files)
        await close(bridge)


@cluster2
async def test_what_is_in_files_comes_in_order_after_the_end_too(c, s, a, b):
    bridge = await declare(s, most_steps=1, stall=STALL, when_slow="spill")
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        first = c.compute(held_up(reader, 0))
        await known(s, first)
        assert all(await put(bridge, range(3)))
        await close(bridge)
        stream = plugin_of(s).streams["heat"]
        await async_poll_for(lambda: stream.is_complete, 10)
        futures = [c.compute(reader.array("t", step).data.sum()) for step in (1, 2)]
        none = c.compute(reader.array("t", 3).data.sum())
        with pytest.raises(LookupError, match="the last step was 2"):
            await none
        assert not any(future.done() for future in futures)
        await Event("go").set()
        assert await c.gather(futures) == [whole(1).sum(), whole(2).sum()]
        assert (await first).sum() == whole(0).sum()


@cluster2
async def test_files_of_a_step_that_is_over_are_gone(c, s, a, b):
    """And of a bridge that is closed."""
    bridge = await declare(s, most_steps=1, stall=STALL, when_slow="spill")
    async with await dask_hpc.Bridge.open(c, "heat"):
        assert all(await put(bridge, range(3)))
        folder = Path(a.local_directory)
        assert len(list(folder.rglob("*.npy"))) == 4
        plugin_of(s)._give_up(plugin_of(s).streams["heat"], 1, "a test")
        await async_poll_for(lambda: len(list(folder.rglob("*.npy"))) == 2, 10)
        await close(bridge)
    await async_poll_for(lambda: not list(folder.rglob("*.npy")), 10)


@cluster2
async def test_who_lags_is_let_in(c, s, a, b):
    """A producer that is behind brings its blocks though there is no room: others wait for them."""
    one, two = await declare(s, 0, most_steps=1), await declare(s, 1, most_steps=1)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        future = c.compute(reader.array("t", [0, 1]).data.sum())
        stream = plugin_of(s).streams["heat"]
        await async_poll_for(lambda: len(stream.workers) == 2, 10)
        # The one that leads has put step 1 everywhere before the other comes with step 0.
        ahead = asyncio.create_task(put(one, [1], [0, 2]))
        assert all(await ahead)
        assert all(await put(two, [0]))
        assert all(await put(two, [1], [1, 3]))
        assert await future == whole(0).sum() + whole(1).sum()
        await close(one, two)
