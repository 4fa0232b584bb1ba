"""Nodes that only keep copies: no task runs there, and whoever gives one back loses none of its copies."""

import asyncio

import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster, inc

import dask_hpc
from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.model.lending import NodeDesk, NodeRequest
from dask_hpc.model.node import NodeWish

cluster5 = gen_cluster(client=True, nthreads=[("", 1)] * 5)
SIZE = 20_000


def controller(s):
    return s.plugins["dask-hpc-checkpoint"]


def block(number):
    return np.full(SIZE, number, np.uint8)


def own(s):
    """Addresses of the workers on nodes for copies alone."""
    context = s.plugins["dask-hpc"].context
    return [w for name in sorted(context.indices.lent) for w in context.nodes.workers(name)]


async def lend(s, count):
    wish = NodeWish(count, True, "a test wants them")
    s.plugins["dask-hpc"].context.get(NodeDesk).receive(NodeRequest("checkpoint", wish))
    await async_poll_for(lambda: len(own(s)) == count, 5)


async def protected(c, s, worker, count=12):
    """Results on one worker, the copies of which are on all others."""
    futures = [
        c.submit(block, i, workers=[worker], key=f"x-{i}", allow_other_workers=True) for i in range(count)
    ]
    await wait(futures)
    await dask_hpc.protect(futures, "x", client=c)
    await dask_hpc.protected("x", wait=True, client=c)
    return futures


def agents_of(s, futures):
    return {agent for one in futures for agent in controller(s).catalogue.where(one.key)[1]}


