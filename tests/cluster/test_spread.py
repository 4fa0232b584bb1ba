"""Data spreads after growth, by itself, and only where it should."""

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager

import dask
import dask.array as da
import pytest
from distributed import Event, Worker, wait
from distributed.utils_test import BlockedGetData, async_poll_for, gen_cluster
from small_cluster import blocked, cluster2, decisions, half_shuffled, live, plugin_of, until

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import spread as live_spread

SUM = sum(range(2000))  # of what 16 chunks hold
cluster1 = gen_cluster(client=True, nthreads=[("", 1)])


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(live_spread, "QUIET", 0.2)


def chunks_on(s, worker, name=None):
    return sum(
        isinstance(key, tuple) and (name is None or key[0] == name)
        for key in compat.keys_on(s, worker.address)
    )


def moved(s):
    return [reason for decision, reason in told(s) if decision == "move"]


def told(s):
    return [(h.decision, h.reason) for h in plugin_of(s).story.happenings]


def is_at_rest(s):
    spreading = plugin_of(s).control.spread
    return not spreading._timer.is_set and not spreading.is_under_way


async def at_rest(s):
    """Nothing to wait for any more. At least one look has been taken since the last growth."""
    await async_poll_for(lambda: is_at_rest(s), 10)


async def persisted(c, chunks=16, **kwargs):
    """An array in chunks of 1 kB."""
    x = c.persist(da.arange(125 * chunks, chunks=125), **kwargs)
    await wait(x)
    return x


