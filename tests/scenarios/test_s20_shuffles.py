"""S20: shuffles (P2P) of a dataframe and of an array go on while workers are to leave, by every way."""

from collections import Counter
from contextlib import ExitStack
from functools import partial
from time import monotonic, sleep

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for, gen_test
from worker_process import empty_cluster, terminate, worker_process

import dask_hpc

BLOCKS = 9
P2P = {
    "array.rechunk.method": "p2p",
    "array.chunk-size": "720 B",  # one block: else all are merged before the shuffle
    "optimization.fuse.active": False,
    "scheduler": "sync",  # what dataframes compute while they are described
}


def gated(i):
    """All blocks but one are there at once and begin the shuffle; the last one keeps it from ending."""
    if i == BLOCKS - 1:
        Event("go").wait(60)
    return i


def block(i):
    return np.full((1, 90), gated(i), dtype=float)


def frame(i):
    import pandas as pd

    return pd.DataFrame({"a": np.arange(90) % 10, "b": gated(i)})


def array():
    x = da.concatenate([da.from_delayed(dask.delayed(block)(i), (1, 90), dtype=float) for i in range(BLOCKS)])
    return x.rechunk((BLOCKS, 10)).sum(axis=0), np.full(90, float(sum(range(BLOCKS))))


def dataframe():
    import dask.dataframe as dd

    x = dd.from_map(frame, range(BLOCKS)).shuffle("a", npartitions=6, shuffle_method="p2p")
    return x.b.sum(), float(90 * sum(range(BLOCKS)))


def widest(shuffles):
    """How many workers a shuffle is using."""
    return max((len(run.participating_workers) for run in shuffles.active_shuffles.values()), default=0)


async def scale(cluster, c, manager):
    cluster.scale(2)


async def adapt(cluster, c, manager):
    cluster.adapt(minimum=2, maximum=2, interval="100ms", wait_count=1)


async def lifetime(cluster, c, manager):
    """What a worker does when its lifetime is over."""
    address = next(iter(cluster.scheduler.workers))
    await c.run(
        lambda dask_worker: dask_worker.loop.add_callback(dask_worker.close_gracefully), workers=[address]
    )


async def retire(cluster, c, manager):
    address = next(iter(cluster.scheduler.workers))
    c.loop.add_callback(c.retire_workers, workers=[address])


async def close(cluster, c, manager):
    """What a worker does at SIGTERM, or when its nanny is to end it."""
    worker = next(iter(cluster.workers.values()))
    worker.loop.add_callback(partial(worker.close, executor_wait=False))


async def hold(cluster, c, manager):
    found = await manager.hold(list(cluster.scheduler.workers))
    assert not found["held"] and set(found["refused"].values()) == {"shuffle needs it where it is"}


async def shuffled(kind, act, managed):
    """How often a shuffle was begun anew, on a cluster of three that is made smaller in the middle of it."""
    local = LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, asynchronous=True, dashboard_address=":0"
    )
    async with local as cluster, Client(cluster, asynchronous=True) as c:
        manager = await dask_hpc.manage(c) if managed else None
        s = cluster.scheduler
        shuffles, begun = s.plugins["shuffle"], Counter()
        create = shuffles._create
        shuffles._create = lambda id, key, worker: begun.update([id]) or create(id, key, worker)
        with dask.config.set(P2P):
            collection, expected = kind()
            future = c.compute(collection)
        await async_poll_for(lambda: widest(shuffles) == 3, 30)
        await act(cluster, c, manager)
        # Either it happens now, or it has to wait until the shuffle is over.
        if act is not hold and not managed:
            await Event("never", client=c).wait(timeout=1)
        elif act is not hold:
            told = "needs it where it is"
            rows = s.plugins["dask-hpc"].story.happenings
            if act is not adapt:  # it is told by Dask itself that nobody can go
                await async_poll_for(lambda: any(told in row.reason for row in rows), 10)
            assert len(s.workers) == 3
        await Event("go", client=c).set()
        assert np.array_equal(await future, expected)
        if act is not hold:
            await async_poll_for(
                lambda: len(s.workers) == 2 or (act in (lifetime, close) and len(s.workers) == 3), 30
            )
        if manager:
            await manager.close()
        return sum(begun.values()) - len(begun)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [array, dataframe])
@pytest.mark.parametrize("act", [scale, adapt, lifetime, retire, close, hold])
def test_shuffle(kind, act, report):
    found = {}

    @gen_test(timeout=120)
    async def run():
        if act is not hold:
            found["plain"] = await shuffled(kind, act, False)
        found["ours"] = await shuffled(kind, act, True)

    run()
    name = f"{kind.__name__}: shuffles begun anew, {act.__name__}"
    report.add("S20", name, plain=found.get("plain", "-"), ours=found["ours"], bound="0")
    assert found["ours"] == 0
    if act in (scale, lifetime, retire, close):
        assert found["plain"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [array, dataframe])
