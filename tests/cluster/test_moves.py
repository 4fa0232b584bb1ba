"""Moves carried out on real workers: nothing is lost, whatever happens meanwhile."""

import asyncio
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from distributed import Event, Nanny, Worker, wait
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils_test import BlockedGetData, async_poll_for, gen_cluster, inc
from small_cluster import blocked

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import moves
from dask_hpc.planning.moves.leaving import Move, evacuate

quiet = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3, config=quiet)


class Told(list):
    def __call__(self, decision, reason):
        self.append((decision, reason))


def held_by(s, worker):
    return set(compat.keys_on(s, worker.address))


async def spread_out(c, worker, count, nbytes=100, name="x"):
    """``count`` results, made on one worker."""
    futures = [
        c.submit(np.ones, nbytes, dtype="u1", key=(name, i), workers=[worker.address]) for i in range(count)
    ]
    await wait(futures)
    return futures


def all_to(blocks, target):
    return [Move(block.key, block.nbytes, block.holders[0], target.address) for block in blocks]


@cluster3
async def test_results_move(c, s, a, b, d):
    futures = await spread_out(c, a, 10)
    told = Told()
    blocks = await moves.blocks_on(s, [a.address])
    assert {(block.key, block.holders) for block in blocks} == {(f.key, (a.address,)) for f in futures}
    assert all(block.nbytes >= 100 for block in blocks)
    assert await moves.carry_out(s, all_to(blocks, b), "a test", told) == set()
    assert held_by(s, b) == {f.key for f in futures} and not held_by(s, a)
    await async_poll_for(lambda: not a.data and len(b.data) == 10, 5)
    [(decision, reason)] = told
    assert decision == "move" and "10 results" in reason and reason.endswith("a test")
    assert "from 1 worker to 1 worker" in reason
    assert all(f.status == "finished" for f in futures)


@cluster3
async def test_evacuation_end_to_end(c, s, a, b, d):
    futures = await spread_out(c, a, 12)
    plan = evacuate(await moves.blocks_on(s, s.workers), [a.address], moves.rooms_on(s, s.workers))
    assert await moves.carry_out(s, plan.moves, "a leaves", Told()) == set()
    assert not held_by(s, a)
    assert {len(held_by(s, b)), len(held_by(s, d))} == {6}
    await a.close()
    assert sum(map(int, map(len, await c.gather(futures)))) == 1200


async def from_blocked(s, c, count=3, nbytes=100):
    """Results on a worker that hangs when asked for data."""
    x = await BlockedGetData(s.address, name="x")
    return x, await spread_out(c, x, count, nbytes)


@cluster3
async def test_the_source_dies_in_the_middle(c, s, a, b, d):
    x, futures = await from_blocked(s, c)
    told = Told()
    doing = asyncio.create_task(
        moves.carry_out(s, all_to(await moves.blocks_on(s, [x.address]), b), "why", told)
    )
    await x.in_get_data.wait()
    await s.remove_worker(x.address, close=False, stimulus_id="test")
    assert await doing == {f.key for f in futures}
    assert told[0][0] == "not-moved" and "lost with the worker" in told[0][1]
    assert (
        list(moves.blocks_of(s, [f.key for f in futures])) == []
    )  # may be made there only, as the user said
    x.block_get_data.set()
    await x.close()


@cluster3
async def test_the_source_dies_but_another_has_a_copy(c, s, a, b, d):
    x, futures = await from_blocked(s, c, 1)
    doing = asyncio.create_task(
        moves.carry_out(s, all_to(await moves.blocks_on(s, [x.address]), b), "", Told())
    )
    await x.in_get_data.wait()
    x.block_get_data.set()
    await doing
    x.block_get_data.clear()
    # Two copies, and the one that was meant to serve dies.
    x.in_get_data.clear()
    compat.copy_to(s, x.address, [futures[0].key], "test")
    task = compat.find_task(s, futures[0].key)
    await async_poll_for(lambda: len(compat.holders(task)) == 2, 5)
    move = Move(futures[0].key, 100, x.address, d.address)
    doing = asyncio.create_task(moves.carry_out(s, [move], "", Told()))
    await async_poll_for(lambda: x.in_get_data.is_set() or doing.done(), 5)
    await s.remove_worker(x.address, close=False, stimulus_id="test")
    assert await doing == set()
    assert d.address in compat.holders(task)
    x.block_get_data.set()
    await x.close()


