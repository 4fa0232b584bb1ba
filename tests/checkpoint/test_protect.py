"""Protected results survive the workers that hold them."""

import asyncio
from time import monotonic

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
import xarray as xr
from distributed import Event, Nanny, Worker, futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc

import dask_hpc
from dask_hpc.checkpoint.scheduler import recipes as recipes_module

three = gen_cluster(client=True, nthreads=[("", 1)] * 3)
ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def effect(x, *rest):
    ran.append(x)
    return x + sum(rest)


def controller(s):
    return s.plugins["dask-hpc-checkpoint"]


async def whole(c, *names):
    """All of what these names mean has copies."""
    for name in names:
        while True:
            found = await dask_hpc.protected(name, wait=True, client=c)
            if found["copied"] == found["keys"]:
                break
            await asyncio.sleep(0.01)


async def dies(s, *workers):
    """As by SIGKILL: the scheduler hears of it afterwards."""
    for worker in workers:
        await s.remove_worker(worker.address, stimulus_id="dies", close=False)
    for worker in workers:
        await worker.close(nanny=False, executor_wait=False, reason="killed")


def vanish(content, *workers):
    """Agents lose their copies, and the catalogue does not know."""
    for worker in workers:
        worker.plugins["dask-hpc-agent"].kept.drop(content)


def holder(s, workers, key):
    (state,) = s.tasks[key].who_has
    return next(worker for worker in workers if worker.address == state.address)


@three
async def test_computed_and_scattered_data_survive(c, s, a, b, d):
    x = c.persist(da.random.random((6, 6), chunks=(2, 6)))
    y = await c.scatter(np.arange(5), workers=[a.address], hash=False)
    await wait(futures_of(x))
    before = await c.compute(x)
    assert await dask_hpc.protect([x, y], name="state", client=c) is not None
    await whole(c, "state")
    await dies(s, a)
    np.testing.assert_array_equal(await c.compute(x), before)
    np.testing.assert_array_equal(await y, np.arange(5))
    assert not controller(s).errors


def table():
    x = da.ones((4, 4), chunks=2)
    return xr.Dataset({"u": (("y", "x"), x), "v": ("x", np.arange(4))}, coords={"x": list("abcd")})


@pytest.mark.parametrize(
    "make",
    [
        lambda c: c.persist(da.arange(9, chunks=3)),
        lambda c: c.persist(table()),
        lambda c: c.persist(table().u),
        lambda c: c.persist(db.from_sequence(range(9), npartitions=3)),
        lambda c: c.persist(dask.delayed(inc)(1)),
        lambda c: c.submit(inc, 1),
        lambda c: {"a": [c.submit(inc, 1), c.submit(inc, 2)], "b": (c.submit(inc, 3),)},
        lambda c: c.map(inc, range(4)),
    ],
)
def test_whatever_dask_computes_can_be_protected(make):
    @three
    async def run(c, s, a, b, d):
        obj = make(c)
        assert await dask_hpc.protect(obj, "it", client=c) is obj
        await whole(c, "it")
        before = await c.gather(c.compute(obj)) if dask.is_dask_collection(obj) else await c.gather(obj)
        await dies(s, a)
        after = await c.gather(c.compute(obj)) if dask.is_dask_collection(obj) else await c.gather(obj)
        assert repr(before) == repr(after)

    run()


