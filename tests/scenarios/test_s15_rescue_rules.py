"""S15: a hold never takes the last worker of a restricted task, nor one in the middle of a shuffle."""

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Event, Status
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc


def blocked(event, x=None):
    Event(event).wait(60)
    return x


@pytest.mark.slow
def test_the_last_worker_of_a_restricted_task(report):
    stuck = {}

    @gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})
    async def plain(c, s, a, b):
        futures = c.map(blocked, ["go"] * 3, range(3), workers=[a.address], pure=False)
        await async_poll_for(lambda: a.state.executing_count, 10)
        a.status = Status.paused
        await Event("go").set()
        await async_poll_for(lambda: not a.state.executing_count, 10)
        stuck["plain"] = sum(not f.done() for f in futures)
        a.status = Status.running
        await c.gather(futures)

    @gen_cluster(client=True, nthreads=[("", 1)] * 2)
    async def managed(c, s, a, b):
        async with await dask_hpc.manage(c) as manager:
            futures = c.map(blocked, ["go"] * 3, range(3), workers=[a.address], pure=False)
            await async_poll_for(lambda: a.state.executing_count, 10)
            found = await manager.hold(a.address)
            assert "no other running worker may run" in found["refused"][a.address]
            await Event("go").set()
            await c.gather(futures)
            stuck["ours"] = 0

    plain()
    managed()
    assert stuck["plain"] >= 1
    report.add("S15", "restricted tasks that wait for ever", **stuck, bound="0, refused with the reason")


def rechunked():
    x = da.random.default_rng(1).random((200, 200), chunks=(20, 200))
    return x.rechunk((200, 20)).map_blocks(slowly, dtype=x.dtype)


def slowly(block):
    Event("go").wait(60)
    return block


@pytest.mark.slow
def test_in_the_middle_of_a_shuffle(report):
    """A rechunk by P2P is under way on all workers when they are to be held."""
    runs = {}

    def rechunk_while(act, managed, name):
        @gen_cluster(
            client=True,
            nthreads=[("", 1)] * 3,
            config={"array.rechunk.method": "p2p", "distributed.worker.memory.pause": False},
            timeout=60,
        )
        async def run(c, s, *workers):
            manager = await dask_hpc.manage(c) if managed else None
            with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
                expected = da.random.default_rng(1).random((200, 200), chunks=(20, 200))
                expected = await c.compute(expected)
                future = c.compute(rechunked())
            shuffles = s.plugins["shuffle"]
            await async_poll_for(lambda: shuffles.active_shuffles, 20)
            await act(manager, s, workers)
            await Event("go").set()
            assert np.array_equal(await future, expected)
            runs[name] = (
                max(len(states) for states in shuffles._shuffles.values()) if shuffles._shuffles else 1
            )
            if manager:
                await manager.close()

        run()

    async def remove(manager, s, workers):
        await workers[0].close()

    async def hold(manager, s, workers):
        found = await manager.hold([worker.address for worker in workers])
        assert not found["held"] and set(found["refused"].values()) == {"shuffle needs it where it is"}

    rechunk_while(remove, False, "plain")
    rechunk_while(hold, True, "ours")
    report.add("S15", "runs of a shuffle (worker taken away / to be held)", **runs, bound="1, refused")
    assert runs["ours"] == 1