@cluster3
async def test_the_target_dies_or_pauses(c, s, a, b, d):
    x, futures = await from_blocked(s, c)
    y, z = await Worker(s.address), await Worker(s.address)
    blocks = await moves.blocks_on(s, [x.address])
    told = Told()
    plan = [*all_to(blocks[:1], y), *all_to(blocks[1:2], z), *all_to(blocks[2:], b)]
    doing = asyncio.create_task(moves.carry_out(s, plan, "why", told))
    await x.in_get_data.wait()
    y.status = Status.paused
    await z.close()
    x.block_get_data.set()
    # What was under way to the paused one may still arrive, or be reported: never is it nowhere.
    failed = await doing
    assert blocks[1].key in failed and blocks[2].key not in failed
    assert any(decision == "not-moved" and "takes nothing" in reason for decision, reason in told)
    assert held_by(s, x) | held_by(s, y) | held_by(s, b) == {f.key for f in futures}
    assert all(f.status == "finished" for f in futures)
    await y.close()
    await x.close()


@cluster3
async def test_a_target_that_takes_nothing_is_not_asked(c, s, a, b, d):
    futures = await spread_out(c, a, 2)
    blocks = await moves.blocks_on(s, [a.address])
    b.status = Status.paused
    await async_poll_for(lambda: not compat.is_running(s, b.address), 5)
    assert set(moves.rooms_on(s, [b.address, d.address, "tcp://nobody:1"])) == {d.address}
    plan = [*all_to(blocks[:1], b), Move(blocks[1].key, 100, a.address, "tcp://nobody:1")]
    assert await moves.carry_out(s, plan, "", Told()) == {f.key for f in futures}
    assert len(held_by(s, a)) == 2


@cluster3
async def test_released_meanwhile(c, s, a, b, d):
    x, futures = await from_blocked(s, c)
    told = Told()
    plan = all_to(await moves.blocks_on(s, [x.address]), b)
    doing = asyncio.create_task(moves.carry_out(s, plan, "", told))
    await x.in_get_data.wait()
    for f in futures:
        f.release()
    await async_poll_for(lambda: not s.tasks, 5)
    assert await doing == set()
    assert await moves.carry_out(s, plan, "", told) == set()  # none of them was known at the start
    assert not told
    x.block_get_data.set()
    await async_poll_for(lambda: not b.data, 5)
    await x.close()


@cluster3
async def test_moved_by_somebody_else(c, s, a, b, d):
    futures = await spread_out(c, a, 2)
    blocks = await moves.blocks_on(s, [a.address])
    assert await moves.carry_out(s, all_to(blocks, b), "", Told()) == set()
    told = Told()
    assert await moves.carry_out(s, all_to(blocks, d), "", told) == set()
    assert not told and held_by(s, b) == {f.key for f in futures}
    # Two at the same time: each key has one place in the end.
    blocks = await moves.blocks_on(s, [b.address])
    await asyncio.gather(
        moves.carry_out(s, all_to(blocks, a), "", told), moves.carry_out(s, all_to(blocks, d), "", told)
    )
    assert held_by(s, a) | held_by(s, d) == {f.key for f in futures}
    assert not held_by(s, b)


@cluster3
async def test_a_running_task_keeps_its_data(c, s, a, b, d):
    """Dask's worker fails hard if a copy that is in use is taken away."""
    [future] = await spread_out(c, a, 1)
    user = c.submit(blocked, "go", future, workers=[a.address])
    task = compat.find_task(s, future.key)
    await async_poll_for(lambda: compat.is_used_on(task, a.address), 5)
    doing = asyncio.create_task(
        moves.carry_out(s, all_to(await moves.blocks_on(s, [a.address]), b), "", Told())
    )
    await async_poll_for(lambda: b.address in compat.holders(task), 5)
    for _ in range(3):  # drops the new copy each time, and it is fetched again
        s.extensions["amm"].run_once()
        assert compat.holders(task) == (a.address,)
        await async_poll_for(lambda: b.address in compat.holders(task), 5)
    assert not doing.done() and future.key in a.data
    await Event("go").set()
    assert await doing == set()
    assert compat.holders(task) == (b.address,)
    assert await user == a.address and a.status == Status.running


