"""Jobs wait, start, run on their allotment only, and end."""

import asyncio
import gc
import warnings
from unittest import mock

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import dask.dataframe.dask_expr._collection as collection
import pandas as pd
import pytest
from distributed import Client, Event, fire_and_forget, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, cluster4, decisions, held, live, lose, plugin_of, until, where

import dask_hpc
from dask_hpc.cluster.scheduler import lifecycle
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.dask import GATE


@cluster4
async def test_runs_on_its_allotment_only_and_the_next_job_waits(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("a", nodes=2):
            first = c.map(blocked, ["go"] * 8, range(8), pure=False)
        a = await until(s, "a", "running")
        with dask_hpc.job("b", nodes=3):
            second = c.map(where, range(12), pure=False)
        b = await until(s, "b", "waiting")
        await async_poll_for(lambda: len(held(b)) == 12, 10)
        assert all(s.tasks[f.key].state == "no-worker" for f in second)
        outside = await c.gather(c.map(where, range(4), pure=False))
        assert set(outside) <= set(s.workers)
        status = await m.status()
        assert [n["job"] for n in status["nodes"]] == [a.id, a.id, None, None]
        shown = {j["name"]: j for j in status["jobs"]}
        assert shown["a"]["state"] == "running" and shown["a"]["nodes"] == ["0", "1"]
        assert shown["b"]["state"] == "waiting"
        assert shown["b"]["waiting_because"] == "needs 3 nodes, 2 idle"
        await Event("go").set()
        places = {workers[0].address, workers[1].address}
        assert set(await c.gather(first)) == places
        ran_on = await c.gather(second)
        await until(s, "b", "done")
        assert len(set(ran_on)) <= 3 and a.state == "done"
        assert set(ran_on) <= {w for n in b.nodes for w in plugin_of(s).control.nodes.workers(n)}
        assert [n["job"] for n in (await m.status())["nodes"]] == [None] * 4
        assert decisions(s, "submit", "start", "end") == [
            ("submit", a.id), ("start", a.id), ("submit", b.id),
            ("end", a.id), ("start", b.id), ("end", b.id),
        ]  # fmt: skip
        story = await m.story()
        start = next(row for row in story if row["decision"] == "start")
        assert start["nodes"] == ["0", "1"]
        assert start["reason"] == "first in the queue, 4 nodes idle"


@cluster2
async def test_workers_hear_nothing_of_what_the_job_asked_for(c, s, a, b):
    """It would travel with every single task, and be read there."""
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2), dask.annotate(mine=1):
            futures = c.map(inc, range(4))
        await c.gather(futures)
        assert (await until(s, "a", "done")).performance.tasks == 4
        for future in futures:
            assert s.tasks[future.key].annotations == {"mine": 1}
            (there,) = (w.state.tasks[future.key] for w in (a, b) if future.key in w.data)
            assert there.annotations == {"mine": 1}


@cluster2
async def test_more_work_of_a_running_job_is_no_decision_each_time(c, s, a, b):
    async with await dask_hpc.manage(c), dask_hpc.job("a", nodes=1):
        await c.submit(inc, 0)
        await until(s, "a", "running")
        clock, control, decided = asyncio.get_running_loop().time, plugin_of(s).control, []
        catch_up = control._catch_up
        control._catch_up = lambda: (decided.append(clock()), catch_up())
        since = clock()
        for i in range(50):
            await c.submit(inc, i, pure=False)
        # one each 50 ms at most, and some because enough was seen of the job
        assert len(decided) <= (clock() - since) / 0.05 + 10
        await async_poll_for(lambda: decided, 10)