def test_policy_resize(kind, report):
    """A malleable job on all four nodes shuffles when another job comes."""
    found = {}

    async def resized():
        local = LocalCluster(
            n_workers=4, threads_per_worker=1, processes=False, asynchronous=True, dashboard_address=":0"
        )
        async with (
            local as cluster,
            Client(cluster, asynchronous=True) as c,
            await dask_hpc.manage(c, policy="fpsma-pwma") as manager,
        ):
            s, begun = cluster.scheduler, Counter()
            shuffles = s.plugins["shuffle"]
            create = shuffles._create
            shuffles._create = lambda id, key, worker: begun.update([id]) or create(id, key, worker)
            with dask.config.set(P2P):
                # Outside of the job: Dask warns of annotations where a dataframe is described
                collection, expected = kind()
            with dask_hpc.job("m", nodes=4, min_nodes=1, max_nodes=4, walltime="1h") as m:
                with dask.config.set(P2P):
                    future = c.compute(collection)
                await async_poll_for(lambda: widest(shuffles) == 4, 30)
                with dask_hpc.job("r", nodes=2, walltime="1h") as r:
                    other = c.submit(lambda: 1)
                jobs = s.plugins["dask-hpc"].control.jobs
                indices = s.plugins["dask-hpc"].control.indices
                await async_poll_for(lambda: r.id in jobs and indices.running[m.id].target is not None, 10)
                assert jobs[r.id].state == "waiting"
                await Event("go", client=c).set()
                assert np.array_equal(await future, expected)
                assert await other == 1
            assert (await manager.status())["errors"] == 0
            found["ours"] = sum(begun.values()) - len(begun)
            found["shrinks"] = sum(row["decision"] == "shrink" for row in await manager.story())

    @gen_test(timeout=120)
    async def run():
        await resized()

    run()
    name = f"{kind.__name__}: shuffles begun anew, policy resize"
    report.add("S20", name, plain="-", ours=found["ours"], bound="0")
    assert found["ours"] == 0 and found["shrinks"] >= 1


# --- workers that are processes of their own, and are told to go by the system


LIFETIME = 6.0  # seconds; the shuffles are on their way by then


def sigterm(process):
    """As at the end of a batch job, at a pre-emption, or by ``scancel``."""
    terminate(process)


def walltime(process):
    """It ends by itself: the worker was started with ``--lifetime``."""


def ended(loop, act, managed):
    """How often shuffles were begun anew when one of three workers has to go in the middle of them, and what
    was told."""
    with ExitStack() as stack:
        cluster = stack.enter_context(empty_cluster(loop=loop))
        c = stack.enter_context(Client(cluster))
        s = cluster.scheduler
        with dask.config.set({"hpc.drain": "0.1s"}):  # else it would be too late for any task of the shuffles
            manager = dask_hpc.manage(c) if managed else None
        lives = ("--lifetime", f"{LIFETIME} s") if act is walltime else ()
        for name in ("b", "c"):  # two threads: a block of each collection keeps one until the end
            two = ("--nthreads", "2")
            stack.enter_context(worker_process(cluster, name, "--no-nanny", *two, fork=True))
        c.wait_for_workers(2)
        a = stack.enter_context(worker_process(cluster, "a", "--no-nanny", *lives, fork=True))
        c.wait_for_workers(3)
        shuffles, begun = s.plugins["shuffle"], Counter()
        create = shuffles._create
        shuffles._create = lambda id, key, worker: begun.update([id]) or create(id, key, worker)
        with dask.config.set(P2P):
            both = [kind() for kind in (array, dataframe)]
            futures = [c.compute(collection) for collection, _ in both]
        # One of the two may do without a worker that ends soon: it is not given what may take too long.
        within(lambda: len(shuffles.active_shuffles) == 2 and widest(shuffles) == 3)
        assert a.poll() is None and len(s.workers) == 3, "it ended before the shuffles were on their way"
        act(a)
        if managed:
            rows = s.plugins["dask-hpc"].story.happenings
            within(lambda: any("needs it where it is" in row.reason for row in rows))
            assert len(s.workers) == 3
        else:
            within(lambda: len(s.workers) == 2)
        Event("go", client=c).set()
        for future, (_, expected) in zip(futures, both, strict=True):
            assert np.array_equal(future.result(30), expected)
        within(lambda: len(s.workers) == 2)
        if manager:  # plain Dask's may wait for a task that has lost its scheduler
            assert a.wait(30) is not None
            assert manager.status()["errors"] == 0
            manager.close()
        return sum(begun.values()) - len(begun)


def within(condition, seconds=30):
    """Poll: what is waited for happens on the scheduler, on another thread."""
    limit = monotonic() + seconds
    while not condition():
        assert monotonic() < limit
        sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("act", [sigterm, walltime])
def test_a_worker_that_the_system_ends(loop, act, report):
    plain, ours = ended(loop, act, managed=False), ended(loop, act, managed=True)
    report.add("S20", f"array and dataframe: shuffles begun anew, {act.__name__} of a worker process",
               plain=plain, ours=ours, bound="0")  # fmt: skip
    assert plain >= 1
    assert ours == 0