@three
async def test_bad_input_is_told_before_anything_happens(c, s, a, b, d):
    lazy, future = da.ones(3), c.submit(inc, 1)
    for wrong, says in [
        (lambda: dask_hpc.protect(lazy, "x", client=c), r"\.persist\(\)"),
        (lambda: dask_hpc.protect([lazy], "x", client=c), r"\.persist\(\)"),
        (lambda: dask_hpc.protect(5, "x", client=c), "futures"),
        (lambda: dask_hpc.protect(future, "../x", client=c), "name"),
        (lambda: dask_hpc.protect(future, "x", every="often", client=c), "every"),
        (lambda: dask_hpc.protect(future, "x", every=-1, client=c), "every"),
        (lambda: dask_hpc.protect(future, "x", every={"moon": 1}, client=c), "moon"),
        (lambda: dask_hpc.protect(future, "x", levels=["moon"], client=c), "moon"),
        (lambda: dask_hpc.protect(future, "x", levels=[], client=c), "levels"),
        (lambda: dask_hpc.protect(future, "x", levels=["disk"], client=c), "levels"),
        (lambda: dask_hpc.protect(future, "x", levels=["store"], client=c), "store"),
        (lambda: dask_hpc.protect(future, "x", copies=0, client=c), "copies"),
    ]:
        with pytest.raises(dask_hpc.InputError, match=says):
            wrong()
    assert "dask-hpc-checkpoint" not in s.plugins
    with pytest.raises(dask_hpc.InputError, match="under which"):
        await dask_hpc.protected("x", client=c)


@three
async def test_what_is_still_computed_is_copied_when_it_is_there(c, s, a, b, d):
    """At once when all is there, however long the interval."""

    def late(x):
        Event("go").wait(60)
        return x

    early, late_one = c.submit(inc, 1), c.submit(late, 5)
    await early
    await dask_hpc.protect([early, late_one], "it", every="1 h", client=c)
    await async_poll_for(lambda: len(controller(s).catalogue.content_of) == 1, 10)
    await Event("go").set()
    await async_poll_for(lambda: len(controller(s).catalogue.content_of) == 2, 10)
    await dies(s, holder(s, [a, b, d], late_one.key))
    assert await c.gather([early, late_one]) == [2, 5]


@three
async def test_the_caller_waits_for_nothing(c, s, a, b, d):
    """Not for keys that Dask does not know yet, nor for agents, nor for copies."""
    await dask_hpc.protect(c.submit(inc, 1), "first", client=c)
    controller(s).maker.make = lambda *rest: asyncio.sleep(1000)
    big = c.submit(np.ones, 10**6)
    began = monotonic()
    await dask_hpc.protect(big, "big", client=c)
    assert monotonic() - began < 5
    assert (await dask_hpc.protected("big", client=c))["copied"] == 0
    await dask_hpc.unprotect("big", client=c)


@three
async def test_recipes_come_back_when_all_copies_are_gone(c, s, a, b, d):
    source = c.submit(effect, 1, key="source", pure=False)
    future = c.submit(effect, 2, source, key="future")
    await future
    del source
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")
    await async_poll_for(lambda: set(s.tasks) == {"future"}, 10)
    first = holder(s, [a, b, d], "future")
    second = [w for w in (a, b, d) if w is not first and w.plugins["dask-hpc-agent"].kept.contents()]
    await dies(s, first, *second)
    assert await future == 3 and ran == [1, 2, 1, 2]
    assert not controller(s).errors


@three
async def test_scattered_data_without_copies_is_lost_and_says_so(c, s, a, b, d):
    data = await c.scatter(123, workers=[a.address], hash=False)
    await dask_hpc.protect(data, "it", client=c)
    await whole(c, "it")
    second = [w for w in (b, d) if w.plugins["dask-hpc-agent"].kept.contents()]
    await dies(s, a, *second)
    with pytest.raises(RuntimeError, match=f"{data.key}.*lost with all its copies"):
        await data
    other = await c.scatter(456)
    assert await other == 456


@three
async def test_a_damaged_copy_is_never_used(c, s, a, b, d):
    future = c.submit(np.arange, 1000, key="x", workers=[a.address])
    await dask_hpc.protect(future, "it", copies=2, client=c)
    await whole(c, "it")
    kept = [w.plugins["dask-hpc-agent"].kept for w in (b, d)]
    assert all(len(one) == 1 for one in kept)
    for one in kept:
        block = one.get(one.contents()[0])
        block.frames[0].cast("B")[8] ^= 1
    s.tasks["x"].worker_restrictions = None
    await dies(s, a)
    np.testing.assert_array_equal(await future, np.arange(1000))
    assert controller(s).diary.counts["damaged"] == 2


