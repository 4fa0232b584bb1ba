"""Dask's scheduler: its calls, its dashboard, and how large it wants its cluster."""

import asyncio
import gc
import inspect
import pickle
import weakref

import dask.array as da
import numpy as np
import pytest
from batch_cluster import batch_cluster
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from distributed import (
    CancelledError,
    Client,
    Event,
    LocalCluster,
    SchedulerPlugin,
    Status,
    fire_and_forget,
    secede,
    wait,
    worker_client,
)
from distributed import scheduler as ds
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError, connect
from distributed.core import ConnectionPool
from distributed.utils_test import async_poll_for, captured_logger, gen_cluster, gen_test, inc
from small_cluster import blocked
from tornado.web import RequestHandler

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


@one
async def test_handlers_answer(c, s, a):
    async def answer(value):
        return {"value": value}

    compat.add_calls(s, {"hpc_test": answer})
    assert await c.scheduler.hpc_test(value=3) == {"value": 3}, "Scheduler.handlers changed"
    compat.remove_calls(s, {"hpc_test": answer})
    assert await c.scheduler.hpc_test(value=3) is None, "an unknown remote call is not answered by None"


@one
async def test_who_posts_a_question_goes_on_before_it_is_answered(c, s, a):
    heard, go = [], asyncio.Event()

    async def answer(value):
        heard.append(value)
        await go.wait()
        return compat.refusal(ValueError("no")) if value else "yes"

    compat.add_calls(s, {"hpc_test": answer})
    answers = [await compat.posted(c, "hpc_test", value=value) for value in (0, 1)]
    await async_poll_for(lambda: len(heard) == 2, 5)
    assert not any(one.done() for one in answers)
    go.set()
    assert await answers[0] == "yes", "PooledRPCCall, ConnectionPool or send_recv changed"
    with pytest.raises(ValueError, match="no"):
        await answers[1]
    assert not any(c.rpc.occupied.values()), "ConnectionPool.reuse changed"
    del s.handlers["hpc_test"]
    await s.close()
    with pytest.raises(OSError):
        await (await compat.posted(c, "hpc_test", value=0))


@one
async def test_a_refusal_is_raised_where_it_was_asked_and_not_logged(c, s, a):
    compat.add_calls(s, {"hpc_test": lambda: compat.refusal(ValueError("no"))})
    with captured_logger("distributed") as log, pytest.raises(ValueError, match="no"):
        await c.scheduler.hpc_test()
    assert log.getvalue() == "", "error_message or Server.send_recv changed"


@one
async def test_who_is_subscribed_at_the_scheduler_hears_what_is_logged_there(c, s, a):
    heard = []
    c.subscribe_topic("hpc-test", heard.append)
    compat.subscribe(s, "hpc-test", c.id)  # before the client's own word has come
    s.log_event("hpc-test", {"x": 1})
    await async_poll_for(lambda: heard, 10)
    assert [message for _, message in heard] == [{"x": 1}], "Scheduler.subscribe_topic or log_event changed"


@one
async def test_the_submitting_task_is_known_inside_update_graph(c, s, a):
    plain, seen = s.stream_handlers["update-graph"], []
    assert inspect.iscoroutinefunction(plain), "the stream handler update-graph is no coroutine function"

    class Look(ds.SchedulerPlugin):
        def update_graph(self, scheduler, **kwargs):
            seen.append(compat.submitter())

    def parent():
        with worker_client() as client:
            return client.submit(inc, 1, key="child").result()

    s.add_plugin(Look(), name="look")
    end = compat.follow_submitters(s)
    assert await c.submit(parent, key="parent") == 2
    assert seen == [None, "parent"], "update-graph no longer says which task submits (submitting_task)"
    end()
    assert s.stream_handlers["update-graph"] == plain
    end()
    assert s.stream_handlers["update-graph"] == plain


@one
async def test_cancel_releases_for_some_clients_and_tells_them(c, s, a):
    async with Client(s.address, asynchronous=True) as other:
        x, y = (c.submit(blocked, "go", key=key) for key in "xy")
        await async_poll_for(lambda: set(s.tasks) == {"x", "y"}, 10)
        also = other.submit(blocked, "go", key="y")
        fire_and_forget(x)
        await async_poll_for(lambda: len(s.tasks["y"].who_wants) == len(s.tasks["x"].who_wants) == 2, 10)
        compat.cancel(s, ["x", "y", "nothing"], {c.id}, "for a test")
        assert set(s.tasks) == {"y"}, "TaskState.who_wants, ClientState.client_key or fire-and-forget changed"
        await async_poll_for(lambda: x.cancelled() and y.cancelled(), 10)
        with pytest.raises(CancelledError, match="for a test"):
            await x
        assert also.status == "pending", "Scheduler.report(client=) tells others, too"
        await Event("go").set()
        await also


