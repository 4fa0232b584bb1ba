"""Managing, swapping the policy, closing without a trace, and failing without harm."""

import asyncio

import dask
import pytest
from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for, cluster, inc
from small_cluster import blocked, cluster2, cluster4, decisions, held, live, plugin_of, until, where

import dask_hpc
from dask_hpc import InputError, Policy


def traces(s):
    tables = (s.handlers, s.plugins, s.periodic_callbacks, s.stream_handlers, s.extensions)
    limits = ("worker_restrictions", "host_restrictions", "loose_restrictions")
    tasks = {key: tuple(getattr(ts, limit) for limit in limits) for key, ts in s.tasks.items()}
    return [*map(set, tables), tasks]


@cluster4
async def test_nothing_is_left_after_close(c, s, *workers):
    before_keep = c.submit(inc, 0, pure=False)
    await before_keep
    before = traces(s)[:-1]
    m = await dask_hpc.manage(c)
    with dask_hpc.job("runs", nodes=3):
        runs = c.map(blocked, ["go"] * 3, range(3), pure=False)
    await until(s, "runs", "running")
    context = dask_hpc.job("waits", nodes=3)
    with context:
        waits = c.map(inc, range(40), workers=None, pure=False)
        mine = c.submit(inc, 1, workers=workers[0].address, allow_other_workers=True)
    job = await until(s, "waits", "waiting")
    await async_poll_for(lambda: len(held(job)) == 41, 10)
    still_open = dask_hpc.job("open", nodes=1)
    async with still_open:
        done = c.submit(inc, 5)
        await m.close()
        assert traces(s)[:-1] == before
        for key, (where_, hosts, loose) in traces(s)[-1].items():
            assert hosts is None
            assert (where_, loose) == (({workers[0].address}, True) if key == mine.key else (None, False))
        assert sum(await c.gather(waits)) == sum(range(1, 41))  # while "runs" still blocks three workers
        assert await mine == 2 and await done == 6
        assert await c.submit(inc, 6) == 7
    await m.close()
    await m.close()
    with pytest.raises(RuntimeError, match="not managed"):
        await m.status()
    await Event("go").set()
    await c.gather(runs)
    assert "closed" in repr(m)
    # and again
    async with await dask_hpc.manage(c) as m, dask_hpc.job("again", nodes=4):
        assert await c.submit(inc, 7) == 8
    assert traces(s)[:-1] == before


@pytest.mark.queue
@cluster2
async def test_released_tasks_are_queued_as_in_plain_dask(c, s, *workers):
    m = await dask_hpc.manage(c)
    with dask_hpc.job("never", nodes=9):
        futures = c.map(blocked, ["go"] * 30, range(30), pure=False)
    job = await until(s, "never", "waiting")
    await async_poll_for(lambda: len(held(job)) == 30, 10)
    await m.close()
    assert len(s.queued) == 30 - sum(len(ws.processing) for ws in s.workers.values()) > 20
    await Event("go").set()
    await c.gather(futures)


@cluster2
async def test_policy_swap_loses_nothing(c, s, *workers):
    m = await dask_hpc.manage(c, "fcfs")
    plugin = plugin_of(s)
    with dask_hpc.job("runs", nodes=1, walltime="1h"):
        f = c.submit(blocked, "go")
    await until(s, "runs", "running")
    with dask_hpc.job("big", nodes=2, walltime="1h"):
        g = c.submit(inc, 1)
    await until(s, "big", "waiting")
    with dask_hpc.job("small", nodes=1, walltime="1 min"):
        h = c.submit(inc, 2)
    await until(s, "small", "waiting")
    status = await m.status()
    assert status["policy"] == "fcfs"
    assert "job big-" in {j["name"]: j for j in status["jobs"]}["small"]["waiting_because"]
    same = await dask_hpc.manage(c)  # names no policy: changes none
    assert (await same.status())["policy"] == "fcfs"
    with pytest.raises(InputError):
        await dask_hpc.manage(c, "no-such-policy")
    other = await dask_hpc.manage(c, Policy.load("easy-backfill"))
    assert plugin_of(s) is plugin
    assert await h == 3  # backfills now
    assert (await m.status())["policy"] == "easy-backfill" and "easy-backfill" in repr(other)
    assert len(plugin.control.jobs) == 3
    await Event("go").set()
    assert await g == 2
    await f
    await other.close()
    with pytest.raises(RuntimeError, match="not managed"):
        await m.status()
    await m.close()


