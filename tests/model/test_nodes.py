"""Nodes come and go; jobs shrink, or wait again."""

from ipaddress import ip_address
from uuid import uuid4

import pytest
from distributed import Event, Nanny, Worker
from distributed.utils import get_ip
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, cluster4, decisions, held, live, plugin_of, until, where

import dask_hpc
from dask_hpc import InputError
from dask_hpc.model.node import Nodes, is_a_node


async def lose(s, worker):
    """A worker vanishes; its process only ends when its tasks do."""
    await s.remove_worker(worker.address, stimulus_id="test", expected=False)


@cluster4
async def test_retired_worker_makes_the_job_smaller(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        async with dask_hpc.job("a", nodes=2, min_nodes=1):
            kept = await c.submit(where, 1, workers=workers[0].address)
            await c.retire_workers([workers[0].address])
            job = live(s, "a")
            await async_poll_for(lambda: job.nodes == ("1",), 10)
            assert set(await c.gather(c.map(where, range(6), pure=False))) == {workers[1].address}
            assert kept == workers[0].address
            assert [n["name"] for n in (await m.status())["nodes"]] == ["1", "2", "3"]
        await until(s, "a", "done")
        assert decisions(s, "shrink") == [("shrink", job.id)]
        assert [n["job"] for n in (await m.status())["nodes"]] == [None] * 3


@cluster2
async def test_idle_node_leaves(c, s, a, b):
    async with await dask_hpc.manage(c) as m:
        await b.close()
        await async_poll_for(lambda: len(s.workers) == 1, 10)
        assert [n["name"] for n in (await m.status())["nodes"]] == ["0"]
        async with dask_hpc.job("a", nodes=1):
            assert await c.submit(where) == a.address


@cluster4
async def test_losing_the_last_node_puts_the_job_back(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("rest", nodes=3):
            rest = c.submit(blocked, "go")
        await until(s, "rest", "running")
        with dask_hpc.job("a", nodes=1):
            futures = c.map(blocked, ["go2"] * 3, range(3), pure=False)
        job = await until(s, "a", "running")
        with dask_hpc.job("b", nodes=1):
            behind = c.submit(where, pure=False)
        await until(s, "b", "waiting")
        [node] = job.nodes
        await lose(s, workers[int(node)])
        await until(s, "a", "waiting")
        assert decisions(s, "requeue") == [("requeue", job.id)]
        await async_poll_for(lambda: len(held(job)) == 3, 10)
        shown = {j["name"]: j for j in (await m.status())["jobs"]}
        assert "lost its last node 3" in shown["a"]["reason"]
        await Event("go2").set()
        await Event("go").set()
        places = await c.gather(futures)
        assert len(set(places)) == 1 and workers[int(node)].address not in places
        await behind
        await rest
        await until(s, "b", "done")
        starts = [name.rsplit("-", 1)[0] for _, name in decisions(s, "start")]
        assert starts == ["rest", "a", "a", "b"]  # its old place: before b


@cluster2
async def test_work_that_others_wait_for_is_not_held_again(c, s, a, b):
    """A job that lost its nodes cannot start before a running job that needs its results."""
    async with await dask_hpc.manage(c):
        with dask_hpc.job("producer", nodes=1):
            x = c.submit(blocked, "go")
        producer = await until(s, "producer", "running")
        with dask_hpc.job("consumer", nodes=1):
            y = c.submit(lambda place: place, x)
        await until(s, "consumer", "running")
        outside = c.submit(str, x)
        await async_poll_for(lambda: outside.key in s.tasks, 10)
        [node] = producer.nodes
        await lose(s, (a, b)[int(node)])
        await Event("go").set()
        assert await y in s.workers
        assert await outside
        await until(s, "producer", "done")


@cluster2
async def test_job_loses_all_workers_and_one_comes_back(c, s, a, b):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "a", "running")
        await lose(s, a)
        await lose(s, b)
        await until(s, "a", "waiting")
        await Event("go").set()
        async with Worker(s.address, nthreads=1, name="new"), Worker(s.address, nthreads=1, name=1):
            await f
            assert set(live(s, "a").nodes) == {"new", "1"}
            await until(s, "a", "done")


@gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"hpc.node": "host"})
async def test_one_node_per_host(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        [node] = (await m.status())["nodes"]
        assert node["name"] == "127.0.0.1" and len(node["workers"]) == 3
        async with dask_hpc.job("a", nodes=1):
            await c.submit(inc, 1)
            async with Worker(s.address, nthreads=1):
                assert len(live(s, "a").workers) == 4
            assert len(live(s, "a").workers) == 3
            assert live(s, "a").nodes == ("127.0.0.1",)
        with dask_hpc.job("b", nodes=2):
            f = c.submit(inc, 1)
        await until(s, "b", "waiting")
        del f


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, timeout=60)
async def test_restart(c, s, a, b):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("runs", nodes=2):
            f = c.submit(blocked, "never")
        await until(s, "runs", "running")
        async with dask_hpc.job("open", nodes=1):
            g = c.submit(inc, 1)
            await until(s, "open", "waiting")
            await c.restart()
            await until(s, "runs", "done")
            assert await c.submit(inc, 2) == 3
        await until(s, "open", "done")
        assert plugin_of(s).errors == 0
        del f, g


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, timeout=60)
async def test_killed_worker_process(c, s, a, b):
    import os
    import signal

    async with await dask_hpc.manage(c):
        async with dask_hpc.job("a", nodes=1):
            x = c.submit(inc, 1, pure=False)
            await x
            [address] = live(s, "a").workers
            pid = next(n.pid for n in (a, b) if n.worker_address == address)
            os.kill(pid, signal.SIGKILL)
            assert await c.submit(inc, x) == 3  # waits again, starts again, computes again
        await until(s, "a", "done")
        assert decisions(s, "requeue")


