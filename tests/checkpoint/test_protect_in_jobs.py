"""Protected results on a managed cluster: within jobs, and together with the rescue store."""

import asyncio

import dask
import numpy as np
from distributed import Event, Worker, futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, live, plugin_of, until

import dask_hpc
from dask_hpc.cluster.worker.farewell import NAME as WORKER_PLUGIN

NAME = "dask-hpc-checkpoint"
four = gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.drain": 0})
ran = []


def effect(x):
    ran.append(x)
    return np.full(100, x)


def late(x, first):
    return effect(x)


def addresses(s, job):
    nodes = plugin_of(s).control.nodes
    return {address for name in job.nodes for address in nodes.workers(name)}


def holders(s, futures):
    return {worker.address for one in futures for worker in s.tasks[one.key].who_has}


async def whole(c, name, level="copied"):
    while (found := await dask_hpc.protected(name, wait=True, client=c))[level] < found["keys"]:
        await asyncio.sleep(0.01)


async def dies(s, *workers):
    """As by SIGKILL: the scheduler hears of it afterwards."""
    for worker in workers:
        await s.remove_worker(worker.address, stimulus_id="dies", close=False)
    for worker in workers:
        await worker.close(nanny=False, executor_wait=False, reason="killed")


def no_errors(s):
    return not plugin_of(s).errors and not s.plugins[NAME].errors


async def right(c, futures):
    found = await asyncio.wait_for(c.gather(futures), 20)
    return [int(one[0]) for one in found] == list(range(len(futures)))


@four
async def test_lost_results_of_a_job_are_loaded_within_its_allotment(c, s, *workers):
    """While another job has all other nodes, with more tasks than they have threads."""
    ran.clear()
    async with await dask_hpc.manage(c):
        with dask_hpc.job("mine", nodes=2, walltime="1h"):
            x = c.map(effect, range(12))
            await wait(x)
            with dask_hpc.job("other", nodes=2, walltime="1h"):
                others = c.map(blocked, ["go"] * 8, range(8), pure=False)
            await until(s, "other", "running")
            await dask_hpc.protect(x, "x", client=c)
            await whole(c, "x")
            mine = addresses(s, live(s, "mine"))
            assert holders(s, x) <= mine
            victim = next(worker for worker in workers if worker.address in holders(s, x))
            await dies(s, victim)
            await asyncio.wait_for(wait(x), 20)
            assert holders(s, x) <= mine - {victim.address} | addresses(s, live(s, "mine"))
            assert not holders(s, x) & addresses(s, live(s, "other"))
            assert await right(c, x) and len(ran) == 12
            assert not any(one.done() for one in others)
            await Event("go").set()
            await wait(others)
        assert no_errors(s)


@four
async def test_nothing_is_lost_as_a_job_grows_and_shrinks(c, s, *workers):
    ran.clear()
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            going = c.submit(blocked, "m-go", key="m-going")
            m = await until(s, "m", "running")
            await async_poll_for(lambda: len(m.nodes) == 4, 10)
            x = c.map(effect, range(12))
            await dask_hpc.protect(x, "x", client=c)
            await whole(c, "x")
            with dask_hpc.job("r", nodes=3, walltime="1h"):
                others = c.map(blocked, ["r-go"] * 3, range(3), pure=False)
            await until(s, "r", "running")
            assert len(m.nodes) == 1
            await Event("m-go").set()
            await going
            assert await right(c, x) and len(ran) == 12
            (own,) = addresses(s, m)
            victims = [worker for worker in workers if worker.address in holders(s, x) - {own}]
            await dies(s, *victims[:1])
            assert await right(c, x) and len(ran) == 12
            await Event("r-go").set()
            await wait(others)
            await async_poll_for(lambda: len(m.nodes) >= 3, 10)
            assert await right(c, x) and len(ran) == 12
        assert no_errors(s)


def rescued(tmp_path, workers):
    return gen_cluster(
        client=True,
        nthreads=[("", 1)] * workers,
        config={"hpc.rescue": str(tmp_path / "rescue"), "hpc.checkpoint.store": str(tmp_path / "store")},
    )


async def plugins(*workers):
    await async_poll_for(lambda: all(WORKER_PLUGIN in worker.plugins for worker in workers), 10)


def test_what_is_protected_is_rescued_by_the_last_worker(tmp_path):
    @rescued(tmp_path, 2)
    async def run(c, s, a, b):
        ran.clear()
        async with await dask_hpc.manage(c):
            await plugins(a, b)
            x = c.map(effect, range(6))
            await dask_hpc.protect(x, "x", levels=["partner"], client=c)
            await whole(c, "x")
            await a.close(reason="signal-15")
            await b.close(reason="signal-15")
            assert list((tmp_path / "rescue").glob("*.result"))
            async with Worker(s.address):
                assert await right(c, x) and len(ran) == 6
            assert no_errors(s)

    run()


def test_what_was_rescued_is_protected(tmp_path):
    @rescued(tmp_path, 1)
    async def run(c, s, a):
        ran.clear()
        async with await dask_hpc.manage(c):
            await plugins(a)
            x = c.map(effect, range(6))
            await wait(x)
            await a.close(reason="signal-15")
            async with Worker(s.address) as b, Worker(s.address) as d:
                await wait(x)
                await dask_hpc.protect(x, "x", levels=["partner", "store"], client=c)
                await whole(c, "x", "stored")
                for file in (tmp_path / "rescue").glob("*.result"):
                    file.unlink()
                await dies(s, b)
                assert await right(c, x) and len(ran) == 6
                async with Worker(s.address):
                    await dies(s, d)
                    assert await right(c, x) and len(ran) == 6
            assert no_errors(s)

    run()


def test_rescued_and_stored_results_of_another_cluster(tmp_path):
    """Both stores have what is submitted again: it is loaded from either."""

    def graph(c):
        first = dask.delayed(blocked, pure=True)("go")
        return c.persist([dask.delayed(late, pure=True)(number, first) for number in range(6)])

    @rescued(tmp_path, 1)
    async def run(c, s, a):
        async with await dask_hpc.manage(c):
            await plugins(a)
            x = graph(c)
            if not ran:
                await Event("go").set()
            await dask_hpc.protect(x, "x", client=c)
            await whole(c, "x", "stored")
            assert await right(c, futures_of(x))
            await a.close(reason="signal-15")
            assert no_errors(s)

    ran.clear()
    run()
    assert len(ran) == 6
    run()
    assert len(ran) == 6
