"""Reads of one file system pass so many at a time, in jobs and outside of them."""

import asyncio

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Event, Worker, fire_and_forget, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import cluster2, cluster4, lose, plugin_of, until

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.lanes.scheduler import Lanes

wide = gen_cluster(client=True, nthreads=[("", 4)] * 2)


def open_dataset(path, i):
    """A known reader, by its name."""
    Event(f"go-{i}").wait(60)
    return i


def lanes_of(s):
    return plugin_of(s).context.get(Lanes)


def lane(s, name):
    return lanes_of(s).by_name[name]


def reading(s):
    """The reads that were sent to workers."""
    return [task.key for ws in s.workers.values() for task in ws.processing if task.key[0] == "r"]


def reads(c, n=10, path="/fast/x", name="r", **options):
    return c.map(open_dataset, [path] * n, range(n), key=[(name, i) for i in range(n)], **options)


async def settle(condition):
    """It becomes so, and stays so for some turns of the event loop."""
    await async_poll_for(condition, 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert condition()


async def go(*numbers):
    for i in numbers:
        await Event(f"go-{i}").set()


@pytest.fixture(autouse=True)
def known_name(monkeypatch):
    """Keys are short here: ("r", 0). Their prefix counts as a reader's."""
    from dask_hpc.lanes import reads as module

    monkeypatch.setattr(module, "_READERS", module._READERS | {"r", "q"})


@wide
async def test_off_by_default(c, s, *workers):
    async with await dask_hpc.manage(c):
        futures = reads(c, 8)
        await settle(lambda: len(reading(s)) == 8)
        assert not lanes_of(s).row_of
        await go(*range(8))
        await c.gather(futures)


@wide
async def test_so_many_outside_of_jobs(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 3}})
        futures = reads(c)
        others = c.map(inc, range(20))
        assert await c.gather(others) == list(range(1, 21))  # they are not held up
        await settle(lambda: sorted(reading(s)) == [("r", 0), ("r", 1), ("r", 2)])
        assert set(plugin_of(s).control.held_by_waiting()) == {("r", i) for i in range(3, 10)}
        await go(1)
        await settle(lambda: sorted(reading(s)) == [("r", 0), ("r", 2), ("r", 3)])
        await go(*range(10))
        assert await c.gather(futures) == list(range(10))
        assert not lane(s, "/fast").in_flight
        del futures
        await async_poll_for(lambda: not lanes_of(s).by_name and not lanes_of(s).row_of, 10)
        assert plugin_of(s).errors == 0


@wide
async def test_two_file_systems_do_not_block_each_other(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/slow": 1, "default": 2}})
        slow = reads(c, 5, "/slow/a", "r")
        fast = c.map(open_dataset, ["/fast/b"] * 5, range(10, 15), key=[("q", i) for i in range(5)])
        far = c.map(open_dataset, ["s3://b/c"] * 5, range(20, 25), key=[("q-s3", i) for i in range(5)])
        await settle(lambda: len(reading(s)) == 1 and len(lane(s, "/fast").in_flight) == 2)
        await go(*range(10, 15))
        assert await c.gather(fast) == list(range(10, 15))
        assert len(reading(s)) == 1
        await go(*range(5), *range(20, 25))
        await c.gather([*slow, *far])


@wide
async def test_limits_change_while_reads_wait(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 1}})
        futures = reads(c)
        await settle(lambda: len(reading(s)) == 1)
        await manager.set(**{"settings.io-lanes": {"/fast": 4}})
        await settle(lambda: len(reading(s)) == 4)
        await manager.set(**{"settings.io-lanes": {"/fast": 2}})
        await go(0, 1, 2)
        await settle(lambda: len(reading(s)) == 2)
        await manager.set(**{"settings.io-lanes": None})
        await async_poll_for(lambda: not set(lanes_of(s).waiting()), 10)
        await go(*range(10))
        await c.gather(futures)


@pytest.mark.queue
@cluster4
async def test_in_a_job_it_needs_a_slot_as_well(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 3}})
        with dask_hpc.job("a", nodes=1):
            futures = reads(c)
        outside = reads(c, 5, name="q")
        job = await until(s, "a", "running")
        await settle(lambda: len(lane(s, "/fast").in_flight) == 3)
        assert len(reading(s)) <= 2 and not job.held and not job.passed
        assert {task.processing_on.address for task in map(s.tasks.get, reading(s))} <= job.workers
        await go(*range(10))
        await c.gather([*futures, *outside])
        await until(s, "a", "done")
        assert not any(task.worker_restrictions == set(job.workers) for task in s.tasks.values())
        assert plugin_of(s).errors == 0


@cluster2
async def test_in_a_job_that_waits_and_one_that_is_alone(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 1}})
        with dask_hpc.job("a", nodes=2):
            first = c.submit(open_dataset, "/slow/x", 99, key="open_dataset-99")
        await until(s, "a", "running")
        with dask_hpc.job("b", nodes=2):
            futures = reads(c)
        b = await until(s, "b", "waiting")
        await async_poll_for(lambda: lanes_of(s).is_awaited(b), 10)
        assert not lane(s, "/fast").in_flight
        await go(99)
        await first
        await until(s, "b", "running")
        await settle(lambda: len(reading(s)) == 1 and not b.confined)
        async with Worker(s.address, nthreads=1) as stranger:
            assert b.confined
            await go(0)
            await settle(lambda: reading(s) == [("r", 1)])
            assert not stranger.data
        await go(*range(10))
        assert await c.gather(futures) == list(range(10))
        await until(s, "b", "done")


