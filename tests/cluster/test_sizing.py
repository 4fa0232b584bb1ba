"""Which units go first when the cluster shrinks; and how large it may be for the sake of power."""

from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster, gen_test, inc, slowinc
from small_cluster import blocked, cluster4, looks, plugin_of, power_of, until

import dask_hpc
from dask_hpc import malleable
from dask_hpc.model.plan import Hold, Plan, Release

QUIET = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}


@cluster4
async def test_first_go_idle_nodes_then_those_of_jobs_that_can_do_with_less(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        with dask_hpc.job("rigid", nodes=1, walltime="1h"):
            first = c.submit(blocked, "go", 1, pure=False)
        rigid = await until(s, "rigid", "running")
        with dask_hpc.job("malleable", nodes=2, min_nodes=1, max_nodes=2, walltime="1h"):
            second = c.submit(blocked, "go", 2, pure=False)
        malleable = await until(s, "malleable", "running")
        order = plugin_of(s).control.sizing.rank({str(i): [str(i)] for i in range(4)})
        assert order[0] not in rigid.nodes + malleable.nodes
        assert set(order[1:3]) == set(malleable.nodes) and order[3:] == list(rigid.nodes)
        await Event("go").set()
        await c.gather([first, second])


@gen_cluster(client=True, nthreads=[])
async def test_tasks_that_a_new_worker_may_not_run_ask_for_none(c, s):
    async with await dask_hpc.manage(c):
        bound = [c.submit(inc, 1, resources={"GPU": 1}), c.submit(inc, 2, workers=["some-host"])]
        free = c.map(inc, range(3), pure=False)
        await async_poll_for(lambda: len(s.unrunnable) + len(s.queued) == 5, 10)
        _, tasks, jobs = plugin_of(s).control.sizing._demand([], {})
        assert tasks == len(free) and not jobs
        del bound


def levers(s):
    return power_of(s).levers


def pull(s, **what):
    levers(s).pull(Plan(1, plugin_of(s).context.clock(), **what))


@gen_test()
async def test_nodes_that_a_plan_does_without_are_given_back_and_taken_again():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster) as manager:
            cluster.adapt(
                minimum=1, maximum=4, interval="20ms", cool_down=0, idle_grace="1h", target_duration="10ms"
            )
            futures = c.map(slowinc, range(12), delay=0.05, pure=False)
            await async_poll_for(lambda: len(s.workers) == 4, 20)
            await c.gather(futures)
            await async_poll_for(lambda: levers(s).releasable == 3, 10)
            assert "release" in levers(s).available
            pull(s, release=Release(2, "even idle nodes draw too much"))
            await async_poll_for(lambda: len(s.workers) == 2, 20)
            assert await c.gather(futures) == [x + 1 for x in range(12)]
            story = await manager.story()
            assert "2 nodes less: even idle nodes draw too much" in [row["reason"] for row in story]
            assert not [row for row in story if row["decision"] == "lost"]
            more = c.map(slowinc, range(40), delay=0.05, pure=False)
            await c.gather(more)
            assert len(s.workers) == len(cluster.plan) == 2
            pull(s, release=Release(1, "there is room for one"))
            more = c.map(slowinc, range(40), delay=0.05, pure=False)
            await async_poll_for(lambda: len(s.workers) == 3, 20)
            pull(s, release=Release(0, "there is room"))
            await async_poll_for(lambda: len(s.workers) == 4, 20)
            await c.gather(more)


@gen_test()
async def test_nobody_who_works_is_sent_away_for_the_sake_of_power():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster):
            adaptive = cluster.adapt(
                minimum=0, maximum=3, interval="20ms", cool_down=0, idle_grace="1h", target_duration="10ms"
            )
            futures = c.map(blocked, ["go"] * 3, range(3), pure=False)
            await async_poll_for(lambda: len(s.workers) == 3, 20)
            await async_poll_for(lambda: all(len(w.processing) == 1 for w in s.workers.values()), 10)
            pull(s, release=Release(2, "even idle nodes draw too much"))
            await looks(adaptive, 5)
            assert len(s.workers) == 3 and levers(s).releasable == 0
            await Event("go").set()
            assert len(set(await c.gather(futures))) == 3
            await async_poll_for(lambda: len(s.workers) == 1, 20)


@gen_test()
async def test_a_cluster_with_held_nodes_does_not_grow():
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster):
            adaptive = cluster.adapt(
                minimum=2, maximum=4, interval="20ms", cool_down=0, idle_grace="1h", target_duration="10ms"
            )
            await c.wait_for_workers(2)
            pull(s, hold=Hold(1, "power"))
            assert levers(s).held == 1
            futures = c.map(slowinc, range(60), delay=0.05, pure=False)
            await async_poll_for(lambda: any(w.processing for w in s.workers.values()), 10)
            await looks(adaptive, 5)
            assert len(s.workers) == len(cluster.plan) == 2
            with dask_hpc.job("three", nodes=3, client=c):
                one = c.submit(slowinc, 1, delay=0.01, pure=False)
            assert await one == 2  # a job that waits for more nodes than there are still gets them
            pull(s, hold=Hold(0, "power"))
            await c.gather(futures)


@gen_test()
async def test_held_nodes_are_given_back_and_not_the_one_that_works():
    async with LocalCluster(n_workers=3, **QUIET) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await malleable(cluster) as manager:
            pull(s, hold=Hold(2, "power"))
            held = set(plugin_of(s).control.holds.reasons)
            (works,) = s.workers.keys() - held
            cluster.adapt(minimum=1, maximum=3, interval="20ms", cool_down=0, idle_grace="1h")
            await async_poll_for(lambda: levers(s).releasable == 2, 10)
            pull(s, release=Release(2, "even idle nodes draw too much"))
            await async_poll_for(lambda: set(s.workers) == {works}, 20)
            assert not [row for row in await manager.story() if row["decision"] == "not-retired"]
            assert await c.submit(sum, [1, 2]) == 3