@three
async def test_a_result_that_was_loaded_beside_its_only_copy_gets_another(c, s, a, b, d):
    future = c.submit(inc, 1, key="x", workers=[a.address])
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")
    s.tasks["x"].worker_restrictions = None
    (agent,) = controller(s).catalogue.where("x")[1]
    with_copy = next(w for w in (b, d) if w.address == agent)
    s.tasks["x"].worker_restrictions = {agent}
    await dies(s, a)
    assert await future == 2
    # and the one beside it is then too many, as soon as that is looked at again
    await async_poll_for(lambda: set(controller(s).catalogue.where("x")[1]) - {agent}, 10)
    s.tasks["x"].worker_restrictions = None
    await dies(s, with_copy)
    assert await future == 2 and controller(s).diary.counts["recovered"] == 2
    assert not controller(s).errors


@three
async def test_unprotected_results_are_plain_again(c, s, a, b, d):
    future = c.submit(effect, 1, key="x")
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")
    await dask_hpc.protect(c.submit(inc, 1), "other", client=c)
    await whole(c, "other")
    await dask_hpc.unprotect("it", client=c)
    agents = [w.plugins["dask-hpc-agent"] for w in (a, b, d)]
    await async_poll_for(lambda: sum(len(agent.kept) for agent in agents) == 1, 10)
    await dies(s, holder(s, [a, b, d], "x"))
    assert await future == 1 and len(ran) == 2
    with pytest.raises(dask_hpc.InputError):
        await dask_hpc.protected("it", client=c)


@three
async def test_with_the_last_name_the_service_goes_and_results_are_plain_again(c, s, a, b, d):
    source = c.submit(effect, 1, key="source")
    future, data = c.submit(effect, 2, source, key="x"), await c.scatter(5, hash=False)
    await future
    del source
    await dask_hpc.protect([future, data], "it", client=c)
    await whole(c, "it")
    await dask_hpc.unprotect("it", client=c)
    await async_poll_for(lambda: not any("dask-hpc-agent" in w.plugins for w in (a, b, d)), 10)
    assert "dask-hpc-checkpoint" not in s.plugins and set(s.tasks) == {"x", "source", data.key}
    await dies(s, holder(s, [a, b, d], "x"))
    assert await future == 3 and ran == [1, 2, 1, 2]
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")


@three
async def test_copies_are_on_disk_too_if_asked_for(c, s, a, b, d):
    future = c.submit(np.arange, 1000, key="x")
    await dask_hpc.protect(future, "it", levels=["partner", "disk"], client=c)
    await whole(c, "it")
    await async_poll_for(lambda: controller(s).protected["it"].base is not None, 10)
    content, (agent,) = controller(s).catalogue.where("x")
    keeper = next(w for w in (a, b, d) if w.address == agent)
    assert content in keeper.plugins["dask-hpc-agent"].kept.shelf


@three
async def test_two_names_share_copies(c, s, a, b, d):
    future = c.submit(inc, 1, key="x")
    await dask_hpc.protect(future, "one", client=c)
    await dask_hpc.protect([future], "two", client=c)
    await whole(c, "one", "two")
    agents = [w.plugins["dask-hpc-agent"] for w in (a, b, d)]
    assert sum(len(agent.kept) for agent in agents) == 1
    await dask_hpc.unprotect("one", client=c)
    await dies(s, holder(s, [a, b, d], "x"))
    assert await future == 2
    assert controller(s).diary.counts["recovered"] == 1