@cluster4
async def test_reads_do_not_overtake_roots_that_go_first(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 8}})
        with dask_hpc.job("a", nodes=1):
            first = c.submit(open_dataset, "/slow/x", 99, key="other")
            job = await until(s, "a", "running")
            roots = c.map(inc, range(50), key=[("root", i) for i in range(50)])
            late = reads(c, priority=-1)
            await async_poll_for(lambda: ("r", 9) in s.tasks, 10)
            await go(99)
            await wait([first, *roots])
            order = [t.key[0] for t in s.transition_log if t.finish == "processing"]
            assert order.count("root") == 50 and "r" not in order[: order.index("root") + 48]
            await go(*range(10))
            await c.gather(late)
        assert job.id


@wide
async def test_lost_retried_cancelled_and_failed(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 2}})
        futures = reads(c)
        await settle(lambda: len(reading(s)) == 2)
        await lose(a)
        await settle(lambda: len(reading(s)) == 2)
        await c.cancel(futures[:2])
        await settle(lambda: len(reading(s)) == 2)
        await go(*range(10))
        assert await c.gather(futures[2:]) == list(range(2, 10))

        def failing(path, i):
            raise OSError(path)

        bad = c.map(failing, ["/fast/x"] * 6, range(6), key=[("q", i) for i in range(6)], retries=1)
        await wait(bad)
        assert {f.status for f in bad} == {"error"} and not lane(s, "/fast").in_flight
        fire_and_forget(c.submit(open_dataset, "/fast/x", 77, key=("r", 77)))
        await async_poll_for(lambda: ("r", 77) in reading(s), 10)
        await go(77)
        await async_poll_for(lambda: ("r", 77) not in s.tasks, 10)
        assert not lane(s, "/fast").in_flight and plugin_of(s).errors == 0


@wide
async def test_closed_while_reads_wait(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 2}})
        futures = reads(c)
        await settle(lambda: len(reading(s)) == 2)
    await settle(lambda: len(reading(s)) >= 8)
    assert not any(task.worker_restrictions for task in s.tasks.values())
    await go(*range(10))
    await c.gather(futures)


@wide
async def test_what_the_user_restricted_is_left_alone(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"default": 1}})
        futures = reads(c, 4, workers=[a.address])
        await settle(lambda: len(reading(s)) == 4)
        assert not lanes_of(s).row_of
        await go(*range(4))
        await c.gather(futures)


@wide
async def test_measurements_free_what_waits(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": {"/fast": 1}})
        futures = reads(c, 4)
        await settle(lambda: len(reading(s)) == 1)
        s.task_prefixes["r"].state_counts["memory"] += 20
        s.cumulative_worker_metrics["execute", "r", "thread-cpu", "seconds"] += 1000
        await go(0)
        await settle(lambda: len(reading(s)) == 3)
        await go(*range(4))
        await c.gather(futures)


# --- what is read, and from where


def sources(s):
    return {key: compat.source(task) for key, task in s.tasks.items() if compat.is_producer(task)}


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@gen_cluster(client=True, nthreads=[("", 4)] * 2, clean_kwargs={"threads": False})  # zarr has its own
async def test_xarray_is_recognised_through_fusion(c, s, *workers):
    """S19: unannotated open_zarr and open_dataset pipelines with Dask's default optimisation."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = xr.Dataset({"a": (("x", "y"), np.arange(400.0).reshape(20, 20))})
        with dask.config.set(scheduler="sync"):
            made.chunk(x=5).to_zarr(f"{folder}/a.zarr")
        async with await dask_hpc.manage(c) as manager:
            await manager.set(**{"settings.io-lanes": {folder: 2, "default": 1}})
            opened = xr.open_zarr(f"{folder}/a.zarr")
            total = ((opened.a + 1) * 2).mean(dim="y")
            in_memory = da.ones((20, 20), chunks=5) + 1
            persisted, computed = c.persist(total), c.persist(in_memory)
            await wait([persisted, computed])
            found = {lane.name for lane in lanes_of(s).row_of.values()}
            assert found == {folder} and len(lanes_of(s).row_of) == 4
            assert {key[0].partition("-")[0] for key in lanes_of(s).row_of} == {"mean_chunk"}  # not one name
            assert set(sources(s).values()) == {f"{folder}/a.zarr"}
            expected = ((made.a + 1) * 2).mean(dim="y")
            assert np.array_equal((await c.compute(persisted)).values, expected.values)


def test_sources():
    from pathlib import Path
    from types import SimpleNamespace

    class Slotted:
        __slots__ = ("empty", "store")

    slotted = Slotted()
    slotted.store = SimpleNamespace(root=Path("/data/x.zarr"))

    class Loop:
        def __init__(self):
            self.me = self
            self.attrs = {"history": "http://example.org"}

    for made_of, expected in [
        ("/scratch/a", "/scratch/a"),
        ("file:///scratch/a", "/scratch/a"),
        (["x", 3, {"a": ("s3://b/c",)}], "s3://b/c"),
        (slotted, "/data/x.zarr"),
        (Loop(), None),
        (None, None),
        ("no path", None),
        (b"/bytes", None),
        (list(range(10**5)), None),
    ]:
        task = SimpleNamespace(run_spec=SimpleNamespace(args=(made_of,)), dependencies=())
        assert compat.source(task) == expected


def test_dask_is_not_asked_for_values():
    """Looking for a path calls nothing of the user's."""

    class Bad:
        def __getattr__(self, name):
            raise AssertionError(name)

        @property
        def path(self):
            raise AssertionError

    from types import SimpleNamespace

    assert compat.source(SimpleNamespace(run_spec=SimpleNamespace(args=(Bad(),)), dependencies=())) is None