def test_what_is_a_node():
    assert is_a_node("auto", "inproc://10.0.0.7/12/3", "10.0.0.7")
    assert is_a_node("auto", "tcp://127.0.0.5:1", "127.0.0.5")
    assert is_a_node("auto", "tcp://[::1]:1", "::1")
    assert is_a_node("auto", "tcp://localhost:1", "localhost")
    assert not is_a_node("auto", "tcp://10.0.0.7:1", "10.0.0.7")
    assert not is_a_node("auto", "tls://node7:1", "node7")


def test_workers_make_nodes():
    nodes = Nodes("auto")
    assert nodes.join("tcp://10.0.0.1:1", 0, "10.0.0.1") == ("10.0.0.1", True)
    assert nodes.join("tcp://10.0.0.1:2", 1, "10.0.0.1") == ("10.0.0.1", False)
    assert nodes.join("tcp://127.0.0.1:2", 1, "127.0.0.1") == ("1", True)
    assert nodes.join("tcp://127.0.0.1:3", "1", "127.0.0.1") == ("tcp://127.0.0.1:3", True)
    assert nodes.leave("tcp://10.0.0.1:1") == ("10.0.0.1", False)
    assert nodes.leave("tcp://10.0.0.1:2") == ("10.0.0.1", True)
    assert nodes.leave("tcp://10.0.0.1:2") is None
    assert list(nodes) == ["1", "tcp://127.0.0.1:3"]


@pytest.mark.skipif(ip_address(get_ip()).is_loopback, reason="this machine has no address but its own")
@pytest.mark.parametrize(("mode", "number"), [("auto", 1), ("host", 1), ("worker", 3)])
def test_workers_of_a_real_host_make_as_many_nodes_to_all_that_ask(mode, number):
    @gen_cluster(client=True, nthreads=[(get_ip(), 1)] * 3, config={"hpc.node": mode})
    async def ask(c, s, *workers):
        root = f"memory://{uuid4()}"
        async with await dask_hpc.manage(c) as m:
            async with dask_hpc.Checkpoint("run", root, client=c) as ck:
                await ck.add("n", 1)
                await ck.commit(wait=True)
            assert len((await m.status())["nodes"]) == number
            assert await dask_hpc.restore("run", root, nodes=number, client=c)
            with pytest.raises(InputError, match=f"from 1 to {number}"):
                await dask_hpc.restore("run", root, nodes=number + 1, client=c)

    ask()
