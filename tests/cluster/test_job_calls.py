"""What can be said to a job: look at it, ask for nodes, cancel it; and what its own tasks submit."""

import asyncio

import dask
import pytest
from distributed import Client, Event, LocalCluster, fire_and_forget, get_client, secede, worker_client
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, cluster4, decisions, live, plugin_of, until, where

import dask_hpc
from dask_hpc import InputError

# --- status


@cluster2
async def test_status_from_new_to_done(c, s, *workers):
    context = dask_hpc.job("a", nodes=2)
    with pytest.raises(RuntimeError, match="not been entered"):
        context.status()
    async with await dask_hpc.manage(c):
        async with context:
            assert (await context.status())["state"] == "unknown"
            with dask_hpc.job("other", nodes=1):
                other = c.submit(blocked, "go")
            await until(s, "other", "running")
            f = c.submit(inc, 1)
            await until(s, "a", "waiting")
            status = await context.status()
            assert status["state"] == "waiting" and "1 idle" in status["waiting_because"]
            await Event("go").set()
            await other
            assert await f == 2
            assert (await context.status())["state"] == "running"
        await until(s, "a", "done")
        status = await context.status()
        assert status["state"] == "done" and status["finished_tasks"] == 1 and not status["cancelled"]
    with pytest.raises(RuntimeError, match="not managed"):
        await context.status()


# --- requests


