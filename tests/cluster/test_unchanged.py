"""Dask's own behaviour is unchanged when a cluster is managed but no job is declared, and in a job whose size
changes.

Every test runs three times, with the same expectations: on a plain cluster, on a managed one, and in a job on
all nodes that shrinks and grows again all the time.
"""

import asyncio
import warnings
from contextlib import asynccontextmanager, suppress

import dask
import dask.array as da
import dask.bag as db
import pytest
from distributed import (
    Event,
    Lock,
    MultiLock,
    Nanny,
    Queue,
    Semaphore,
    Variable,
    Worker,
    WorkerPlugin,
    as_completed,
    fire_and_forget,
    get_client,
    get_worker,
    secede,
    span,
    wait,
    worker_client,
)
from distributed.utils_test import async_poll_for, div, gen_cluster, inc
from small_cluster import decisions, plugin_of, until, where

import dask_hpc
from dask_hpc import InputError


def both(function=None, in_a_job=True, **options):
    """Run a test body on two workers, if nothing else is said: on a plain cluster, on a managed one, and, if
    there is more than one and it is to be the same there, in a job that breathes."""
    if function is None:
        return lambda function: both(function, in_a_job, **options)
    options = {"nthreads": [("", 1), ("", 2)]} | options
    count = len(options["nthreads"])
    ways = ["plain", "managed", "in a job"]

    @pytest.mark.parametrize("how", ways if in_a_job and count > 1 else ways[:2])
    def test(how):
        @gen_cluster(client=True, **options)
        async def body(c, s, *workers):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if how == "plain":
                    await function(c, s, *workers)
                    return
                async with await dask_hpc.manage(c):
                    plugin = plugin_of(s)
                    if how == "managed":
                        await function(c, s, *workers)
                        assert not plugin.control.jobs and not plugin.control.gate.owner
                    else:
                        async with breathing(c, s, count):
                            await function(c, s, *workers)
                    assert plugin.errors == 0 and plugin.is_on

        body()

    test.__name__ = function.__name__
    return test


async def size_is(job, right):
    """Or it cannot be: a test may take workers away."""
    with suppress(pytest.fail.Exception):
        await async_poll_for(lambda: right(len(job.nodes)), 1, period=0.001)


@asynccontextmanager
async def breathing(c, s, count):
    """A job on all nodes that gives one back and gets it again, all the time, at least once."""
    begun = asyncio.Event()
    async with dask_hpc.job("all", nodes=count, min_nodes=1, max_nodes=count, kind="evolving") as context:
        await c.submit(int, pure=False)
        job = await until(s, "all", "running")

        async def breathe():
            while True:
                with suppress(InputError):
                    await context.request(-1)
                    await size_is(job, lambda size: size < count)
                begun.set()
                with suppress(InputError):
                    await context.request(+1)
                    await size_is(job, lambda size: size == count)

        breathes = asyncio.create_task(breathe())
        await begun.wait()
        yield
        breathes.cancel()
        await asyncio.wait([breathes])
        assert breathes.cancelled(), breathes.exception()
    assert decisions(s, "shrink")


@both
async def test_submit(c, s, *workers):
    assert await c.submit(inc, 1) == 2


@both
async def test_map_and_gather(c, s, *workers):
    assert await c.gather(c.map(inc, range(50))) == list(range(1, 51))


@both
async def test_dependencies(c, s, *workers):
    x = c.submit(inc, 1)
    assert await c.submit(sum, [x, c.submit(inc, x)]) == 5


@both
async def test_scatter(c, s, a, b):
    x = await c.scatter({"x": 1}, workers=[b.address])
    assert await c.submit(inc, x["x"]) == 2
    assert "x" in b.data


@both(in_a_job=False)  # there to the workers of the job
async def test_scatter_to_all(c, s, a, b):
    y = await c.scatter([1, 2], broadcast=True)
    assert set(s.tasks[y[0].key].who_has) == set(s.workers.values())


