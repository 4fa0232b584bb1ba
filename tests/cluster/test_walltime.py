"""Workers whose end is known get no task that would not end in time."""

import asyncio

import dask
import pytest
from distributed import Event, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, plugin_of

import dask_hpc
from dask_hpc import InputError

WHY = "its time ends"


def walltime(s):
    return plugin_of(s).walltime


def told(s, *kinds):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision in kinds]


def is_held(s, worker):
    return WHY in plugin_of(s).control.holds.reasons.get(worker.address, ())


async def managed(c, drain="0.1s"):
    with dask.config.set({"hpc.drain": drain}):
        return await dask_hpc.manage(c)


@cluster2
async def test_a_long_kind_waits_for_a_worker_that_lasts_and_then_short_ones_run_again(c, s, a, b):
    async with await managed(c):
        await c.scheduler.hpc_worker_ends(address=b.address, left=30)
        await c.submit(inc, 1, workers=[a.address])
        walltime(s)._durations.add("long", 60)
        long = [c.submit(blocked, "go", i, key=("long", i), pure=False) for i in range(3)]
        await async_poll_for(lambda: is_held(s, b), 10)
        assert "too little for long" in told(s, "walltime")[0]
        await async_poll_for(lambda: len(s.workers[a.address].processing) == 3, 10)
        await asyncio.sleep(0)
        assert not b.state.executing_count
        await Event("go").set()
        assert await c.gather(long) == [a.address] * 3
        await async_poll_for(lambda: not is_held(s, b), 10)
        futures = c.map(inc, range(20), pure=False)
        await wait(futures)
        assert any(s.workers[b.address] in s.tasks[f.key].who_has for f in futures)
        assert plugin_of(s).errors == 0 and b.address in s.workers


@cluster2
async def test_an_unknown_kind_is_tried_once_near_the_end_and_freely_before(c, s, a, b):
    async with await managed(c):
        await c.scheduler.hpc_worker_ends(address=b.address, left=3600)
        futures = c.map(blocked, ["go"] * 4, range(4), pure=False)
        await async_poll_for(lambda: len(s.workers[b.address].processing) == 2, 10)
        walltime(s).look()
        await async_poll_for(lambda: not walltime(s)._next.is_set, 10)
        assert not is_held(s, b)
        await c.scheduler.hpc_worker_ends(address=b.address, left=60)
        await async_poll_for(lambda: is_held(s, b), 10)
        await async_poll_for(lambda: len(s.workers[b.address].processing) == 1, 10)
        await Event("go").set()
        assert sorted(await c.gather(futures)) == sorted([a.address] * 3 + [b.address])


@pytest.mark.parametrize("other, may_start", [("quick", True), ("slow", False)])
def test_the_first_thread_that_is_free_counts(other, may_start):
    """Another slow one can start in a second, or not before 20 of the worker's 30 are over."""

    @gen_cluster(client=True, nthreads=[("", 1), ("", 2)])
    async def run(c, s, a, b):
        async with await managed(c):
            for kind, seconds in (("quick", 1), ("slow", 20)):
                walltime(s)._durations.add(kind, seconds)
            bound = {"workers": [b.address], "allow_other_workers": True}
            futures = [c.submit(blocked, "go", key=key, **bound) for key in ((other, 1), ("slow", 0))]
            await async_poll_for(lambda: b.state.executing_count == 2, 10)
            await c.scheduler.hpc_worker_ends(address=b.address, left=30)
            await async_poll_for(lambda: walltime(s)._took, 10)
            assert is_held(s, b) != may_start
            await Event("go").set()
            await c.gather(futures)

    run()


@cluster2
async def test_the_last_worker_works_on_and_the_story_is_not_flooded(c, s, a, b):
    async with await managed(c):
        await b.close()
        await async_poll_for(lambda: len(s.workers) == 1, 10)
        await c.scheduler.hpc_worker_ends(address=a.address, left=20)
        walltime(s)._durations.add("inc", 60)
        assert await c.gather(c.map(inc, range(50), pure=False)) == list(range(1, 51))
        assert len(told(s, "hold-refused")) <= 1 and told(s, "walltime") == []
        assert plugin_of(s).errors == 0


@pytest.mark.queue  # else Dask has sent tasks to it before anybody can hold it
@cluster2
async def test_a_held_and_empty_worker_leaves_early_with_its_results(c, s, a, b):
    async with await managed(c):
        x = c.submit(inc, 1, workers=[b.address], allow_other_workers=True)
        await x
        await c.scheduler.hpc_worker_ends(address=b.address, left=30)
        walltime(s)._durations.add("long", 60)
        futures = c.map(blocked, ["go"] * 30, range(30), key="long")
        await b.finished()
        await async_poll_for(lambda: b.address not in s.workers, 10)
        assert "early" in told(s, "walltime")[-1] and await x == 2
        assert told(s, "lost") == [] and b.address not in walltime(s).ends_at
        await Event("go").set()
        assert await c.gather(futures) == [a.address] * 30


@pytest.mark.queue
@cluster2
async def test_nobody_leaves_early_who_is_the_refuge_of_one_that_ends_before(c, s, a, b):
    async with await managed(c):
        x = c.submit(inc, 1, workers=[a.address], allow_other_workers=True)
        await x
        await c.scheduler.hpc_worker_ends(address=b.address, left=30)
        await c.scheduler.hpc_worker_ends(address=a.address, left=20)
        walltime(s)._durations.add("long", 60)
        futures = c.map(blocked, ["go"] * 30, range(30), key="long")
        await async_poll_for(lambda: is_held(s, b), 10)
        walltime(s)._decide()
        assert not walltime(s)._retiring and s.workers[b.address].status.name == "paused"
        walltime(s).ends_at[a.address] += 20
        walltime(s)._decide()
        assert set(walltime(s)._retiring) == {b.address}
        await b.finished()
        assert await x == 2 and told(s, "lost") == []
        await Event("go").set()
        assert set(await c.gather(futures)) == {a.address}


@cluster2
async def test_no_end_no_clock(c, s, a, b):
    async with await managed(c):
        await c.gather(c.map(inc, range(20), pure=False))
        assert not walltime(s)._next.is_set and not walltime(s)._timer.is_set
        assert walltime(s)._durations.upper("inc") is None
        await c.scheduler.hpc_worker_ends(address=b.address, left=30)
        walltime(s)._durations.add("long", 60)
        held = c.submit(blocked, "go", key=("long", 1))
        await async_poll_for(lambda: is_held(s, b), 10)
    assert walltime_is_gone(s) and s.workers[b.address].status.name == "running"
    await Event("go").set()
    await held


def walltime_is_gone(s):
    return "dask-hpc" not in s.plugins and "hpc_worker_ends" not in s.handlers


@cluster2
async def test_the_call_checks_its_arguments(c, s, a, b):
    async with await managed(c):
        for bad in ({"address": "tcp://1"}, {"address": a.address, "left": "x"}, {}, {"left": 3}):
            with pytest.raises(InputError):
                await c.scheduler.hpc_worker_ends(**bad)