@asynccontextmanager
async def joined(s, count, kind=Worker):
    workers = [await kind(s.address, nthreads=1) for _ in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            await worker.close()


@cluster1
async def test_a_new_worker_gets_its_share(c, s, a):
    async with await dask_hpc.manage(c), joined(s, 0):
        x = await persisted(c)
        async with joined(s, 1) as (b,):
            await async_poll_for(lambda: chunks_on(s, b) == 8 == chunks_on(s, a), 5)
            [reason] = await until_moved(s, 1)
            assert reason.startswith("8 results (8 kB) from 1 worker to 1 worker in ")
            assert "data outside of jobs spreads over 2 workers" in reason
            assert "2.0 times an even share" in reason
            # Neighbours are together.
            assert {key[1] for key in compat.keys_on(s, b.address)} in ({*range(8)}, {*range(8, 16)})
            assert (await c.compute(x.sum())) == SUM
            assert decisions(s, "error") == []


async def until_moved(s, count):
    await async_poll_for(lambda: len(moved(s)) >= count, 5)
    return moved(s)


@cluster1
async def test_growth_is_coalesced(c, s, a):
    async with await dask_hpc.manage(c):
        x = await persisted(c, 24)
        async with joined(s, 2) as (b, d):
            await until_moved(s, 1)
            await at_rest(s)
            assert [chunks_on(s, w) for w in (a, b, d)] == [8, 8, 8]
            assert len(moved(s)) == 1
        del x


@cluster1
async def test_only_what_is_worth_it(c, s, a):
    """Nothing that nobody holds, no plain keys, no collection of few blocks."""
    async with await dask_hpc.manage(c):
        few = await persisted(c, 3)
        plain = c.map(int, range(20))
        await wait(plain)
        inner = da.arange(2000, chunks=125) + 1
        waits = c.submit(blocked, "go", c.persist(inner).sum(), workers=[a.address])
        async with joined(s, 1) as (b,):
            await at_rest(s)
            assert not b.data and moved(s) == []
            await Event("go").set()
        del few, waits


@cluster1
async def test_switched_off(c, s, a):
    with dask.config.set({"hpc.spread": False}):
        manager = await dask_hpc.manage(c)
    async with manager:
        x = await persisted(c)
        async with joined(s, 1) as (b,):
            assert is_at_rest(s)
            # Switched on while it runs: the next growth counts.
            await manager.set(**{"settings.spread": True})
            async with joined(s, 1) as (d,):
                await until_moved(s, 1)
                assert chunks_on(s, d) and chunks_on(s, b)  # all are made even, not the newest alone
        del x


@cluster1
async def test_not_while_paused(c, s, a):
    async with await dask_hpc.manage(c) as manager:
        x = await persisted(c)
        plugin_of(s).pause(True)
        async with joined(s, 1) as (b,):
            await async_poll_for(lambda: plugin_of(s).control.spread._timer is not None, 5)
            plugin_of(s).control.spread._look()
            assert not is_at_rest(s) and not b.data
            plugin_of(s).pause(False)
            await async_poll_for(lambda: chunks_on(s, b) == 8, 5)
        del x, manager


@cluster2
async def test_a_job_that_grows(c, s, a, b):
    """Its results spread over its nodes; what is outside of jobs is not pulled there, nor off them."""
    async with await dask_hpc.manage(c, "fcfs-malleable"):
        outside = await persisted(c, 8)
        before = chunks_on(s, a), chunks_on(s, b)
        with dask_hpc.job("m", min_nodes=1, nodes=2, max_nodes=4):
            mine = await persisted(c, 16)
            keep = c.submit(blocked, "go")
        job = await until(s, "m", "running")
        assert sum(chunks_on(s, w, mine.name) for w in (a, b)) == 16
        async with joined(s, 2) as (d, e):
            await async_poll_for(lambda: len(job.nodes) == 4, 5)
            await async_poll_for(lambda: all(chunks_on(s, w, mine.name) == 4 for w in (a, b, d, e)), 5)
            await at_rest(s)
            assert [chunks_on(s, w, outside.name) for w in (a, b, d, e)] == [*before, 0, 0]
            assert all(f"of job {live(s, 'm').id}" in reason for reason in moved(s))
            await Event("go").set()
            await keep


@pytest.mark.slow
@cluster2
async def test_not_during_a_shuffle(c, s, a, b):
    async with await dask_hpc.manage(c):
        x = await persisted(c)
        shuffled = await half_shuffled(c, s)
        async with joined(s, 1) as (d,):
            await async_poll_for(lambda: decisions(s, "spread-waits") != [], 5)
            plugin_of(s).control.spread._look()
            assert decisions(s, "spread-waits") == [("spread-waits", "")]  # said once
            assert not chunks_on(s, d) and not is_at_rest(s)
            await Event("go").set()
            assert await c.compute(shuffled.sum()) == 36
            await async_poll_for(lambda: chunks_on(s, d, x.name) > 0, 5)
            assert not compat.is_shuffling(s)


@cluster1
async def test_closed_in_the_middle(c, s, a):
    manager = await dask_hpc.manage(c)
    x = await BlockedGetData(s.address, nthreads=1, name="x")
    data = await persisted(c, 16, workers=[x.address])
    async with joined(s, 1):
        await x.in_get_data.wait()
        task = plugin_of(s).control.spread._spread
        spreading = plugin_of(s).control.spread
        await manager.close()
        await async_poll_for(task.done, 5)
        assert not spreading._timer.is_set and not spreading.is_under_way
        x.block_get_data.set()
        assert await c.compute(data.sum()) == SUM
        # A second start works, and what is new spreads again.
        async with await dask_hpc.manage(c), joined(s, 1) as (d,):
            await async_poll_for(lambda: chunks_on(s, d) > 0, 5)
    await x.close()


@cluster1
async def test_our_errors_are_counted_not_raised(c, s, a):
    async with await dask_hpc.manage(c):
        x = await persisted(c)
        real = live_spread.spread
        live_spread.spread = lambda *args: 1 / 0
        try:
            async with joined(s, 1):
                await async_poll_for(lambda: plugin_of(s).errors == 1, 5)
                assert any("spreading data: ZeroDivisionError" in reason for _, reason in told(s))
        finally:
            live_spread.spread = real
        assert await c.compute(x.sum()) == SUM


@cluster1
async def test_workers_that_come_and_go(c, s, a):
    """Whoever leaves in the middle takes nothing with it that is nowhere else."""
    async with await dask_hpc.manage(c):
        x = await persisted(c)
        for _ in range(3):
            async with joined(s, 1) as (b,):
                await async_poll_for(lambda: b.data, 5)
        assert await c.compute(x.sum()) == SUM


@gen_cluster(client=True, nthreads=[("", 1)], worker_kwargs={"memory_limit": "16 GiB"})
async def test_many_blocks_are_planned_in_a_thread(c, s, a):
    async with await dask_hpc.manage(c):
        live_spread._MANY, before = 10, live_spread._MANY
        try:
            x = await persisted(c)
            async with joined(s, 1) as (b,):
                await async_poll_for(lambda: chunks_on(s, b) == 8, 5)
        finally:
            live_spread._MANY = before
        del x
        await asyncio.sleep(0)


@pytest.mark.slow
@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    timeout=120,
    config={"distributed.admin.low-level-log-length": 10**6},
)
async def test_growth_and_shrinks_at_random(c, s, a, b):
    """Workers join and are retired at any moment, data spreads and is moved away, tasks run on it:
    nothing is computed twice, and no copy too many stays."""
    dice = random.Random(4)
    async with await dask_hpc.manage(c) as manager:
        x = await persisted(c, 64)
        y = c.persist(x + 1)
        await wait(y)
        extra = []
        for _ in range(15):
            if extra and (len(extra) > 4 or dice.random() < 0.5):
                worker = extra.pop(dice.randrange(len(extra)))
                await c.retire_workers([worker.address])
            else:
                extra.append(await Worker(s.address, nthreads=1))
            total = await c.compute((x[125:] * y[:-125]).sum())
            assert total == sum((i + 125) * (i + 1) for i in range(64 * 125 - 125))
            await asyncio.sleep(dice.random() * 0.6)  # anywhere between growth and the end of the spread
        await async_poll_for(lambda: is_at_rest(s), 20)
        assert decisions(s, "error") == [] and plugin_of(s).status.lost == 0
        assert times_computed(s, [*keys_of(x), *keys_of(y)]) == {1}
        s.extensions["amm"].run_once()
        assert all(len(compat.holders(compat.find_task(s, key))) == 1 for key in [*keys_of(x), *keys_of(y)])
        for worker in extra:
            await worker.close()
        del manager


def keys_of(x):
    return list(x.dask)


def times_computed(s, keys):
    """How often these were sent to a worker, as the scheduler remembers."""
    found = Counter(key for key, _, finish, *_ in s.transition_log if finish == "processing")
    return {found[key] for key in keys}