class Counter:
    n = 0

    def add(self):
        self.n += 1
        return self.n


@both
async def test_actors(c, s, *workers):
    counter = await c.submit(Counter, actor=True)
    assert [await counter.add() for _ in range(3)] == [1, 2, 3]


@both
async def test_actor_on_a_named_worker(c, s, a, b):
    await c.submit(Counter, actor=True, workers=b.address)
    assert len(b.state.actors) == 1


@both
async def test_cancel(c, s, *workers):
    f = c.submit(Event("never").wait, 60)
    await async_poll_for(lambda: f.key in s.tasks, 10)
    await c.cancel([f])
    assert f.cancelled()
    await async_poll_for(lambda: f.key not in s.tasks, 10)
    await Event("never").set()


@both
async def test_released_futures_are_forgotten(c, s, *workers):
    f = c.submit(inc, 1)
    await f
    del f
    await async_poll_for(lambda: not s.tasks, 10)


@both
async def test_retire_moves_data(c, s, a, b):
    futures = c.map(inc, range(10), workers=a.address)
    await wait(futures)
    await c.retire_workers([a.address])
    assert set(s.workers) == {b.address}
    assert sum(await c.gather(futures)) == 55
    assert all(s.tasks[f.key].worker_restrictions == {a.address} for f in futures)


@both
async def test_lost_results_are_recomputed(c, s, a, b):
    futures = c.map(inc, range(20))
    await wait(futures)
    await a.close()
    assert sum(await c.gather(futures)) == 210


@pytest.mark.slow
@both(Worker=Nanny, timeout=60)
async def test_restart(c, s, *workers):
    f = c.submit(inc, 1)
    await f
    await c.restart()
    assert f.cancelled() and not s.tasks
    assert await c.submit(inc, 2) == 3


@both
async def test_annotations_arrive(c, s, *workers):
    with dask.annotate(foo="bar", priority=3):
        f = c.submit(inc, 1)
    await f
    assert s.tasks[f.key].annotations == {"foo": "bar", "priority": 3}
    assert s.tasks[f.key].priority[0] == -3


@both(worker_kwargs={"resources": {"GPU": 1}}, nthreads=[("", 4)])
async def test_resources(c, s, a):
    def alone():
        state = get_worker().state
        return state.available_resources["GPU"]

    assert set(await c.gather(c.map(lambda _: alone(), range(5), resources={"GPU": 1}))) == {0}


@both(nthreads=[("", 1)])
async def test_priority_decides_the_order(c, s, a):
    first = c.submit(Event("go").wait, 60)
    await async_poll_for(lambda: a.state.executing_count == 1, 10)
    low = c.map(inc, range(5), priority=-5, key="low")
    high = c.submit(inc, 100, priority=5, key="high")
    await async_poll_for(lambda: "high" in s.tasks and low[-1].key in s.tasks, 10)
    await Event("go").set()
    await wait([first, high, *low])
    done = [t.key for t in s.transition_log if t.finish == "memory"]
    assert done.index("high") < min(done.index(f.key) for f in low[1:])


@both
async def test_retries(c, s, *workers):
    counter = await c.submit(Counter, actor=True)

    def flaky():
        if counter.add().result() < 3:
            raise OSError("not yet")
        return "done"

    assert await c.submit(flaky, retries=5) == "done"
    with pytest.raises(ZeroDivisionError):
        await c.submit(div, 1, 0, retries=2)


@both
async def test_publish(c, s, *workers):
    x = c.submit(inc, 1)
    await c.publish_dataset(x=x)
    assert await c.list_datasets() == ("x",)
    assert await (await c.get_dataset("x")) == 2
    await c.unpublish_dataset("x")
    assert await c.list_datasets() == ()


@both
async def test_variable(c, s, *workers):
    x = Variable("x")
    f = c.submit(inc, 1)
    await x.set(f)
    assert await (await x.get()) == 2


