"""A producer for tests that share a process with their cluster: its blocking calls go to a thread."""

import asyncio

import numpy as np
from distributed.utils_test import async_poll_for

import dask_hpc
from dask_hpc.bridge.worker import NAME

BLOCKS = 4


def make(i, step):
    return np.full(4, 10.0 * step + i)


def whole(step):
    return np.concatenate([make(i, step) for i in range(BLOCKS)])


async def declare(s, rank=0, **options):
    options = {"shape": 4 * BLOCKS, "chunks": 4, "rank": rank} | options
    return await asyncio.to_thread(dask_hpc.Bridge, s.address, "heat", **options)


async def put(bridge, steps, blocks=range(BLOCKS), variable="t"):
    """What each call answered."""
    return [
        await asyncio.to_thread(bridge.put, variable, make(i, step), i, step)
        for step in steps
        for i in blocks
    ]


async def known(s, *futures):
    """The scheduler has heard of these: before, nobody waits for what they read."""
    await async_poll_for(lambda: all(future.key in s.tasks for future in futures), 10)


async def close(*bridges):
    for bridge in bridges:
        await asyncio.to_thread(bridge.close)


def plugin_of(s):
    return s.plugins[NAME]


def mailbox_of(worker):
    return next(plugin for name, plugin in worker.plugins.items() if name.startswith(NAME))


def shelf_of(worker):
    (shelf,) = mailbox_of(worker).shelves.values()
    return shelf
