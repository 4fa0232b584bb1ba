"""One death at any time costs nothing that is protected: what may be lost at once is not all there is."""

import asyncio

import numpy as np
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_agents import copy

import dask_hpc
from dask_hpc.checkpoint.worker.agent import NAME as AGENT

two = gen_cluster(client=True, nthreads=[("", 1)] * 2)
three = gen_cluster(client=True, nthreads=[("", 1)] * 3)


def controller(s):
    return s.plugins["dask-hpc-checkpoint"]


async def copied(c, name):
    """All of it is."""
    found = {}
    while not found or found["copied"] < found["keys"]:
        found = await dask_hpc.protected(name, wait=True, client=c)


def add(x, y):
    return x + y


@three
async def test_what_nobody_has_in_memory_is_on_one_agent_more(c, s, a, b, d):
    y = await c.scatter(np.arange(5), workers=[a.address], hash=False)
    key = y.key
    await dask_hpc.protect(y, "y", client=c)
    await copied(c, "y")
    (agent,) = controller(s).catalogue.where(key)[1]
    z = c.submit(add, y, 1, workers=[agent], allow_other_workers=True)
    await wait(z)
    del y
    await async_poll_for(lambda: s.tasks[key].state == "released", 10)
    await async_poll_for(lambda: len(controller(s).catalogue.where(key)[1]) == 2, 4)
    await s.remove_worker(agent, stimulus_id="dies", close=False)
    np.testing.assert_array_equal(await asyncio.wait_for(z, 20), np.arange(5) + 1)
    assert not controller(s).errors


@three
async def test_a_result_that_comes_to_where_its_copy_is_is_copied_elsewhere(c, s, a, b, d):
    """Dask drops the other result when it likes to, and tells nobody."""
    x = await c.scatter(np.arange(5), workers=[a.address], hash=False)
    await dask_hpc.protect(x, "x", client=c)
    await copied(c, "x")
    (agent,) = controller(s).catalogue.where(x.key)[1]
    (other,) = {a.address, b.address, d.address} - {a.address, agent}
    await c.submit(add, x, 1, workers=[agent])
    await async_poll_for(lambda: other in controller(s).catalogue.where(x.key)[1], 2)
    s.request_remove_replicas(a.address, [x.key], stimulus_id="dropped")
    await s.remove_worker(agent, stimulus_id="dies", close=False)
    np.testing.assert_array_equal(await asyncio.wait_for(x, 20), np.arange(5))
    assert not controller(s).errors


@three
async def test_no_version_counts_whose_only_copy_came_to_where_its_result_is(c, s, a, b, d):
    """The result moves while it is copied."""
    x = await c.scatter(np.arange(5), workers=[a.address], hash=False)
    u = c.submit(add, x, 1, key="u-0", workers=[a.address], allow_other_workers=True)
    await wait(u)
    await dask_hpc.protect(u, "u", every="1h", client=c)
    ours = controller(s)
    make = ours.maker.make

    async def made_and_moved(*args):
        ours.maker.make = make
        made = await make(*args)
        (agent,) = ours.catalogue.where("u-0")[1]
        ours.keeper.arrived = lambda address, keys: None  # nor does anybody hear of it in time
        s.request_acquire_replicas(agent, ["u-0"], stimulus_id="moved")
        await async_poll_for(lambda: len(s.tasks["u-0"].who_has) == 2, 10)
        s.request_remove_replicas(a.address, ["u-0"], stimulus_id="moved")
        return made

    ours.maker.make = made_and_moved
    await copied(c, "u")
    held = {worker.address for worker in s.tasks["u-0"].who_has}
    assert len(held) == 1 and set(ours.catalogue.where("u-0")[1]) - held
    assert not ours.errors


@three
async def test_what_was_copied_stays_in_memory_until_the_next_version_is(c, s, a, b, d):
    u = c.submit(inc, 0, key="u-0")
    await dask_hpc.protect(u, "u", every="1h", client=c)
    await copied(c, "u")
    await async_poll_for(lambda: not controller(s).protected["u"].pending, 10)
    for step in range(1, 4):
        u = c.submit(inc, u, key=f"u-{step}")
        await dask_hpc.protect(u, "u", every="1h", client=c)
        await wait(u)
    assert list(controller(s).protected["u"].base.keys) == ["u-0"]
    assert s.tasks["u-0"].state == "memory"
    await copied(c, "u")
    await async_poll_for(lambda: set(s.tasks) == {"u-3"}, 10)
    del u
    await async_poll_for(lambda: not s.tasks and not controller(s).catalogue.contents, 10)
    assert not controller(s).errors


@two
async def test_a_copy_that_an_agent_is_told_to_drop_is_not_counted(c, s, a, b):
    """It says that it has it, and hears only then that it need not."""
    x = await c.scatter(np.arange(50), workers=[a.address], hash=False)
    await dask_hpc.protect(x, "x", client=c)
    await copied(c, "x")
    known, maker = controller(s).catalogue, controller(s).maker
    content, (agent,) = known.where(x.key)
    assert agent == b.address
    take, drop, asked = b.handlers["hpc_agent_take"], b.handlers["hpc_agent_drop"], asyncio.Event()

    async def taking(blocks):
        found = await take(blocks=blocks)
        asyncio.get_running_loop().call_later(0.02, asked.set)  # the answer is there first
        return found

    async def dropping(contents):
        await asked.wait()
        return await drop(contents=contents)

    b.handlers.update(hpc_agent_take=taking, hpc_agent_drop=dropping)
    known.lost(agent, [content])
    leaving = asyncio.ensure_future(maker.drop({content: [agent]}))
    await asyncio.sleep(0)
    await copy(s, [x])
    await leaving
    assert known.where(x.key) == (content, [agent])
    assert content in b.plugins[AGENT].kept
    # and what is needed again by then is not dropped
    await maker.drop({content: [agent]})
    assert content in b.plugins[AGENT].kept
    assert controller(s).agents.asked(agent) is not None and not controller(s).errors


@three
async def test_a_worker_that_computed_a_result_once_can_load_it(c, s, a, b, d):
    """It remembers what the recipe needed that it followed then."""
    x = c.submit(inc, 1, key="x", workers=[a.address], allow_other_workers=True)
    y = c.submit(inc, x, key="y", workers=[a.address], allow_other_workers=True)
    z = c.submit(inc, y, key="z", workers=[a.address], allow_other_workers=True)
    await wait(z)
    await dask_hpc.protect(y, "y", client=c)
    await copied(c, "y")
    x.release()
    await async_poll_for(lambda: "x" not in s.tasks and "x" not in a.data, 10)
    (agent,) = controller(s).catalogue.where("y")[1]
    other = b if agent == d.address else d
    s.request_acquire_replicas(other.address, ["y"], stimulus_id="to-another")
    await async_poll_for(lambda: len(s.tasks["y"].who_has) == 2, 10)
    s.request_remove_replicas(a.address, ["y"], stimulus_id="and-away")
    await async_poll_for(lambda: "y" not in a.data, 10)
    assert a.state.tasks["y"].dependencies, "z, which is there, keeps them"
    s.set_restrictions(worker={"y": [a.address]})
    await s.remove_worker(other.address, stimulus_id="dies", close=False)
    assert await asyncio.wait_for(y, 10) == 3 and s.tasks["y"].who_has == {s.workers[a.address]}
    assert "x" not in a.state.tasks and not controller(s).errors