@gen_cluster(scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"}, nthreads=[])
async def test_dashboard(s):
    pytest.importorskip("bokeh")
    from distributed.dashboard import core, scheduler

    assert hasattr(core, "BokehApplication"), "distributed.dashboard.core.BokehApplication is gone"
    application = s.http_application
    assert isinstance(application.applications, list), "RoutingApplication.applications is not a list"
    dask_pages = compat.dashboard_of(s)
    assert dask_pages is not None, (
        "Dask's Bokeh application is not among Scheduler.http_application.applications"
    )
    assert dask_pages.prefix is not None
    paths = set(dask_pages.app_paths)
    assert {"/status", "/individual-progress"} <= paths, "BokehTornado.app_paths changed"
    variables = scheduler.template_variables(s)
    assert variables is scheduler.template_variables(s), "template_variables is made anew each time"
    assert "status" in variables["pages"], "template_variables: pages changed"
    assert {"url", "name"} == set(variables["plots"][0]), "template_variables: plots changed"
    ours = compat.add_pages(s, {"/hpc-test": (RequestHandler, {})}, ["/hpc-test"])
    assert set(dask_pages.app_paths) == paths | {"/hpc-test"}, "BokehTornado.applications is a copy"
    assert "hpc-test" in variables["pages"]
    compat.remove_pages(s, ours)
    assert set(dask_pages.app_paths) == paths and "hpc-test" not in variables["pages"]
    assert application.applications == [dask_pages]


@one
async def test_no_dashboard(c, s, a):
    assert compat.dashboard_of(s) is None
    assert compat.add_pages(s, {}, []) is None
    assert isinstance(s.clients, dict) and c.id in s.clients, "Scheduler.clients is not by id"


@one
async def test_loads_of_workers(c, s, a):
    a.periodic_callbacks["heartbeat"].stop()  # or Dask hears that it has run for long, and expects more of it
    began, go = Event("began"), Event("go")

    def wait(began, go):
        began.set()
        go.wait()

    f = c.submit(wait, began, go)
    await began.wait()
    (load,) = compat.worker_loads(s)
    assert load.address == a.address and load.name == "0" and load.threads == 1, "WorkerState changed"
    assert load.tasks == 1, "WorkerState.processing is not what a worker was given"
    assert load.work == pytest.approx(0.5, abs=0.3), "WorkerState.occupancy is not in seconds"
    assert load.memory_limit > 0 and not load.is_leaving and not load.pinned
    assert compat.unfinished(s) == 1, "TaskPrefix.states does not count unfinished tasks"
    task = compat.find_task(s, f.key)
    assert task.key == f.key
    assert compat.expected_seconds(s, task) == 0.5, "Scheduler.UNKNOWN_TASK_DURATION is gone"
    before = s.transition_counter
    await go.set()
    await f
    assert s.transition_counter > before, "Scheduler.transition_counter does not count"
    assert compat.unfinished(s) == 0
    assert compat.expected_seconds(s, task) != 0.5, "TaskPrefix.duration_average is not measured"
    assert compat.worker_loads(s)[0].held > 0, "WorkerState.nbytes is gone"
    actor = await c.submit(Counter, actor=True)
    assert "actor" in compat.worker_loads(s)[0].pinned, "WorkerState.actors is gone"
    del actor


class Counter:
    pass


@one
async def test_a_seceded_task_pins_its_worker(c, s, a):
    def wait(event):
        secede()
        event.wait()

    event = Event("go")
    f = c.submit(wait, event)
    await async_poll_for(lambda: compat.worker_loads(s)[0].pinned, 10)
    await event.set()
    await f
    assert not compat.worker_loads(s)[0].pinned, "WorkerState.long_running is not cleared"


@one
async def test_leaving_workers_say_so(c, s, a):
    a.status = Status.closing_gracefully
    await async_poll_for(lambda: compat.worker_loads(s)[0].is_leaving, 10)


@gen_cluster(client=True, nthreads=[])
async def test_tasks_that_wait_for_workers(c, s):
    plain = c.map(inc, range(30), key="plain")
    tied = c.submit(inc, 1, workers=["127.0.0.1"])
    needy = c.submit(inc, 2, resources={"X": 1})
    await async_poll_for(lambda: len(s.tasks) == 32, 10)
    queued, some = compat.queued(s, 3)
    waiting, others = compat.waiting_for_workers(s, 100)
    assert queued + waiting == 32 and len(some) == min(3, queued), "Scheduler.queued or .unrunnable changed"
    found = {task.key: compat.is_restricted(task) for task in others}
    assert found[tied.key] == (True, False), "TaskState.host_restrictions is gone"
    assert found[needy.key] == (False, True), "TaskState.resource_restrictions is gone"
    del plain


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_plugins_may_want_to_keep_workers(c, s, a, b):
    class Keep(ds.SchedulerPlugin):
        def valid_workers_downscaling(self, scheduler, workers):
            return [worker for worker in workers if worker.address != a.address]

    class Broken(ds.SchedulerPlugin):
        def valid_workers_downscaling(self, scheduler, workers):
            raise RuntimeError("broken")

    s.add_plugin(Broken(), name="broken")
    s.add_plugin(Keep(), name="keep")
    assert compat.unwilling(s) == {a.address: "keep"}, "valid_workers_downscaling is not asked"
    s.remove_plugin("keep")
    s.remove_plugin("broken")


@gen_test()
async def test_cluster_objects():
    async with LocalCluster(
        n_workers=2, threads_per_worker=3, memory_limit="1 GiB", processes=False, asynchronous=True,
        dashboard_address=":0",
    ) as cluster:  # fmt: skip
        assert compat.has_units(cluster), "SpecCluster._correct_state_internal or its specification is gone"
        assert not compat.has_units(object())
        assert compat.threads_per_worker(cluster) == 3, "SpecCluster._threads_per_worker is gone"
        assert compat.memory_per_worker(cluster) == 2**30, "SpecCluster._memory_per_worker is gone"
        assert compat.batch_job_of(cluster) is None
        seen = []

        async def way():
            seen.append(set(cluster.workers) - set(cluster.worker_spec))
            await compat.correct_plainly(cluster)

        compat.correct_by(cluster, way)
        del cluster.worker_spec[1]
        task = compat.correct_soon(cluster)
        assert compat.correct_soon(cluster) is task, "SpecCluster._correct_state does not merge calls"
        await task
        assert seen == [{1}], "SpecCluster._correct_state does not call _correct_state_internal"
        assert set(cluster.workers) == {0}, "SpecCluster._correct_state_internal does not close workers"
        compat.correct_by(cluster, None)
        cluster.scale(1)
        await cluster
        assert len(seen) == 1
        first = cluster.new_worker_spec()
        compat.next_name(cluster)
        assert set(first) != set(cluster.new_worker_spec()), "SpecCluster._i does not number the workers"
        assert compat.adaptive_of(cluster) is None, "Cluster._adaptive is gone"
        theirs = cluster.adapt(minimum=1, maximum=1, interval="1 h")
        assert compat.adaptive_of(cluster) is theirs
        assert vars(cluster)["_adaptive_options"], "Cluster._adaptive_options is gone"
        compat.adapted_by(cluster, None)
        assert "_adaptive_options" not in vars(cluster)
        theirs.stop()


def test_batch_jobs_of_jobqueue():
    with batch_cluster(cores=4, processes=2, memory="1 GB") as cluster:
        job = compat.batch_job_of(cluster)
        assert (job.worker_processes, job.worker_cores, job.worker_memory) == (2, 4, 10**9), (
            "JobQueueCluster._dummy_job is gone"
        )


@two
async def test_a_task_that_stays_alone(c, s, a, b):
    tasks = {("alone", i): compat.alone(("alone", i), np.ones, 1) for i in range(2)}
    graph = HighLevelGraph.from_collections("alone", tasks)
    seen = []

    class Seeing(SchedulerPlugin):
        def update_graph(self, scheduler, *, tasks, **kwargs):
            seen.extend(tasks)

    s.add_plugin(Seeing(), name="seeing")
    total = (da.Array(graph, "alone", ((1, 1),), dtype=float) + 1).sum()
    assert await c.compute(total) == 4
    assert set(tasks) <= set(seen), "GraphNode.block_fusion is gone: tasks lose their keys"
    sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(tasks["alone", 0]))))
    assert type(sent) is Task and sent.func is np.ones, "Task.func changed"


