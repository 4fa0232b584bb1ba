"""Slow tasks at the end of a stage run twice, and the first result counts, once."""

import asyncio
import contextlib

import dask
import pytest
from distributed import Event, get_worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import lose, plugin_of

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.lanes.scheduler import Lanes
from dask_hpc.model.errors import InputError
from dask_hpc.tail.scheduler import BackupRuns
from dask_hpc.tail.worker import METRIC

four = gen_cluster(client=True, nthreads=[("", 1)] * 4)
POLICY = dask_hpc.Policy.load("backup-tasks").with_(**{"tail.least": 0})


def runs_of(s):
    return plugin_of(s).context.find(BackupRuns)


def work(i, slow):
    """On the slow worker it takes until somebody sets the event."""
    Event(f"began-{i}-{get_worker().address}").set()
    if get_worker().address == slow:
        Event("go").wait(60)
    return i, get_worker().address


async def calm(s):
    """Nothing runs twice any more, and nobody counts as busy."""
    await async_poll_for(lambda: not runs_of(s)._runs.by_key, 10)
    assert not any(ws.processing for ws in s.workers.values())
    assert not s._task_prefix_count_global


def submitted(c, workers, n=8):
    return c.map(work, range(n), slow=workers[0].address, key=[f"work-{i}" for i in range(n)])


@four
async def test_the_second_run_is_first(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY) as manager:
        with dask_hpc.job("j", nodes=4, client=c) as job:
            futures = submitted(c, workers)
        found = await asyncio.wait_for(c.gather(futures), 20)
        assert [i for i, _ in found] == list(range(8))
        assert all(address != workers[0].address for _, address in found)
        told = (await manager.status())["backup"]
        assert told["made"] >= told["first"] >= 1
        slow = s.workers[workers[0].address]
        assert slow.processing, "it computes in vain, and counts as busy"
        assert compat.processing(s, slow.address) == []
        assert (await job.status())["finished_tasks"] == 8
        assert s.task_prefixes["work"].state_counts["memory"] == 8
        row = next(row for row in await manager.story() if row["decision"] == "backup")
        assert row["nodes"] == [str(slow.name)]
        await Event("go").set()
        await calm(s)
        assert s.task_prefixes["work"].state_counts["memory"] == 8
        assert all(len(s.tasks[f.key].who_has) == 1 for f in futures)


@four
async def test_the_first_run_is_first(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY) as manager:
        slow = workers[0].address
        futures = c.map(blocked_on_both, range(4), slow=slow, key=[f"work-{i}" for i in range(4)])
        await async_poll_for(lambda: runs_of(s).made, 20)
        key = next(iter(runs_of(s)._runs.by_key))
        await Event(f"go-{slow}").set()
        await asyncio.wait_for(c.gather(futures), 20)
        assert runs_of(s)._runs.by_key, "the second run goes on in vain"
        await Event("go").set()
        await calm(s)
        told = (await manager.status())["backup"]
        assert told["first"] == 0 and told["running"] == 0
        assert len(s.tasks[key].who_has) == 1 and s.tasks[key].who_has == {s.workers[slow]}
        assert s.task_prefixes["work"].state_counts["memory"] == 4


def blocked_on_both(i, slow):
    """A task that was slow where it first ran is so elsewhere, too."""
    address = get_worker().address
    if address == slow:
        Event(f"mark-{i}").set()
        Event(f"go-{slow}").wait(60)
    elif Event(f"mark-{i}").is_set():
        Event("go").wait(60)
    return i


def fails_elsewhere(i, slow):
    if get_worker().address == slow:
        Event(f"mark-{i}").set()
        Event("go").wait(60)
    elif Event(f"mark-{i}").is_set():
        raise ValueError("only here")
    return i


