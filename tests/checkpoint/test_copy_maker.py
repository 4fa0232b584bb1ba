"""Copies are made on real clusters: spread, within room, in a window, whatever agents answer."""

import asyncio
from dataclasses import replace
from time import thread_time

import numpy as np
import pytest
from distributed import Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import AgentChoice
from dask_hpc.checkpoint.scheduler.copies import CopyMaker
from dask_hpc.checkpoint.worker import agent as agents
from dask_hpc.checkpoint.worker.kept import Shelf
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)
PINS = "dask-hpc-checkpoint"


def controller_of(s):
    return s.plugins["dask-hpc-checkpoint"]


def agent_of(worker):
    return worker.plugins[agents.NAME]


def block(i, nbytes=1000):
    return np.full(nbytes, i % 251, np.uint8) + np.frombuffer(np.int64(i).tobytes() * (nbytes // 8), np.uint8)


async def blocks_on(c, worker, count, nbytes=1000):
    futures = c.map(block, range(count), nbytes=nbytes, workers=[worker.address], pure=False)
    await wait(futures)
    return futures


async def commit(c, name="x"):
    return await c.scheduler.hpc_protected_commit(name=name)


def pinned(s):
    client = s.clients.get(PINS)
    return set() if client is None else set(client.wants_what)


def where(s, futures):
    known = controller_of(s).catalogue
    return [known.where(future.key)[1] for future in futures]


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 3, timeout=120)  # the machine may be busy
async def test_a_thousand_blocks_spread_over_the_other_nodes(c, s, a, b, d):
    futures = await blocks_on(c, a, 1000)
    await dask_hpc.protect(futures, name="x", client=c)
    await commit(c, "x")
    found = where(s, futures)
    assert all(len(one) == 1 and one != [a.address] for one in found)
    assert abs(sum(one == [b.address] for one in found) - 500) <= 1
    assert not pinned(s) and not controller_of(s).errors


@cluster3
async def test_an_agent_is_not_overfilled_and_what_has_no_room_comes_later(c, s, a, b, d):
    small = await blocks_on(c, a, 1)
    await dask_hpc.protect(small, name="small", client=c)
    await commit(c, "small")
    for worker in (b, d):
        agent_of(worker).kept.budget, agent_of(worker).kept.shelf = 10_500, Shelf()
        await worker.heartbeat()
    futures = await blocks_on(c, a, 30)
    await dask_hpc.protect(futures, name="x", client=c)
    await commit(c, "x")
    assert 18 <= sum(bool(one) for one in where(s, futures)) <= 21
    told = [m["reason"] for _, m in s.get_events(PINS) if m["decision"] == "agents"]
    assert len(told) == 1 and "no copy yet" in told[0]
    for worker in (b, d):
        agent_of(worker).kept.budget = 1e6
        await worker.heartbeat()
    await async_poll_for(lambda: all(where(s, futures)), 20)
    assert not pinned(s) and not controller_of(s).errors


@cluster3
async def test_no_more_than_a_window_is_pinned(c, s, a, b, d, monkeypatch):
    futures = await blocks_on(c, a, 40, nbytes=10_000)
    await dask_hpc.protect(futures[:1], name="y", client=c)
    await commit(c, "y")
    maker, most, enter = controller_of(s).maker, [], controller_of(s).maker._enter
    monkeypatch.setattr(AgentChoice, "rule", replace(AgentRule(), window=50_000.0))

    def look(parcel):
        enter(parcel)
        most.append(sum(task.nbytes for task in s.clients[PINS].wants_what))

    maker._enter = look
    with_small_parcels(maker)
    await dask_hpc.protect(futures, name="x", client=c)
    await commit(c, "x")
    assert all(where(s, futures))
    assert 50_000 <= max(most) <= 100_000 and not pinned(s)


def with_small_parcels(maker):
    from dask_hpc.checkpoint.scheduler import copies as module

    module._BATCH_BYTES, before = 30_000, module._BATCH_BYTES
    maker._scheduler.loop.call_later(30, setattr, module, "_BATCH_BYTES", before)


@cluster3
async def test_two_copies_are_on_two_nodes(c, s, a, b, d):
    futures = await blocks_on(c, a, 5)
    await dask_hpc.protect(futures[:1], name="y", client=c)
    await commit(c, "y")
    await c.scheduler.hpc_protect(name="x", keys=[f.key for f in futures], copies=2)
    await commit(c)
    assert where(s, futures) == [sorted([b.address, d.address])] * 5


@cluster3
async def test_what_is_released_in_the_middle_leaves_nothing_behind(c, s, a, b, d):
    futures = await blocks_on(c, a, 20)
    others = await blocks_on(c, b, 1)
    await dask_hpc.protect(others, name="y", client=c)
    await commit(c, "y")
    going, release = asyncio.Event(), asyncio.Event()
    maker, ask = controller_of(s).maker, controller_of(s).maker._ask

    async def slow(*args):
        going.set()
        found = await ask(*args)
        await release.wait()
        return found

    maker._ask = slow
    await c.scheduler.hpc_protect(name="x", keys=[f.key for f in futures])
    committing = asyncio.ensure_future(commit(c))
    await going.wait()
    keys = [future.key for future in futures]
    del futures
    await c.scheduler.hpc_unprotect(name="x")
    release.set()
    await committing
    await async_poll_for(lambda: not any(key in s.tasks for key in keys), 10)
    assert not pinned(s)
    kept = sum(len(agent_of(worker).kept) for worker in (a, b, d))
    assert kept == 1 == len(controller_of(s).catalogue.contents)


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_a_worker_alone_has_nobody_and_the_next_one_helps(c, s, a):
    futures = await blocks_on(c, a, 3)
    await dask_hpc.protect(futures, name="x", client=c)
    await commit(c, "x")
    assert not any(where(s, futures))
    async with Worker(s.address) as b:
        await async_poll_for(lambda: where(s, futures) == [[b.address]] * 3, 20)
    assert not controller_of(s).errors


@pytest.mark.slow
@pytest.mark.usefixtures("own_heap")
@cluster3
async def test_a_hundred_thousand_blocks_are_dealt_in_small_steps(c, s, a, b, d):
    """Of all that the commit of many blocks does on the scheduler, nothing takes long in one piece."""
    futures = await blocks_on(c, a, 1)
    await dask_hpc.protect(futures, name="y", client=c)
    await commit(c, "y")
    maker = controller_of(s).maker
    pauses = []
    for name in ("_next", "_deal"):
        setattr(maker, name, timed(getattr(maker, name), pauses))
    keys = (futures[0].key for _ in range(100_000))
    sent = []

    async def send(agent, parcel, dealing, made):
        sent.append(len(parcel))
        maker._leave(parcel)

    maker._send = send
    await maker.make(controller_of(s).placement.orders((key, 2) for key in keys))
    assert sum(sent) == 100_000
    print(f"longest pause: {max(pauses) * 1e3:.1f} ms")
    assert max(pauses) < 0.2


def timed(call, seconds):
    """Notes for how long its processor could do nothing else."""

    def measured(*args):
        begun = thread_time()
        try:
            return call(*args)
        finally:
            seconds.append(thread_time() - begun)

    return measured


@cluster3
async def test_domains_follow_the_hosts(c, s, a, b, d):
    futures = await blocks_on(c, a, 1)
    await dask_hpc.protect(futures, name="x", client=c)
    await commit(c, "x")
    agents_ = controller_of(s).agents
    assert len({agents_.domain_of(worker.address) for worker in (a, b, d)}) == 3
    assert {one.name for one in agents_.able()} == set(compat.workers_by_name(s))
    with agents_.without([a.address]):
        assert {one.name for one in agents_.able()} == {b.address, d.address}
    agents_.is_silent(b.address)
    assert {one.name for one in agents_.able()} == {a.address, d.address}


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_commit_costs_is_not_learnt_from_who_does_not_answer(answers, monkeypatch):
    @cluster3
    async def run(c, s, a, b, d):
        futures = await blocks_on(c, a, 4)
        asked, transfer = [], CopyMaker._transfer

        async def slowly(maker, agent, blocks):
            asked.append(agent)
            if len(asked) == 1:
                await asyncio.sleep(0.5)
                if not answers:
                    raise OSError("it is dead")
            return await transfer(maker, agent, blocks)

        monkeypatch.setattr(CopyMaker, "_transfer", slowly)
        await dask_hpc.protect(futures, "x", every="1 h", client=c)
        series = controller_of(s).protected["x"]
        costs = series.schedule.costs
        before = costs["partner"]
        await commit(c)
        assert len(where(s, futures)) == 4
        assert (costs["partner"] > before + 0.1) if answers else costs["partner"] == before

    run()


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_what_all_workers_hold_is_copied_beside_one_of_them(c, s, a, b):
    futures = await blocks_on(c, a, 4)
    await c.replicate(futures, 2)
    await dask_hpc.protect(futures, "x", client=c)
    assert (await commit(c))["copied"] == 4
    catalogue = controller_of(s).catalogue
    assert all(len(catalogue.where(one.key)[1]) == 1 for one in futures)