@one
async def test_what_a_bridge_talks_through(c, s, a):
    heard = []
    hear_no_more = compat.put(a.stream_handlers, "hpc-test", lambda x: heard.append(x))
    s.worker_send(a.address, {"op": "hpc-test", "x": 1})
    await async_poll_for(lambda: heard == [1], 10), "Server.stream_handlers changed"
    hear_no_more()
    assert "hpc-test" not in a.stream_handlers
    calls = {"hpc_test": lambda x: x + 1}
    compat.add_calls(a, calls)
    pool = ConnectionPool(connection_args=c.security.get_connection_args("client"))
    await pool.start()
    assert await pool(a.address).hpc_test(x=1) == 2, "ConnectionPool or Server.handlers changed"
    compat.remove_calls(a, calls)
    assert "hpc_test" not in a.handlers
    await pool.close()

    async def talk(comm, x):
        way = BatchedSend(interval="2ms", loop=s.loop)
        way.start(comm)
        way.send({"x": x})
        assert await comm.read() == ({"y": 2},)
        way.abort()
        return Status.dont_reply

    compat.add_calls(s, {"hpc_test": talk})
    comm = await connect(s.address, **c.security.get_connection_args("client"))
    await comm.write({"op": "hpc_test", "x": 1})
    assert await comm.read() == ({"x": 1},), "BatchedSend or a handler's comm changed"
    await comm.write([{"y": 2}])
    with pytest.raises(CommClosedError):
        await comm.read()