@four
async def test_an_error_of_a_second_run_is_nobodys(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        futures = c.map(fails_elsewhere, range(8), slow=workers[0].address)
        await async_poll_for(lambda: runs_of(s).made, 20)
        await async_poll_for(lambda: not runs_of(s)._runs.by_key, 20)
        await Event("go").set()
        assert await asyncio.wait_for(c.gather(futures), 20) == list(range(8))


@pytest.mark.parametrize("how", ["annotation", "job"])
def test_impure_tasks_run_once(how):
    @four
    async def check(c, s, *workers):
        async with await dask_hpc.manage(c, POLICY) as manager:
            annotated = dask.annotate(impure=True) if how == "annotation" else contextlib.nullcontext()
            with dask_hpc.job("j", nodes=4, impure=how == "job", client=c), annotated:
                futures = submitted(c, workers)
            await async_poll_for(lambda: sum(f.done() for f in futures) >= 6, 20)
            await looks(s, 5)
            assert runs_of(s).made == 0
            await Event("go").set()
            await c.gather(futures)
            for i in range(8):
                began = [await Event(f"began-{i}-{w.address}").is_set() for w in workers]
                assert sum(began) == 1
            assert (await manager.status())["errors"] == 0

    check()


async def looks(s, count):
    """So many looks at what runs have been made."""
    service, done = runs_of(s), []
    plain = service._view

    def counted(now):
        done.append(now)
        return plain(now)

    service._view = counted
    await async_poll_for(lambda: len(done) >= count, 20)
    service._view = plain


@four
async def test_who_computed_the_first_dies(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        slow = workers[0].address
        futures = c.map(blocked_on_both, range(4), slow=slow, key=[f"work-{i}" for i in range(4)])
        await async_poll_for(lambda: runs_of(s).made, 20)
        await Event(f"go-{slow}").set()
        await lose(workers[0])
        await Event("go").set()
        assert await asyncio.wait_for(c.gather(futures), 20) == list(range(4))
        await calm(s)


@four
async def test_who_computes_the_second_dies(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        slow = workers[0].address
        futures = c.map(blocked_on_both, range(4), slow=slow, key=[f"work-{i}" for i in range(4)])
        await async_poll_for(lambda: runs_of(s).made, 20)
        (address,) = {one for runs in runs_of(s)._runs.by_key.values() for one in runs}
        await Event("go").set()
        await lose(next(worker for worker in workers if worker.address == address))
        await Event(f"go-{slow}").set()
        assert await asyncio.wait_for(c.gather(futures), 20) == list(range(4))
        await calm(s)


@four
async def test_control_ends_meanwhile(c, s, *workers):
    handlers = dict(s.stream_handlers)
    slow = workers[0].address
    async with await dask_hpc.manage(c, POLICY):
        futures = submitted(c, workers)
        await async_poll_for(lambda: runs_of(s).made, 20)
    assert {name: s.stream_handlers[name] for name in handlers} == handlers
    await Event("go").set()
    await asyncio.wait_for(c.gather(futures), 20)
    await async_poll_for(lambda: not any(ws.processing for ws in s.workers.values()), 10)
    assert not any(METRIC in worker.metrics for worker in workers)
    assert slow in s.workers and all(len(s.tasks[f.key].who_has) == 1 for f in futures)


@four
async def test_another_policy_stops_it(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY) as manager:
        futures = submitted(c, workers)
        await async_poll_for(lambda: runs_of(s).made, 20)
        await manager.set("easy-backfill")
        assert runs_of(s)._runs.by_key == {} and not runs_of(s)._timer.is_set
        await Event("go").set()
        await asyncio.wait_for(c.gather(futures), 20)
        assert s.task_prefixes["work"].state_counts["memory"] == 8


@four
async def test_a_cancelled_task_is_over(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        slow = workers[0].address
        futures = c.map(blocked_on_both, range(4), slow=slow, key=[f"work-{i}" for i in range(4)])
        await async_poll_for(lambda: runs_of(s).made, 20)
        await c.cancel(futures)
        await Event("go").set()
        await Event(f"go-{slow}").set()
        await async_poll_for(lambda: not s.tasks, 10)
        await calm(s)


@four
async def test_nobody_hears_of_each_task_while_nothing_runs_twice(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        handlers = dict(s.stream_handlers)
        watching = plugin_of(s).context.watching
        futures = submitted(c, workers)
        assert runs_of(s) not in [service for service, _ in watching] and s.stream_handlers == handlers
        await async_poll_for(lambda: runs_of(s).made, 20)
        assert runs_of(s) in [service for service, _ in watching] and s.stream_handlers != handlers
        await Event("go").set()
        await c.gather(futures)
        await calm(s)
        await looks(s, 1)
        assert runs_of(s) not in [service for service, _ in watching] and s.stream_handlers == handlers
        await async_poll_for(lambda: runs_of(s).slow or not runs_of(s)._timer.is_set, 20)


@four
async def test_no_task_of_a_lane_runs_twice(c, s, *workers):
    async with await dask_hpc.manage(c, POLICY):
        queue = plugin_of(s).context.get(Lanes)
        futures = c.map(
            blocked_on_both, range(4), slow=workers[0].address, key=[f"work-{i}" for i in range(4)]
        )
        queue.row_of.update(dict.fromkeys((f"work-{i}" for i in range(4)), True))
        await async_poll_for(lambda: sum(f.done() for f in futures) == 3, 20)
        await looks(s, 5)
        assert runs_of(s).made == 0
        queue.row_of.clear()
        await async_poll_for(lambda: runs_of(s).made == 1, 20)
        await Event(f"go-{workers[0].address}").set()
        await Event("go").set()
        await c.gather(futures)


def test_what_is_said_of_jobs_that_are_impure():
    assert dask_hpc.job("j", impure=True)._request["impure"] is True
    with pytest.raises(InputError, match="job 'j': impure: found 'yes'; allowed: true, false"):
        dask_hpc.job("j", impure="yes")
