"""S15: whatever the reason, nobody holds the last worker of a restricted task or one amid a shuffle."""

from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, Status, wait
from distributed.utils_test import async_poll_for, gen_cluster, gen_test
from small_cluster import power_of

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc import malleable
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.levers import WHY


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


P2P = {
    "array.rechunk.method": "p2p",
    "array.chunk-size": "32 kB",  # one block: else all are merged before the shuffle
    "optimization.fuse.active": False,
}


def rechunked():
    """All blocks but one begin the shuffle; the last one keeps it from ending."""
    x = da.random.default_rng(1).random((200, 200), chunks=(20, 200))
    return x.map_blocks(last_waits, dtype=x.dtype).rechunk((200, 20))


def last_waits(block, block_id=None):
    if block_id == (9, 0):
        Event("go").wait(60)
    return block


def begun(s):
    """How often each shuffle is begun from now on."""
    shuffles, counted = s.plugins["shuffle"], Counter()
    create = shuffles._create
    shuffles._create = lambda id, key, worker: counted.update([id]) or create(id, key, worker)
    return counted


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
            manager, counted = await dask_hpc.manage(c) if managed else None, begun(s)
            with dask.config.set(P2P):
                expected = da.random.default_rng(1).random((200, 200), chunks=(20, 200))
                expected = await c.compute(expected)
                future = c.compute(rechunked())
            shuffles = s.plugins["shuffle"]
            await async_poll_for(lambda: shuffles.active_shuffles, 20)
            await act(manager, s, workers)
            await Event("go").set()
            try:
                assert np.array_equal(await future, expected)
            except RuntimeError as error:  # plain Dask's shuffle does not always survive a worker that goes
                assert not managed and "P2P" in type(error).__name__, error
            runs[name] = max(counted.values())
            if manager:
                await manager.close()

        run()

    async def remove(manager, s, workers):
        """One that waits for nothing, which would take time to close."""
        idle = []
        await async_poll_for(
            lambda: idle.extend(w for w in workers if not w.state.executing_count) or idle, 10
        )
        await idle[0].close(executor_wait=False)

    async def hold(manager, s, workers):
        found = await manager.hold([worker.address for worker in workers])
        assert not found["held"] and set(found["refused"].values()) == {"shuffle needs it where it is"}

    rechunk_while(remove, False, "plain")
    rechunk_while(hold, True, "ours")
    report.add("S15", "runs of a shuffle (worker taken away / to be held)", **runs, bound="1, refused")
    assert runs["plain"] > 1 and runs["ours"] == 1


POWER = {  # 60 W of an idle worker, 200 W of a busy one; sensors without lag or noise
    "hpc.power-interval": "50ms",
    "hpc.power-meter": {"simulated": {"idle": 60, "busy": 140, "lag": 0, "noise": 0}},
    "hpc.power-history": None,
}


async def in_corridor(c, **bounds):
    """A manager whose policy keeps power between these bounds."""
    policy = Policy.load("power-corridor").with_(**{f"power.{key}": value for key, value in bounds.items()})
    with dask.config.set(POWER):
        return await dask_hpc.manage(c, policy=policy)


def held(s):
    """Workers that the corridor holds."""
    return {address for address, why in s.plugins["dask-hpc"].control.holds.reasons.items() if WHY in why}


async def looks(s, count):
    """So many more looks at power, each with what follows from it."""
    trace = power_of(s).trace
    goal = trace.count + count
    await async_poll_for(lambda: trace.count >= goal, 10)


@pytest.mark.slow
def test_the_corridor_and_the_last_workers_of_restricted_tasks(report):
    """Power is for one worker only; two have tasks that nobody else may run."""
    seen = {}

    async def busy(c, a, b):
        futures = [
            c.submit(blocked, "go", number, workers=[worker.address], pure=False)
            for number, worker in enumerate([a, b, a, b])
        ]
        futures += c.map(blocked, ["go"] * 8, range(4, 12), pure=False)
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        return futures

    @gen_cluster(client=True, nthreads=[("", 1)] * 4, timeout=60)
    async def plain(c, s, a, b, *others):
        """As many are given up as power is not there for, those that Dask would give up first."""
        futures = await busy(c, a, b)
        gone = await c.retire_workers(n=3)
        await Event("go").set()
        await async_poll_for(lambda: all(ts.state in ("memory", "no-worker") for ts in s.tasks.values()), 10)
        seen["plain"] = f"{len(gone)} given up", sum(not future.done() for future in futures)
        await c.cancel(futures)

    @gen_cluster(client=True, nthreads=[("", 1)] * 4, timeout=60)
    async def ours(c, s, a, b, *others):
        async with await in_corridor(c, upper=400) as manager:
            await async_poll_for(lambda: len(held(s)) == 3, 10)  # room is kept for what may come
            futures = await busy(c, a, b)
            await looks(s, 5)
            assert held(s) == {worker.address for worker in others}
            told = [row["reason"] for row in await manager.story() if row["decision"] == "corridor"]
            assert any("cannot be kept" in reason for reason in told)
            waiting = len(held(s))
            await Event("go").set()
            assert await c.gather(futures) == list(range(12))
            seen["ours"] = f"{waiting} held", 0

    plain()
    ours()
    report.add(
        "S15", "workers without power, of 4; 2 are the last for some task", plain=seen["plain"][0],
        ours=seen["ours"][0], bound="2, and told that the corridor cannot be kept",
    )  # fmt: skip
    report.add(
        "S15", "restricted tasks, of 4, that then wait for ever", plain=seen["plain"][1],
        ours=seen["ours"][1], bound="0",
    )  # fmt: skip
    assert seen["plain"][1] >= 1


