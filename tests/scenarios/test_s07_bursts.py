"""S7: work comes in bursts, and the workers of the last one are still there for the next."""

import asyncio
from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import gen_test

import dask_hpc

BURSTS, TASKS, SECONDS, EVERY = 4, 16, 0.3, 8.0


async def bursts(**adapt):
    """Worker starts and removals, the length of each burst, and why workers left."""
    ours = "Adaptive" not in adapt and adapt.pop("ours", True)
    local = LocalCluster(n_workers=0, threads_per_worker=1, asynchronous=True, dashboard_address=":0")
    async with local as cluster, Client(cluster, asynchronous=True) as client:
        manager = await dask_hpc.malleable(cluster) if ours else None
        cluster.adapt(minimum=0, maximum=2, **adapt)
        took, next_one = [], monotonic()
        for _ in range(BURSTS):
            await asyncio.sleep(max(0.0, next_one - monotonic()))
            next_one += EVERY
            since = monotonic()
            await client.gather(client.map(lambda x: sleep(SECONDS), range(TASKS), pure=False))
            took.append(monotonic() - since)
        events = [msg.get("action") for _, msg in cluster.scheduler.get_events("all")]
        why = []
        if manager is not None:
            why = [row["reason"] for row in await manager.story() if row["decision"] == "unit-leaves"]
            await manager.close()
        return events.count("add-worker"), events.count("remove-worker"), took, why


@pytest.mark.timed
@pytest.mark.slow
def test_bursts_find_their_workers_still_there(report):
    found = {}

    @gen_test(timeout=200)
    async def run():
        found["ours"] = await bursts()  # alone: it is timed
        found["plain"], found["thrifty"] = await asyncio.gather(
            bursts(ours=False), bursts(forbid_idling=True)
        )

    run()
    (starts, removals, took, _), plain = found["ours"], found["plain"]
    report.add("S7", "worker starts", plain=plain[0], ours=starts, bound="2")
    report.add("S7", "removals", plain=plain[1], ours=removals, bound="0")
    report.add(
        "S7",
        "longest burst after the first, s",
        plain=f"{max(plain[2][1:]):.1f}",
        ours=f"{max(took[1:]):.1f}",
        bound="<= 3",
    )
    report.add("S7", "removals when idling is forbidden", plain="-", ours=found["thrifty"][1], bound=">= 1")
    assert plain[0] > 2 and plain[1] > 0
    assert (starts, removals) == (2, 0)
    assert max(took[1:]) <= 3.0
    assert found["thrifty"][1] >= 1
    assert all("forbids" in why for why in found["thrifty"][3])
