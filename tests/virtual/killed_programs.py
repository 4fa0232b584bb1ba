"""A program of so many steps on a virtual cluster whose workers are killed at random, kept in one way."""

import asyncio
import contextlib
import pickle
import random
import tempfile
import time
from unittest import mock

import dask
import dask.array as da
import distributed.utils
import numpy as np
from distributed import Reschedule, get_worker, wait

import dask_hpc
from dask_hpc.checkpoint.worker import loaders
from dask_hpc.checkpoint.worker.agent import Agent
from dask_hpc.dask import Portable

WORKERS = 4
_AWAY = 1.0  # seconds until another worker takes the place of one that was killed
_LIMIT = 3600.0


def step(block, seconds=1.0):
    time.sleep(seconds)
    return block + 1


async def _load(self, key):
    """What ``CopyLoader`` does in a thread, which would wait for ever for a loop that waits for it."""
    try:
        return (await loaders._fetch(get_worker(), key)).value()
    except loaders._NoCopy as error:
        await get_worker().scheduler.hpc_checkpoint_no_copy(key=key, why=str(error))
        raise Reschedule from None


def _is_coroutine(function):
    if isinstance(function, Portable):
        return isinstance(pickle.loads(function._blob), loaders.CopyLoader)
    return asyncio.iscoroutinefunction(function)


@contextlib.contextmanager
def copies_that_take(seconds):
    """Copies can be loaded on a virtual cluster; one takes so long to be made, and to be loaded."""

    def slow(work):
        async def slowly(*args, **kwargs):
            await asyncio.sleep(seconds)
            return await work(*args, **kwargs)

        return slowly

    with (
        mock.patch.object(loaders.CopyLoader, "__call__", _load),
        mock.patch.object(loaders, "_fetch", slow(loaders._fetch)),
        mock.patch.object(Agent, "take", slow(Agent.take)),
        mock.patch.object(distributed.utils, "iscoroutinefunction", _is_coroutine),
    ):
        yield


async def _kill(cluster, mtbf, seed):
    chance = random.Random(f"deaths {seed}")
    while True:
        await asyncio.sleep(chance.expovariate(1 / mtbf))
        cluster.kill(chance.choice(sorted(cluster.workers)))
        await asyncio.sleep(_AWAY)
        await cluster.add_worker()


async def _program(cluster, client, steps, levels):
    u = client.persist(da.zeros(WORKERS * 8, chunks=8))
    await wait(u)
    began = cluster.time()
    if levels is None:
        for _ in range(steps):
            u = client.persist(u.map_blocks(step, dtype=float, meta=np.empty(0)))
            await wait(u)
        told = None
    else:
        async with dask_hpc.Checkpoint("run", levels=levels, client=client) as ck:
            u = await ck.add("u", u)
            async for _ in ck.loop(range(steps)):
                u = client.persist(u.map_blocks(step, dtype=float, meta=np.empty(0)))
                await wait(u)
                ck.update(u=u)
            told = await ck.stats()
    took = cluster.time() - began
    assert (await client.compute(u) == np.full(WORKERS * 8, float(steps))).all()
    return took, told


def run(virtual_cluster, levels, mtbf, seed, steps=60, copies=0.0):
    """Virtual seconds that it takes, and what the program was told of its commits. ``levels``: None is plain
    Dask."""

    async def main(cluster):
        killing = None if mtbf is None else asyncio.ensure_future(_kill(cluster, mtbf, seed))
        try:
            client = await cluster.client()
            with client.as_current():
                return await _program(cluster, client, steps, levels)
        finally:
            if killing is not None:
                killing.cancel()

    # virtual workers have no directory of their own
    with (
        tempfile.TemporaryDirectory() as disk,
        dask.config.set({"hpc.checkpoint.disk": disk}),
        copies_that_take(copies),
    ):
        return virtual_cluster(main, seed, workers=WORKERS, until=_LIMIT)
