"""Where tasks and scattered data go in no job: as Dask would have it."""

import asyncio
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait
from distributed.utils_test import async_poll_for, inc
from preloaded import both, run

from dask_hpc.cluster.scheduler.spread import QUIET

ALONE = {
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": float("inf"),
}


def rows(needs):
    """An array of ten by ten blocks, each of which needs that many other results."""
    if not needs:
        return da.random.random((100, 100), chunks=(10, 10))
    other = {f"k{i}": dask.delayed(object(), name=f"object-{i}") for i in range(needs)}
    axes = {"y": (10,) * 10, "x": (10,) * 10}
    return da.blockwise(lambda **k: np.ones((10, 10)), "yx", new_axes=axes, dtype=float, **other)


def parted(ours, needs, nthreads):
    """How often two neighbouring blocks were computed on different workers."""
    found = []

    async def body(c, s, *workers, ours):
        x = rows(needs)
        kept, sums = c.persist([x, x.sum(axis=1, split_every=20)])
        await wait([kept, sums])
        keys = [key for row in x.__dask_keys__() for key in row]
        on = [{worker.address for worker in workers if key in worker.data} for key in keys]
        found.append(sum(not one & other for one, other in pairwise(on)))
        moved = {key for worker in workers for log in worker.transfer_incoming_log for key in log["keys"]}
        assert not moved & set(keys)

    run(ours, body, nthreads=nthreads, config=ALONE)
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("needs", [0, 1, 4])
@pytest.mark.parametrize("threads", [(1,) * 5, (3, 2, 1)], ids=["same", "different"])
@pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
def test_neighbours_are_placed_together(ours, needs, threads):
    """Each worker has one part of the row of all blocks; the one that rounding leaves over goes anywhere.
    Whose part comes first is chance, and so is how many rows of the array are split."""
    assert parted(ours, needs, [("127.0.0.1", n) for n in threads]) <= len(threads) + 1


@both
async def test_scattered_data_under_a_key_that_a_task_has_too(c, s, a, b, ours):
    """The worker that has it closes: with us it is handed over and stays what it was, in plain Dask the task
    runs and gives something else."""
    scattered = await c.scatter({"x": 1}, workers=[a.address])
    assert scattered.keys() == {"x"} and s.tasks["x"].state == "memory" and s.tasks["x"].run_spec is None
    async with Client(s.address, asynchronous=True) as other:
        x = other.submit(inc, 1, key="x")
        assert await x == 1
        await a.close()
        assert await x == (1 if ours else 2)
        del x, scattered
        await async_poll_for(lambda: not s.tasks, 10)


@both(nthreads=[("", 3), ("", 1)])
async def test_what_is_computed_after_the_workers_joined_stays_where_it_is(c, s, a, b, ours):
    xs = c.map(inc, range(20), workers=[a.address], key=[("x", i) for i in range(20)])
    await wait(xs)
    if ours:
        await asyncio.sleep(QUIET + 0.3)
    assert len(a.data) == 20 and not b.data
