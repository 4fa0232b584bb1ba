"""Dask's shuffles (P2P) whose workers go in the middle of a step, where no task may fail with its worker: who
dies leaves the tasks it ran under suspicion; who closes does not with us, and the shuffle begins anew."""

import asyncio
from threading import Event

import dask
import dask.array as da
import pytest
from distributed import KilledWorker
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin
from distributed.utils_test import async_poll_for
from preloaded import die, run

NO_FAILURES = {"distributed.scheduler.allowed-failures": 0}
dies_or_closes = pytest.mark.parametrize("dies", [False, True], ids=["closes", "dies"])


def shuffled(c):
    """The sums of an array's columns, after a shuffle."""
    small = {"array.rechunk.method": "p2p", "array.chunk-size": "96 B", "optimization.fuse.active": False}
    with dask.config.set(small):  # one block: else all are merged before the shuffle
        return c.compute(da.ones((6, 6), chunks=(1, 6)).rechunk((6, 1)).sum(axis=0))


async def nothing_is_left(c, s):
    await c.close()
    await async_poll_for(lambda: not s.tasks and not s.plugins["shuffle"].active_shuffles, 10)


async def goes(s, worker, dies):
    """What is to be awaited at the end; the scheduler knows by then that it has gone. With us it would wait
    for the shuffle if it had the time."""
    closing = asyncio.ensure_future(asyncio.sleep(0) if dies else worker.close(timeout=1))
    if dies:
        die(s, worker)
    await async_poll_for(lambda: worker.address not in s.workers, 10)
    return closing


def stop_in(monkeypatch, step):
    """Tasks wait in this step of a shuffle until the event is set; and the workers on which one does."""
    there, go_on = [], Event()
    original = getattr(ShuffleWorkerPlugin, step)

    def wait(self, *args, **kwargs):
        there.append(self.worker)
        assert go_on.wait(30)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ShuffleWorkerPlugin, step, wait)
    return there, go_on


async def ends(future, whole):
    if whole:
        assert (await future).tolist() == [6.0] * 6
        return
    with pytest.raises(KilledWorker):
        await future


@pytest.mark.parametrize("step", ["add_partition", "barrier", "get_output_partition"])
@dies_or_closes
@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_a_worker_goes_in_a_step(monkeypatch, step, dies, ours):
    there, go_on = stop_in(monkeypatch, step)

    async def body(c, s, a, b, ours):
        future = shuffled(c)
        await async_poll_for(lambda: there, 10)
        closing = await goes(s, there[0], dies)
        go_on.set()
        await ends(future, ours and not dies)
        await closing
        await nothing_is_left(c, s)

    run(ours, body, config=NO_FAILURES)


@dies_or_closes
@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_a_step_dangles_while_the_other_worker_goes(monkeypatch, dies, ours):
    """A task of the worker that stays has asked who takes part, and hears it when the other one has gone."""
    there, go_on = stop_in(monkeypatch, "add_partition")

    async def body(c, s, a, b, ours):
        hears = asyncio.Event()
        runs = a.plugins["shuffle"].shuffle_runs
        original = runs.get_or_create

        async def late(*args, **kwargs):
            await hears.wait()
            return await original(*args, **kwargs)

        runs.get_or_create = late
        future = shuffled(c)
        await async_poll_for(lambda: {a, b} <= set(there), 10)
        closing = await goes(s, b, dies)
        go_on.set()
        whole = ours and not dies
        if not whole:
            await ends(future, False)
            await async_poll_for(lambda: not s.plugins["shuffle"].active_shuffles, 10)
        hears.set()
        await ends(future, whole)
        await closing
        await nothing_is_left(c, s)
        await async_poll_for(lambda: not a.state.tasks, 10)

    run(ours, body, config=NO_FAILURES)
