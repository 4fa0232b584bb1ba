"""S2: a cluster is told to be smaller, and loses none of its results."""

from contextlib import asynccontextmanager
from time import monotonic

import dask
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin, wait
from distributed.utils_test import async_poll_for, gen_test

import dask_hpc

RESULTS = 30
NBYTES = 33_000_000  # 1 GB in all


class Watch(SchedulerPlugin):
    """How often a result that was there is there no more."""

    def __init__(self):
        self.unfinished = 0

    def transition(self, key, start, finish, *args, **kwargs):
        self.unfinished += start == "memory" and finish in ("released", "waiting")


def produce(x, nbytes):
    return bytes([x]) * nbytes


def lost(scheduler):
    events = [msg for _, msg in scheduler.get_events("all") if msg.get("action") == "remove-worker"]
    return sum(len(e["lost-computed-tasks"]) + len(e["lost-scattered-tasks"]) for e in events)


async def controlled(how, cluster, client):
    """The manager of a cluster under our control, or None."""
    if how == "manage":
        return await dask_hpc.manage(client)
    return await dask_hpc.malleable(cluster) if how == "malleable" else None


async def shrunk(how):
    local = LocalCluster(
        n_workers=3, threads_per_worker=1, asynchronous=True, dashboard_address=":0", memory_limit="4 GiB"
    )
    async with local as cluster, Client(cluster, asynchronous=True) as c:
        manager = await controlled(how, cluster, c)
        s, watch = cluster.scheduler, Watch()
        futures = c.map(produce, range(RESULTS), [NBYTES] * RESULTS)
        await wait(futures)
        s.add_plugin(watch, name="watch")
        since = monotonic()
        cluster.scale(2)
        returned = monotonic() - since
        await async_poll_for(lambda: len(s.workers) == len(cluster.workers) == 2, 60)
        took = monotonic() - since
        found = {"lost": lost(s), "unfinished": watch.unfinished, "returned": returned, "took": took}
        firsts = await c.gather(c.map(lambda x: x[0], futures))
        assert firsts == list(range(RESULTS))
        if manager:
            await manager.close()
        return found


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("how", ["manage", "malleable"])
def test_scale_from_three_to_two(how, report):
    found = {}

    @gen_test(timeout=120)
    async def run():
        found["plain"] = await shrunk("plain")
        found["ours"] = await shrunk(how)

    run()
    plain, ours = found["plain"], found["ours"]
    for name, bound in (("lost", "0"), ("unfinished", "0")):
        words = {"lost": f"of {RESULTS} results lost", "unfinished": "results that left memory"}[name]
        report.add("S2", f"{how}, scale(3 -> 2), {words}", plain=plain[name], ours=ours[name], bound=bound)
    for name, bound in (("returned", "promptly"), ("took", "< 5")):
        words = {"returned": "scale() returns after, s", "took": "1 GB: shrink done after, s"}[name]
        report.add("S2", f"{how}, {words}", plain=f"{plain[name]:.2f}", ours=f"{ours[name]:.2f}", bound=bound)
    assert plain["lost"] > 0
    assert ours["lost"] == ours["unfinished"] == 0
    assert ours["returned"] < 0.5 and ours["took"] < 5


@asynccontextmanager
async def three_workers(memory_limit):
    """A cluster and its client. Nothing is spilled, nobody pauses or is killed: how much would be, depends
    on the moment."""
    steps = ("target", "spill", "pause", "terminate")
    with dask.config.set({f"distributed.worker.memory.{step}": False for step in steps}):
        local = LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            asynchronous=True,
            dashboard_address=":0",
            memory_limit=memory_limit,
        )
        async with local as cluster, Client(cluster, asynchronous=True) as client:
            yield cluster, client


async def spread_evenly(c, scheduler, count, nbytes):
    """As many results on each worker, or one could have little to take along."""
    workers = list(scheduler.workers)
    futures = [
        c.submit(produce, x, nbytes, workers=[workers[x % len(workers)]], allow_other_workers=True)
        for x in range(count)
    ]
    await wait(futures)
    return futures


async def squeezed(managed):
    """Three workers with so much data that two of them could not hold it all."""
    async with three_workers("600 MiB") as (cluster, c):
        manager = await dask_hpc.manage(c) if managed else None
        s = cluster.scheduler
        futures = await spread_evenly(c, s, 9, 100_000_000)
        address = max(s.workers, key=lambda a: s.workers[a].nbytes)
        name = s.workers[address].name
        answer = await c.retire_workers(workers=[address])
        alive = address in s.workers and cluster.workers[name].status.name == "running"
        fullest = max(ws.nbytes / ws.memory_limit for ws in s.workers.values())
        told = []
        if manager:
            told = [row["reason"] for row in await manager.story() if row["decision"] == "not-retired"]
            assert await c.submit(lambda: 1, workers=[address]) == 1
            await manager.close()
        del futures
        return {"answer": list(answer), "alive": alive, "fullest": fullest, "told": told}


@pytest.mark.slow
def test_a_retirement_without_room_is_refused(report):
    found = {}

    @gen_test(timeout=120)
    async def run():
        found["plain"] = await squeezed(False)
        found["ours"] = await squeezed(True)

    run()
    plain, ours = found["plain"], found["ours"]
    report.add(
        "S2",
        "no room: worker is alive / fullest worker",
        plain=f"{plain['alive']} / {plain['fullest']:.0%}",
        ours=f"{ours['alive']} / {ours['fullest']:.0%}",
        bound="True, refused and told",
    )
    assert not plain["alive"]
    assert ours["alive"] and ours["answer"] == []
    assert len(ours["told"]) == 1 and "fit nowhere" in ours["told"][0]


async def scaled_without_room(how):
    """Three workers with so much data that two could not hold it, told to be two by ``cluster.scale``."""
    async with three_workers("480 MiB") as (cluster, c):
        manager = await controlled(how, cluster, c)
        futures = await spread_evenly(c, cluster.scheduler, 12, 70_000_000)
        cluster.scale(2)
        await cluster
        told = []
        if manager is not None:
            told = [row["reason"] for row in await manager.story() if row["decision"] == "stays"]
            await manager.close()
        del futures
        return {"alive": len(cluster.workers), "lost": lost(cluster.scheduler), "told": told}


@pytest.mark.slow
def test_scale_without_room_leaves_the_worker_alive(report):
    found = {}

    @gen_test(timeout=120)
    async def run():
        found["plain"] = await scaled_without_room("plain")
        found["ours"] = await scaled_without_room("malleable")

    run()
    plain, ours = found["plain"], found["ours"]
    report.add(
        "S2",
        "scale(3 -> 2) without room: workers alive / results lost",
        plain=f"{plain['alive']} / {plain['lost']}",
        ours=f"{ours['alive']} / {ours['lost']}",
        bound="3 / 0, refused and told",
    )
    assert plain["alive"] == 2 and plain["lost"] > 0
    assert (ours["alive"], ours["lost"], len(ours["told"])) == (3, 0, 1)