@cluster3
async def test_a_source_that_leaves_keeps_what_its_tasks_use(c, s, a, b, d):
    [future] = await spread_out(c, a, 1)
    user = c.submit(blocked, "go", future, workers=[a.address])
    task = compat.find_task(s, future.key)
    await async_poll_for(lambda: compat.is_used_on(task, a.address), 5)
    a.status = Status.paused
    await async_poll_for(lambda: not compat.is_running(s, a.address), 5)
    plan = all_to(await moves.blocks_on(s, [a.address]), b)
    assert await moves.carry_out(s, plan, "", Told()) == set()
    s.extensions["amm"].run_once()
    assert set(compat.holders(task)) == {a.address, b.address}  # a's goes when a goes
    await Event("go").set()
    await user


@cluster3
async def test_a_closing_source_still_gives(c, s, a, b, d):
    """Its data can be fetched until its plugins are torn down: that is when farewells are said."""

    class Linger(WorkerPlugin):
        name = "linger"

        async def teardown(self, worker):
            await Event("farewell").wait()

    futures = await spread_out(c, a, 5)
    await c.register_plugin(Linger())
    closing = asyncio.create_task(a.close())
    await async_poll_for(lambda: not compat.is_running(s, a.address), 5)
    assert a.status == Status.closing
    plan = evacuate(await moves.blocks_on(s, s.workers), [a.address], moves.rooms_on(s, s.workers))
    assert await moves.carry_out(s, plan.moves, "farewell", Told()) == set()
    await Event("farewell").set()
    await closing
    assert all(f.status == "finished" for f in futures)
    assert sum(map(len, await c.gather(futures))) == 500


@pytest.mark.slow
@cluster3
async def test_a_thousand_small_results(c, s, a, b, d):
    futures = c.map(inc, range(1000), workers=[a.address])
    await wait(futures)
    plan = evacuate(await moves.blocks_on(s, s.workers), [a.address], moves.rooms_on(s, s.workers))
    assert len(plan.moves) == 1000
    assert await moves.carry_out(s, plan.moves, "", Told()) == set()
    assert len(held_by(s, b)) + len(held_by(s, d)) == 1000 and not held_by(s, a)
    assert sum(await c.gather(futures)) == sum(range(1001))


@cluster3
async def test_pinned_results_may_be_moved(c, s, a, b, d):
    """``workers=`` says where a task runs, not where its result lies."""
    f = c.submit(inc, 1, key="pinned", workers=[a.address])
    await f
    assert await moves.carry_out(s, all_to(moves.blocks_of(s, ["pinned"]), b), "", Told()) == set()
    assert held_by(s, b) == {"pinned"} and await f == 2


class Counter:
    n = 0


@cluster3
async def test_actors_stay(c, s, a, b, d):
    actor = await c.submit(Counter, actor=True, workers=[a.address], key="actor")
    assert await moves.blocks_on(s, [a.address]) == list(moves.blocks_of(s, ["actor", "nothing"])) == []
    told = Told()
    assert await moves.carry_out(s, [Move("actor", 1, a.address, b.address)], "why", told) == {"actor"}
    assert "an actor stays" in told[0][1]
    assert await actor.n == 0


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": "10 MB"},
    config=quiet | {"distributed.worker.memory.target": 1e-9, "distributed.worker.memory.spill": False},
)
async def test_spilled_results_move(c, s, a, b):
    futures = await spread_out(c, a, 3, 1000)
    await async_poll_for(lambda: len(a.data.slow) == 3, 5)
    assert await moves.carry_out(s, all_to(await moves.blocks_on(s, [a.address]), b), "", Told()) == set()
    assert held_by(s, b) == {f.key for f in futures}
    assert [len(r) for r in await c.gather(futures)] == [1000] * 3


