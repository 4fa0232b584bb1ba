"""A program of so many steps on a virtual cluster whose workers are killed at random, kept in one way."""

import asyncio
import random
import tempfile
import time

import dask
import dask.array as da
import numpy as np
from distributed import wait

import dask_hpc

WORKERS = 4
_AWAY = 1.0  # seconds until another worker takes the place of one that was killed
_LIMIT = 3600.0


def step(block, seconds=1.0):
    time.sleep(seconds)
    return block + 1


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


def run(virtual_cluster, levels, mtbf, seed, steps=60):
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
    with tempfile.TemporaryDirectory() as disk, dask.config.set({"hpc.checkpoint.disk": disk}):
        return virtual_cluster(main, seed, workers=WORKERS, until=_LIMIT)
