"""Schedulers that start and close with us as they do without."""

import asyncio
from logging import DEBUG
from time import monotonic

import dask
import pytest
from distributed import Client, Nanny, Scheduler, Status, Worker
from distributed.utils_test import captured_logger, gen_test, inc
from preloaded import PRELOAD, run

import dask_hpc


@gen_test()
async def test_a_scheduler_without_dasks_extensions_starts_and_runs_jobs():
    with dask.config.set(PRELOAD):
        async with (
            Scheduler(dashboard_address=":0", extensions={}) as s,
            Worker(s.address) as a,
            Worker(s.address),
            Client(s.address, asynchronous=True) as c,
            await dask_hpc.manage(c) as m,
        ):
            with dask_hpc.job("a", nodes=1):
                assert sum(await c.gather(c.map(inc, range(10)))) == 55
            assert (await m.hold([a.address]))["held"] == [a.address]
            status, story = await m.status(), await m.story()
            assert not status["errors"]
            assert any("no shuffles" in row["reason"] for row in story)


@pytest.mark.parametrize("kind", [Worker, pytest.param(Nanny, marks=pytest.mark.slow)])
def test_a_scheduler_that_closes_takes_its_workers_along(kind):
    """As quickly as without us, and without an attempt to connect to it again."""
    seconds = {}

    async def body(c, s, *workers, ours):
        await c.gather(c.map(inc, range(10)))
        await c.close()
        began = monotonic()
        with captured_logger("distributed.comm", level=DEBUG) as log:
            await s.close()
            while any(worker.status != Status.closed for worker in workers):
                await asyncio.sleep(0.01)
        seconds[ours] = monotonic() - began
        assert "retry" not in log.getvalue()

    for ours in (False, True):
        run(ours, body, Worker=kind)
    assert seconds[True] < 1.5 * seconds[False] + 0.5