@two
async def test_use_of_workers(c, s, a, b):
    a.metrics["test"] = lambda worker: {"x": 1}
    seconds = compat.heartbeat_seconds(s)
    assert 0 < seconds <= 60, "distributed.scheduler.heartbeat_interval answers otherwise"
    futures = c.map(blocked, ["go"] * 3, range(3), workers=[a.address], pure=False)
    await async_poll_for(lambda: len(s.workers[a.address].processing) == 3, 10)
    before = {use.address: use for use in compat.worker_uses(s, "test")}
    await a.heartbeat()
    use = {use.address: use for use in compat.worker_uses(s, "test")}
    assert (use[a.address].threads, use[a.address].tasks, use[a.address].running) == (1, 3, 1)
    assert use[a.address].said == {"x": 1}, "WorkerState.metrics has no metrics of ours"
    assert use[a.address].heard >= before[a.address].heard > 1e9, "WorkerState.last_seen is no POSIX time"
    assert use[b.address][1:4] == (1, 0, 0) and use[b.address].said is None
    number, sample = compat.given(s, a.address, 2)
    assert number == 3 and len(sample) == 2, "WorkerState.processing is gone"
    assert {task.key for task in sample} < {future.key for future in futures}
    await Event("go").set()
    await wait(futures)


@gen_test(config={"distributed.deploy.lost-worker-timeout": "50 ms"})
async def test_a_unit_whose_worker_is_lost_is_kept_where_we_want():
    async with LocalCluster(
        n_workers=2, processes=False, asynchronous=True, dashboard_address=":0", threads_per_worker=1
    ) as cluster:
        compat.keep_lost_units(cluster, True)
        await cluster.workers[0].close()
        await async_poll_for(lambda: len(cluster.scheduler_info["workers"]) == 1, 10)
        await asyncio.sleep(0.2)
        assert set(cluster.workers) == {0, 1}, "SpecCluster._update_worker_status gives up by another way"
        compat.keep_lost_units(cluster, False)
        await cluster.workers[1].close()
        await async_poll_for(
            lambda: set(cluster.workers) == {0}, 10
        )  # it does not any more: ours is needless


class Owner:
    async def call(self, x):
        return x + 1


@gen_cluster(client=True, nthreads=[])
async def test_what_answered_calls_is_not_remembered(c, s):
    """Dask remembers whether handlers expect a comm, for ever."""
    plain, ours = Owner(), Owner()
    s.handlers["plain"] = plain.call
    calls = {"ours": ours.call}
    compat.add_calls(s, calls)
    assert (await c.scheduler.plain(x=1), await c.scheduler.ours(x=2)) == (2, 3)
    del s.handlers["plain"]
    compat.remove_calls(s, calls)
    assert "ours" not in s.handlers
    old = weakref.ref(plain), weakref.ref(ours)
    del plain, ours, calls
    gc.collect()
    assert old[0]() is not None, "Dask forgets handlers: compat.add_calls may give it ours as they are"
    assert old[1]() is None
