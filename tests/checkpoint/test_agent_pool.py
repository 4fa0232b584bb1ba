"""How many agents an item has and how many nodes copies need, from what a cluster's agents say."""

from math import inf

import numpy as np
import psutil
from distributed import Event, wait
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked

import dask_hpc
from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.checkpoint.worker.agent import link_of

NAME = "dask-hpc-checkpoint"
cluster4 = gen_cluster(client=True, nthreads=[("", 1)] * 4)


def block(i, nbytes=2**19):
    return np.full(nbytes // 8, float(i))


async def protected(c, workers, count, first=0):
    futures = [
        c.submit(block, first + i, workers=[workers[i % len(workers)].address], pure=False)
        for i in range(count)
    ]
    await wait(futures)
    await dask_hpc.protect(futures, "x", client=c)
    await dask_hpc.protected("x", wait=True, client=c)
    return futures


def agents_of(s, futures):
    return {agent for one in futures for agent in s.plugins[NAME].catalogue.where(one.key)[1]}


def told(s, decision):
    return [m["reason"] for _, m in s.get_events(NAME) if m["decision"] == decision]


@cluster4
async def test_agents_follow_the_nodes_that_hold_the_data(c, s, *workers):
    changes = {"checkpoint.resize": "malleable", "checkpoint.count": "fixed"}
    async with await dask_hpc.manage(c, policy="checkpoint-agents-rigid") as manager:
        await manager.set(**changes)
        first = await protected(c, workers[:1], 6)
        choice = s.plugins[NAME].choice
        assert choice.known["x"].agents == 1
        known = s.plugins[NAME].catalogue
        assert len({agent for f in first for agent in known.where(f.key)[1]}) == 1
        second = await protected(c, workers[:3], 6, first=100)
        assert choice.known["x"].agents == 3
        assert len({agent for f in second for agent in known.where(f.key)[1]}) in (2, 3)
        await manager.set(**{"checkpoint.resize": "rigid"})
        await protected(c, workers[:2], 6, first=200)
        assert choice.known["x"].agents == 2, "none may be without a node"


@cluster4
async def test_copies_go_first_where_little_is_drawn(c, s, *workers):
    """By the model, as nobody measures: a node that works draws more."""
    async with await dask_hpc.manage(c, policy="checkpoint-agents") as manager:
        await manager.set(**{"checkpoint.rank": "power", "checkpoint.start": "nodes"})
        busy = [c.submit(blocked, "go", workers=[w.address], pure=False) for w in workers[1:3]]
        await async_poll_for(lambda: sum(len(w.state.executing) for w in workers) == 2, 10)
        first = await protected(c, workers[:1], 8)
        assert agents_of(s, first) == {workers[3].address}
        await Event("go").set()
        await wait(busy)


@cluster4
async def test_crowded_agents_want_another_node_and_say_so_once(c, s, *workers):
    futures = await protected(c, workers[:1], 6)
    pool = s.plugins[NAME].choice
    pool.look()
    assert s.plugins[NAME].nodes_wanted == 2 and not told(s, "more-nodes")
    for worker in workers:
        agent = worker.plugins[AGENT]
        agent.kept.budget = agent.kept.allowed = agent.kept.nbytes * 1.05 + 1
        agent.kept.shelf.budget = 0
        await worker.heartbeat()
    for known in s.plugins[NAME].agents._known.values():
        known.kept = (0.0, known.kept[1] - 2, 0.0)
    for _ in range(2):
        pool.look()
    assert s.plugins[NAME].nodes_wanted == 5
    (why,) = told(s, "more-nodes")
    assert "commits fail soon" in why and "95% full" in why and futures


@cluster4
async def test_a_link_that_is_full_wants_another_node(c, s, *workers):
    """Made-up figures stand in for a slow network: this one has no hardware whose speed were known."""
    futures = await protected(c, workers[:1], 6)
    agents = [worker.plugins[AGENT] for worker in workers]
    assert {agent.link for agent in agents} == {inf}
    for agent, worker in zip(agents, workers, strict=True):
        agent.link = 2 * agent.traffic.facts()["traffic"] + 1.0
        await worker.heartbeat()
    pool = s.plugins[NAME].choice
    pool.look()
    assert not told(s, "more-nodes") and s.plugins[NAME].nodes_wanted == 2
    for agent, worker in zip(agents, workers, strict=True):
        agent.link /= 2.2
        await worker.heartbeat()
    pool.look()
    assert s.plugins[NAME].nodes_wanted == 5
    (why,) = told(s, "more-nodes")
    assert "of its link" in why and "when there is one to spare" in why and futures


def test_what_a_link_can_take(monkeypatch):
    """As psutil would tell of a machine with a card of 10 Gbit/s."""
    address = psutil.net_if_addrs()["lo"][0]._replace(address="10.0.0.7")
    stats = psutil.net_if_stats()["lo"]._replace(speed=10_000)
    assert link_of("127.0.0.1") == link_of("nowhere") == inf
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [address], "gone": [address]})
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"eth0": stats})
    assert link_of("10.0.0.7") == 1.25e9


@cluster4
async def test_with_a_program_that_is_over_the_service_goes(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.submit(block, 1, pure=False))
        async for _ in ck.loop(range(2)):
            u = c.submit(block, 2, pure=False)
            ck.update(u=u)
    await u
    assert NAME not in s.plugins
    assert not [name for name in s.clients if name.startswith("dask-hpc")]


@cluster4
async def test_others_move_at_the_price_of_a_few_looks(c, s, *workers):
    """Under a microsecond a transition, by the processor's time."""
    from timeit import repeat

    await protected(c, workers[:1], 2)
    transition = s.plugins[NAME].transition
    best = min(repeat(lambda: transition("other", "waiting", "processing"), number=20_000, repeat=5)) / 20_000
    print(f"{best * 1e9:.0f} ns")
    assert best < 5e-6  # 1 us on a machine that has nothing else to do