@pytest.mark.slow
def test_the_corridor_in_the_middle_of_a_shuffle(report):
    """Power falls short while a rechunk by P2P is under way on all workers."""
    runs = {}

    def falls_short(managed):
        @gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"array.rechunk.method": "p2p"}, timeout=60)
        async def run(c, s, *workers):
            manager, counted = await in_corridor(c) if managed else None, begun(s)
            with dask.config.set(P2P):
                expected = da.random.default_rng(1).random((200, 200), chunks=(20, 200))
                expected = await c.compute(expected)
                future = c.compute(rechunked())
            shuffles = s.plugins["shuffle"]
            await async_poll_for(lambda: shuffles.active_shuffles, 20)
            needed = {worker.address for worker in workers if compat.veto(s, worker.address)}
            assert len(needed) == 3
            if managed:
                await manager.set(**{"power.upper": 250})
                await looks(s, 5)
                assert not held(s)
            else:  # the defect does not show where Dask chooses: S20 names the ways on which it does
                assert await c.retire_workers(n=2) == {}
            await Event("go").set()
            assert np.array_equal(await future, expected)
            runs["ours" if managed else "plain"] = max(counted.values())
            if managed:
                await async_poll_for(lambda: len(held(s)) == 2, 10)  # as soon as it is over
                await manager.close()

        run()

    for managed in (False, True):
        falls_short(managed)
    report.add("S15", "runs of a shuffle when power falls short", **runs, bound="1")
    assert runs == {"plain": 1, "ours": 1}


def test_the_corridor_gives_back_no_node_whose_data_fits_nowhere(report):
    """Even idle nodes draw too much; each holds more than the others could take. Dask takes them back, and
    puts everything on the one that is left."""
    kept = {}

    async def filled(cluster, c):
        """Results, one on each worker."""
        s = cluster.scheduler
        for worker in cluster.workers.values():
            worker.monitor.get_process_memory = lambda: 0
            worker.monitor.update()
            await worker.heartbeat()
        futures = [
            c.submit(bytes, 6_000_000, workers=[address], key=f"data-{number}")
            for number, address in enumerate(s.workers)
        ]
        await wait(futures)
        return futures

    def found(s, futures):
        copies = sum(len(s.tasks[future.key].who_has) for future in futures)
        fullest = max(ws.nbytes / ws.memory_limit for ws in s.workers.values())
        return copies, fullest

    async def give_back(cluster, c):
        """What Dask chooses, as many as the corridor would."""
        futures = await filled(cluster, c)
        assert len(await c.retire_workers(n=2)) == 2
        return found(cluster.scheduler, futures)

    async def refuse(cluster, c):
        s = cluster.scheduler
        async with await in_corridor(c) as manager:
            futures = await filled(cluster, c)
            await malleable(cluster)
            cluster.adapt(minimum=1, maximum=3, interval="50ms", cool_down=0, idle_grace="1h")
            await async_poll_for(lambda: power_of(s).levers.releasable == 2, 10)
            await manager.set(**{"power.upper": 100})

            async def refused():
                story = await manager.story()
                return [row for row in story if row["decision"] == "not-retired"]

            while not await refused():
                await looks(s, 1)
            assert "fit nowhere" in (await refused())[0]["reason"]
            assert any(row["decision"] == "give-back" for row in await manager.story())
            assert len(s.workers) == 3
            return found(s, futures)

    @gen_test(timeout=60)
    async def run():
        options = {"processes": False, "threads_per_worker": 1, "memory_limit": 10_000_000}
        monitor = {
            f"distributed.worker.memory.{name}": False for name in ("pause", "spill", "terminate", "target")
        }
        for name, act in (("plain", give_back), ("ours", refuse)):
            with dask.config.set(monitor):
                async with (
                    LocalCluster(
                        n_workers=3, **options, dashboard_address=":0", asynchronous=True
                    ) as cluster,
                    Client(cluster, asynchronous=True) as c,
                ):
                    kept[name] = await act(cluster, c)

    run()
    words = {name: f"{copies} / {fullest:.0%}" for name, (copies, fullest) in kept.items()}
    report.add(
        "S15", "results kept, of 3 on nodes to be given back / fullest worker", **words, bound="3 / <= 100%"
    )
    assert kept["plain"][1] > 1, "Dask loses nothing, but gives a worker more than it may have"
    assert kept["ours"][0] == 3 and kept["ours"][1] <= 1
