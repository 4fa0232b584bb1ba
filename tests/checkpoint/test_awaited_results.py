"""A commit waits for its results, and hears of those that will not come."""

import asyncio

from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc.checkpoint.scheduler import commits as awaiting
from dask_hpc.checkpoint.scheduler.commits import AwaitedResults

two = gen_cluster(client=True, nthreads=[("", 1)] * 2)


def heard(scheduler):
    """One that hears of all moves, as it does from the controller."""
    found = AwaitedResults(scheduler)

    class Ears:
        name = "ears"

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

        def transition(self, key, start, finish, *args, **kwargs):
            if key in found:
                found.moves(key, finish)

    scheduler.plugins["ears"] = Ears()
    return found


@two
async def test_all_results_are_waited_for(c, s, a, b):
    found = heard(s)
    there = await c.scatter(1)
    x, y = (c.submit(lambda n=n: Event(f"go {n}").wait(60) and n, pure=False) for n in (1, 2))
    waiting = asyncio.ensure_future(found.problem([there.key, x.key, y.key]))
    await async_poll_for(lambda: x.key in found and y.key in found, 5)
    await Event("go 1").set()
    await x
    assert not waiting.done() and there.key not in found
    await Event("go 2").set()
    assert await asyncio.wait_for(waiting, 5) == ""
    assert y.key not in found, "it goes on waiting"


@two
async def test_one_that_fails_is_told_at_once(c, s, a, b):
    found = heard(s)
    x = c.submit(lambda: Event("go").wait(60), pure=False)
    y = c.submit(lambda: Event("fail").wait(60) and 1 / 0, pure=False)
    waiting = asyncio.ensure_future(found.problem([x.key, y.key]))
    await async_poll_for(lambda: y.key in found, 5)
    await Event("fail").set()
    assert "failed" in await asyncio.wait_for(waiting, 4)
    await Event("go").set()


@two
async def test_one_that_nobody_knows_is_lost_after_a_while(c, s, a, b, monkeypatch):
    monkeypatch.setattr(awaiting, "_LOOK", 0.02)
    assert await asyncio.wait_for(heard(s).problem(["unheard of"]), 4) == "'unheard of' is lost"
