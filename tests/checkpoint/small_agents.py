"""Small clusters whose workers have agents, and ways to look at them."""

import numpy as np
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc.checkpoint.scheduler.controller import NAME, Controller
from dask_hpc.checkpoint.worker.agent import NAME as AGENT

PART = 1000  # bytes of a message, so that few make a large block

agents3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)


def little_parts(*agents):
    """So small that blocks of some thousand bytes are large ones."""
    for agent in agents:
        agent.giver.chunk = PART


def agent_of(worker):
    return worker.plugins[AGENT]


async def start(c, *workers):
    """The service, until all workers have agents."""
    await c.register_plugin(Controller(), name=NAME)
    await async_poll_for(
        lambda: all(AGENT in w.plugins and agent_of(w).kept.shelf.folder for w in workers), 10
    )
    return [agent_of(worker) for worker in workers]


async def results(c, worker, *sizes, name="x"):
    """Keys of results on a worker, each of as many bytes."""
    some = [
        c.submit(np.full, size, number, np.uint8, workers=[worker.address], key=f"{name}-{number}")
        for number, size in enumerate(sizes)
    ]
    await wait(some)
    vars(worker).setdefault("kept_futures", []).append(some)  # they live as long as the worker does
    return some


def wanted(futures, worker):
    return [{"key": one.key, "source": worker.address} for one in futures]


async def copy(s, futures, like=None):
    """A copy of each that is in memory."""
    service = s.plugins[NAME]
    orders = service.placement.orders(((one.key, 1) for one in futures), like)
    return await service.maker.make(orders)


def value(agent, content):
    return agent.kept.intact(content).value()
