"""A dry run decides and tells, and does nothing."""

import dask
from distributed import Event
from distributed.utils_test import async_poll_for, inc
from small_cluster import blocked, cluster2, cluster4, live, plugin_of, until, where

import dask_hpc


@cluster4
async def test_decides_and_tells_and_does_nothing(c, s, *workers):
    retire = s.handlers["retire_workers"]
    async with await dask_hpc.manage(c, policy="urgent-first", dry_run=True) as m:
        assert s.handlers["retire_workers"] == retire and set(s.worker_plugins) <= {"shuffle"}
        assert (await m.status())["state"] == "dry run"
        with dask_hpc.job("wide", nodes=4, min_nodes=1, max_nodes=4):
            wide = c.submit(blocked, "wide", pure=False)
        await until(s, "wide", "running")
        with dask_hpc.job("urgent", nodes=2, priority=5):
            urgent = c.submit(blocked, "urgent", pure=False, workers=[workers[3].address])
        await until(s, "urgent", "running")
        assert len(live(s, "wide").nodes) == 2
        with dask_hpc.job("late", nodes=4):
            late = c.map(where, range(40), pure=False)
        assert set(await c.gather(late)) <= set(s.workers)  # it did not wait
        assert not any(task.worker_restrictions for key, task in s.tasks.items() if key != urgent.key)
        assert s.tasks[urgent.key].worker_restrictions == {workers[3].address}
        rows = [(row["decision"], row["rule"]) for row in await m.story() if row["job"]]
        assert ("shrink", "malleability: give-way") in rows and ("start", "queue: priority") in rows
        await Event("wide").set()
        await Event("urgent").set()
        await c.gather([wide, urgent])
        await until(s, "urgent", "done")
        await until(s, "wide", "done")
    assert s.handlers["retire_workers"] == retire


@cluster2
async def test_by_configuration(c, s, *workers):
    with dask.config.set({"hpc.dry-run": True, "hpc.fair-shares": True}):
        manager = await dask_hpc.manage(c)
    async with manager as m:
        assert plugin_of(s).control.shares is None
        with dask_hpc.job("a", nodes=5):
            assert await c.submit(inc, 1) == 2
        await until(s, "a", "done")
        await m.hold([workers[0].address])  # what a person asks for is done
        await c.retire_workers([workers[1].address])
        await async_poll_for(lambda: len(s.workers) == 1, 5)