# Nobody waits for the tasks on nodes that are given back
@gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.drain": 0})
async def test_a_job_asks_and_gives_back(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs"):
        with dask_hpc.job("e", nodes=2, min_nodes=1, max_nodes=4, kind="evolving") as e:
            futures = c.map(blocked, ["go"] * 4, range(4), pure=False)
            job = await until(s, "e", "running")
        with dask_hpc.job("r", nodes=1):
            rigid = c.submit(blocked, "rigid-go")
            await until(s, "r", "running")
        await e.request(nodes=+1)
        await async_poll_for(lambda: len(job.nodes) == 3, 10)
        assert (await e.request(+1))["requested"] == 4  # nobody is idle: it has to wait
        assert len(job.nodes) == 3
        await Event("rigid-go").set()
        await rigid
        await async_poll_for(lambda: len(job.nodes) == 4, 10)
        await e.request(-3)
        await async_poll_for(lambda: len(job.nodes) == 1, 10)
        assert (await e.status())["requested"] is None
        told = decisions(s, "request", "grow", "shrink")
        assert [what for what, _ in told] == ["request", "grow", "request", "grow", "request", "shrink"]
        reasons = [h.reason for h in plugin_of(s).story.happenings if h.decision == "request"]
        assert reasons[0] == "asks for 1 more: 3 nodes, has 2"
        grown = next(h for h in plugin_of(s).story.happenings if h.decision == "grow")
        assert grown.reason == "it asked for 3 nodes"
        await Event("go").set()
        await c.gather(futures)


@cluster2
async def test_a_request_can_be_taken_back_and_bad_ones_change_nothing(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("e", nodes=1, min_nodes=1, max_nodes=2, kind="evolving") as e:
            first = c.submit(blocked, "go")
            await until(s, "e", "running")
        with dask_hpc.job("r", nodes=1) as r:
            second = c.submit(blocked, "go", 2)
            await until(s, "r", "running")
        with dask_hpc.job("w", nodes=1, min_nodes=1, max_nodes=2) as w:
            third = c.submit(inc, 1)
            await until(s, "w", "waiting")
        assert (await e.request(+1))["requested"] == 2
        assert (await e.request(-1))["requested"] is None
        for bad in (0, True, "1", 1.0, None, 10**30):
            with pytest.raises(InputError, match="request: nodes: found"):
                await e.request(bad)
        for bad in (2, -1):
            with pytest.raises(InputError) as caught:
                await e.request(bad)
            assert (
                str(caught.value)
                == f"job {e.id}: request: nodes: found {bad:+d} to 1 node; allowed: +0 to +1"
            )
        with pytest.raises(InputError, match="found a rigid job; allowed: evolving, malleable"):
            await r.request(1)
        with pytest.raises(InputError, match="the job is waiting; allowed: a running job"):
            await w.request(1)
        for bad in (None, 3, "nobody", ["e"]):
            with pytest.raises(InputError, match="id of a job"):
                await m.cancel(bad)
        assert not plugin_of(s).control.indices.requests
        await Event("go").set()
        await c.gather([first, second, third])


# --- cancel


@cluster2
async def test_cancel_frees_the_nodes_and_keeps_results(c, s, *workers):
    async with await dask_hpc.manage(c), Client(s.address, asynchronous=True) as other:
        with dask_hpc.job("a", nodes=2, client=c) as a:
            done = c.submit(inc, 1, key="done")
            assert await done == 2
            futures = c.map(blocked, ["go"] * 20, range(20), key="k")
            fire_and_forget(c.submit(blocked, "go", 99, key="forgotten"))
            after = c.submit(where, futures)
        job = live(s, "a")
        with dask_hpc.job("b", nodes=2, client=c):
            waits = c.submit(inc, 10)
        await until(s, "b", "waiting")
        await async_poll_for(lambda: len(job.unfinished) == 22, 10)
        status = await a.cancel()
        assert status["state"] == "cancelled" and status["cancelled"] and "22 tasks" in status["reason"]
        assert status["progress"] == 1 / 23
        await async_poll_for(lambda: all(f.cancelled() for f in [*futures, after]), 10)
        assert await done == 2 and not done.cancelled()
        await until(s, "b", "running")  # at once, though the threads are still busy
        await async_poll_for(lambda: set(s.tasks) == {"done", waits.key}, 10)
        assert ("cancel", job.id) in decisions(s, "cancel", "end")
        assert (await a.cancel())["cancelled"]  # once more does no harm
        assert len([row for row in decisions(s, "cancel") if row[1] == job.id]) == 1
        await Event("go").set()
        assert await waits == 11
        assert await other.submit(inc, 5) == 6


@cluster2
async def test_a_waiting_job_is_cancelled_by_the_manager(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("never", nodes=9):
            futures = c.map(inc, range(10))
        job = await until(s, "never", "waiting")
        await async_poll_for(lambda: len(job.held) == 10, 10)
        await m.cancel(job.id)
        await async_poll_for(lambda: all(f.cancelled() for f in futures) and not s.tasks, 10)
        assert job.state == "done" and not plugin_of(s).control.indices.waiting
        with pytest.raises(BaseException, match="never"):
            await futures[0]
        assert plugin_of(s).errors == 0


@cluster2
async def test_what_others_need_of_a_cancelled_job_lives_on(c, s, *workers):
    async with await dask_hpc.manage(c), Client(s.address, asynchronous=True) as other:
        with dask_hpc.job("never", nodes=9, client=c) as never:
            x = c.submit(inc, 1, key="x")
            y = c.submit(inc, 10, key="y")
            z = c.submit(inc, y, key="z")
        job = await until(s, "never", "waiting")
        await async_poll_for(lambda: len(job.unfinished) == 3, 10)
        with dask_hpc.job("also", nodes=9, client=other):
            mine = other.submit(inc, 1, key="x")
            more = other.compute(dask.delayed(inc)(dask.delayed(inc)(10, dask_key_name="y")))
        await until(s, "also", "waiting")
        await async_poll_for(lambda: len(live(s, "also").unfinished) == 1, 10)
        await never.cancel()
        assert await mine == 2
        await async_poll_for(lambda: x.cancelled() and y.cancelled() and z.cancelled(), 10)
        await async_poll_for(lambda: s.tasks["y"].state == "memory", 10)
        assert live(s, "also").state == "waiting" and live(s, "also").blocking is None
        more.release()
        assert plugin_of(s).errors == 0


@cluster2
async def test_what_arrives_of_a_cancelled_job_is_cancelled(c, s, *workers):
    async with await dask_hpc.manage(c), dask_hpc.job("a", nodes=1) as a:
        first = c.submit(inc, 1)
        assert await first == 2
        await a.cancel()
        late = c.map(inc, range(100, 120))
        await async_poll_for(lambda: all(f.cancelled() for f in late), 10)
        assert set(s.tasks) == {first.key} and await first == 2
        assert "20 tasks of it arrived after" in plugin_of(s).story.happenings[-1].reason
        # a result that is lost is computed again, anywhere
        (holder,) = [worker for worker in workers if first.key in worker.data]
        await holder.close()
        assert await first == 2
        assert plugin_of(s).errors == 0


@pytest.mark.slow
def test_a_synchronous_client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as local,
        Client(local) as client,
        dask_hpc.manage(client, "fcfs") as m,
    ):
        with dask_hpc.job("e", nodes=1, min_nodes=1, max_nodes=2, kind="evolving") as e:
            assert client.submit(inc, 1).result() == 2
            assert e.status()["state"] == "running"
            assert e.request(nodes=+1)["id"] == e.id
            future = client.submit(blocked, "never")
            with dask_hpc.job("never", nodes=9) as never:
                waits = client.submit(inc, 3)
            assert e.cancel()["cancelled"]
            with pytest.raises(BaseException, match="was cancelled"):
                future.result(timeout=10)
        assert m.cancel(never.id)["cancelled"] and m.status()["errors"] == 0
        with pytest.raises(BaseException, match="was cancelled"):
            waits.result(timeout=10)
        Event("never").set()


# --- tasks that submit tasks


def family(count):
    """With the usual ways to submit from a task."""
    with worker_client() as client:
        first = client.gather(client.map(where, range(count), pure=False))
    secede()
    client = get_client()
    second = client.gather(client.map(where, range(count), pure=False))
    return {*first, *second, *dask.compute(*[dask.delayed(where)(i) for i in range(count)])}


@cluster4
async def test_what_a_task_submits_belongs_to_its_job(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            places = c.submit(family, 10)
            job = await until(s, "a", "running")
            mine = set(job.workers)
            others = c.submit(inc, 1)
            assert len(mine) == 2 and await places <= mine
        await others
        await until(s, "a", "done")
        assert job.performance.tasks == 2 + 30
        outside = await c.submit(family, 10, pure=False)  # of no job: anywhere
        assert len(outside) > 2
        assert plugin_of(s).errors == 0


def brood(event):
    with worker_client() as client:
        futures = client.map(blocked, [event] * 5, range(5), pure=False)
        client.gather(futures)


@cluster2
async def test_cancel_reaches_what_a_task_submitted(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=1) as a:
            parent = c.submit(brood, "go")
            job = await until(s, "a", "running")
        await async_poll_for(lambda: len(job.unfinished) == 6, 10)
        await a.cancel()
        await async_poll_for(lambda: parent.cancelled() and not s.tasks, 10)
        assert job.state == "done" and plugin_of(s).errors == 0
        await Event("go").set()


@cluster2
async def test_what_was_submitted_a_moment_ago_can_be_cancelled(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("a", nodes=1) as job:
            cancelled = asyncio.ensure_future(job.cancel())
            await asyncio.sleep(0)
            future = c.submit(blocked, "never")
        assert (await cancelled)["cancelled"]
        with pytest.raises(BaseException, match="was cancelled"):
            await future
        with pytest.raises(dask_hpc.InputError, match="id of a job"):
            await m.cancel("nobody")
