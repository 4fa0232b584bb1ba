"""The controller: as many copies as wanted through deaths and departures, and nothing stays behind."""

import asyncio

import dask.array as da
import numpy as np
from distributed import Worker, futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.checkpoint.worker.agent import NAME as AGENT

NAME = "dask-hpc-checkpoint"
cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)
cluster4 = gen_cluster(client=True, nthreads=[("", 1)] * 4)


def controller_of(s):
    return s.plugins[NAME]


def kept(*workers):
    return sum(len(worker.plugins[AGENT].kept) for worker in workers if AGENT in worker.plugins)


def told(s, decision):
    return [m["reason"] for _, m in s.get_events(NAME) if m["decision"] == decision]


def block(i):
    return np.arange(1000) + i


async def protected(c, worker, count=10, name="x", copies=1):
    futures = c.map(block, range(count), workers=[worker.address], pure=False, allow_other_workers=True)
    await wait(futures)
    await dask_hpc.protect(futures[:1], name=name, client=c)
    await c.scheduler.hpc_protect(name=name, keys=[f.key for f in futures], copies=copies)
    await c.scheduler.hpc_protected_commit(name=name)
    return futures


def is_safe(s, futures, copies=1):
    """Whether so many workers may die at once: each result is on one more than that."""
    for future in futures:
        holders = {worker.address for worker in s.tasks[future.key].who_has}
        agents = controller_of(s).catalogue.where(future.key)[1]
        if not set(agents) <= set(s.workers) or len(holders | {*agents}) < copies + 1 or len(agents) < 1:
            return False
    return True


async def are_right(c, futures):
    found = await c.gather(futures)
    return all(np.array_equal(one, block(i)) for i, one in enumerate(found))


@cluster4
async def test_one_death_after_the_other(c, s, a, b, d, e):
    """Results are loaded where Dask likes, perhaps beside their only copy: then there is soon another."""
    futures = await protected(c, a)
    for worker in (a, b, d):
        await async_poll_for(lambda: is_safe(s, futures), 20)
        await worker.close(nanny=False)
        await wait(futures)
        assert await are_right(c, futures)
    assert not controller_of(s).errors


@cluster4
async def test_two_deaths_at_once(c, s, a, b, d, e):
    futures = await protected(c, a, copies=2)
    await async_poll_for(lambda: is_safe(s, futures, 2), 20)
    await asyncio.gather(a.close(), b.close())
    assert await are_right(c, futures)
    assert not controller_of(s).errors


@cluster3
async def test_who_leaves_by_dasks_own_way_leaves_no_gap(c, s, a, b, d):
    futures = await protected(c, a)
    async with Worker(s.address):
        await c.retire_workers([b.address])
        await async_poll_for(lambda: is_safe(s, futures), 20)
        await a.close()
        assert await are_right(c, futures)


@cluster3
async def test_copies_are_on_others_before_a_drain_ends(c, s, a, b, d):
    futures = await protected(c, a, 8)
    had = controller_of(s).catalogue.on(b.address)
    contents = list(had)
    assert contents
    await controller_of(s).keeper.drain([b.address])
    known = controller_of(s).catalogue
    assert all(known.contents[one].where - {b.address} for one in contents)
    assert is_safe(s, futures) and "leave are on others" in told(s, "drain")[0]


@cluster3
async def test_all_copies_gone_and_the_result_too(c, s, a, b, d):
    """What nobody has gets its recipe back; scattered data is told as lost."""
    x = await c.scatter(np.arange(3), workers=[a.address], hash=False)
    futures = await protected(c, a, 3)
    await dask_hpc.protect(x, name="y", client=c)
    await dask_hpc.protected("y", wait=True, client=c)
    await asyncio.gather(b.close(), d.close())
    assert not any(controller_of(s).catalogue.where(f.key)[1] for f in [*futures, x])
    async with Worker(s.address):
        await async_poll_for(lambda: is_safe(s, [*futures, x]), 20)
        await a.close()
        assert await are_right(c, futures)
        np.testing.assert_array_equal(await x, np.arange(3))