@both
async def test_queue(c, s, *workers):
    q = await Queue("q")
    await q.put(1)
    await q.put(c.submit(inc, 1))
    assert await q.qsize() == 2
    assert await q.get() == 1
    assert await (await q.get()) == 2


@both
async def test_event(c, s, *workers):
    f = c.submit(lambda: Event("e").wait(30))
    assert not await Event("e").is_set()
    await Event("e").set()
    assert await f


@both
async def test_locks(c, s, *workers):
    async with Lock("l"), MultiLock(["m", "n"]):
        assert not await Lock("l").acquire(timeout=0.01)
    async with await Semaphore(max_leases=2, name="s") as semaphore:
        assert await semaphore.get_value() == 1


@both
async def test_as_completed(c, s, *workers):
    seen = []
    async for future in as_completed(c.map(inc, range(10))):
        seen.append(await future)
    assert sorted(seen) == list(range(1, 11))


@both
async def test_who_has_and_has_what(c, s, a, b):
    x = c.submit(inc, 1, workers=b.address)
    await x
    assert await c.who_has(x) == {x.key: (b.address,)}
    assert await c.has_what() == {a.address: (), b.address: (x.key,)}
    assert len(await c.nthreads()) == 2


@both
async def test_replicate(c, s, a, b):
    x = c.submit(inc, 1)
    await x
    await c.replicate(x)
    assert a.data[x.key] == b.data[x.key] == 2


@both
async def test_rebalance(c, s, a, b):
    futures = c.map(inc, range(10), workers=a.address)
    await wait(futures)
    await c.rebalance()
    assert sum(await c.gather(futures)) == 55


@both
async def test_worker_restrictions(c, s, a, b):
    assert set(await c.gather(c.map(where, range(5), workers=b.address))) == {b.address}
    assert await c.submit(where, 9, workers=["nowhere"], allow_other_workers=True) in s.workers
    stuck = c.submit(where, 10, workers="tcp://127.0.0.1:1")
    await async_poll_for(lambda: stuck.key in s.tasks and s.tasks[stuck.key].state == "no-worker", 10)


@both
async def test_run(c, s, a, b):
    assert await c.run(inc, 1) == {a.address: 2, b.address: 2}
    assert await c.run_on_scheduler(inc, 1) == 2
    assert await c.run(lambda dask_worker: dask_worker.address, workers=[b.address]) == {b.address: b.address}


@both
async def test_upload_file(c, s, *workers):
    import sys
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uploaded_for_hpc.py"
        path.write_text("x = 123\n")
        try:
            await c.upload_file(str(path))
            assert await c.submit(lambda: __import__("uploaded_for_hpc").x) == 123
        finally:
            sys.modules.pop("uploaded_for_hpc", None)
            sys.path[:] = [p for p in sys.path if "worker-" not in p]


@both
async def test_errors(c, s, *workers):
    x = c.submit(div, 1, 0)
    y = c.submit(inc, x)
    with pytest.raises(ZeroDivisionError):
        await y
    assert x.status == y.status == "error"
    assert isinstance(await x.exception(), ZeroDivisionError)
    assert await c.gather([x, c.submit(inc, 1)], errors="skip") == [2]


@both
async def test_retry_after_an_error(c, s, *workers):
    flag = Variable("flag")
    await flag.set(0)
    f = c.submit(lambda: 1 / Variable("flag").get())
    with pytest.raises(ZeroDivisionError):
        await f
    await flag.set(2)
    await f.retry()
    assert await f == 0.5


@both
async def test_task_stream(c, s, *workers):
    await wait(c.map(inc, range(5)))
    assert len(await c.get_task_stream()) >= 0
    assert await c.profile()


@both
async def test_fire_and_forget(c, s, *workers):
    fire_and_forget(c.submit(lambda: Event("ran").set()))
    await Event("ran").wait(10)
    await async_poll_for(lambda: not s.tasks, 10)


