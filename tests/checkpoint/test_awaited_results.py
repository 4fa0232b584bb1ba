"""A commit waits for its results, and hears of those that will not come."""

import asyncio

from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc.checkpoint.scheduler import commits as awaiting
from dask_hpc.checkpoint.scheduler.commits import Program
from dask_hpc.checkpoint.scheduler.controller import NAME, Controller
from dask_hpc.checkpoint.version import KeptVersion

two = gen_cluster(client=True, nthreads=[("", 1)] * 2)


async def problem(c, s, keys):
    """What is wrong with the results of a version."""
    await c.register_plugin(Controller(), name=NAME)
    program = Program(s.plugins[NAME], "run", s.plugins[NAME].commits.awaiting)
    return await program._problem(KeptVersion(program, {}), keys)


def awaited(s):
    return s.plugins[NAME].commits.awaiting if NAME in s.plugins else {}


@two
async def test_all_results_are_waited_for(c, s, a, b):
    there = await c.scatter(1)
    x, y = (c.submit(lambda n=n: Event(f"go {n}").wait(60) and n, pure=False) for n in (1, 2))
    waiting = asyncio.ensure_future(problem(c, s, [there.key, x.key, y.key]))
    await async_poll_for(lambda: x.key in awaited(s) and y.key in awaited(s), 5)
    await Event("go 1").set()
    await x
    assert not waiting.done() and there.key not in awaited(s)
    await Event("go 2").set()
    assert await asyncio.wait_for(waiting, 5) == ""
    assert y.key not in awaited(s), "it goes on waiting"


@two
async def test_one_that_fails_is_told_at_once(c, s, a, b):
    x = c.submit(lambda: Event("go").wait(60), pure=False)
    y = c.submit(lambda: Event("fail").wait(60) and 1 / 0, pure=False)
    waiting = asyncio.ensure_future(problem(c, s, [x.key, y.key]))
    await async_poll_for(lambda: y.key in awaited(s), 5)
    await Event("fail").set()
    assert "failed" in await asyncio.wait_for(waiting, 4)
    await Event("go").set()


@two
async def test_one_that_nobody_knows_is_lost_after_a_while(c, s, a, b, monkeypatch):
    monkeypatch.setattr(awaiting, "_LOOK", 0.02)
    assert await asyncio.wait_for(problem(c, s, ["unheard of"]), 4) == "'unheard of' is lost"
