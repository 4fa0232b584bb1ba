"""An existing cluster object grows and shrinks without loss."""

import asyncio
from threading import Event
from time import monotonic, sleep

import pytest
from batch_cluster import batch_cluster, names_of, napping, ups_and_downs
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster, Status, Worker, wait
from distributed.utils_test import gen_test, inc

from dask_hpc import InputError, malleable

threads = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}


def decisions(story, *kinds):
    return [row["reason"] for row in story if row["decision"] in kinds]


@gen_test()
async def test_scale_down_loses_nothing_and_takes_the_emptiest():
    async with LocalCluster(n_workers=3, **threads) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await malleable(cluster)
        addresses = {w["name"]: address for address, w in cluster.scheduler_info["workers"].items()}
        big = client.map(inc, range(10), workers=[addresses[2]], pure=False)
        few = client.map(inc, range(2), workers=[addresses[0]], pure=False)
        more = client.map(inc, range(5), workers=[addresses[1]], pure=False)
        await wait(big + few + more)
        cluster.scale(2)
        await cluster
        assert set(cluster.workers) == cluster.plan == {1, 2}
        assert all(f.status == "finished" for f in big + few + more)
        assert await client.gather(few) == [1, 2]
        await manager.close()


@gen_test()
async def test_what_grows_back_at_once_never_leaves():
    async with LocalCluster(n_workers=3, **threads) as cluster, await malleable(cluster):
        before = dict(cluster.workers)
        cluster.scale(1)
        cluster.scale(3)
        await cluster
        assert cluster.workers == before


@gen_test()
async def test_pending_units_go_first():
    async with LocalCluster(n_workers=2, **threads) as cluster, await malleable(cluster):
        cluster.scale(4)
        cluster.scale(2)  # before any of the new ones could start
        assert cluster.plan == {0, 1}
        await cluster
        assert set(cluster.workers) == {0, 1}


@gen_test()
async def test_names_are_never_used_twice():
    async with LocalCluster(n_workers=2, **threads) as cluster, await malleable(cluster):
        seen = set(cluster.workers)
        for _ in range(3):
            cluster.scale(1)
            await cluster
            cluster.scale(2)
            await cluster
            new = set(cluster.workers) - seen
            assert len(new) == 1
            seen |= new


@gen_test()
async def test_a_unit_whose_data_has_no_other_place_stays():
    async with LocalCluster(n_workers=2, **threads) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await malleable(cluster)
        futures = client.map(inc, range(10), pure=False)
        await wait(futures)
        cluster.scale(0)
        await cluster
        assert cluster.plan and set(cluster.workers) == cluster.plan
        assert all(f.status == "finished" for f in futures)
        assert await client.gather(futures) == list(range(1, 11))
        assert decisions(await manager.story(), "stays")
        await manager.close()


@gen_test()
async def test_nothing_of_us_is_left_on_the_cluster_object():
    async with LocalCluster(n_workers=1, **threads) as cluster:
        before = set(vars(cluster))
        for _ in range(2):
            async with await malleable(cluster):
                cluster.adapt(maximum=2)
                assert set(vars(cluster)) > before
            assert set(vars(cluster)) == before
        cluster.scale(2)
        await cluster
        assert len(cluster.workers) == 2


@gen_test()
async def test_a_malleable_cluster_closes():
    async with LocalCluster(n_workers=2, **threads) as cluster:
        await malleable(cluster)
        workers = list(cluster.workers.values())
    assert {worker.status.name for worker in workers} == {"closed"}


@gen_test()
async def test_it_closes_while_units_are_leaving():
    async with LocalCluster(n_workers=2, **threads) as cluster, Client(cluster, asynchronous=True) as client:
        await malleable(cluster)
        futures = client.map(inc, range(10), pure=False)
        await wait(futures)
        workers = list(cluster.workers.values())
        cluster.scale(1)
        await asyncio.sleep(0)
    assert {worker.status.name for worker in workers} == {"closed"}


@gen_test()
async def test_any_spec_cluster():
    spec = {"cls": Worker, "options": {"nthreads": 1}}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}}
    async with (
        SpecCluster(
            scheduler=scheduler, worker=spec, workers={"x": spec, "y": spec}, asynchronous=True
        ) as cluster,
        await malleable(cluster),
    ):
        cluster.scale(1)
        await cluster
        assert len(cluster.workers) == 1


class Renamed(Worker):
    """Does not take the name that it is given."""

    def __init__(self, *args, name, **kwargs):
        super().__init__(*args, name=f"renamed-{name}", **kwargs)


@gen_test()
async def test_a_unit_whose_workers_are_unknown_is_not_closed():
    spec = {"cls": Renamed, "options": {"nthreads": 1}}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}}
    async with (
        SpecCluster(
            scheduler=scheduler, worker=spec, workers={0: spec, 1: spec}, asynchronous=True
        ) as cluster,
        await malleable(cluster) as manager,
    ):
        cluster.scale(1)
        await cluster
        assert len(cluster.workers) == len(cluster.worker_spec) == 2
        (words,) = decisions(await manager.story(), "stays")
        assert "not clear which workers are its: renamed-0, renamed-1" in words


@pytest.mark.parametrize("wrong", [None, 3, "tcp://1.2.3.4:5", Client])
def test_only_cluster_objects(wrong):
    with pytest.raises(InputError, match="malleable: found"):
        malleable(wrong)


@gen_test()
async def test_bad_sizes_are_told():
    async with LocalCluster(n_workers=1, **threads) as cluster, await malleable(cluster):
        for wrong in (-1, "three", True):
            with pytest.raises(InputError, match="scale: found"):
                cluster.scale(wrong)
        with pytest.raises(InputError, match="scale: found 'much'"):
            cluster.scale(memory="much")
        assert cluster.plan == {0}


class SlowNanny(Nanny):
    """Takes its time to be made, on the event loop."""

    made = Event()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.made.set()
        sleep(0.2)


def there_are(cluster, count):
    """Not by Dask's ``wait_for_workers``: what it asks for takes the place of what the cluster knows, which
    then breaks when it is told of a worker that left just before."""
    deadline = monotonic() + 30
    while len(cluster.scheduler.workers) != count:
        assert monotonic() < deadline
        sleep(0.01)


@pytest.mark.slow
def test_it_may_be_scaled_from_another_thread_while_units_are_being_made():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        malleable(cluster),
    ):
        cluster.new_spec["cls"] = SlowNanny
        cluster.scale(4)
        assert SlowNanny.made.wait(30)
        cluster.scale(2)
        there_are(cluster, 2)
        cluster.scale(3)
        there_are(cluster, 3)
        assert len(cluster.plan) == 3
    assert cluster.status == Status.closed  # which fails if a unit was made and never started


@pytest.mark.slow
def test_a_batch_job_goes_as_a_whole():
    with (
        batch_cluster(cores=2, processes=2) as cluster,
        Client(cluster) as client,
        malleable(cluster) as manager,
    ):
        cluster.scale(jobs=2)
        client.wait_for_workers(4, timeout=30)
        futures = client.map(napping(0), range(20), pure=False)
        wait(futures)
        cluster.scale(jobs=1)
        while len(names_of(client)) != 2:
            sleep(0.01)
        assert len({name.rsplit("-", 1)[0] for name in names_of(client)}) == 1
        assert names_of(client) == cluster.plan
        assert ups_and_downs(client) == (4, 2, 0)
        assert all(future.status == "finished" for future in futures)
        assert manager.status()["state"] == "on"
