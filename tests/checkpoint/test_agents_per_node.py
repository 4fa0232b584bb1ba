"""How many of a node's workers keep copies of an item, where a node has several: as the strategy says."""

from collections import Counter

import numpy as np
from distributed import wait
from distributed.utils_test import gen_cluster

import dask_hpc
from dask_hpc.checkpoint.worker.agent import NAME as AGENT

NAME = "dask-hpc-checkpoint"
#: three nodes with three workers each
HOSTS = [f"127.0.0.{host}" for host in (1, 2, 3) for _ in range(3)]
nine = gen_cluster(client=True, nthreads=[(host, 1) for host in HOSTS], config={"hpc.node": "host"})


async def protected(c, worker, name, count=24):
    sizes, what = range(1000, 1000 + count), float(sum(map(ord, name)))  # the same would be kept once
    futures = c.map(np.full, sizes, fill_value=what, workers=[worker.address], pure=False)
    await wait(futures)
    await dask_hpc.protect(futures, name, client=c)
    await c.scheduler.hpc_protected_commit(name=name)
    return futures


def kept(s, futures):
    """By host, how many blocks each of its workers keeps."""
    known = s.plugins[NAME].catalogue
    agents = Counter(agent for future in futures for agent in known.where(future.key)[1])
    hosts = {}
    for agent, blocks in sorted(agents.items()):
        hosts.setdefault(agent.split("/")[-1].split(":")[0], []).append(blocks)
    return hosts


@nine
async def test_a_node_has_as_many_agents_of_an_item_as_the_strategy_says(c, s, worker, *others):
    """The data is on the first node, so that its agents come last, and blocks go elsewhere."""
    cases = [
        ({}, [[4, 4, 4], [4, 4, 4]]),
        ({"deal": "fill"}, [[4, 4, 4], [4, 4, 4]]),  # no node has more of them than workers
        ({"per_node": 1}, [[12], [12]]),
        ({"per_node": 2}, [[6, 6], [6, 6]]),
        ({"start": "nodes"}, [[24]]),
    ]
    async with await dask_hpc.manage(c, policy="checkpoint-agents") as manager:
        for number, (changes, there) in enumerate(cases):
            changes = {"count": "fixed", "per_node": 80, "start": "all", "deal": "round-robin", **changes}
            await manager.set(**{f"checkpoint.{name}": value for name, value in changes.items()})
            found = kept(s, await protected(c, worker, f"x{number}"))
            assert "127.0.0.1" not in found and sorted(found.values()) == there, changes
            await c.scheduler.hpc_unprotect(name=f"x{number}")


@nine
async def test_agents_are_dealt_to_nodes_as_the_strategy_says(c, s, *workers):
    """Three agents of data that is on one worker of each node."""
    seen = {}
    async with await dask_hpc.manage(c, policy="checkpoint-agents") as manager:
        await manager.set(**{"checkpoint.count": "fixed", "checkpoint.start": "nodes"})
        for deal in ("round-robin", "fill", "block"):
            await manager.set(**{"checkpoint.deal": deal, "checkpoint.candidates": 2})
            futures = [
                c.submit(np.full, 1000, i, workers=[w.address], pure=False) for i, w in enumerate(workers)
            ]
            await wait(futures)
            await dask_hpc.protect(futures, deal, client=c)
            await c.scheduler.hpc_protected_commit(name=deal)
            assert s.plugins[NAME].choice.known[deal].agents == 3
            hosts = map(s.plugins[NAME].nodes.node_of, s.plugins[NAME].choice._seats[deal])
            seen[deal] = sorted(Counter(hosts).values())
    assert seen == {"round-robin": [1, 2], "fill": [3], "block": [1, 2]}


@nine
async def test_an_item_keeps_its_workers_though_others_have_more_room(c, s, worker, *others):
    async with await dask_hpc.manage(c, policy="checkpoint-agents") as manager:
        await manager.set(**{"checkpoint.count": "fixed", "checkpoint.per_node": 1})
        await protected(c, worker, "x")
        seats = set(s.plugins[NAME].choice._seats["x"])
        for one in [worker, *others]:  # all have room for as much, but some is taken
            kept = one.plugins[AGENT].kept
            kept.budget, kept.shelf.budget = 10_000_000, 0
            await one.heartbeat()
        await protected(c, worker, "x", count=30)
        assert set(s.plugins[NAME].choice._seats["x"]) == seats and len(seats) == 3


@nine
async def test_the_bound_is_on_the_agents_of_all_items(c, s, worker, *others):
    async with await dask_hpc.manage(c, policy="checkpoint-agents") as manager:
        await manager.set(**{"checkpoint.count": "fixed", "checkpoint.per_node": 2})
        one = await protected(c, worker, "one")
        two = await protected(c, worker, "two")
        choice = s.plugins[NAME].choice
        assert {host: len(agents) for host, agents in kept(s, one).items()} == {
            "127.0.0.2": 2,
            "127.0.0.3": 2,
        }
        assert choice._had == {"one": 6, "two": 1} and len(kept(s, two)) == 1, "an item always has one"
        await c.scheduler.hpc_unprotect(name="one")
        three = await protected(c, worker, "three")
        assert choice._had == {"two": 1, "three": 5} and sum(map(len, kept(s, three).values())) >= 3