@three
async def test_a_program_that_protects_each_step_repeats_at_most_one_interval(c, s, a, b, d):
    """Steps 0 to 9; 4 is copied, then the next commit is an hour away."""
    u = c.submit(effect, 0, key="u0")
    await dask_hpc.protect(u, "u", every="1 h", client=c)
    for step in range(1, 10):
        u = c.submit(effect, 1, u, key=f"u{step}")
        await u
        await dask_hpc.protect(u, "u", every="1 h", client=c)
        if step == 4:
            await whole(c, "u")
    assert list(controller(s).catalogue.content_of) == ["u4"]
    ran.clear()
    await dies(s, holder(s, [a, b, d], "u9"))
    assert await u == 9
    assert len(ran) == 5, "what came after the commit is computed again, and no more"
    await whole(c, "u")
    assert list(controller(s).catalogue.content_of) == ["u9"]
    await async_poll_for(lambda: set(s.tasks) == {"u9"}, 10)


@three
async def test_a_program_that_runs_ahead_of_the_cluster_is_copied_all_the_same(c, s, a, b, d):
    """All steps are submitted before the first has run; no step is the newest when it is there."""
    u = c.submit(effect, 0, key="u0", priority=1)
    for step in range(1, 60):
        u = c.submit(effect, 1, u, key=f"u{step}")
        await dask_hpc.protect(u, "u", every="1ms", client=c)
    assert await u == 59
    await whole(c, "u")
    assert controller(s).diary.counts["commits"] >= 2
    await async_poll_for(lambda: not controller(s).protected["u"].pending, 10)
    assert list(controller(s).catalogue.content_of) == ["u59"] and not controller(s).errors
    del u
    await async_poll_for(lambda: not s.tasks, 10)


@three
async def test_what_is_deleted_leaves_nothing_behind(c, s, a, b, d):
    x = c.persist(da.ones(9, chunks=3))
    await dask_hpc.protect(x, "x", client=c)
    await whole(c, "x")
    del x
    agents = [w.plugins["dask-hpc-agent"] for w in (a, b, d)]
    await async_poll_for(lambda: not s.tasks and not any(len(agent.kept) for agent in agents), 10)
    found = controller(s)
    assert not found.catalogue.contents and not found.catalogue.content_of and not len(found.recipes)
    assert not found.protections._owners and not found.errors


@three
async def test_the_same_graph_again_finds_its_results(c, s, a, b, d):
    lazy = dask.delayed(effect, pure=True)(2, dask.delayed(effect, pure=True)(1))
    first = c.persist(lazy)
    await dask_hpc.protect(first, "it", client=c)
    await whole(c, "it")
    assert await c.compute(lazy) == 3 and ran == [1, 2]
    await dies(s, holder(s, [a, b, d], first.key))
    assert await c.compute(lazy) == 3 and ran == [1, 2]
    del first
    await async_poll_for(lambda: not s.tasks, 10)
    assert await c.compute(lazy) == 3 and ran == [1, 2, 1, 2]


@three
async def test_a_name_that_means_something_else_now_is_not_taken_for_what_was_needed(c, s, a, b, d):
    source = c.submit(effect, 1, key="source")
    future = c.submit(effect, 2, source, key="future")
    await future
    source.release()
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")
    await async_poll_for(lambda: set(s.tasks) == {"future"}, 10)
    other = c.submit(effect, 1000, key="source")
    assert await other == 1000
    at = holder(s, [a, b, d], "future")
    content, _ = controller(s).catalogue.where("future")
    vanish(content, a, b, d)
    await dies(s, at)
    with pytest.raises(RuntimeError, match="called like something else"):
        await future


