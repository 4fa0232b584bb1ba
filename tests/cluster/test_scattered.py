"""What a client scatters in a job goes to the workers of the job."""

import asyncio
from functools import partial

import pytest
from distributed import Client, Event, LocalCluster, wait
from small_cluster import blocked, cluster4, decisions, live, lose, plugin_of, until, where

import dask_hpc
from dask_hpc.cluster.scheduler.gate import _EXPECTED


def scattering(c):
    """Workers of this process are all found by its client, which then asks no scheduler."""
    return partial(c.scatter, hash=False, direct=False)


def places(s, futures):
    return {worker.address for future in futures for worker in s.tasks[future.key].who_has}


@cluster4
async def test_the_job_begins_with_its_data(c, s, *workers):
    scatter = scattering(c)
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("a", nodes=2):
            spread = await scatter(list(range(8)))
            both = await scatter([1, 2], broadcast=True)
            a = live(s, "a")
            assert a.state == "running" and len(a.workers) == 2
            assert a.rests_since >= a.started  # not for ever
            assert places(s, spread) == a.workers
            assert all(places(s, [future]) == a.workers for future in both)
            # a second job has data of its own; whoever is in none of them has all workers
            async with dask_hpc.job("b", nodes=1):
                others = await scatter(list(range(8)))
                assert places(s, others) == live(s, "b").workers != a.workers
            again = await scatter(list(range(8)))
            assert places(s, again) == a.workers
            assert set(await c.gather(c.map(where, spread))) == a.workers
        await until(s, "a", "done")
        free = await scatter(list(range(8)))
        assert places(s, free) == set(s.workers)
        assert decisions(s, "submit", "start", "end")[:2] == [("submit", a.id), ("start", a.id)]
        assert not plugin_of(s).control.gate._expected
    assert s.handlers["scatter"] == s.scatter


@cluster4
async def test_who_names_workers_gets_them(c, s, *workers):
    async with await dask_hpc.manage(c), dask_hpc.job("a", nodes=1):
        await c.submit(where)
        (other, *_) = set(s.workers) - live(s, "a").workers
        assert places(s, await scattering(c)([1], workers=[other])) == {other}


@cluster4
async def test_as_long_as_the_job_waits_data_go_anywhere(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("first", nodes=4):
            busy = c.map(blocked, ["go"] * 4, range(4), pure=False)
        await until(s, "first", "running")
        async with dask_hpc.job("second", nodes=2):
            data = await scattering(c)(list(range(8)))
            assert live(s, "second").state == "waiting" and places(s, data) == set(s.workers)
            sums = c.map(where, data)
            await Event("go").set()
            assert set(await c.gather(sums)) == live(s, "second").workers
        await wait(busy)


@cluster4
async def test_a_job_that_only_scattered_ends_with_its_context(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("a", nodes=2):
            data = await scattering(c)([1, 2, 3])
        await until(s, "a", "done")
        assert await c.gather(data) == [1, 2, 3]
        assert not plugin_of(s).control.indices.running


@cluster4
async def test_it_gives_way_to_who_waits_as_any_job_that_rests(c, s, *workers):
    a = dask_hpc.job("a", nodes=4, min_nodes=1, max_nodes=4)
    async with await dask_hpc.manage(c, policy="elastic"), a:
        data = await scattering(c)(list(range(8)))
        assert len(live(s, "a").nodes) == 4
        with dask_hpc.job("b", nodes=3):
            assert await asyncio.wait_for(c.submit(where), 10)
        assert await c.gather(data) == list(range(8))


@cluster4
async def test_a_worker_of_the_job_dies_or_pauses(c, s, *workers):
    scatter = scattering(c)
    async with await dask_hpc.manage(c), dask_hpc.job("a", nodes=4):  # none is idle to take another's place
        await scatter([1])
        here, there, gone, held = sorted(live(s, "a").workers)
        by_address = {worker.address: worker for worker in workers}
        plugin_of(s).control.holds.hold([held], "test")
        await lose(by_address[gone])
        assert places(s, await scatter(list(range(8)))) == {here, there}


@cluster4
async def test_not_in_a_dry_run_and_not_where_nobody_manages(c, s, *workers):
    scatter = scattering(c)
    async with await dask_hpc.manage(c, dry_run=True), dask_hpc.job("a", nodes=2):
        assert places(s, await scatter(list(range(8)))) == set(s.workers)
        assert live(s, "a").state == "running"
    async with dask_hpc.job("a", nodes=2):
        assert places(s, await scatter(list(range(8)))) == set(s.workers)


@cluster4
async def test_bad_requests_and_data_that_never_come(c, s, *workers):
    async with await dask_hpc.manage(c):
        await c.log_event("hpc", {"scatters": "x", "job": {"id": 3}, "client": c.id})
        await c.log_event("hpc", {"scatters": 3, "job": None})
        assert [h.decision for h in plugin_of(s).story.happenings].count("ignored") == 1
        data = await scattering(c)({"x": 1})
        assert places(s, data.values()) <= set(s.workers)
        gate = plugin_of(s).control.gate
        async with dask_hpc.job("a", nodes=1):
            await c.submit(where)
            for i in range(_EXPECTED + 5):
                gate.expect(str(i), live(s, "a"))
            assert len(gate._expected) == _EXPECTED and not gate.home(["0"]) and gate.home([str(_EXPECTED)])


@pytest.mark.slow
def test_clients_of_threads():
    """What ``with`` says is known on the client's own event loop, too."""
    with (
        LocalCluster(3, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client),
        dask_hpc.job("a", nodes=1),
    ):
        data = client.scatter({("x", 1): 1, ("x", 2): 2}, hash=False)
        found = client.who_has(data)
        assert len({address for addresses in found.values() for address in addresses}) == 1