@cluster3
async def test_bytes_on_their_way_are_bounded(c, s, a, b, d):
    x, _futures = await from_blocked(s, c, 10, 1000)
    blocks = await moves.blocks_on(s, [x.address])
    before = moves.rooms_on(s, [b.address])[b.address]
    with patched(moves, "WINDOW", 3 * blocks[0].nbytes):
        doing = asyncio.create_task(moves.carry_out(s, all_to(blocks, b), "", Told()))
        await x.in_get_data.wait()
        for _ in range(3):
            await asyncio.sleep(moves.LOOK)
            assert moves._coming[s][b.address] == 3 * blocks[0].nbytes
        assert moves.rooms_on(s, [b.address])[b.address] <= before - 3 * blocks[0].nbytes
        x.block_get_data.set()
        assert await doing == set()
    assert len(held_by(s, b)) == 10 and not moves._coming[s][b.address]
    with patched(moves, "WINDOW", 1):  # each larger than the window: one at a time
        assert await moves.carry_out(s, all_to(await moves.blocks_on(s, [b.address]), d), "", Told()) == set()
    assert len(held_by(s, d)) == 10
    await x.close()


@cluster3
async def test_cancelled_in_the_middle(c, s, a, b, d):
    x, futures = await from_blocked(s, c)
    doing = asyncio.create_task(
        moves.carry_out(s, all_to(await moves.blocks_on(s, [x.address]), b), "", Told())
    )
    await x.in_get_data.wait()
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert not moves._coming[s][b.address]
    x.block_get_data.set()
    # The copies that were asked for arrive and are surplus: Dask drops some of either.
    await async_poll_for(lambda: len(held_by(s, b)) == 3, 5)
    s.extensions["amm"].run_once()
    assert held_by(s, x) | held_by(s, b) == {f.key for f in futures}
    assert [len(r) for r in await c.gather(futures)] == [100] * 3
    await x.close()


@cluster3
async def test_nothing_arrives(c, s, a, b, d):
    x, futures = await from_blocked(s, c, 2)
    told = Told()
    with patched(moves, "_PATIENCE", 0.05):
        failed = await moves.carry_out(s, all_to(await moves.blocks_on(s, [x.address]), b), "why", told)
    assert failed == {f.key for f in futures} and "did not arrive in time" in told[0][1]
    assert held_by(s, x) == failed
    x.block_get_data.set()
    await x.close()


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 3, Worker=Nanny, timeout=40)
async def test_processes_are_killed_in_the_middle(c, s, a, b, d):
    """Once the target, once the source: every result is somewhere, or is made again; nothing hangs."""
    for victim_is_target in (True, False):
        source, target, _ = list(s.workers)
        futures = c.map(
            lambda i: np.full(1_000_000, i % 100, dtype="u1"), range(200), workers=[source],
            allow_other_workers=True, pure=False,
        )  # fmt: skip
        await wait(futures)
        plan = [
            Move(block.key, block.nbytes, block.holders[0], target)
            for block in await moves.blocks_on(s, [source])
            if block.holders == (source,)
        ]
        assert len(plan) >= 100
        doing = asyncio.create_task(moves.carry_out(s, plan, "a test", Told()))
        await async_poll_for(lambda: compat.keys_on(s, target), 10, period=0.002)  # noqa: B023
        victim = target if victim_is_target else source
        nanny = next(nanny for nanny in (a, b, d) if nanny.worker_address == victim)
        os.kill(nanny.pid, signal.SIGKILL)
        failed = await doing
        if victim_is_target:
            assert failed
        assert [int(r[0]) for r in await c.gather(futures)] == [i % 100 for i in range(200)]
        await async_poll_for(lambda: len(s.workers) == 3, 30)
        assert not any(moves._coming[s].values())


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs={"memory_limit": 0})
async def test_rooms_without_a_limit(c, s, a, b):
    assert moves.rooms_on(s, [a.address])[a.address] > 1e15


@contextmanager
def patched(module, name, value):
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)


@cluster3
async def test_copies_leave_the_source_as_it_was(c, s, a, b, d):
    futures = await spread_out(c, a, 6)
    told, heard = Told(), []
    blocks = await moves.blocks_on(s, [a.address])
    end = compat.spare_copies(s, lambda key: True)
    failed = await moves.carry_out(s, all_to(blocks, b), "a test", told, is_copy=True, done=heard.append)
    assert failed == set() and held_by(s, a) == held_by(s, b) == {f.key for f in futures}
    assert told[0][0] == "copy" and {move.key for move in heard} == {f.key for f in futures}
    end()