@cluster2
async def test_remote_calls_check_their_arguments(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        for bad in (
            {"policy": 3, "name": "x"},
            {"policy": "queue: {strategy: fcfs}", "changes": 3},
            {"policy": ":", "name": "x"},
        ):
            with pytest.raises(InputError):
                await c.scheduler.hpc_set(**bad)
        for message in (3, {"closed": 3}, {"closed": "unknown"}, {}, "closed", None):
            await c.log_event("hpc", message)
        assert plugin_of(s).errors == 0
        assert (await m.status())["policy"] == "easy-backfill"


class Broken:
    """A queue strategy that always fails."""

    def decide(self, snapshot, memory):
        raise ValueError("broken on purpose")

    def rank(self, job):
        return 0


@cluster2
async def test_broken_policy_switches_control_off_and_the_computation_finishes(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        object.__setattr__(plugin_of(s).context.policy, "queue", Broken())
        with dask_hpc.job("a", nodes=1):
            futures = c.map(inc, range(10))
        assert sum(await c.gather(futures)) == 55
        status = await m.status()
        assert status["state"] == "off" and status["errors"] == 5
        rows = await m.story()
        assert sum(row["decision"] == "error" for row in rows) == 5
        assert "broken on purpose" in next(r for r in rows if r["decision"] == "error")["reason"]
        assert rows[-1]["decision"] == "off"
        async with dask_hpc.job("plain", nodes=2):
            assert await c.submit(inc, 11) == 12
        assert not any(ts.worker_restrictions for ts in s.tasks.values())
        # a policy that works switches it on again
        await dask_hpc.manage(c, "fcfs")
        async with dask_hpc.job("b", nodes=2):
            assert await c.submit(inc, 12) == 13
            assert live(s, "b").state == "running"
        assert (await m.status())["state"] == "on"


@pytest.mark.parametrize(
    "method", ["graph_arrives", "task_moves", "context_closes", "client_leaves", "decide", "worker_joins"]
)
def test_errors_in_any_hook_do_no_harm(method):
    @cluster2
    async def body(c, s, *workers):
        m = await dask_hpc.manage(c)

        def fail(*args):
            raise ZeroDivisionError("on purpose")

        control = plugin_of(s).control
        setattr(control.gate if method == "task_moves" else control, method, fail)
        async with Client(s.address, asynchronous=True, set_as_default=False) as other:
            for i in range(6):
                async with dask_hpc.job("a", nodes=1, client=c):
                    f = c.map(inc, range(i * 10, i * 10 + 4))
                    if method != "task_moves" or i:
                        await c.gather(f)
            await other.submit(inc, 1)
        assert sum(await c.gather(c.map(inc, range(4)))) == 10
        if method in ("graph_arrives", "context_closes", "decide", "task_moves"):
            assert plugin_of(s).errors >= 5 and not plugin_of(s).is_on
        await m.close()

    body()


@cluster2
async def test_vanishing_client_closes_its_contexts(c, s, *workers):
    async with await dask_hpc.manage(c):
        other = await Client(s.address, asynchronous=True, set_as_default=False)
        context = dask_hpc.job("gone", nodes=2, client=other)
        context.__enter__()
        f = other.submit(inc, 1)
        assert await f == 2
        assert live(s, "gone").state == "running"
        with dask_hpc.job("waits", nodes=2, client=other):
            waits = other.submit(inc, 2)
        await until(s, "waits", "waiting")
        await other.close()
        await until(s, "gone", "done")
        await until(s, "waits", "done")
        assert decisions(s, "withdraw")
        context.__exit__(None, None, None)
        async with dask_hpc.job("next", nodes=2):
            assert await c.submit(inc, 3) == 4
        del waits


@cluster2
async def test_two_clients(c, s, *workers):
    async with await dask_hpc.manage(c), Client(s.address, asynchronous=True, set_as_default=False) as other:
        with dask_hpc.job("one", nodes=2, client=c):
            f = c.submit(blocked, "go", pure=False)
        await until(s, "one", "running")
        with dask_hpc.job("two", nodes=1, client=other):
            g = other.submit(where, pure=False)
        await until(s, "two", "waiting")
        m = await dask_hpc.manage(other)
        assert len((await m.status())["jobs"]) == 2
        await Event("go").set()
        await f
        await g
        await until(s, "two", "done")


@cluster2
async def test_concurrent_contexts_in_coroutines(c, s, *workers):
    async def one(name):
        async with dask_hpc.job(name, nodes=1) as context:
            futures = c.map(inc, range(3), key=name)
            await asyncio.wait([asyncio.ensure_future(f._result()) for f in futures])
            assert {plugin_of(s).control.gate.owner[f.key].id for f in futures} == {context.id}

    async with await dask_hpc.manage(c):
        await asyncio.gather(*(one(f"j{i}") for i in range(4)))
        assert dask.get_annotations() == {}


@cluster2
async def test_one_decision_for_all_events_of_a_turn(c, s, *workers):
    async with await dask_hpc.manage(c):
        plugin = plugin_of(s)
        times = []
        decide = plugin.control.decide
        plugin.control.decide = lambda: (times.append(plugin.context.clock()), decide())
        plugin.context.clock = iter(range(10, 1000)).__next__
        for _ in range(5):
            plugin.context.wake()
        await async_poll_for(lambda: times, 10)
        assert len(times) == 1


def test_sync_client_and_local_cluster(loop):
    with cluster(nworkers=2) as (s, _), Client(s["address"], loop=loop) as client:
        with dask_hpc.manage(client) as manager:
            with dask_hpc.job("a", nodes=1) as context:
                places = set(client.gather(client.map(where, range(6), pure=False)))
                x = dask.delayed(inc)(1).persist()
                assert x.compute() == 2
            assert len(places) == 1
            names = [(row["decision"], row["job"]) for row in manager.story() if row["job"]]
            assert names[:2] == [("submit", context.id), ("start", context.id)]
            assert manager.status()["jobs"][0]["name"] == "a"
            with pytest.raises(KeyError), dask_hpc.job("b"):
                raise KeyError
        manager.close()
        assert "closed" in repr(manager)


def test_manage_a_cluster_object(loop):
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", loop=loop
    ) as local:
        with dask_hpc.manage(local, "fcfs") as manager, Client(local) as client:
            assert len(manager.status()["nodes"]) == 2
            with dask_hpc.job("a", nodes=1):
                assert client.submit(inc, 1).result() == 2
        with pytest.raises(RuntimeError):
            manager.status()
        unclosed = dask_hpc.manage(local)
    unclosed.close()  # the cluster is gone: nothing to do, and no complaint


def test_manage_an_asynchronous_cluster():
    async def main():
        async with LocalCluster(
            n_workers=1, processes=False, dashboard_address=":0", asynchronous=True
        ) as local:
            async with await dask_hpc.manage(local) as manager:
                assert len((await manager.status())["nodes"]) == 1
            await manager.close()

    asyncio.run(main())


@cluster2
async def test_passing_error_loses_no_event(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        control = plugin_of(s).control
        for name in ("context_closes", "task_moves", "has_no_more", "decide"):
            part = control.gate if name == "task_moves" else control
            fine = getattr(part, name)

            def fail_once(*args, part=part, name=name, fine=fine):
                setattr(part, name, fine)
                raise ZeroDivisionError("once")

            setattr(part, name, fail_once)
            async with dask_hpc.job(name, nodes=2):
                assert await c.submit(inc, 1, pure=False) == 2
            await until(s, name, "done")
        status = await m.status()
        assert status["errors"] == 4 and status["state"] == "on"
        assert [node["job"] for node in status["nodes"]] == [None, None]
