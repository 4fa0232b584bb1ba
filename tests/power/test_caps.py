"""Fewer threads: both sides agree, what runs goes on, and all is as it was when the cap ends."""

import asyncio

import pytest
from distributed import Event, Nanny, Worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, plugin_of, power_of

import dask_hpc
from dask_hpc.model.plan import Cap, Hold, Plan

wide = gen_cluster(client=True, nthreads=[("", 4), ("", 2)], timeout=60)


def cap(s, threads):
    """As a policy's plan would."""
    control = plugin_of(s).control
    plan = Plan(control.indices.revision, control.indices.now, cap=Cap(threads, None, "a test wants it"))
    power_of(s).levers.pull(plan)


async def threads(s, *workers):
    """What workers use, once they have heard of it; the scheduler agrees."""
    await power_of(s).levers.share.settle()
    return agreed(s, *workers)


def agreed(s, *workers):
    found = [worker.state.nthreads for worker in workers]
    assert found == [s.workers[worker.address].nthreads for worker in workers]
    assert s.total_nthreads == sum(worker.nthreads for worker in s.workers.values())
    assert s.host_info["127.0.0.1"]["nthreads"] == s.total_nthreads
    assert s.total_nthreads_history[-1][1] == s.total_nthreads
    return found


@wide
async def test_both_sides_use_the_share_and_never_none(c, s, a, b):
    async with await dask_hpc.manage(c):
        for share, expected in [(0.5, [2, 1]), (0.75, [3, 1]), (0.01, [1, 1]), (1.0, [4, 2]), (0.25, [1, 1])]:
            cap(s, share)
            assert await threads(s, a, b) == expected
            s.validate_state()
    assert agreed(s, a, b) == [4, 2]
    assert "dask-hpc-threads" not in {*s.worker_plugins, *a.plugins, *b.plugins}


@wide
async def test_fewer_tasks_run_at_once_and_more_again_without_waiting(c, s, a, b):
    """When the cap ends, tasks that wait on the worker start, though none that runs has ended."""
    async with await dask_hpc.manage(c):
        cap(s, 0.25)
        await threads(s, a, b)
        futures = c.map(blocked, ["go"] * 12, range(12), workers=[a.address], pure=False)
        await async_poll_for(lambda: a.state.executing_count == 1, 10)
        await async_poll_for(lambda: len(s.workers[a.address].processing) == 12, 10)
        assert a.state.executing_count == 1
        cap(s, 1.0)
        await async_poll_for(lambda: a.state.executing_count == 4, 10)
        cap(s, 0.5)
        assert await threads(s, a, b) == [2, 1]
        assert a.state.executing_count == 4  # what runs goes on
        await Event("go").set()
        await c.gather(futures)


@pytest.mark.queue
@wide
async def test_the_scheduler_sends_less_at_once(c, s, a, b):
    async with await dask_hpc.manage(c):
        cap(s, 0.5)
        futures = c.map(blocked, ["go"] * 100, range(100), pure=False)
        await async_poll_for(lambda: a.state.executing_count == 2 and b.state.executing_count == 1, 10)
        assert len(s.queued) >= 94  # 3 threads, and what Dask sends ahead
        cap(s, 1.0)
        await async_poll_for(lambda: a.state.executing_count == 4 and b.state.executing_count == 2, 10)
        await Event("go").set()
        await c.gather(futures)


@wide
async def test_workers_that_come_later_are_capped_too_and_freed_with_the_others(c, s, a, b):
    manager = await dask_hpc.manage(c)
    cap(s, 0.5)
    async with Worker(s.address, nthreads=8) as late:
        await async_poll_for(lambda: late.state.nthreads == 4, 10)
        assert await threads(s, a, b, late) == [2, 1, 4]
        await manager.close()
        assert agreed(s, a, b, late) == [4, 2, 8]
    assert s.total_nthreads == 6


@wide
async def test_a_worker_that_goes_takes_its_capped_threads_along(c, s, a, b):
    async with await dask_hpc.manage(c):
        cap(s, 0.5)
        await threads(s, a, b)
        await b.close()
        await async_poll_for(lambda: b.address not in s.workers, 10)
        assert s.total_nthreads == 2 and agreed(s, a) == [2]
        cap(s, 1.0)
        assert await threads(s, a) == [4]


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 4)] * 2, Worker=Nanny, timeout=60)
async def test_a_worker_that_was_killed_comes_back_capped(c, s, a, b):
    async with await dask_hpc.manage(c):
        cap(s, 0.5)
        await power_of(s).levers.share.settle()
        old = a.worker_address
        a.process.process.kill()
        await async_poll_for(lambda: old not in s.workers and len(s.workers) == 2, 30)
        counts = await until_all(c, 2)
        assert counts == [2, 2] and s.total_nthreads == 4
    assert await until_all(c, 4) == [4, 4] and s.total_nthreads == 8


async def until_all(c, expected):
    """What the workers' own processes say."""
    for _ in range(200):
        found = list((await c.run(lambda dask_worker: dask_worker.state.nthreads)).values())
        if found == [expected] * len(found):
            break
        await asyncio.sleep(0.02)
    return found


@wide
async def test_caps_and_holds_go_together_and_end_together(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        power_of(s).levers.pull(Plan(1, 0.0, hold=Hold(1, "a test"), cap=Cap(0.5, None, "a test")))
        assert await threads(s, a, b) == [2, 1] and power_of(s).levers.held == 1
        await manager.set(policy="fcfs")  # says nothing of power
        assert await threads(s, a, b) == [4, 2] and power_of(s).levers.held == 0


@wide
async def test_many_changes_in_a_row_end_with_the_last(c, s, a, b):
    async with await dask_hpc.manage(c):
        for share in (0.5, 1.0, 0.25, 1.0, 0.75, 0.5):
            cap(s, share)
        assert await threads(s, a, b) == [2, 1]


@wide
async def test_a_dry_run_caps_nothing(c, s, a, b):
    async with await dask_hpc.manage(c, dry_run=True):
        cap(s, 0.5)
        assert await threads(s, a, b) == [4, 2]