@cluster3
async def test_what_agents_forget_is_copied_again_and_what_nobody_needs_is_dropped(c, s, a, b, d):
    futures = await protected(c, a)
    agent = b.plugins[AGENT]
    some = list(controller_of(s).catalogue.on(b.address))[:2]
    agent.kept.drop(*some)
    agent.kept.add(d.plugins[AGENT].kept.get(next(iter(controller_of(s).catalogue.on(d.address)))))
    agreeing = controller_of(s).keeper
    for _ in range(2):
        await b.heartbeat()
        await agreeing.ask_who_differs()
    await async_poll_for(lambda: is_safe(s, futures), 10)
    known = controller_of(s).catalogue
    for worker in (a, b, d):
        assert set(worker.plugins[AGENT].kept.contents()) == set(known.on(worker.address))


@cluster3
async def test_nothing_stays_behind(c, s, a, b, d):
    before = set(s.handlers), [set(w.handlers) for w in (a, b, d)], [set(w.metrics) for w in (a, b, d)]
    x = c.persist(da.ones((4, 4), chunks=2))
    await wait(futures_of(x))
    recipes = {f.key: s.tasks[f.key].run_spec for f in futures_of(x)}
    await dask_hpc.protect(x, name="x", client=c)
    await dask_hpc.protect(x, name="y", client=c)
    await dask_hpc.protected("y", wait=True, client=c)
    await c.scheduler.hpc_unprotect(name="x")
    assert NAME in s.plugins and kept(a, b, d) >= 1
    await c.scheduler.hpc_unprotect(name="y")
    assert NAME not in s.plugins and NAME not in s.clients
    assert {f.key: s.tasks[f.key].run_spec for f in futures_of(x)} == recipes
    await async_poll_for(lambda: not any(AGENT in w.plugins for w in (a, b, d)), 10)
    after = set(s.handlers), [set(w.handlers) for w in (a, b, d)], [set(w.metrics) for w in (a, b, d)]
    assert after == before
    await dask_hpc.protect(x, name="z", client=c)  # and back again
    await dask_hpc.protected("z", wait=True, client=c)
    assert (await c.scheduler.hpc_checkpoint_status())["protected"][0]["copied"] == 4


@cluster3
async def test_two_at_once_find_one_controller(c, s, a, b, d):
    x, y = c.map(block, range(2), pure=False)
    await wait([x, y])
    await asyncio.gather(*(dask_hpc.protect(one, name=one.key, client=c) for one in (x, y)))
    await async_poll_for(lambda: is_safe(s, [x, y]), 10)
    assert len(controller_of(s).protected) == 2


@cluster3
async def test_too_many_errors_of_ours_switch_us_off(c, s, a, b, d):
    futures = await protected(c, a)
    known = controller_of(s)

    def broken(*args, **kwargs):
        raise ZeroDivisionError("ours")

    known.keeper.release = broken
    more = c.map(block, range(20), pure=False)
    await wait(more)
    await c.scheduler.hpc_protect(name="more", keys=[f.key for f in more])
    await c.scheduler.hpc_protected_commit(name="more")
    del more
    await async_poll_for(lambda: NAME not in s.plugins, 10)
    assert "checkpoints are off" in told(s, "off")[0]
    await a.close()
    assert await are_right(c, futures)


@cluster3
async def test_managed_before_or_after(c, s, a, b, d):
    futures = await protected(c, a)
    async with await dask_hpc.manage(c, policy="checkpoint-agents-rigid") as manager:
        assert controller_of(s).choice.rule.rank == "bandwidth"
        await manager.set(**{"checkpoint.rank": "power"})
        assert controller_of(s).choice.rule.rank == "power"
        more = await protected(c, a, name="more")
        assert is_safe(s, more)
    assert controller_of(s).choice.rule.rank == "memory"
    assert is_safe(s, futures) and not controller_of(s).errors


@cluster3
async def test_others_cost_one_look(c, s, a, b, d):
    """What moves that is not ours is looked up and no more."""
    futures = await protected(c, a)
    seen = []
    known = controller_of(s)
    known._task_moves = lambda *args: seen.append(args)
    await c.gather(c.map(block, range(50), pure=False))
    assert not seen and futures