@cluster5
async def test_a_node_is_given_back_and_no_copy_is_lost(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-checkpoints") as manager:
        await lend(s, 2)
        before = own(s)
        home = next(w for w in workers if w.address not in before)
        futures = await protected(c, s, home.address)
        assert agents_of(s, futures) >= set(before), "a held node keeps copies all the same"
        answer = await manager.give_back(1)
        (stays,) = own(s)
        (gone,) = set(before) - {stays}
        assert answer["nodes"] == [s.plugins["dask-hpc"].context.nodes.node_of(gone)]
        assert "copies are on others now" in answer["reason"]
        assert gone not in agents_of(s, futures) and not controller(s).catalogue.on(gone)
        kept = next(w for w in workers if w.address == gone).plugins[AGENT].kept
        assert not list(kept.contents())
        assert all(len(controller(s).catalogue.where(one.key)[1]) == 1 for one in futures)
        await s.remove_worker(home.address, stimulus_id="dies", close=False)
        found = await asyncio.wait_for(c.gather(futures), 20)
        assert [int(one[0]) for one in found] == list(range(12)) and all(len(one) == SIZE for one in found)
        assert controller(s).diary.counts["recovered"] == 12
        answer = await manager.give_back(3)
        assert not answer["nodes"] and "always stays" in answer["reason"] and own(s) == [stays]
        assert not s.plugins["dask-hpc"].errors and not controller(s).errors
        told = [row["decision"] for row in await manager.story()]
        told = [one for one in told if one in ("node-request", "lend", "take-back", "returned")]
        assert told == ["node-request", "lend", "take-back", "returned"]


@cluster5
async def test_no_task_runs_on_a_lent_node_until_it_is_given_back(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-checkpoints") as manager:
        await lend(s, 2)
        first = c.map(inc, range(20), key=[f"first-{i}" for i in range(20)])
        await wait(first)
        used = {ws.address for f in first for ws in s.tasks[f.key].who_has}
        assert used and not used & set(own(s))
        status = await manager.status()
        lent = [node["name"] for node in status["nodes"] if node["lent"] == "checkpoint"]
        assert len(lent) == 2 and len(status["holds"]) == 2
        with dask_hpc.job("a", nodes=4) as job:
            future = c.submit(inc, 1)
        await async_poll_for(lambda: job.id in s.plugins["dask-hpc"].context.jobs, 5)
        await async_poll_for(lambda: not s.plugins["dask-hpc"].context.is_awake, 5)
        assert not future.done()
        assert (await manager.give_back(1))["nodes"]
        assert await asyncio.wait_for(future, 10) == 2
        assert len((await manager.status())["holds"]) == 1
        await manager.set(policy="fcfs")
        assert not (await manager.status())["holds"] and not own(s)


@pytest.mark.parametrize("is_room_at_home", [False, True])
@cluster5
async def test_where_there_is_no_room_fewer_nodes_come_back(c, s, *workers, is_room_at_home):
    """A copy beside its result is none."""
    async with await dask_hpc.manage(c, policy="favor-checkpoints") as manager:
        await lend(s, 3)
        home = next(w for w in workers if w.address not in own(s))
        futures = await protected(c, s, home.address)
        for worker in workers:
            if worker is home and is_room_at_home:
                continue
            kept = worker.plugins[AGENT].kept
            kept.budget = kept.allowed = kept.nbytes
            kept.shelf.budget = 0
            await worker.heartbeat()
        before = {one.key: controller(s).catalogue.where(one.key)[1] for one in futures}
        answer = await manager.give_back(2)
        assert answer["nodes"] == [] and "no room" in answer["reason"]
        assert len(own(s)) == 3
        after = {one.key: controller(s).catalogue.where(one.key)[1] for one in futures}
        assert all({*before[key]} <= {*after[key]} for key in before)
        assert not controller(s).errors


def words(s):
    """What the story says about nodes, in order."""
    about = ("node-query", "node-answer", "node-request", "lend", "take-back", "returned")
    happenings = s.plugins["dask-hpc"].context.story.happenings
    return [one.decision for one in happenings if one.decision in about]


async def settled(s):
    await async_poll_for(lambda: not s.plugins["dask-hpc"].context.is_awake, 5)


@cluster5
async def test_who_is_full_asks_at_once_and_gives_all_back_in_the_end(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-checkpoints") as manager:
        futures = await protected(c, s, workers[0].address)
        for worker in workers:
            kept = worker.plugins[AGENT].kept
            kept.budget = kept.allowed = kept.nbytes * 1.05 + 1
            kept.shelf.budget = 0
            await worker.heartbeat()
        for known in controller(s).agents._known.values():
            known.kept = (0.0, known.kept[1] - 2 if known.kept else -9.0, 0.0)
        controller(s).choice.look()
        await async_poll_for(lambda: own(s), 5)
        await settled(s)
        assert words(s) == ["node-request", "lend"]
        rows = await manager.story()
        (lend,) = (row for row in rows if row["decision"] == "lend")
        assert lend["rule"] == "lending: favor-checkpoints" and lend["job"] == "checkpoint"
        assert lend["inputs"]["checkpoint"]["asks"] == 1 and "is urgent" in lend["reason"]
        assert (await manager.replay())["different"] == []
        await dask_hpc.unprotect("x", client=c)
        await async_poll_for(lambda: not own(s), 5)
        assert words(s)[2:] == ["returned"] and futures
        assert not (await manager.status())["holds"]


@cluster5
async def test_who_is_only_busy_asks_whether_anything_is_idle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-checkpoints"):
        futures = await protected(c, s, workers[0].address)
        for worker in workers:
            agent = worker.plugins[AGENT]
            agent.link = agent.traffic.facts()["traffic"] / 2 + 1e-9
            await worker.heartbeat()
        pool = controller(s).choice
        pool.look()
        await settled(s)
        assert words(s) == ["node-query", "node-answer"] and not own(s)
        pool.look()
        await async_poll_for(lambda: own(s), 5)
        assert words(s)[2:] == ["node-request", "lend"] and futures


@cluster5
async def test_nodes_on_which_nothing_is_kept_go_but_for_one(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-checkpoints") as manager:
        futures = await protected(c, s, workers[0].address, count=1)
        keeps = [*agents_of(s, futures)]
        await manager.hold(keeps)  # a node that the user holds is not lent
        await lend(s, 3)
        await manager.release(keeps)
        controller(s).choice.look()
        await settled(s)
        assert len(own(s)) == 3 and futures
        await manager.set(**{"checkpoint.idle": "0s"})
        controller(s).choice.look()
        await settled(s)
        assert len(own(s)) == 1
        assert words(s) == ["node-request", "lend", "returned"]


@cluster5
async def test_odd_orders_and_odd_times(c, s, *workers):
    async with await dask_hpc.manage(c, policy="favor-jobs") as manager:
        for wrong in (-1, 1.5, "two", None):
            try:
                await manager.give_back(wrong)
            except dask_hpc.InputError as error:
                assert "give_back: nodes" in str(error)
            else:
                raise AssertionError(wrong)
        assert (await manager.give_back(1))["nodes"] == []
        await lend(s, 3)
        held = own(s)
        # a task that only a lent node may run gets it
        bound = c.submit(inc, 1, workers=[held[0]], key="bound")
        assert await asyncio.wait_for(bound, 10) == 2
        assert own(s) == held[1:]
        # a node that dies is nobody's; the last one stays
        await s.remove_worker(held[1], stimulus_id="dies", close=False)
        await settled(s)
        assert own(s) == held[2:]
        assert (await manager.give_back(1))["nodes"] == [] and own(s) == held[2:]
        assert not s.plugins["dask-hpc"].errors
    assert not [one for one in s.workers.values() if one.status.name == "paused"]
