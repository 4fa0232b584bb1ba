"""S17: four workers become two; nothing is lost, neighbours stay together, nobody gets too full."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.utils_test import async_poll_for, gen_test

import dask_hpc

CHUNKS, NBYTES = 40, 8_000_000
#: a worker's process takes some 180 MB of it for itself
LIMIT = 800 * 2**20
#: nannies kill nobody, and nobody pauses for ever: plain Dask may overfill a worker, and how full it gets is
#: what we look at
MILD = {"distributed.worker.memory.terminate": False, "distributed.worker.memory.pause": False}


def chunk(i, nbytes):
    return np.full(nbytes // 8, i, dtype=float)


def lost(scheduler):
    events = [msg for _, msg in scheduler.get_events("all") if msg.get("action") == "remove-worker"]
    return sum(len(e["lost-computed-tasks"]) + len(e["lost-scattered-tasks"]) for e in events)


async def halved(managed, nbytes):
    """Blocks of one array, ten on each of four workers, of which two are retired."""
    local = LocalCluster(
        n_workers=4, threads_per_worker=1, asynchronous=True, dashboard_address=":0", memory_limit=LIMIT
    )
    async with local as cluster, Client(cluster, asynchronous=True) as c:
        manager = await dask_hpc.manage(c) if managed else None
        s = cluster.scheduler
        addresses = sorted(s.workers)
        futures = [
            c.submit(chunk, i, nbytes, key=("x", i), workers=[addresses[i * 4 // CHUNKS]])
            for i in range(CHUNKS)
        ]
        await wait(futures)
        gone = [addresses[0], addresses[2]]
        stay = [s.workers[addresses[1]], s.workers[addresses[3]]]
        peak = 0.0
        retiring = asyncio.ensure_future(c.retire_workers(workers=gone))
        seen = None
        # Process memory is in the heartbeats: look until those that stay have sent one after the end.
        while seen is None or not all(ws.last_seen > seen[ws] for ws in stay):
            peak = max(peak, *(ws.memory.process / ws.memory_limit for ws in stay))
            if retiring.done() and seen is None:
                seen = {ws: ws.last_seen for ws in stay}
            await asyncio.sleep(0.02)
        left = retiring.result()
        await async_poll_for(lambda: all(len(ts.who_has) == 1 for ts in s.tasks.values()), 60)
        places = [next(iter(s.tasks["x", i].who_has)).address for i in range(CHUNKS)]
        sums = await c.gather(c.map(lambda x: float(x[-1]), futures))
        told = []
        if manager:
            told = [row["reason"] for row in await manager.story() if row["decision"] == "not-retired"]
            await manager.close()
        return {
            "right": sums == list(range(CHUNKS)),
            "left": len(left),
            "lost": lost(s),
            "pairs": sum(one == other for one, other in pairwise(places)),
            "peak": peak,
            "nbytes": max(ws.nbytes for ws in s.workers.values()) / LIMIT,
            "spilled": max(ws.memory.spilled for ws in stay) / LIMIT,
            "told": told,
        }


@pytest.mark.slow
def test_four_to_two(report):
    found = {}

    @gen_test(timeout=240, config=MILD)
    async def run():
        for managed in (False, True):
            found[managed, "fits"] = await halved(managed, NBYTES)

    run()
    plain, ours = found[False, "fits"], found[True, "fits"]
    report.add("S17", "4 -> 2 workers: results lost", plain=plain["lost"], ours=ours["lost"], bound="0")
    report.add(
        "S17",
        f"neighbours together, of {CHUNKS - 1} pairs",
        plain=plain["pairs"],
        ours=ours["pairs"],
        bound=">= 35",
    )
    report.add(
        "S17",
        "fullest process, of its limit",
        plain=f"{plain['peak']:.0%}",
        ours=f"{ours['peak']:.0%}",
        bound="<= 80 %",
    )
    assert plain["right"] and ours["right"]
    # The defect shows in places only: what is retired by its address moves, and fits.
    assert plain["left"] == 2 and plain["lost"] == 0 and plain["pairs"] < 35 and plain["peak"] <= 0.8
    assert ours["left"] == 2 and ours["lost"] == 0 and ours["pairs"] >= 35 and ours["peak"] <= 0.8


@pytest.mark.slow
def test_four_to_two_without_room(report):
    """Of 30 MB a block the four hold 1.2 GB; two may be filled with 1.3, processes included."""
    found = {}

    @gen_test(timeout=240, config=MILD)
    async def run():
        for managed in (False, True):
            found[managed] = await halved(managed, 30_000_000)

    run()
    plain, ours = found[False], found[True]
    words = {
        name: f"{one['left']} / {one['nbytes']:.0%} / {one['peak']:.0%} / {one['spilled']:.0%}"
        for name, one in (("plain", plain), ("ours", ours))
    }
    what = "no room: workers gone / fullest worker's results / its process / on its disk, of its limit"
    report.add("S17", what, **words, bound="<= 80 % or refused")
    assert plain["right"] and ours["right"]
    # Dask refuses nothing: what does not fit is written to disks, and processes stay as small as that.
    assert plain["lost"] == 0 and plain["left"] == 2 and plain["spilled"] > 0
    assert ours["spilled"] == 0
    assert ours["lost"] == 0 and ours["left"] < 2 and "fit nowhere" in ours["told"][0]
    assert ours["nbytes"] <= 0.8 and ours["peak"] <= 0.8
