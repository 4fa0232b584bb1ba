"""The status says what is protected, where the copies are, and what happened; so does the story."""

from tempfile import TemporaryDirectory
from unittest.mock import patch

import dask.array as da
import numpy as np
from distributed import futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.checkpoint.scheduler import controller

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)


async def status_of(c):
    return await c.scheduler.hpc_checkpoint_status()


@cluster3
async def test_who_holds_what_and_keeps_copies_for_whom(c, s, *workers):
    x = c.persist(da.random.random((6, 1000), chunks=(2, 1000)))
    y = await c.scatter(np.arange(5000), workers=[workers[0].address], hash=False)
    await wait(futures_of(x))
    await dask_hpc.protect([x, y], name="state", client=c)
    await dask_hpc.protected("state", wait=True, client=c)
    await dask_hpc.protected("state", wait=True, client=c)
    found = await status_of(c)
    (one,) = found["protected"]
    assert one["name"] == "state" and one["keys"] == one["copied"] == 4
    assert one["last_commit"]["moved"] > 40_000 and one["last_commit"]["ago"] < 60
    nodes = {node["name"]: node for node in found["nodes"]}
    assert nodes.keys() == {str(w.name) for w in workers}
    assert sum(node["own"] for node in nodes.values()) == 3 * 16_000 + 40_000
    kept = [(name, of, size) for name, node in nodes.items() for of, size in node["kept"].items()]
    assert sum(size for *_, size in kept) == 3 * 16_000 + 40_000
    assert all(name != of for name, of, _ in kept)
    assert found["levels"]["partner"] == {"copies": 4, "nbytes": 88_000}
    assert {agent["node"] for agent in found["agents"]} == nodes.keys()
    assert found["levels"]["disk"] == {"copies": 0, "nbytes": 0} and found["exposed"] == 0
    assert found["counts"]["commits"] == 1 and found["errors"] == 0


@cluster3
async def test_a_recovery_is_one_line_of_the_story_and_in_the_status(c, s, a, *others):
    async with await dask_hpc.manage(c, "fcfs") as m:
        assert (await m.status())["checkpoint"] is None
        y = await c.scatter([np.arange(size) for size in (5, 6, 7)], workers=[a.address], hash=False)
        await dask_hpc.protect(y, name="y", client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        assert (await m.status())["checkpoint"]["counts"]["commits"] == 1
        await s.remove_worker(a.address, stimulus_id="killed")
        for size, one in zip((5, 6, 7), y, strict=True):
            np.testing.assert_array_equal(await one, np.arange(size))
        counts = (await m.status())["checkpoint"]["counts"]
        assert counts["recoveries"] == 1 and counts["recovered"] == 3
        rows = [(row["decision"], row["reason"]) for row in await m.story()]
        recoveries = [reason for decision, reason in rows if decision == "recovery"]
        assert len(recoveries) == 1 and f"3 results, lost with worker {a.address}, loaded" in recoveries[0]
        commits = [reason for decision, reason in rows if decision == "commit"]
        assert len(commits) == 1 and commits[0].startswith("y: 3 copies, ")


@cluster3
async def test_an_error_in_the_status_of_checkpoints_is_no_error_of_the_cluster(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        y = await c.scatter(1)
        await dask_hpc.protect(y, name="y", client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        s.plugins["dask-hpc-checkpoint"].catalogue = None
        assert (await m.status())["checkpoint"] is None
        assert (await m.status())["state"] == "on"


@cluster3
async def test_copies_of_a_worker_that_left_are_made_again(c, s, *workers):
    y = await c.scatter(np.arange(1000), workers=[workers[0].address], hash=False)
    await dask_hpc.protect(y, name="y", client=c)
    await dask_hpc.protected("y", wait=True, client=c)
    await dask_hpc.protected("y", wait=True, client=c)
    (keeper,) = [node["name"] for node in (await status_of(c))["nodes"] if node["kept"]]
    await next(w for w in workers if str(w.name) == keeper).close()
    look = s.plugins["dask-hpc-checkpoint"].status
    await async_poll_for(lambda: look()["levels"]["partner"]["copies"] == 1, 10)
    assert (await status_of(c))["counts"]["copies"] >= 2


@cluster3
async def test_versions_say_which_levels_have_them(c, s, *workers):
    with TemporaryDirectory() as store:
        async with dask_hpc.Checkpoint("run", store=store, every=1, client=c) as ck:
            u = await ck.add("u", c.persist(da.random.random((3, 1000), chunks=(1, 1000))))
            async for _ in ck.loop(range(2)):
                ck.update(u=u)
            found = await status_of(c)
    (newest,) = found["versions"]
    assert newest == {"name": "run", "version": 2, "nbytes": 24_000, "levels": ("partner", "store")}
    assert found["store"] == {"waiting": 0, "written": found["store"]["written"], "problem": ""}
    assert found["store"]["written"] > 24_000 and sum(node["own"] for node in found["nodes"]) == 24_000


@cluster3
async def test_a_look_that_takes_long_is_not_made_each_time_somebody_asks(c, s, *workers):
    y = await c.scatter([1, 2], hash=False)
    await dask_hpc.protect(y[0], name="a", client=c)
    await dask_hpc.protected("a", wait=True, client=c)
    before = (await status_of(c))["nodes"]
    with patch.object(controller, "_QUICK", -1.0), patch.object(controller, "_SHARE", 1e-9):
        assert (await status_of(c))["nodes"] == before  # took too long from now on
        await dask_hpc.protect(y[1], name="b", client=c)
        await dask_hpc.protected("b", wait=True, client=c)
        found = await status_of(c)
    assert found["nodes"] == before and len(found["protected"]) == 2