@three
async def test_actors_and_shuffles_are_left_alone(c, s, a, b, d):
    class Counter:
        n = 0

    actor = c.submit(Counter, actor=True, key="actor")
    await actor
    with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
        y = c.persist(da.ones((6, 6), chunks=(2, 6)).rechunk((6, 2)))
    await wait(futures_of(y))
    with pytest.warns(UserWarning, match="3 of 4 results are parts of a shuffle"):
        await dask_hpc.protect([actor, y], "it", client=c)
    found = await dask_hpc.protected("it", wait=True, client=c)
    assert found["copied"] == 0 and not controller(s).errors
    assert len(controller(s).recipes) == 0


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, timeout=60)
async def test_a_restart_forgets_everything(c, s, a, b):
    await dask_hpc.protect(c.submit(inc, 1, key="x"), "it", client=c)
    await whole(c, "it")
    await dask_hpc.protect(c.map(inc, range(20), pure=False), "late", client=c)
    await c.restart()
    found = controller(s)
    assert not found.protected and not found.catalogue.contents and not len(found.recipes)
    pins = s.clients.get("dask-hpc-checkpoint")
    assert not found.errors and not (pins and pins.wants_what)
    again = c.submit(inc, 2, key="x")
    await dask_hpc.protect(again, "it", client=c)
    await whole(c, "it")
    assert await again == 3 and not found.errors
    (holder_,), (agent,) = s.tasks["x"].who_has, found.catalogue.where("x")[1]
    assert agent in s.workers and agent != holder_.address


@three
async def test_loading_does_not_count_against_a_task(c, s, a, b, d):
    """A task whose worker dies again and again is given up by Dask; one that is loaded is innocent."""
    future = c.submit(inc, 1, key="x")
    await dask_hpc.protect(future, "it", client=c)
    await whole(c, "it")
    s.tasks["x"].suspicious = s.allowed_failures
    await dies(s, holder(s, [a, b, d], "x"))
    assert await future == 2
    assert s.tasks["x"].suspicious == 0


@three
async def test_all_threads_may_load_at_once(c, s, a, b, d):
    futures = c.map(np.full, [1000] * 30, range(30), pure=False)
    await wait(futures)
    await dask_hpc.protect(futures, "it", copies=2, client=c)
    await whole(c, "it")
    await dies(s, a)
    total = await c.submit(lambda parts: sum(p.sum() for p in parts), futures)
    assert total == 1000 * sum(range(30))


@three
async def test_without_room_for_copies_there_are_more_tries_when_a_worker_comes(c, s, a, b, d):
    await dies(s, b, d)
    future = c.submit(inc, 1, key="x")
    await dask_hpc.protect(future, "it", client=c)
    await dask_hpc.protected("it", wait=True, client=c)
    assert controller(s).catalogue.where("x") == ("", [])
    async with Worker(s.address, nthreads=1):
        await async_poll_for(lambda: controller(s).catalogue.where("x")[1], 10)


def test_only_so_many_recipes_are_remembered(monkeypatch):
    monkeypatch.setattr(recipes_module, "REMEMBERED", 3)

    @three
    async def run(c, s, a, b, d):
        u = c.submit(effect, 0, key="u0")
        for step in range(1, 8):
            u = c.submit(effect, 1, u, key=f"u{step}")
            await u
            await dask_hpc.protect(u, "u", client=c)
            await whole(c, "u")
        assert len(controller(s).recipes._old) == 3
        at = holder(s, [a, b, d], "u7")
        content, _ = controller(s).catalogue.where("u7")
        vanish(content, a, b, d)
        await dies(s, at)
        with pytest.raises(RuntimeError, match="forgotten long"):
            await u

    run()


@gen_cluster(client=True, nthreads=[("", 1)], worker_kwargs={"memory_limit": 0})
async def test_who_has_no_partner_hears_so_once(c, s, a):
    (x,) = await c.scatter([1], hash=False)
    await dask_hpc.protect(x, "x", client=c)
    async with asyncio.timeout(10):
        while not [one for one in said(s) if "no agent has room" in one]:
            await asyncio.sleep(0.05)
    await asyncio.sleep(2.5)  # it is tried once a second
    assert len([one for one in said(s) if "no agent has room" in one]) == 1


def said(s):
    return [what["reason"] for _, what in s.get_events("dask-hpc-checkpoint")]
