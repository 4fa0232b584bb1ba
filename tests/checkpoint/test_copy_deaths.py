"""Killed at any step of a copy: the commit ends, nothing dangles, and what is missing is made later."""

import asyncio

import dask
import numpy as np
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster, wait
from distributed.utils_test import async_poll_for
from forks import forked_nannies

import dask_hpc
from dask_hpc.checkpoint.faults import COPY_POINTS, VARIABLE
from dask_hpc.checkpoint.worker import transfer
from dask_hpc.checkpoint.worker.agent import NAME as AGENT

NAME = "dask-hpc-checkpoint"
#: who dies: the worker that has the results, or an agent that fetches them
GIVES = ("give", "give-part")


def block(i):
    """The first two go in two parts; dealt in turn to two agents, each of them has one."""
    return np.full(transfer.CHUNK // 8 + 1000 if i < 2 else 1000, float(i))


def survivors_agree(s):
    """What agents have is what the catalogue says."""

    async def ask():
        known = s.plugins[NAME].catalogue
        for address in s.workers:
            if sorted(await s.rpc(address).hpc_agent_contents()) != sorted(known.on(address)):
                return False
        return True

    return ask()


def workers(env):
    """Three with nannies: who dies comes back, and dies again there."""
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {"dashboard_address": ":0", "host": "127.0.0.1"}},
        workers={
            name: {"cls": Nanny, "options": {"nthreads": 1, "env": env.get(name, {})}}
            for name in ("source", "agent", "other")
        },
        silence_logs=50,
    )


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("point", COPY_POINTS)
def test_a_death_at_each_step(point, again):
    times = (2 if point.endswith("part") else 3) if again else 1
    armed = "source" if point in GIVES else "agent"
    with (
        forked_nannies(),
        # all results are made at the source: with some elsewhere, others fetch the two parts
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        workers({armed: {VARIABLE: f"{point}:{times}"}}) as cluster,
        Client(cluster) as client,
    ):
        s = cluster.scheduler
        client.wait_for_workers(3)
        futures = client.map(block, range(30), workers=["source"], allow_other_workers=True, pure=False)
        wait(futures)
        before = client.gather(futures)
        dask_hpc.protect(futures, name="x", client=client)
        client.sync(_commit_ends, client)
        client.sync(_all_is_well, client, s, futures)
        for one, other in zip(client.gather(futures), before, strict=True):
            np.testing.assert_array_equal(one, other)
        assert not s.plugins[NAME].errors
        assert [msg for _, msg in s.get_events("all") if msg["action"] == "remove-worker"], "nobody died"


async def _commit_ends(client):
    await asyncio.wait_for(client.scheduler.hpc_protected_commit(name="x"), 60)


async def _all_is_well(client, s, futures):
    """Each result on two workers that live, nothing pinned or promised, and agents and catalogue agree."""
    known = s.plugins[NAME]

    def has_settled():
        agents = [known.catalogue.where(future.key)[1] for future in futures]
        holders = [{w.address for w in s.tasks[future.key].who_has or ()} for future in futures]
        return (
            all(one and set(one) <= set(s.workers) for one in agents)
            and all(len(h | {*a}) > 1 for h, a in zip(holders, agents, strict=True))
            and not (NAME in s.clients and s.clients[NAME].wants_what)
            and not any(known.agents.asked(address) is None for address in s.workers)
        )

    await async_poll_for(has_settled, 60)
    for _ in range(3):
        for address in s.workers:
            await client.run(_say, workers=[address])
        await known.keeper.ask_who_differs()
    deadline = asyncio.get_running_loop().time() + 20
    while not await survivors_agree(s):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.1)


async def _say(dask_worker):
    assert AGENT in dask_worker.plugins
    await dask_worker.heartbeat()
