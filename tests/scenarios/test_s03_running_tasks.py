"""S3: a worker is retired in the middle of a task."""

from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster, Queue, secede, wait
from distributed.utils_test import async_poll_for, gen_test
from forks import forked_nannies

import dask_hpc

SECONDS = 4


def long(x, seceding=False):
    Queue("executions").put(x)
    if seceding:
        secede()
    sleep(SECONDS)
    return x


class Counter:
    """An actor."""

    def __init__(self):
        self.n = 0

    def add(self):
        self.n += 1
        return self.n


async def executions(c):
    return len(await Queue("executions", client=c).get(batch=True))


async def retired(managed, budget=None, seceding=False):
    """What became of one long task whose worker is retired while it runs."""
    local = LocalCluster(n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=":0")
    async with local as cluster, Client(cluster, asynchronous=True) as c:
        manager = await dask_hpc.manage(c) if managed else None
        s = cluster.scheduler
        future = c.submit(long, 1, seceding)
        queue = Queue("executions", client=c)
        await async_poll_for(lambda: any(ws.processing for ws in s.workers.values()), 10)
        assert await queue.get(timeout=20) == 1
        await queue.put(1)
        if seceding:
            await async_poll_for(lambda: any(ws.long_running for ws in s.workers.values()), 10)
        address = next(ws.address for ws in s.workers.values() if ws.processing)
        since = monotonic()
        given = {"drain": budget} if budget is not None else {}
        assert list(await c.retire_workers(workers=[address], **given)) == [address]
        returned = monotonic() - since
        assert await future == 1
        told = []
        if manager:
            told = [row["reason"] for row in await manager.story() if row["decision"] == "restart"]
            await manager.close()
        return {"executions": await executions(c), "returned": returned, "told": told}


@pytest.mark.slow
@pytest.mark.timed
def test_budgets(report):
    found = {}

    @gen_test(timeout=180)
    async def run():
        with forked_nannies():
            found["plain"] = await retired(False)
            found["10 s"] = await retired(True)  # as configured
            found["1 s"] = await retired(True, "1s")
            found["seceded"] = await retired(True, seceding=True)

    run()
    plain = found.pop("plain")
    for name, bound in (("10 s", 1), ("1 s", 2), ("seceded", 1)):
        ours = found[name]
        what = "10 s, a seceded task" if name == "seceded" else name
        report.add(
            "S3",
            f"executions of a {SECONDS} s task, budget {what} (retire returns after)",
            plain=f"{plain['executions']} ({plain['returned']:.2f} s)",
            ours=f"{ours['executions']} ({ours['returned']:.2f} s)",
            bound=bound,
        )
        assert ours["executions"] == bound
    assert plain["executions"] == 2
    assert not found["10 s"]["told"] and not found["seceded"]["told"]
    (told,) = found["1 s"]["told"]
    assert "drain budget of 1 s is over" in told and "start again elsewhere" in told
    assert 0.9 < found["1 s"]["returned"] < 3.5


@pytest.mark.slow
def test_a_worker_with_an_actor_stays(report):
    found = {}

    async def with_actor(managed):
        local = LocalCluster(n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=":0")
        async with local as cluster, Client(cluster, asynchronous=True) as c:
            manager = await dask_hpc.manage(c) if managed else None
            s = cluster.scheduler
            counter = await c.submit(Counter, actor=True)
            assert await counter.add() == 1
            data = await c.scatter(list(range(5)), workers=list(s.workers))
            await wait(data)
            address = next(ws.address for ws in s.workers.values() if ws.actors)
            name = s.workers[address].name
            cluster.worker_spec.pop(name)  # what scale() does, but for this one
            gone = await s.retire_workers([address] if not managed else [name])
            found[managed] = (list(gone), await counter.add())
            if manager:
                (told,) = [r["reason"] for r in await manager.story() if r["decision"] == "not-retired"]
                assert "actors" in told
                await manager.close()

    @gen_test(timeout=60)
    async def run():
        await with_actor(False)
        await with_actor(True)

    run()
    report.add(
        "S3", "workers with an actor retired", plain=len(found[False][0]), ours=len(found[True][0]), bound=0
    )
    assert found[True] == ([], 2)
