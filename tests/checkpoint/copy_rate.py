"""How fast agents copy, beside Dask's own transfer of the same data between the same two workers."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from distributed import wait

from dask_hpc.checkpoint.scheduler.controller import NAME, Controller


@dataclass(frozen=True)
class Rates:
    """Bytes per second: the best of a few times, each with new data."""

    nbytes: int
    plain: float
    agents: float
    sent: float

    @property
    def ratio(self):
        """Of the copies that an agent fetches."""
        return self.agents / self.plain


def _made(seed, size):
    return np.random.default_rng(seed).random(size // 8)


async def _plain(keys, source, dask_worker):
    """As a worker gathers what its tasks need, in one message."""
    from distributed.worker import get_data_from_worker

    begin = perf_counter()
    found = await get_data_from_worker(dask_worker.rpc, keys, source, who=dask_worker.address)
    assert len(found["data"]) == len(keys)
    return perf_counter() - begin


async def _copied(keys, source, dask_worker):
    agent = dask_worker.plugins["dask-hpc-agent"]
    begin = perf_counter()
    found = await agent.take([{"key": key, "source": source} for key in keys])
    seconds = perf_counter() - begin
    assert all(one["moved"] for one in found), found
    await agent.drop([one["content"] for one in found])
    return seconds


async def _sent(keys, to, dask_worker):
    agent = dask_worker.plugins["dask-hpc-agent"]
    begin = perf_counter()
    found = await agent.send([{"key": key} for key in keys], to)
    seconds = perf_counter() - begin
    assert all(one["moved"] for one in found), found
    await dask_worker.rpc(to).hpc_agent_drop(contents=[one["content"] for one in found])
    return seconds


def compare(client, blocks=4, nbytes=2**25, times=3):
    """For so many results of that size each, on a cluster with two workers at least."""
    client.register_plugin(Controller(), name=NAME)
    source, target = sorted(client.nthreads())[:2]
    best = {"plain": np.inf, "agents": np.inf, "sent": np.inf}
    for time in range(times):
        for name, call, where, other in (
            ("plain", _plain, target, source),
            ("agents", _copied, target, source),
            ("sent", _sent, source, target),
        ):
            some = [
                client.submit(_made, seed, nbytes, workers=[source], key=f"{name}-{time}-{seed}")
                for seed in range(blocks)
            ]
            wait(some)
            keys = [one.key for one in some]
            seconds = client.run(call, keys, other, workers=[where])[where]
            best[name] = min(best[name], seconds)
    return Rates(blocks * nbytes, **{name: blocks * nbytes / seconds for name, seconds in best.items()})
