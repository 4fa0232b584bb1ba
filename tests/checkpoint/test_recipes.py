"""Recipes are kept as long as they may be needed, not much longer, and given back when all ends."""

import asyncio
import gc

import numpy as np
import pytest
from distributed import Event, Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from test_protect import controller, dies

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.recipes import Recipes


def late(x):
    Event("go").wait(60)
    return x


one = gen_cluster(client=True, nthreads=[("", 1)])


@pytest.mark.slow
@one
async def test_a_long_chain_that_is_protected_at_each_step_is_walked_once(c, s, a):
    """Each recipe is recorded with its own step alone, and what it needs by name."""
    futures = [c.submit(inc, 0, key="u0")]
    for i in range(1, 300):
        futures.append(c.submit(inc, futures[-1], key=f"u{i}"))
    await wait(futures)
    recipes, walked = Recipes(s), 0
    for i in range(300):
        recipes.load_instead(f"u{i}")
        kept = recipes._replaced[f"u{i}"]
        walked += 1 + len(kept.needs)
        assert all(not need.needs for need in kept.needs)
    assert walked == 599 and len(recipes) == 300
    assert not any(task.dependencies for task in s.tasks.values())
    recipes.close()
    assert all(len(s.tasks[f"u{i}"].dependencies) == 1 for i in range(1, 300))
    s.validate_state()


@pytest.mark.slow
@one
async def test_ancestors_that_many_share_are_kept_once(c, s, a):
    source = c.submit(inc, 0, key="source")
    for i in range(100):
        source = c.submit(inc, source, key=f"middle{i}")
    ends = c.map(lambda i, x: i + x, range(50), x=source, key=[f"end{i}" for i in range(50)])
    await wait(ends)
    recipes = Recipes(s)
    for end in ends:
        recipes.load_instead(end.key)
    gc.collect()
    assert len(recipes._known) == 50 + 101
    recipes.restart()
    gc.collect()
    assert not recipes._known


@pytest.mark.slow
@one
async def test_a_deep_graph_is_no_problem(c, s, a):
    with_chain = c.submit(inc, 0, key=("x", 0))
    for i in range(1, 300):
        with_chain = c.submit(inc, with_chain, key=("x", i))
    await with_chain
    recipes = Recipes(s)
    recipes.load_instead(("x", 299))
    assert set(s.tasks) == {("x", 299)}
    assert recipes.no_copy(("x", 299))
    assert len(s.tasks) == 300
    await s.remove_worker(a.address, stimulus_id="dies", close=False)
    recipes.restart()
    gc.collect()
    del recipes


@one
async def test_a_recipe_is_replaced_only_when_the_result_is_there(c, s, a):
    future = c.submit(late, 1, key="x")
    await async_poll_for(lambda: "x" in s.tasks, 10)
    recipes = Recipes(s)
    recipes.load_instead("x")
    assert len(recipes) == 0 and not compat.is_loaded(s.tasks["x"])
    await Event("go").set()
    assert await future == 1
    assert recipes.is_in_memory("x") == [] and len(recipes) == 1
    assert compat.is_loaded(s.tasks["x"])


@one
async def test_a_recipe_comes_back_while_the_task_waits_for_a_worker(c, s, a):
    """Who found no copy may be given up before the scheduler hears of it."""
    future = c.submit(inc, c.submit(inc, 0, key="x"), key="y")
    await future
    recipes = Recipes(s)
    recipes.load_instead("y")
    await s.remove_worker(a.address, stimulus_id="dies", close=False)
    assert s.tasks["y"].state in ("queued", "no-worker")
    assert recipes.no_copy("y")
    s.validate_state()
    assert s.tasks["y"].state == "waiting" and s.tasks["x"].state in ("queued", "no-worker")
    async with Worker(s.address):
        assert await future == 2


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_scattered_data_is_plain_again_when_the_service_goes(c, s, a, b):
    data = await c.scatter(5, hash=False)
    await dask_hpc.protect(data, "it", client=c)
    await dask_hpc.protected("it", wait=True, client=c)
    assert compat.has_recipe(s.tasks[data.key])
    await dask_hpc.unprotect("it", client=c)
    assert not compat.has_recipe(s.tasks[data.key]) and await data == 5


@pytest.mark.parametrize("is_wrong", [False, True], ids=["fine", "wrong"])
@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.worker-saturation": 1.0})
async def test_nothing_hangs_when_all_ends_while_a_worker_asks_for_a_copy(c, s, a, b, is_wrong):
    """What it gives back after that needs what waits in Dask's queue by then; and one that cannot be given
    back keeps no other."""
    bases = [c.submit(np.zeros, 4, key=("base", i)) for i in range(7)]
    first, *others = [c.submit(sum, bases, key=("other", i)) for i in range(7)]
    await wait([first, *others])
    await dask_hpc.protect([first, *others], "all", levels=("partner",), client=c)
    await dask_hpc.protected("all", wait=True, client=c)
    del bases
    ours, asked, answer = controller(s), asyncio.Event(), asyncio.Event()

    async def where(key, worker):
        if worker not in (a.address, b.address):
            asked.set()
        await answer.wait()

    s.handlers["hpc_checkpoint_where"] = where
    await dies(s, a, b)
    async with Worker(s.address, nthreads=1):
        await asked.wait()
        if is_wrong:
            fine = ours.recipes.give_back
            ours.recipes.give_back = lambda task: 1 / 0 if task.key == first.key else fine(task)
        ours.stop()
        answer.set()
        assert [one[0] for one in await asyncio.wait_for(c.gather(others), 20)] == [0.0] * 6
        await async_poll_for(lambda: not ours.recipes.given_back, 10)
        assert ours.errors == is_wrong
        if is_wrong:
            with pytest.raises(RuntimeError, match=r"'other', 0\) is lost with all its copies"):
                await first
        else:
            assert (await first)[0] == 0.0