@cluster4
async def test_context_keeps_the_allotment_between_computes(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("loop", nodes=2):
            used = set()
            for i in range(3):
                used |= set(await c.gather(c.map(where, range(4), key=f"r{i}")))
                job = live(s, "loop")
                assert job.state == "running" and len(job.nodes) == 2
            assert len(used) <= 2
        await until(s, "loop", "done")
        assert len(decisions(s, "start")) == 1


@cluster2
async def test_outside_work_has_no_restrictions(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=1):
            mine = c.submit(blocked, "go")
        await until(s, "a", "running")
        other = c.submit(inc, 1)
        assert await other == 2
        assert s.tasks[other.key].worker_restrictions is None
        assert s.tasks[other.key].annotations is None or not s.tasks[other.key].annotations
        await Event("go").set()
        await mine


@cluster4
async def test_nested_contexts(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("outer", nodes=1) as outer:
            f = c.submit(where, 1, pure=False)
            with dask_hpc.job("inner", nodes=2) as inner:
                g = c.submit(where, 1, pure=False)
            h = c.submit(where, 1, pure=False)
            assert await f == await h
            await g
            await until(s, "inner", "done")
            owner = plugin_of(s).control.gate.owner
            assert {owner[f.key].id, owner[h.key].id} == {outer.id} and owner[g.key].id == inner.id
        await until(s, "outer", "done")


@cluster2
async def test_same_object_twice_is_two_jobs(c, s, *workers):
    async with await dask_hpc.manage(c):
        again = dask_hpc.job("again")
        ids = []
        for _ in range(2):
            async with again:
                ids.append(again.id)
                await c.submit(inc, 1, pure=False)
        assert len(set(ids)) == 2
        await until(s, "again", "done")
        assert [j for _, j in decisions(s, "start")] == ids


@cluster2
async def test_a_task_that_is_tried_again_has_not_failed(c, s, *workers, tmp_path):
    def second_time_lucky():
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            raise OSError

    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            f = c.submit(second_time_lucky, pure=False)
            await wait(f)
            assert live(s, "a").failed == {f.key}
            await c.retry([f])
            await async_poll_for(lambda: f.status == "finished", 10)
        await until(s, "a", "done")
        assert not live(s, "a").failed and live(s, "a").failures == 0


@cluster2
async def test_exception_in_context_and_error_in_task(c, s, *workers):
    async with await dask_hpc.manage(c):
        with pytest.raises(KeyError, match="mine"), dask_hpc.job("a", nodes=2):
            f = c.submit(lambda: 1 / 0)
            raise KeyError("mine")
        with pytest.raises(ZeroDivisionError):
            await f
        await until(s, "a", "done")
        f.release()
        await async_poll_for(lambda: f.key not in s.tasks, 10)
        failed = live(s, "a")
        assert not failed.failed and failed.failures == 1  # counted when Dask has forgotten it
        with pytest.raises(KeyError):
            async with dask_hpc.job("b", nodes=2):
                g = c.submit(inc, 2)
                raise KeyError("mine")
        assert await g == 3
        await until(s, "b", "done")
        assert dask.get_annotations() == {}


@cluster2
async def test_cancelled_while_waiting(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("a", nodes=2):
            running = c.submit(blocked, "go")
        await until(s, "a", "running")
        with dask_hpc.job("b", nodes=1):
            futures = c.map(inc, range(5))
        b = await until(s, "b", "waiting")
        await async_poll_for(lambda: len(held(b)) == 5, 10)
        await c.cancel(futures)
        await until(s, "b", "done")
        assert b.started is None and decisions(s, "withdraw") == [("withdraw", b.id)]
        await Event("go").set()
        await running


@cluster2
async def test_more_nodes_than_there_are(c, s, *workers):
    from distributed import Worker

    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("big", nodes=3):
            f = c.map(where, range(6), pure=False)
        await until(s, "big", "waiting")
        [job] = (await m.status())["jobs"]
        assert job["waiting_because"] == "asks for 3 nodes, the cluster has 2"
        async with Worker(s.address, nthreads=1):
            await c.gather(f)
            assert len(live(s, "big").nodes) == 3


@cluster2
async def test_tasks_of_a_waiting_producer(c, s, *workers):
    """A consumer that needs results of a waiting job is not offered before that job has started."""
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("first", nodes=1):
            f = c.submit(blocked, "go")
        await until(s, "first", "running")
        with dask_hpc.job("producer", nodes=2):
            x = c.submit(inc, 1)
        with dask_hpc.job("consumer", nodes=1):
            y = c.submit(inc, x)
        consumer = await until(s, "consumer", "waiting")
        shown = {j["name"]: j for j in (await m.status())["jobs"]}
        assert "needs results of job producer-" in shown["consumer"]["waiting_because"]
        assert consumer.started is None
        await Event("go").set()
        assert await y == 3
        await f
        await until(s, "consumer", "done")
        starts = [h.job.rsplit("-", 1)[0] for h in plugin_of(s).story.happenings if h.decision == "start"]
        assert starts == ["first", "producer", "consumer"]


@cluster2
async def test_same_key_in_two_jobs_belongs_to_the_first(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("hold", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "hold", "running")
        x = dask.delayed(inc)(1, dask_key_name="shared")
        with dask_hpc.job("one", nodes=2):
            [a] = c.compute([x])
        await until(s, "one", "waiting")
        with dask_hpc.job("two", nodes=1):
            b, more = c.compute([x, dask.delayed(inc)(10)])
        two = await until(s, "two", "waiting")
        assert plugin_of(s).control.gate.owner["shared"].name == "one"
        assert two.blocking is live(s, "one")
        await Event("go").set()
        assert await a == await b == 2
        assert await more == 11
        await f
        await until(s, "two", "done")


@cluster2
async def test_jobs_that_need_each_other(c, s, *workers):
    """A circle of needs does not lock up: whoever starts takes over what it needs."""
    async with await dask_hpc.manage(c):
        with dask_hpc.job("hold", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "hold", "running")
        async with dask_hpc.job("one", nodes=2):
            x = c.submit(inc, 1)
            await until(s, "one", "waiting")
            async with dask_hpc.job("two", nodes=2):
                y = c.submit(inc, x)
                await until(s, "two", "waiting")
            z = c.submit(inc, y)
            await async_poll_for(lambda: z.key in plugin_of(s).control.gate.owner, 10)
            await Event("go").set()
            assert await z == 4
        await f
        await until(s, "one", "done")
        await until(s, "two", "done")


@cluster2
async def test_running_job_takes_over_what_it_needs(c, s, *workers):
    async with await dask_hpc.manage(c), dask_hpc.job("runs", nodes=2):
        await c.submit(inc, 0)
        with dask_hpc.job("waits", nodes=2):
            x = c.submit(inc, 1)
        await until(s, "waits", "waiting")
        assert await c.submit(inc, x) == 3
        await until(s, "waits", "done")
        assert live(s, "runs").state == "running"


@cluster2
async def test_gated_key_asked_for_outside_runs(c, s, *workers):
    async with await dask_hpc.manage(c), Client(s.address, asynchronous=True) as c2:
        with dask_hpc.job("never", nodes=5, client=c):
            x = c.submit(inc, 1, key="x")
            y = c.submit(inc, x, key="y")
            z = c.submit(inc, y, key="z")
        job = await until(s, "never", "waiting")
        await async_poll_for(lambda: "z" in job.unfinished, 10)
        assert (
            await c2.compute(dask.delayed(inc)(dask.delayed(inc)(1, dask_key_name="x"), dask_key_name="y"))
            == 3
        )
        assert s.tasks["x"].worker_restrictions is None
        assert s.tasks["z"].worker_restrictions == {GATE} and s.tasks["z"].state == "no-worker"
        assert set(job.unfinished) == {"z"}
        z.release()
        await until(s, "never", "done")


@cluster2
async def test_asking_twice_inside_is_not_asking_outside(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("never", nodes=5):
            x = dask.delayed(inc)(1, dask_key_name="x")
            one, two = c.compute(x), c.compute(x)
            job = await until(s, "never", "waiting")
            await async_poll_for(lambda: "x" in held(job), 10)
            three = c.compute(dask.delayed(inc)(x, dask_key_name="y"))
            await async_poll_for(lambda: "y" in job.unfinished, 10)
            assert "x" in held(job)
        del one, two, three


@pytest.mark.parametrize("more, is_told", [({}, False), ({"retries": 2}, True)])
def test_a_dataframe_made_inside_hears_that_its_annotations_do_not_count_if_so(monkeypatch, more, is_told):
    frame = pd.DataFrame({"a": [1, 2]})
    monkeypatch.setattr(collection, "_WARN_ANNOTATIONS", True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with dask.annotate(**more), dask_hpc.job("a", power="250 W"), dask_hpc.job("b"):
            dd.from_pandas(frame, npartitions=1)
        assert str(warnings.filters).count("Dask annotations") == 1, "it is filtered once"
    assert len(told) == is_told


@cluster2
async def test_built_inside_submitted_outside(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("never", nodes=5):
            x = dask.delayed(inc)(1)
        assert await c.compute(x) == 2
        with dask_hpc.job("other", nodes=1):
            y = c.compute(x + 1)
        assert await y == 3
        assert [j.name for j in plugin_of(s).control.jobs.values()] == ["other"]


@cluster2
async def test_a_job_that_was_done_long_ago_leaves_nothing(c, s, a, b):
    with mock.patch.object(lifecycle, "_KEPT", 5):
        async with await dask_hpc.manage(c):
            for number in range(20):
                with dask_hpc.job(f"job-{number}"):
                    futures = c.map(inc, range(10), pure=False)  # more than the node has threads
                await c.gather(futures)
                await until(s, f"job-{number}", "done")
                del futures
            await async_poll_for(lambda: not s.tasks, 10)
            gc.collect()
            left = {one.name for one in gc.get_objects() if isinstance(one, LiveJob)}
            assert sorted(name for name in left if "job-" in name) == [f"job-{n}" for n in range(15, 20)]


@cluster4
async def test_collections(c, s, *workers):
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("array", nodes=2):
            x = c.persist(da.ones((40, 40), chunks=(10, 10)))
            total = await c.compute(x.sum())
            assert total == 1600
            holders = {ws.address for k in x.__dask_keys__() for kk in k for ws in s.tasks[kk].who_has}
            assert len(holders) <= 2
        async with dask_hpc.job("bag", nodes=1):
            assert await c.compute(db.from_sequence(range(20), npartitions=5).map(inc).sum()) == 210
        async with dask_hpc.job("delayed", nodes=1):
            assert await c.compute(dask.delayed(sum)([dask.delayed(inc)(i) for i in range(4)])) == 10
        await until(s, "array", "done")
        # lost results of a job that is done are computed anywhere
        for ws in list(holders):
            await s.remove_worker(ws, stimulus_id="test", expected=True)
        assert await c.compute(x.sum()) == 1600


@cluster2
async def test_fire_and_forget_and_released_futures(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("f", nodes=2):
            future = c.submit(blocked, "go")
            fire_and_forget(future)
            del future
        job = await until(s, "f", "running")
        await async_poll_for(lambda: job.closed, 10)
        assert job.unfinished
        await Event("go").set()
        await until(s, "f", "done")


@cluster4
async def test_users_own_restrictions(c, s, *workers):
    addresses = [w.address for w in workers]
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("a", nodes=2):
            inside = c.submit(where, 1, workers=[addresses[1], addresses[3]], pure=False)
            outside = c.submit(where, 2, workers=[addresses[3]], pure=False)
            loose = c.submit(where, 3, workers=[addresses[3]], allow_other_workers=True, pure=False)
            host = c.submit(where, 4, workers=["127.0.0.1"], pure=False)
            assert await inside == addresses[1]
            assert await outside == addresses[3]
            assert await loose in addresses[:2]
            assert await host in addresses[:2]
        await until(s, "a", "done")
        assert s.tasks[outside.key].worker_restrictions == {addresses[3]}
        async with dask_hpc.job("never", nodes=5):
            futures = [
                c.submit(inc, 1, workers=addresses[3], allow_other_workers=True, pure=False),
                c.submit(inc, 2, workers=["127.0.0.1"], pure=False),
                c.submit(inc, 3, allow_other_workers=False, pure=False),
            ]
            job = await until(s, "never", "waiting")
            await async_poll_for(lambda: len(held(job)) == 3, 10)
        del futures


@cluster2
async def test_actor_waits_with_its_job(c, s, *workers):
    class Counter:
        n = 0

        def add(self):
            self.n += 1
            return self.n

    async with await dask_hpc.manage(c):
        with dask_hpc.job("hold", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "hold", "running")
        async with dask_hpc.job("actor", nodes=1):
            counter = c.submit(Counter, actor=True)
            job = await until(s, "actor", "waiting")
            await async_poll_for(lambda: len(held(job)) == 1, 10)
            await Event("go").set()
            counter = await counter
            assert await counter.add() == 1
        await f


@gen_cluster(
    client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.no-workers-timeout": "100ms"}
)
async def test_no_workers_timeout_does_not_fail_waiting_jobs(c, s, a, b):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("hold", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "hold", "running")
        with dask_hpc.job("waits", nodes=2):
            g = c.submit(inc, 1)
        await until(s, "waits", "waiting")
        doomed = c.submit(inc, 2, workers="tcp://127.0.0.1:1")
        with pytest.raises(Exception, match="Attempted to run task"):
            await doomed  # several checks of Dask's have passed when this one is failed
        assert s.tasks[g.key].state == "no-worker"
        await Event("go").set()
        assert await g == 2
        await f


@cluster2
async def test_late_graph_of_a_closed_context(c, s, *workers):
    """The end of a context and its last graph travel apart; any order is fine."""
    async with await dask_hpc.manage(c):
        async with dask_hpc.job("a", nodes=2) as context:
            await c.submit(inc, 1, pure=False)
            request = dask.get_annotations()["hpc_job"]
        await until(s, "a", "done")
        with dask.annotate(hpc_job=request):  # as if it had been on its way
            late = c.submit(inc, 2, pure=False)
        assert await late == 3
        await async_poll_for(lambda: live(s, "a").state == "done", 10)
        assert len(decisions(s, "start")) == 2
        # closed before anything was seen
        with dask_hpc.job("b", nodes=2) as context:
            request = dask.get_annotations()["hpc_job"]
        control = plugin_of(s).control
        await async_poll_for(lambda: context.id in control.lifecycle.closed_early, 10)
        with dask.annotate(hpc_job=request):
            assert await c.submit(inc, 3, pure=False) == 4
        await until(s, "b", "done")
        assert not control.lifecycle.closed_early


@cluster2
async def test_bad_request_from_a_foreign_client_is_ignored(c, s, *workers):
    async with await dask_hpc.manage(c):
        for request in (3, {"id": 3}, {"id": "x", "name": "x", "nodes": -1}, {"id": []}, "job"):
            with dask.annotate(hpc_job=request):
                assert await c.submit(inc, 1, pure=False) == 2
        assert not plugin_of(s).control.jobs
        assert len(decisions(s, "ignored")) == 5
        assert plugin_of(s).errors == 0


@cluster2
async def test_overstaying_is_told_and_not_punished(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        now = [0.0]
        plugin_of(s).context.clock = lambda: now[0]
        with dask_hpc.job("long", nodes=1, walltime="10 s"):
            f = c.submit(blocked, "go")
        await until(s, "long", "running")
        now[0] = 25.0
        with dask_hpc.job("next", nodes=2):
            g = c.submit(inc, 1)
        await until(s, "next", "waiting")
        await async_poll_for(lambda: decisions(s, "overstay"), 10)
        row = next(r for r in await m.story() if r["decision"] == "overstay")
        assert "now expected to end at 50 s" in row["reason"]
        await Event("go").set()
        await f
        assert await g == 2


@cluster2
async def test_unmanaged_cluster(c, s, *workers):
    async with dask_hpc.job("plain", nodes=7):
        assert await c.submit(inc, 1) == 2
    with dask_hpc.job("plain", nodes=7):
        f = c.submit(inc, 2)
    assert await f == 3
    assert not any(name.startswith("hpc_") for name in s.handlers)


def test_without_any_client():
    with dask_hpc.job("plain", nodes=7) as context:
        assert dask.delayed(inc)(1).compute(scheduler="sync") == 2
        assert "open" in repr(context)
    assert dask.get_annotations() == {}
    assert asyncio.run(_async_without_client()) == 1


async def _async_without_client():
    async with dask_hpc.job("plain"):
        return 1


@cluster2
async def test_it_lives_as_long_as_one_of_its_clients(c, s, *workers):
    second = Client(s.address, asynchronous=True, set_as_default=False)
    async with await dask_hpc.manage(c), second as other:
        async with dask_hpc.job("both", nodes=1):
            assert await c.submit(inc, 1) + await other.submit(inc, 2) == 5
            job = live(s, "both")
            assert job.clients == {c.id, other.id}
            await other.close()
            await async_poll_for(lambda: other.id not in s.clients, 10)
            assert not job.closed and job.clients == {c.id}
            await c.submit(inc, 3)
            assert live(s, "both") is job and job.state == "running"
        await until(s, "both", "done")


@gen_cluster(client=True, nthreads=[("", 2)] * 2)
async def test_what_somebody_outside_needs_does_not_wait_again(c, s, a, b):
    """Its job loses its node and waits; the task that is needed leaves the job, the other one does not."""
    async with await dask_hpc.manage(c):
        with dask_hpc.job("lost", nodes=1):
            needed, alone = (c.submit(blocked, "go", i, key=f"k{i}") for i in range(2))
        job = await until(s, "lost", "running")
        with dask_hpc.job("other", nodes=1):
            holds = c.submit(blocked, "other-go")
        await until(s, "other", "running")
        outside = c.submit(len, needed)
        await async_poll_for(lambda: outside.key in s.tasks, 10)
        victim = next(w for w in (a, b) if w.address in job.workers)
        await lose(victim)
        await until(s, "lost", "waiting")
        await Event("go").set()
        assert await outside and job.state == "waiting" and set(held(job)) == {alone.key}
        await Event("other-go").set()
        await c.gather([alone, holds])