@both
async def test_array(c, s, *workers):
    x = da.arange(100, chunks=10)
    assert await c.compute((x + 1).sum()) == 5050
    y = c.persist(x * 2)
    await wait(y)
    assert await c.compute(y.max()) == 198


@both
async def test_bag_and_delayed(c, s, *workers):
    assert await c.compute(db.range(20, npartitions=4).map(inc).fold(max)) == 20
    assert await c.compute(dask.delayed(sum)([dask.delayed(inc)(i) for i in range(5)])) == 15


@pytest.mark.queue
@both(in_a_job=False)  # there they wait in waves
async def test_root_tasks_are_queued(c, s, *workers):
    futures = c.map(lambda _: Event("go").wait(30), range(40))
    await async_poll_for(lambda: len(s.queued) > 20, 10)
    await Event("go").set()
    await wait(futures)


@both
async def test_tasks_from_tasks(c, s, *workers):
    def outer():
        with worker_client() as client:
            return client.submit(inc, 1).result()

    assert await c.submit(outer) == 2


@both
async def test_secede(c, s, *workers):
    def outer():
        secede()
        return get_client().submit(inc, 5).result()

    assert await c.submit(outer) == 6


@both
async def test_worker_plugin(c, s, a, b):
    class Mark(WorkerPlugin):
        name = "mark"

        def setup(self, worker):
            worker.marked = True

    await c.register_plugin(Mark())
    assert a.marked and b.marked
    await c.unregister_worker_plugin("mark")


@both
async def test_new_worker_is_used(c, s, *workers):
    async with Worker(s.address, nthreads=1, name="new") as new:
        assert await c.submit(where, workers="new") == new.address
    await async_poll_for(lambda: len(s.workers) == 2, 10)


@both
async def test_events(c, s, *workers):
    seen = []
    c.subscribe_topic("t", lambda event: seen.append(event[1]))
    await async_poll_for(lambda: s._broker._topics["t"].subscribers, 10)
    await c.log_event("t", {"x": 1})
    await async_poll_for(lambda: seen == [{"x": 1}], 10)
    assert (await c.get_events("t"))[0][1] == {"x": 1}


@both
async def test_spans_and_metadata(c, s, *workers):
    with span("mine"):
        await c.submit(inc, 1)
    assert any(sp.name == ("mine",) for sp in s.extensions["spans"].spans.values())
    await c.set_metadata(["k"], 1)
    assert await c.get_metadata(["k"]) == 1


@both
async def test_workers_to_close(c, s, *workers):
    assert len(await c.scheduler.workers_to_close(n=1)) == 1
    assert isinstance(await c.scheduler.adaptive_target(), int)


@both(config={"distributed.worker.memory.pause": False})  # the monitor would resume it at its next look
async def test_pause_and_resume_by_status(c, s, a, b):
    from distributed.core import Status

    a.status = Status.paused
    await async_poll_for(lambda: len(s.running) == 1, 10)
    assert await c.submit(where, pure=False) == b.address
    a.status = Status.running
    await async_poll_for(lambda: len(s.running) == 2, 10)


@both
async def test_dump_and_identity(c, s, *workers):
    assert len((await c.scheduler.identity(n_workers=-1))["workers"]) == 2
    assert (await c.get_versions())["workers"]


@pytest.mark.slow
@both
async def test_many_clients_at_once(c, s, *workers):
    from distributed import Client

    clients = await asyncio.gather(*(Client(s.address, asynchronous=True) for _ in range(3)))
    assert [await client.submit(inc, 1) for client in clients] == [2, 2, 2]
    ids = {client.id for client in clients}
    assert ids < set(s.clients)
    await asyncio.gather(*(client.close() for client in clients))
    await async_poll_for(lambda: not ids & set(s.clients), 10)
