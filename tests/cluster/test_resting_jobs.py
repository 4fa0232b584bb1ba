"""An idle job, with its context open, gives up nodes that somebody waits for, and keeps its results."""

from distributed import Client
from distributed.utils_test import async_poll_for
from small_cluster import cluster4, decisions, live, plugin_of, until

import dask_hpc


def square(number):
    return number * number


@cluster4
async def test_two_clients_the_first_idle(c, s, *workers):
    async with (
        await dask_hpc.manage(c, policy="elastic"),
        dask_hpc.job("idle", nodes=4, min_nodes=1, max_nodes=4),
        Client(s.address, asynchronous=True) as other,
    ):
        kept = c.map(square, range(40))
        await c.gather(kept)
        assert len(live(s, "idle").nodes) == 4
        with dask_hpc.job("next", nodes=3, client=other):
            assert await other.submit(square, 12) == 144
        (shrink,) = [h for h in plugin_of(s).story.happenings if h.decision == "shrink"]
        assert shrink.job == live(s, "idle").id and len(shrink.nodes) == 1
        assert shrink.reason.startswith("has nothing to run")
        assert await c.gather(kept) == [n * n for n in range(40)]
        assert decisions(s, "lost", "restart") == []
        again = c.map(square, range(100, 140))
        await async_poll_for(lambda: len(live(s, "idle").nodes) == 4, 10)
        assert await c.gather(again) == [n * n for n in range(100, 140)]


@cluster4
async def test_nobody_gives_anything_while_nobody_waits(c, s, *workers):
    async with await dask_hpc.manage(c, policy="elastic"):
        with dask_hpc.job("idle", nodes=3, min_nodes=1, max_nodes=3):
            await c.gather(c.map(square, range(10)))
            with dask_hpc.job("small", nodes=1):
                await c.submit(square, 11)
            assert len((await until(s, "idle", "running")).nodes) == 3
            assert decisions(s, "shrink", "hand-over") == []
