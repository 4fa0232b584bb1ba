"""Commits and restores from within an event loop, and what they leave on the cluster."""

from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.checkpoint.store.save import save
from dask_hpc.model.errors import InputError


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_an_asynchronous_client(c, s, *workers):
    root = f"memory://{uuid4()}"
    array = c.persist(da.arange(30, chunks=5))
    manifest = await save(c, root, "run", {"u": array, "n": 3}, step=8)
    assert manifest.step == 8 and set(manifest.nodes) == {worker.address for worker in workers}
    found, meta = await dask_hpc.restore("run", root, layout="cyclic", nodes=2, client=c)
    assert meta.step == 8 and found["n"] == 3
    assert (await c.compute(found["u"])).tolist() == list(range(30))
    holders = [worker for worker in workers if any("restore" in str(key) for key in worker.data)]
    assert len(holders) == 2
    with pytest.raises(InputError, match="latest, or one of 1"):
        await dask_hpc.restore("run", root, 5, client=c)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_blocks_are_written_where_they_are(c, s, a, b):
    futures = [c.submit(np.arange, 10**5 + i, workers=[worker.address]) for i, worker in enumerate((a, b))]
    await wait(futures)
    before = len(a.transfer_incoming_log) + len(b.transfer_incoming_log)
    await save(c, f"memory://{uuid4()}", "run", {"one": futures[0], "two": futures[1]})
    assert len(a.transfer_incoming_log) + len(b.transfer_incoming_log) == before


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_what_cannot_be_computed_is_the_users_own_error(c, s, a):
    root = f"memory://{uuid4()}"
    with pytest.raises(ZeroDivisionError):
        await save(c, root, "run", {"u": dask.delayed(lambda: 1 / 0)()})
    with pytest.raises(InputError, match="has none in"):
        await dask_hpc.restore("run", root, client=c)
    future = c.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await save(c, root, "run", {"u": future})


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_nothing_of_a_commit_stays_on_the_cluster(c, s, a):
    root = f"memory://{uuid4()}"
    await save(c, root, "run", {"u": da.arange(10, chunks=5)})
    found, _ = await dask_hpc.restore("run", root, client=c)
    await c.compute(found)
    del found
    await async_poll_for(lambda: not s.tasks, 10)
