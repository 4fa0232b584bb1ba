"""A contract test for every private name of Dask that the room ``dask/`` touches."""

import asyncio
import gc
import inspect
import pickle
import signal
import weakref
from contextlib import suppress
from math import inf, isinf
from time import monotonic, time

import dask
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
    Nanny,
    Reschedule,
    SchedulerPlugin,
    Status,
    Worker,
    _signals,
    fire_and_forget,
    get_worker,
    secede,
    wait,
    worker_client,
)
from distributed import scheduler as ds
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError, connect
from distributed.core import ConnectionPool
from distributed.stealing import WorkStealing
from distributed.utils_test import async_poll_for, captured_logger, gen_cluster, gen_test, inc, slowinc
from distributed.worker_state_machine import WorkerState
from small_cluster import blocked, cluster2, half_shuffled, lose
from tornado.web import RequestHandler

from dask_hpc import dask as compat
from dask_hpc.cluster.worker.farewell import FarewellPlugin

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ds.TaskState, "worker_restrictions"),
        (ds.TaskState, "host_restrictions"),
        (ds.TaskState, "loose_restrictions"),
        (ds.TaskState, "dependencies"),
        (ds.TaskState, "dependents"),
        (ds.TaskState, "priority"),
        (ds.TaskState, "actor"),
        (ds.TaskState, "state"),
        (ds.TaskState, "key"),
        (ds.TaskState, "prefix"),
        (ds.WorkerState, "name"),
        (ds.WorkerState, "host"),
        (ds.WorkerState, "address"),
        (ds.WorkerState, "status"),
        (ds.WorkerState, "processing"),
        (ds.WorkerState, "executing"),
        (ds.WorkerState, "long_running"),
        (ds.WorkerState, "occupancy"),
        (ds.WorkerState, "nthreads"),
        (ds.WorkerState, "last_seen"),
        (ds.WorkerState, "metrics"),
        (ds.TaskState, "resource_restrictions"),
        (ds.TaskState, "group"),
        (ds.TaskState, "run_spec"),
        (ds.TaskState, "_queueable"),
        (ds.TaskGroup, "dependencies"),
        (ds.TaskGroup, "prefix"),
        (ds.Scheduler, "stimulus_queue_slots_maybe_opened"),
        (ds.Scheduler, "bulk_schedule_unrunnable_after_adding_worker"),
        (ds.Scheduler, "get_comm_cost"),
        (ds.Computation, "annotations"),
        (ds.Scheduler, "transitions"),
        (ds.Scheduler, "coerce_hostname"),
        (ds.Scheduler, "remove_plugin"),
        (ds.Scheduler, "client_releases_keys"),
        (ds.Scheduler, "report"),
        (ds.ClientState, "client_key"),
        (ds.TaskState, "who_wants"),
        (ds.TaskState, "who_has"),
        (ds.TaskState, "who_wants"),
        (ds.TaskState, "waiters"),
        (ds.TaskState, "processing_on"),
        (ds.TaskState, "nbytes"),
        (ds.WorkerState, "address"),
        (ds.WorkerState, "has_what"),
        (ds.WorkerState, "memory"),
        (ds.WorkerState, "memory_limit"),
        (ds.WorkerState, "nbytes"),
        (ds.MemoryState, "process"),
        (ds.MemoryState, "spilled"),
        (ds.MemoryState, "unmanaged_old"),
        (ds.Scheduler, "request_acquire_replicas"),
        (ds.Scheduler, "request_remove_replicas"),
        (ds.Scheduler, "check_idle_saturated"),
        (Worker, "handle_stimulus"),
        (ds.Scheduler, "worker_send"),
        (ds.TaskState, "suspicious"),
        (Client, "_send_to_scheduler"),
        (ds.Scheduler, "_task_to_msg"),
        (ds.TaskState, "run_id"),
        (ds.TaskState, "annotations"),
        (ds.WorkerState, "add_to_processing"),
        (ds.WorkerState, "remove_from_processing"),
        (ds.TaskPrefix, "duration_average"),
        (ds.TaskPrefix, "all_durations"),
        (WorkStealing, "remove_key_from_stealable"),
        (ConnectionPool, "connect"),
        (ConnectionPool, "reuse"),
    ],
)
def test_name_exists(owner, name):
    assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"


@one
async def test_what_has_no_test_of_its_own_exists(c, s, a):
    assert isinstance(s.extensions["amm"].policies, set), "ActiveMemoryManagerExtension.policies changed"
    stealing = s.extensions.get("stealing")
    assert stealing is not None, "Scheduler.extensions has no stealing"
    for name in ("in_flight_occupancy", "in_flight_tasks"):
        assert hasattr(stealing, name), f"WorkStealing.{name} is gone"
    await c.submit(inc, 1)
    assert s.task_prefixes["inc"].state_counts["memory"] == 1, "TaskPrefix.state_counts is gone"
    assert c.id in s.client_comms, "Scheduler.client_comms is not by client"
    assert hasattr(s.http_application, "add_application"), "RoutingApplication.add_application is gone"


@one
async def test_scheduler_attributes_exist(c, s, a):
    for name, kind in [
        ("tasks", dict), ("unrunnable", dict), ("handlers", dict), ("host_info", dict), ("plugins", dict),
    ]:  # fmt: skip
        assert isinstance(getattr(s, name, None), kind), f"Scheduler.{name} is not a {kind.__name__}"
    assert hasattr(s, "computations"), "Scheduler.computations is gone"
    assert "no_workers_timeout" in vars(s), "Scheduler.no_workers_timeout is gone"
    assert s.no_workers_timeout is None
    assert set(s.workers) == {a.address}, "Scheduler.workers is not by address"
    assert compat.workers_by_name(s) == [a.address]
    assert compat.worker_identity(s, a.address) == (0, "127.0.0.1")


def test_states():
    known = set(inspect.signature(ds.SchedulerState._transition).parameters) and set(ds.ALL_TASK_STATES)
    assert known >= compat.UNFINISHED | {"released", "memory", "erred", "forgotten"}, "task states changed"


@one
async def test_computation_annotations_keep_the_submission_apart(c, s, a):
    seen = []

    class Look(ds.SchedulerPlugin):
        def update_graph(self, scheduler, *, tasks, **kwargs):
            seen.append(compat.pop_submitted(scheduler, "x"))
            assert all(compat.is_new(scheduler.tasks[key]) for key in tasks), "update_graph comes too late"

    s.add_plugin(Look(), name="look")
    with dask.annotate(x=1):
        built = dask.delayed(inc)(1)
        f = c.submit(inc, 1, pure=False)
    g = c.submit(inc, 2, pure=False)
    h = c.compute(built)
    await c.gather([f, g, h])
    assert seen == [1, None, None], "Computation.annotations no longer holds the submission's annotations"


@one
async def test_a_task_without_annotations_is_as_one_whose_only_one_was_taken_out(c, s, a):
    class Look(ds.SchedulerPlugin):
        def update_graph(self, scheduler, *, annotations, **kwargs):
            compat.pop_submitted(scheduler, "x", annotations.get("x", ()))

    s.add_plugin(Look(), name="look")
    plain = c.submit(inc, 0, pure=False)
    with dask.annotate(x=1):
        only = c.submit(inc, 1, pure=False)
        with dask.annotate(y=2):
            other = c.submit(inc, 2, pure=False)
    assert await c.gather([plain, only, other]) == [1, 2, 3]  # the worker was sent nothing strange
    found = [s.tasks[future.key].annotations for future in (plain, only, other)]
    assert not found[0] and found[1:] == [None, {"y": 2}], "TaskState.annotations"


@one
async def test_sentinel_holds_an_edit_and_a_nudge_free(c, s, a):
    shared = {compat.GATE}

    class Hold(ds.SchedulerPlugin):
        def update_graph(self, scheduler, *, tasks, **kwargs):
            for key in tasks:
                compat.restrict(scheduler.tasks[key], shared)

    s.add_plugin(Hold(), name="hold")
    futures = c.map(inc, range(3), key="k")
    keys = [f.key for f in futures]
    await async_poll_for(lambda: len(compat.unrunnable(s)) == 3, 10)
    task = compat.find_task(s, keys[0])
    assert task.state == "no-worker", "a task nobody may run is not in the state no-worker"
    assert task.worker_restrictions is shared, "TaskState.worker_restrictions is copied"
    since = monotonic()
    compat.restart_no_worker_clock(s, keys[:1])
    assert list(s.unrunnable)[-1] is task, "Scheduler.unrunnable is not in order of time"
    assert s.unrunnable[task] >= since, "Scheduler.unrunnable does not hold monotonic times"
    shared.clear()
    shared.add(a.address)
    compat.nudge(s, keys[:1], "test")
    assert task.state == "processing", "Scheduler.transitions does not nudge out of no-worker"
    shared.clear()
    compat.nudge(s, keys[1:], "test", plainly=True)
    assert await c.gather(futures) == [1, 2, 3]
    assert s.valid_workers(task) is None, "an empty TaskState.worker_restrictions restricts"
    s.remove_plugin("hold")


@one
async def test_wishes_are_taken_and_given_back(c, s, a):
    f = c.submit(inc, 1, workers=[a.address, "127.0.0.1", "elsewhere"], allow_other_workers=True)
    await f
    task = compat.find_task(s, f.key)
    wishes = compat.take_wishes(task)
    assert wishes == ({a.address}, {"127.0.0.1", "elsewhere"}, True), "restrictions are kept in another way"
    assert compat.restriction(task) is None and compat.take_wishes(task) is None
    assert compat.wished_addresses(s, wishes) == {a.address}, "Scheduler.host_info changed"
    compat.give_back(task, wishes)
    assert compat.take_wishes(task) == wishes


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


@cluster2
async def test_shuffles_are_seen(c, s, a, b):
    assert not compat.is_shuffling(s), "the plugin shuffle, or valid_workers_downscaling, changed"
    shuffled = await half_shuffled(c, s)
    await Event("go").set()
    assert await c.compute(shuffled.sum()) == 36
    await async_poll_for(lambda: not compat.is_shuffling(s), 10)


@two
async def test_copies_are_made_and_dropped(c, s, a, b):
    f = c.submit(inc, 1, key="x", workers=[a.address])
    await f
    task = compat.find_task(s, "x")
    assert compat.keys_on(s, a.address) == ["x"], "WorkerState.has_what changed"
    assert compat.holders(task) == (a.address,), "TaskState.who_has changed"
    assert compat.size(task) > 0, "TaskState.nbytes changed"
    assert compat.is_wanted(task), "TaskState.who_wants changed"
    assert not compat.is_actor(task)
    assert isinstance(s.running, set) and isinstance(s.stream_comms, dict), "Scheduler.running, stream_comms"
    assert compat.is_running(s, b.address), "Scheduler.running changed"
    b.status = Status.paused
    await async_poll_for(lambda: not compat.is_running(s, b.address), 5)
    b.status = Status.running
    await async_poll_for(lambda: compat.is_running(s, b.address), 5)
    compat.copy_to(s, b.address, ["x"], "test")
    await async_poll_for(lambda: len(compat.holders(task)) == 2, 5)
    g = c.submit(lambda x: Event("go").wait(), f, workers=[a.address], key="y")
    await async_poll_for(lambda: compat.is_used_on(task, a.address), 5)
    assert not compat.is_used_on(task, b.address), "TaskState.waiters, processing_on changed"
    await Event("go").set()
    await g
    compat.drop_from(s, a.address, ["x"], "test")
    assert compat.holders(task) == (b.address,), "Scheduler.request_remove_replicas is not at once"
    await async_poll_for(lambda: "x" not in a.data, 5)
    limit, used = compat.memory_of(s, a.address)
    assert limit == a.memory_manager.memory_limit and used >= 0, "WorkerState.memory_limit, memory changed"
    _, at_worst = compat.memory_of(s, a.address, at_worst=True)
    assert at_worst >= used, "WorkerState.memory, nbytes changed"
    a.monitor.update()
    await a.heartbeat()
    when = compat.measured_at(s, a.address)
    assert 0 <= time() - when < 10, "WorkerState.metrics, time_delay or SystemMonitor's time changed"
    assert compat.measured_at(s, "nobody") == inf


@two
async def test_a_worker_is_paused_for_the_scheduler_only(c, s, a, b):
    compat.set_worker_status(s, a.address, "paused")
    assert compat.worker_status(s, a.address) == "paused", "Scheduler.handle_worker_status_change changed"
    assert a.status == Status.running, "Scheduler.handle_worker_status_change tells the worker"
    assert compat.running_workers(s) == {b.address}, "Scheduler.running holds paused workers"
    s.validate_state()
    futures = c.map(inc, range(5), workers=[a.address, b.address])
    await c.gather(futures)
    assert not s.workers[a.address].has_what, "a paused worker is given tasks"
    compat.set_worker_status(s, a.address, "running")
    assert compat.running_workers(s) == {a.address, b.address}
    assert compat.worker_status(s, "nobody") is None


@two
async def test_replicas_that_arrive_are_heard_of(c, s, a, b):
    plain, seen = s.stream_handlers["add-keys"], []
    end = compat.follow_replicas(s, lambda address, keys: seen.append((address, list(keys))))
    x = c.submit(inc, 1, key="x", workers=[a.address])
    assert await c.submit(inc, x, key="y", workers=[b.address]) == 3
    await async_poll_for(lambda: len(s.tasks["x"].who_has) == 2, 10)
    assert seen == [(b.address, ["x"])], "the stream handler add-keys no longer hears of what workers fetch"
    end()
    assert s.stream_handlers["add-keys"] == plain
    end()
    assert s.stream_handlers["add-keys"] == plain


@two
async def test_reports_of_workers_go_through_a_filter(c, s, a, b):
    seen = []

    def ours(address, status):
        seen.append((address, status))
        return "paused"

    end = compat.filter_worker_status(s, ours)
    a.status = Status.closing_gracefully
    await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
    assert seen == [(a.address, "closing_gracefully")], "Scheduler.stream_handlers changed"
    end()
    a.status = Status.running
    await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
    assert len(seen) == 1


@two
async def test_plugins_veto(c, s, a, b):
    class Needs(ds.SchedulerPlugin):
        def valid_workers_downscaling(self, scheduler, workers):
            return [worker for worker in workers if worker.address != a.address]

    assert compat.veto(s, a.address) is None
    s.add_plugin(Needs(), name="needs")
    assert compat.veto(s, a.address) == "needs", "SchedulerPlugin.valid_workers_downscaling changed"
    assert compat.veto(s, b.address) is None


@gen_cluster(client=True, nthreads=[("", 1), ("", 1)], worker_kwargs={"resources": {"R": 2}})
async def test_permitted_is_what_dask_permits(c, s, a, b):
    await b.set_resources(R=1)
    both = {a.address, b.address}
    for options, expected in [
        ({}, both),
        ({"workers": [a.address]}, {a.address}),
        ({"workers": ["nobody"]}, set()),
        ({"workers": ["nobody"], "allow_other_workers": True}, both),
        ({"workers": ["127.0.0.1"]}, both),
        ({"resources": {"R": 2}}, {a.address}),
        ({"resources": {"R": 3}}, set()),
        ({"resources": {"X": 1}}, set()),
        ({"resources": {"R": 2}, "workers": [b.address]}, set()),
    ]:
        future = c.submit(inc, 1, pure=False, **options)
        await async_poll_for(lambda key=future.key: key in s.tasks, 10)
        task = s.tasks[future.key]
        assert compat.permitted(s, task, both) == expected, f"{options}: Scheduler.resources, .host_info?"
        dask_says = s.valid_workers(task)
        if dask_says is not None and not task.loose_restrictions:
            assert {ws.address for ws in dask_says} == expected, options
        assert compat.permitted(s, task, {b.address}) == expected & {b.address}


def closings(*workers):
    """Each worker's end, and what came before it: by whom, with what time, and what its status was."""
    said, found = [], []
    for worker in workers:

        async def before(reason, seconds, worker=worker):
            said.append((worker, reason, seconds, worker.status.name))

        found.append(compat.Closing(worker, before))
    return found, said


@two
async def test_who_closes_a_worker(c, s, a, b):
    (of_a, of_b), said = closings(a, b)
    assert not of_a.is_over
    assert a.batched_stream.closed() is False, "Worker.batched_stream does not tell whether it is closed"
    s.close_worker(a.address)
    await a.finished()
    assert not of_a._is_told, "Scheduler.close_worker says what Scheduler.close says"
    assert {one[0] for one in said} == {a}, "Scheduler.close_worker does not come to stream_handlers['close']"
    assert said[0][2:] == (30, "running")
    await s.close()
    await b.finished()
    assert of_b._is_told, "Scheduler.close no longer tells workers that it closes"
    assert b.batched_stream.closed(), "Worker.batched_stream is open though the worker has ended"
    assert {one[0] for one in said} == {a}, "nobody hears it any more"


@two
async def test_whoever_closes_a_worker_something_comes_before(c, s, a, b):
    (of_a, of_b), said = closings(a, b)
    await asyncio.gather(
        a.close(nanny=False, reason="first", timeout=5.0), a.close(nanny=True, reason="second", timeout=2.0)
    )
    assert {("first", 5.0), ("second", 2.0)} <= {one[1:3] for one in said}
    assert of_a._how == {"nanny": False, "reason": "first"} and a.status == Status.closed
    with suppress(OSError):
        await s.rpc(b.address).terminate()
    await b.finished()
    assert said[-1][0] is b, "Worker.handlers['terminate'] is another way to close"
    of_b.stop()
    assert "close" not in vars(b) and b.stream_handlers["close"] == b.close == b.handlers["terminate"]


@gen_cluster(client=True, nthreads=[("", 1)], Worker=Nanny)
async def test_a_nanny_is_as_patient_as_it_is_told(c, s, a):
    given = []
    kill = a.process.kill

    async def recording(timeout, **how):
        given.append(timeout)
        await kill(timeout=timeout, **how)

    a.process.kill = recording
    await compat.replace_worker_plugin(s, compat.NannyPatience(10.0))
    await compat.replace_worker_plugin(s, compat.NannyPatience(12.0))
    assert "kill" in vars(a) and a.handlers["kill"] is a.kill, "Nanny.handlers['kill'] is gone"
    await compat.remove_worker_plugin(s, compat.NannyPatience.name)
    assert "kill" not in vars(a) and a.handlers["kill"] == a.kill
    await compat.replace_worker_plugin(s, compat.NannyPatience(12.0))
    await a.close()  # Dask takes plugins off before it ends the worker
    assert given == [15.0], (
        "Nanny.close no longer gives its time to Nanny.kill and that to WorkerProcess.kill"
    )


@two
async def test_nannies_have_plugins_as_workers_have(c, s, a, b):
    for name in ("register_nanny_plugin", "unregister_nanny_plugin"):
        assert callable(getattr(s, name)) and name in s.handlers
    await compat.replace_worker_plugin(s, compat.NannyPatience(1.0))
    assert set(s.nanny_plugins) == {compat.NannyPatience.name}, "new nannies do not hear of it"
    await compat.remove_worker_plugin(s, compat.NannyPatience.name)
    assert not s.nanny_plugins


@two
async def test_idle_workers_are_hidden_from_stealing(c, s, a, b):
    clock = s.periodic_callbacks["stealing"]
    before, seen = clock.callback, []
    assert before == s.extensions["stealing"].balance, "PeriodicCallback.callback is not what is called"
    clock.callback = lambda: seen.append(set(s.idle))
    end = compat.hide_from_stealing(s, lambda: [a.address])
    assert set(compat.idle_workers(s)) == {a.address, b.address}, "Scheduler.idle has others"
    clock.callback()
    assert seen == [{b.address}] and set(s.idle) == {a.address, b.address}
    futures = [
        c.submit(blocked, "go", key=("x", i), workers=[b.address], allow_other_workers=True) for i in range(9)
    ]
    await async_poll_for(lambda: len(s.workers[b.address].processing) + len(s.queued) == 9, 10)
    found = set(compat.stealable(s))
    assert found <= {f.key for f in futures} and found, "WorkStealing.stealable has others"
    end()
    clock.callback()
    assert seen[1:] and clock.callback is not before
    clock.callback = before
    await Event("go").set()
    await c.gather(futures)


@two
async def test_how_long_moving_takes(c, s, a, b):
    futures = await c.scatter({"x": b"0" * 1_000_000}, workers=[a.address])
    s.bandwidth = 1e6
    assert 0.9 < compat.seconds_to_move(s, a.address) < 1.1, "Scheduler.bandwidth, WorkerState.nbytes?"
    assert compat.seconds_to_move(s, b.address) == 0 and futures


@two
async def test_data_of_a_client_are_announced_and_go_home(c, s, a, b):
    heard, home = [], {a.address}

    async def announce(keys):
        heard.append(list(keys))

    compat.announce_scatters(c, announce)
    compat.announce_scatters(c, announce)  # once is enough
    scatters = compat.Scatters(s, lambda keys: home if "y" not in keys else ())

    async def scattered(name, **given):
        futures = await c.scatter({name: 1}, direct=False, **given)
        (where,) = s.tasks[futures[name].key].who_has
        return where.address

    assert await scattered("x") == a.address, "Client.scatter goes another way: PooledRPCCall.scatter?"
    assert await scattered("x2", workers=[b.address]) == b.address and heard == [["x"]]
    home = {"tcp://gone:1"}
    assert await scattered("x3") in s.workers and await scattered("y") in s.workers
    scatters.stop()
    assert s.handlers["scatter"] == s.scatter and not scatters.under_way


@two
async def test_names_of_workers(c, s, a, b):
    assert compat.named_workers(s, [0, "1", a.address, 2]) == {
        0: [a.address], "1": [b.address], a.address: [a.address], 2: [],
    }  # fmt: skip
    async with (
        Worker(s.address, name="job-1-0") as d,
        Worker(s.address, name="job-1-1") as e,
        Worker(s.address, name="job-10-0"),
        Worker(s.address, name="job-1-x"),
    ):
        found = compat.named_workers(s, ["job-1", "job-1-1"])
        assert set(found["job-1"]) == {d.address, e.address} and found["job-1-1"] == [e.address]


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_stealing_moves_what_has_not_started(c, s, a, b):
    mover = compat.TaskMover(s)
    futures = c.map(blocked, ["go"] * 4, range(4), workers=[a.address], key="m")
    await async_poll_for(lambda: a.state.executing_count and len(s.workers[a.address].processing) == 4, 10)
    for future in futures:
        compat.restrict(s.tasks[future.key], None)
    assert mover.drain(a.address) >= 3 and mover.is_expecting(b.address), "WorkStealing.in_flight changed"
    await async_poll_for(lambda: not mover.is_expecting(b.address), 10)
    assert len(s.workers[b.address].processing) == 3, "WorkStealing.move_task_request does not move"
    await Event("go").set()
    await c.gather(futures)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_what_has_not_started_comes_back(c, s, a, b):
    """A thief that is no worker has Dask place the task anew: WorkStealing.move_task_confirm reschedules."""
    mover = compat.TaskMover(s)
    futures = c.map(blocked, ["go"] * 4, range(4), workers=[a.address], key="m")
    await async_poll_for(lambda: a.state.executing_count and len(s.workers[a.address].processing) == 4, 10)
    for future in futures:
        compat.restrict(s.tasks[future.key], {compat.GATE})
    assert mover.recall(a.address, {future.key for future in futures}) >= 3, "WorkerState.executing changed"
    await async_poll_for(lambda: not s.extensions["stealing"].in_flight, 10)
    states = sorted(task.state for task in s.tasks.values())
    assert states == ["no-worker"] * 3 + ["processing"], "WorkStealing asks for nobody in another way"
    keys = [future.key for future in futures]
    for key in keys:
        compat.restrict(s.tasks[key], None)
    compat.nudge(s, keys, "test", plainly=True)
    await Event("go").set()
    await c.gather(futures)


@pytest.mark.queue
@one
async def test_root_rule_is_dasks(c, s, a):
    """For the threads of the whole cluster our rule says what Dask's own says."""
    for name in ("rootish_tg_threshold", "rootish_tg_dependencies_threshold", "total_nthreads"):
        assert isinstance(getattr(s, name, None), int), f"Scheduler.{name} is gone"
    assert isinstance(s.WORKER_SATURATION, float | int), "Scheduler.WORKER_SATURATION is gone"
    one = c.submit(inc, 1, key="one")
    many = c.map(inc, range(10), key=[("many", i) for i in range(10)])
    after = c.map(inc, many, key=[("after", i) for i in range(10)])
    few = c.map(inc, [one] * 10, key=[("few", i) for i in range(10)])
    made = c.persist(da.from_array(np.ones(2), chunks=1) + 1)
    heavy = c.map(inc, range(10), key=[("heavy", i) for i in range(10)], resources={"X": 1})
    await async_poll_for(lambda: ("heavy", 9) in s.tasks, 10)
    rule = compat.RootRule(s, s.total_nthreads)
    said = {key: rule(task) for key, task in s.tasks.items()}
    assert said == {key: s.is_rootish(task) for key, task in s.tasks.items()}, "Scheduler.is_rootish changed"
    assert {key[0] for key, is_root in said.items() if is_root} >= {"many", "few"} and not said["one"]
    made_keys = [key for key, task in s.tasks.items() if task.run_spec.data_producer]
    assert len(made_keys) == 2 and all(said[key] for key in made_keys), "data_producer is not known any more"
    s.tasks["many", 0]._queueable = False
    assert not rule(s.tasks["many", 0])
    del one, many, after, few, made, heavy


def test_outputs_of_shuffles_follow_their_barrier():
    from distributed.shuffle._core import barrier_key

    key = barrier_key("0123456789abcdef0123456789abcdef")
    assert ds.key_split(key) == compat.BARRIER, "the barrier tasks of shuffles are called otherwise"


@pytest.mark.queue
@gen_cluster(client=True, nthreads=[("", 1), ("", 2)])
async def test_slots_are_dasks(c, s, a, b):
    both = {a.address, b.address}
    full = {slot.address: slot.free for slot in compat.free_slots(s, both)}
    assert full == {
        ws.address: ds._task_slots_available(ws, s.WORKER_SATURATION) for ws in s.idle_task_count
    }, "Dask counts slots otherwise"
    assert full == {a.address: 2, b.address: 3} and not compat.owed_slots(s, set(), bool)
    futures = c.map(blocked, ["go"] * 20, range(20), key=[("q", i) for i in range(20)])
    await async_poll_for(lambda: len(s.queued) == 15, 10)
    assert compat.free_slots(s, both) == [], "Scheduler.idle_task_count changed"
    assert compat.first_queued(s).key == ("q", 5), "Scheduler.queued.peek is not the next of the queue"
    assert len(s.queued) == 15, "Scheduler.queued changed"
    assert {slot.address for slot in compat.free_slots(s, None)} == set(), "Scheduler.idle_task_count changed"
    assert compat.count_running(s, None) == 5, "WorkerState.processing changed"
    assert compat.count_running(s, {a.address}) == 2, "WorkerState.processing changed"
    assert compat.queue_order(s) == [("q", i) for i in range(5, 20)], "Scheduler.queued is not in order"
    assert sorted(key for key, _ in compat.in_flight(s)) == [("q", i) for i in range(5)]
    owed = {slot.address: slot.free for slot in compat.owed_slots(s, both, lambda key: False)}
    assert owed == {a.address: 1, b.address: 2}
    assert not compat.owed_slots(s, both, lambda key: True)
    assert compat.threads_of(s, both) == 3 == s.total_nthreads
    assert compat.holds_all_workers(s, both) and not compat.holds_all_workers(s, {a.address})
    await Event("go").set()
    await c.gather(futures)


def given_back():
    Event("go").wait(60)
    raise Reschedule


@pytest.mark.queue
@gen_cluster(client=True, nthreads=[("", 1)], config={"distributed.scheduler.worker-saturation": 1.0})
async def test_the_queue_goes_on_when_a_task_is_given_back(c, s, a):
    """As of now Dask does not see to that."""
    first = c.submit(given_back, key="first")
    await async_poll_for(lambda: "first" in a.state.tasks, 10)
    others = c.map(inc, range(5), key=[("q", i) for i in range(5)])
    await async_poll_for(lambda: len(s.queued) == 5, 10)
    compat.restrict(s.tasks["first"], {"tcp://nowhere:1"})
    await Event("go").set()
    await async_poll_for(lambda: s.tasks["first"].state == "no-worker", 10)
    assert len(s.queued) == 5, "Dask's queue goes on by itself: compat.queue_goes_on is not needed any more"
    compat.queue_goes_on(s)
    assert await c.gather(others) == list(range(1, 6))
    del first


@pytest.mark.queue
@two
async def test_nothing_leaves_the_queue_but_by_its_exit(c, s, a, b):
    called = []
    exit = compat.QueueExit(s)
    exit.after_queue = lambda: called.append(1)
    futures = c.map(blocked, ["go"] * 20, range(20), key=[("q", i) for i in range(20)])
    await async_poll_for(lambda: len(s.queued) == 16, 10)
    exit.is_shut = True
    await Event("go").set()
    await c.gather(futures[:4])
    await async_poll_for(lambda: not any(ws.processing for ws in s.workers.values()), 10)
    assert len(s.queued) == 16, "stimulus_queue_slots_maybe_opened is not the only exit of the queue"
    assert len(called) >= 4, "stimulus_queue_slots_maybe_opened is not called when a task ends"
    compat.restrict(s.tasks["q", 19], {b.address})
    compat.release_queued(s, [("q", 19)], "test")
    assert await futures[19] == b.address, "a task taken out of Dask's queue is not placed anew"
    called.clear()
    s.handle_worker_status_change("paused", a.address, "test")
    s.handle_worker_status_change("running", a.address, "test")
    assert called, "stimulus_queue_slots_maybe_opened is not called when a worker goes on"
    exit.remove()
    exit.remove()
    assert compat.queue._QUEUE_EXIT not in vars(s)
    await c.gather(futures)


@pytest.mark.queue
@one
async def test_reads_go_before_the_queue_does(c, s, a):
    left = []
    exit = compat.QueueExit(s)
    exit.before_queue = lambda: left.append(len(s.queued))
    futures = c.map(blocked, ["go"] * 9, range(9), key=[("q", i) for i in range(9)])
    await async_poll_for(lambda: len(s.queued) == 7, 10)
    left.clear()
    await Event("go").set()
    await c.gather(futures)
    assert left[0] == 7, "stimulus_queue_slots_maybe_opened is called after the queue went on"
    exit.remove()
    assert compat.first_queued(s) is None and len(s.queued) == 0 == compat.count_running(s, None)


@pytest.mark.queue
@one
async def test_whom_nobody_waits_for_hears_of_no_slots(c, s, a):
    heard = []

    class Exit(compat.QueueExit):
        is_awaited = False

    exit = Exit(s)
    exit.before_queue = lambda: heard.append("before")
    exit.after_queue = lambda: heard.append("after")
    assert await c.gather(c.map(inc, range(9), pure=False)) == list(range(1, 10))
    assert not heard and not s.queued, "Dask's queue does not go on by its exit"
    exit.is_awaited = True
    assert await c.gather(c.map(inc, range(2), pure=False)) == [1, 2]
    assert heard[:2] == ["before", "after"]
    exit.remove()
    assert compat.queue._QUEUE_EXIT not in vars(s)


@one
async def test_a_task_that_secedes_opens_the_queue(c, s, a):
    called = []
    exit = compat.QueueExit(s)
    exit.after_queue = lambda: called.append(len(s.workers[a.address].long_running))

    def outer():
        secede()

    await c.submit(outer)
    assert 1 in called, "stimulus_queue_slots_maybe_opened is not called when a task secedes"
    exit.remove()


@two
async def test_send_places_each_task(c, s, a, b):
    shut = {compat.GATE}
    with dask.annotate(workers=[compat.GATE]):
        futures = c.map(blocked, ["go"] * 4, range(4), key=[("s", i) for i in range(4)])
    await async_poll_for(lambda: len(s.unrunnable) == 4, 10)
    for future in futures:
        compat.take_wishes(s.tasks[future.key])
        compat.restrict(s.tasks[future.key], shut)
    sent = compat.send(s, {("s", 0): a.address, ("s", 1): a.address, ("s", 2): b.address, "x": "y"}, "test")
    assert list(sent) == [("s", 0), ("s", 1), ("s", 2)]
    assert {task.processing_on.address for task in sent.values()} == {a.address, b.address}
    assert s.tasks["s", 3].state == "no-worker"
    compat.restrict(s.tasks["s", 3], None)
    compat.nudge(s, [("s", 3)], "test", plainly=True)
    await Event("go").set()
    await c.gather(futures)


@one
async def test_a_new_worker_is_not_asked_about_gated_tasks(c, s, a):
    asked = []
    gated_tasks = 1
    end = compat.spare_gated(s, lambda: gated_tasks)
    s.valid_workers = lambda task, plain=s.valid_workers: asked.append(task.key) or plain(task)
    gated = c.submit(inc, 1, key="gated", workers=["tcp://127.0.0.1:1"])
    other = c.submit(inc, 1, key="other", workers=["b"])
    await async_poll_for(lambda: len(s.unrunnable) == 2, 10)
    compat.restrict(s.tasks["gated"], {compat.GATE})
    asked.clear()
    async with Worker(s.address, name="b") as b:
        assert await other == 2
        assert set(asked) == {"other"}, "bulk_schedule_unrunnable_after_adding_worker is gone"
        assert list(s.unrunnable) == [s.tasks["gated"]]
        asked.clear()
        assert s.bulk_schedule_unrunnable_after_adding_worker(s.workers[b.address]) == {} and not asked
    end()
    end()
    assert "bulk_schedule_unrunnable_after_adding_worker" not in vars(s)
    del s.valid_workers, gated


@one
async def test_what_reads_is_marked_and_measured(c, s, a):

    class Stored:
        shape, dtype, ndim = (2,), np.dtype(float), 1

        def __getitem__(self, index):
            return np.ones(2)[index]

    made = c.persist(da.from_array(Stored(), chunks=1))
    slow = c.map(slowinc, range(3), delay=0.05, key=[("slow", i) for i in range(3)])
    await wait([made, *slow])
    marked = [task for task in s.tasks.values() if compat.is_producer(task)]
    assert [compat.is_computed(task) for task in marked].count(True) == 2, "GraphNode.data_producer changed"
    assert {task.group.name for task in marked if compat.is_computed(task)} == {made.name}
    assert s.tasks["slow", 0].group is s.tasks["slow", 1].group
    await async_poll_for(lambda: compat.measured(s, "slow")[2] > 0.14, 10)
    tasks, computing, waiting = compat.measured(s, "slow")
    assert tasks == 3 and computing < 0.1 < waiting, "cumulative_worker_metrics changed"
    assert compat.measured(s, "nobody") == (0, 0.0, 0.0)


@one
async def test_a_prefix_knows_its_average_duration(c, s, a):
    assert hasattr(s, "task_prefixes"), "SchedulerState.task_prefixes is gone"
    assert compat.average_duration(s, "slowinc") is None
    f = c.submit(slowinc, 1, delay=0.05)
    await async_poll_for(lambda: f.key in s.tasks, 10)
    assert compat.prefix(compat.find_task(s, f.key)) == "slowinc", "TaskPrefix.name changed"
    assert compat.average_duration(s, "slowinc") is None, "TaskPrefix.duration_average < 0 is not unknown"
    await f
    assert 0.04 < compat.average_duration(s, "slowinc") < 5, "TaskPrefix.duration_average changed"


@one
async def test_transition_brings_measurements(c, s, a):
    seen = []

    class Look(ds.SchedulerPlugin):
        def transition(self, key, start, finish, *args, startstops=None, nbytes=0, **kwargs):
            if finish == "memory":
                seen.append((startstops, nbytes))

    s.add_plugin(Look(), name="look")
    await c.submit(slowinc, 1, delay=0.05)
    ((startstops, nbytes),) = seen
    compute = [one for one in startstops if one["action"] == "compute"]
    assert len(compute) == 1 and compute[0]["stop"] - compute[0]["start"] > 0.04, "startstops changed"
    assert nbytes > 0, "nbytes is not told"


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


@pytest.mark.queue
@one
async def test_a_generation_places_a_task_in_the_queue(c, s, a):
    assert isinstance(compat.generation(s), int), "SchedulerState.generation is gone"

    class Turn(ds.SchedulerPlugin):
        is_on = False

        def update_graph(self, scheduler, *, tasks, **kwargs):
            for key in tasks if self.is_on else ():
                assert scheduler.tasks[key].priority[0] == 0, "TaskState.priority changed"
                compat.set_generation(scheduler.tasks[key], -5.0)

    turn = Turn()
    s.add_plugin(turn, name="turn")
    blocker = c.submit(blocked, "go", key="blocker")
    await async_poll_for(lambda: "blocker" in s.tasks, 10)
    early = c.map(inc, range(10), pure=False)
    await async_poll_for(lambda: len(s.tasks) == 11, 10)
    turn.is_on = True
    late = c.map(inc, range(10), pure=False)
    await async_poll_for(lambda: len(s.tasks) == 21, 10)
    turn.is_on = False
    assert s.queued.peek().key in {f.key for f in late}, "TaskState.priority does not order the queue"
    await Event("go").set()
    await c.gather([blocker, *early, *late])
    before = compat.generation(s)
    compat.raise_generation(s, before + 7.5)
    f = c.submit(inc, 1, pure=False)
    await f
    assert s.tasks[f.key].priority[1] >= before + 8, "SchedulerState.generation is not used"


@one
async def test_the_name_is_in_the_id_of_a_client(c, s, a):
    async with Client(s.address, asynchronous=True, name="alice") as alice:
        assert compat.client_name(alice.id) == "alice", "Client.id changed"
    assert compat.client_name(c.id) == "", "Client.id changed"


# --- the size of the cluster


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
async def test_a_worker_is_told_its_status(c, s, a, b):
    compat.tell_worker_status(s, a.address, "paused")
    await async_poll_for(lambda: a.status == Status.paused, 10)
    await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
    compat.tell_worker_status(s, a.address, "running")
    await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
    compat.tell_worker_status(s, "nobody", "running")


@two
async def test_retirement_is_replaced_and_put_back(c, s, a, b):
    async def ours(workers=None, **kwargs):
        return {"ours": workers} | kwargs

    before = s.handlers["retire_workers"]
    theirs, end = compat.replace_retirement(s, ours)
    found = await c.retire_workers(workers="x")
    assert found == {"ours": "x", "close_workers": True}, "Client.retire_workers calls something else"
    assert await s.retire_workers(workers=["y"]) == {"ours": ["y"]}
    end()
    assert s.handlers["retire_workers"] == before and "retire_workers" not in vars(s)
    found = await theirs([a.address], names=None, close_workers=True, remove=True, stimulus_id="x")
    assert list(found) == [a.address] and a.address not in s.workers, "Scheduler.retire_workers changed"


@two
async def test_who_is_busy_on_a_worker(c, s, a, b):
    class Thing:
        pass

    future = c.submit(blocked, "go", key="busy", workers=[a.address])
    thing = c.submit(Thing, actor=True, workers=[b.address])
    await thing
    await async_poll_for(lambda: compat.processing(s, a.address) == ["busy"], 10)
    assert compat.has_actors(s, b.address) and not compat.has_actors(s, a.address), "WorkerState.actors"
    assert compat.processing(s, "nobody") == [] and not compat.has_actors(s, "nobody")
    assert not compat.is_closing(s), "Scheduler.status is not a Status"
    await Event("go").set()
    await future


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_shuffles_leave_held_workers_out(c, s, a, b, d):
    held = {a.address}
    end = compat.keep_out_of_shuffles(s, lambda: held)
    compat.set_worker_status(s, a.address, "paused")
    small = {"array.rechunk.method": "p2p", "array.chunk-size": "800 B", "optimization.fuse.active": False}
    with dask.config.set(small):
        x = da.ones((10, 100), chunks=(1, 100)).rechunk((10, 10))
        future = c.persist(x)
        await wait(future)
    (runs,) = s.plugins["shuffle"]._shuffles.values() or [None]
    assert runs, "there was no shuffle"
    chosen = {address for run in runs for address in run.run_spec.worker_for.values()}
    assert chosen == {b.address, d.address}, "Scheduler.handlers['shuffle_get_or_create'] changed"
    barrier = next(ts for key, ts in s.tasks.items() if str(key).startswith("shuffle-barrier"))
    assert not barrier.worker_restrictions
    end()
    assert s.handlers["shuffle_get_or_create"] == s.plugins["shuffle"].get_or_create


@gen_cluster(client=True)
async def test_who_holds(c, s, a, b):
    """Who holds results, lost ones included: those nobody does."""
    x = c.submit(int, 1, workers=[a.address])
    await x
    lost = "a key that is not there"
    found = await compat.who_holds(c, [x.key, lost])
    assert tuple(found[x.key]) == (a.address,), "Scheduler's handler 'who_has' changed"
    assert not found.get(lost)


def test_only_compat_touches_private_names():
    """The names above appear in no other file of the live body."""
    from pathlib import Path

    import dask_hpc.cluster

    private = (
        "worker_restrictions", "host_restrictions", "loose_restrictions", "unrunnable", ".transitions(",
        ".computations", ".handlers", ".tasks[", ".tasks.get", "host_info", ".stream_comms", ".who_has",
        ".has_what", ".who_wants", ".waiters", ".processing_on", ".request_acquire", ".request_remove",
        ".idle_task_count", "WORKER_SATURATION", ".queued.", ".run_spec", "stimulus_queue",
        "cumulative_worker_metrics", "data_producer",
        ".prefix.", ".task_prefixes", "duration_average", "who_wants", "client_key",
        "scheduler.generation", "http_application", "template_variables(",
    )  # fmt: skip
    live = Path(dask_hpc.cluster.__file__).parent
    for file in set(live.rglob("*.py")) - set((live / "compat").rglob("*.py")):
        found = [name for name in private if name in file.read_text()]
        assert not found, f"{file.name} touches {found}"


# --- workers that leave


def test_names_of_leaving_workers_exist():
    for owner, name in [
        (ds.Scheduler, "register_worker_plugin"), (ds.Scheduler, "unregister_worker_plugin"),
        (ds.Scheduler, "remove_worker"), (ds.TaskState, "prefix"), (ds.WorkerState, "status"),
    ]:  # fmt: skip
        assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"
    known = inspect.signature(ds.Scheduler.remove_worker).parameters
    assert {"expected", "close", "stimulus_id"} <= set(known), "Scheduler.remove_worker has other arguments"


@one
async def test_a_plugin_goes_to_workers_and_away(c, s, a):
    plugin = compat.pickled(FarewellPlugin(8.0))
    await compat.add_worker_plugin(s, "x", plugin)
    assert "x" in s.worker_plugins, "Scheduler.worker_plugins does not have a registered plugin"
    await compat.remove_worker_plugin(s, "x")
    await compat.remove_worker_plugin(s, "x")
    assert "x" not in a.plugins and "x" not in s.worker_plugins


@one
async def test_kinds_of_tasks_by_state(c, s, a):
    f = c.submit(inc, 1)
    await f
    assert compat.kinds(s, ["memory"]) == {"inc"}, "TaskPrefix.states does not count what is in memory"
    assert compat.kinds(s, compat.UNFINISHED) == set()
    g = c.submit(blocked, "go", key="blocked")
    await async_poll_for(lambda: compat.kinds(s, ["processing"]) == {"blocked"}, 10)
    await Event("go").set()
    await g


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_leaving_workers_and_letting_go(c, s, a, b):
    assert compat.leaving_workers(s) == set()
    a.status = Status.closing_gracefully
    await async_poll_for(lambda: compat.leaving_workers(s) == {a.address}, 10)
    await compat.let_worker_go(s, a.address)
    assert set(s.workers) == {b.address}
    event = [e for _, e in s.get_events("all") if e["action"] == "remove-worker"][-1]
    assert event["expected"] is True, "Scheduler.remove_worker does not say that it was expected"


@one
async def test_a_closing_worker_says_why(c, s, a):
    seen = []

    class Look(ds.SchedulerPlugin):
        def log_event(self, topic, msg):
            seen.append((topic, msg))

    s.add_plugin(Look(), name="look")
    await a.close(reason="made to")
    closing = {"action": "closing-worker", "reason": "made to"}
    await async_poll_for(lambda: (a.address, closing) in seen, 10)


def test_the_handler_of_dasks_own_command():
    """The worker plugin knows by it that the process is a worker's own."""
    assert _signals.wait_for_signals.__module__ == "distributed._signals", "distributed._signals is gone"


# --- recipes that load instead of compute


@pytest.mark.parametrize(
    "name",
    ["run_spec", "waiters", "who_wants", "retries", "annotations", "resource_restrictions", "add_dependency"],
)
def test_names_of_recipes_exist(name):
    assert hasattr(ds.TaskState, name), f"TaskState.{name} is gone"


@one
async def test_a_recipe_is_replaced_and_given_back(c, s, a):
    assert isinstance(s.id, str), "Scheduler.id is gone"
    source = c.submit(inc, 1, key="source", retries=3)
    middle = c.submit(inc, source, key="middle")
    last = c.submit(inc, middle, key="last")
    await last
    del source, middle
    await async_poll_for(lambda: s.tasks["middle"].state == "released", 10)
    task = compat.find_task(s, "last")
    assert compat.can_be_replaced(task) and compat.has_recipe(task)
    kept = compat.recipe(task, {})
    needs = compat.load_instead(s, task, compat.Portable(compat.pickled(FarewellPlugin(1))))
    assert needs == ["middle"] and not task.dependencies
    compat.forget_unneeded(s, needs)
    assert set(s.tasks) == {"last"}, "Dask does not forget what a replaced recipe needed"
    s.validate_state()
    compat.give_recipe_back(s, kept)
    assert set(s.tasks) == {"last", "middle", "source"}
    assert s.tasks["source"].retries == 3 and s.tasks["source"].priority is not None
    spans = {s.tasks[key].group.span_id for key in s.tasks}
    assert all(isinstance(one, str) for one in spans), "SpansSchedulerExtension.observe_tasks gives no span"
    s.validate_state()
    await s.remove_worker(a.address, stimulus_id="dies")
    async with Worker(s.address, nthreads=1):
        assert await last == 4, "Scheduler.new_task or TaskState.add_dependency do not make tasks that run"


@one
async def test_scattered_data_gets_a_recipe_and_who_followed_it_can_tell(c, s, a):
    data = await c.scatter([1, 2], hash=False)
    for one in data:
        compat.load_instead(s, compat.find_task(s, one.key), len)
    s.validate_state()
    await s.remove_worker(a.address, stimulus_id="dies")
    async with Worker(s.address, nthreads=1) as b:
        assert await c.gather(data) == [len(one.key) for one in data]
        s.validate_state()
        await b.heartbeat()
        assert b.status == Status.running, "a worker needs more than a span to tell of a task that ran"


@one
async def test_a_worker_is_heard_before_its_task_is_rescheduled(c, s, a):
    """So the recipe can be changed between the two."""
    heard = []

    class Hear(ds.SchedulerPlugin):
        def log_event(self, topic, msg):
            if topic == "hpc-test":
                heard.append(s.tasks["x"].state)

    s.add_plugin(Hear(), name="hear")

    def once(event):
        worker = get_worker()
        if not vars(worker).setdefault("been_here", False):
            worker.been_here = True
            worker.log_event("hpc-test", "again, please")
            raise Reschedule
        return 1

    assert await c.submit(once, 1, key="x") == 1
    assert heard == ["processing"], "a Reschedule overtakes an event"


@pytest.mark.queue
@gen_cluster(client=True, nthreads=[("", 4), ("", 1)])
async def test_a_worker_uses_fewer_threads_when_both_sides_change(c, s, a, b):
    worker = s.workers[a.address]
    assert s.workers[a.address].nthreads == 4, "WorkerState.nthreads is not a worker's threads"
    before = len(s.total_nthreads_history)
    compat.set_worker_threads(s, a.address, 2)
    assert worker.nthreads == 2 and worker in s.idle_task_count, "WorkerState.nthreads cannot be set"
    assert s.total_nthreads == 3, "Scheduler.total_nthreads is not the sum of threads"
    assert s.host_info[worker.host]["nthreads"] == 3, "Scheduler.host_info has no nthreads by host"
    assert len(s.total_nthreads_history) == before + 1, "Scheduler.total_nthreads_history is not a list"
    a.state.nthreads = 2
    futures = c.map(blocked, ["go"] * 20, range(20), pure=False)
    await async_poll_for(lambda: b.state.executing_count and len(worker.processing) >= 2, 10)
    assert s.queued and a.state.executing_count == 2, "WorkerState.nthreads of the worker bounds nothing"
    assert worker not in s.idle_task_count, "Scheduler.check_idle_saturated does not look at nthreads"
    a.state.nthreads = 4
    compat.set_worker_threads(s, a.address, 4)
    assert len(worker.processing) >= 4, "Scheduler.stimulus_queue_slots_maybe_opened sends nothing"
    await async_poll_for(lambda: a.state.executing_count == 4, 10)
    compat.set_worker_threads(s, a.address, 0)
    assert worker.nthreads == 1, "0 threads, and Dask divides by them"
    compat.set_worker_threads(s, a.address, 4)
    await Event("go").set()
    await c.gather(futures)
    s.validate_state()


@gen_cluster(client=True, nthreads=[("", 4)])
async def test_a_plugin_takes_threads_from_a_worker_and_gives_them_back(c, s, a):
    name = compat.ThreadsPlugin.name
    await compat.replace_worker_plugin(s, compat.ThreadsPlugin(0.25))
    assert a.state.nthreads == 1, "Worker.state.nthreads is gone"
    futures = c.map(blocked, ["go"] * 4, range(4), pure=False)
    await async_poll_for(lambda: a.state.executing_count == 1 and len(a.state.tasks) == 4, 10)
    await compat.replace_worker_plugin(s, compat.ThreadsPlugin(0.5))
    assert a.state.nthreads == 2, "Scheduler.register_worker_plugin does not replace a plugin of that name"
    await async_poll_for(lambda: a.state.executing_count == 2, 10)
    assert a.state.running is True, "Worker.state.running is gone"
    await compat.remove_worker_plugin(s, name)
    await async_poll_for(lambda: a.state.executing_count == 4, 10)  # UnpauseEvent starts what is ready
    await Event("go").set()
    await c.gather(futures)


@one
async def test_a_worker_says_what_it_has_and_how_long_it_will_take(c, s, a):
    assert compat.backlog(s, a.address) == (0.0, 0) == compat.backlog(s, "tcp://nobody:1")
    await c.submit(slowinc, 1, delay=0.3)
    future = c.submit(blocked, "go", 1, pure=False, key="slowinc-2")
    await async_poll_for(lambda: a.state.executing_count, 10)
    seconds, tasks = compat.backlog(s, a.address)
    assert tasks == 1 and 0 < seconds < 60, "WorkerState.processing or TaskPrefix.duration_average changed"
    await a.heartbeat()
    worker = s.workers[a.address]
    await async_poll_for(lambda: worker.executing, 10)
    worker.executing[s.tasks[future.key]] = 60.0
    assert compat.backlog(s, a.address) == (0.0, 1), "WorkerState.executing is not seconds by task"
    await Event("go").set()
    await future


@two
async def test_a_waiting_task_fails(c, s, a, b):
    future = c.submit(inc, 1, resources={"never": 1})
    after = c.submit(inc, future)
    await async_poll_for(lambda: future.key in s.tasks and s.tasks[future.key].state == "no-worker", 10)
    compat.fail(s, {future.key: LookupError("not there")}, "test")
    for one in (future, after):
        with pytest.raises(LookupError, match="not there"):
            await one
    s.validate_state()


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


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_a_worker_forgets_what_a_task_needed_before(c, s, a):
    x = c.submit(inc, 1, key="x")
    y = c.submit(inc, x, key="y")
    z = c.submit(inc, y, key="z")
    await wait([x, y, z])
    x.release()
    y.release()
    await async_poll_for(lambda: "y" not in a.data and "x" not in a.data, 10)
    before = a.state.tasks["y"]
    assert {need.key for need in before.dependencies} == {"x"}, "worker's TaskState.dependencies"
    assert before.waiting_for_data == set(), "worker's TaskState.waiting_for_data"
    assert callable(a.state.task_counter.transitions), "WorkerState.task_counter"
    plain = a.stream_handlers["compute-task"]
    end = compat.forget_old_needs(a)
    task = s.tasks["y"]
    compat.load_instead(s, task, inc_of_key)
    again = c.submit(inc, y, key="again")
    assert await again == 4
    assert not a.state.tasks["y"].dependencies
    end()
    assert a.stream_handlers["compute-task"] is plain


def inc_of_key(key):
    return 3


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


@two
async def test_settled(c, s, a, b):
    x = c.submit(blocked, "go", workers=[a.address])
    assert not await compat.settled([x], 0.05)
    await c.submit(lambda: Event("go").set(), workers=[b.address], pure=False)
    assert await compat.settled([x], 10) and x.status == "finished"


@two
async def test_spare_copies(c, s, a, b):
    x, y = c.submit(inc, 1, key="x"), c.submit(inc, 2, key="y")
    await wait([x, y])
    end = compat.spare_copies(s, {"x"}.__contains__)
    for worker in (a, b):
        compat.copy_to(s, worker.address, ["x", "y"], "test")
    both = (s.tasks["x"], s.tasks["y"])
    await async_poll_for(lambda: all(len(task.who_has) == 2 for task in both), 5)
    s.extensions["amm"].run_once()
    await async_poll_for(lambda: len(s.tasks["y"].who_has) == 1, 5)
    assert len(s.tasks["x"].who_has) == 2
    end()
    s.extensions["amm"].run_once()
    await async_poll_for(lambda: len(s.tasks["x"].who_has) == 1, 5)


@two
async def test_results_of_others(c, s, a, b):
    assert c.id in s.client_comms, "Scheduler.client_comms has no ids of clients"
    x = await c.scatter(1)
    compat.pin(s, [x.key], "test")
    key = x.key
    x.release()
    await async_poll_for(lambda: not c.futures, 10)
    found = compat.futures_for(c, [key])
    assert await found[key] == 1, "a client does not hear of results that it begins to want"
    compat.unpin_all(s, "test")
    assert key in s.tasks, "client-desires-keys is no message of clients any more"
    assert "test" not in s.client_comms


# --- copies of results


@two
async def test_what_is_pinned_stays_and_goes_when_it_is_not(c, s, a, b):
    x, y = c.submit(inc, 1), c.submit(inc, 2)
    await wait([x, y])
    keys = [x.key, y.key]
    compat.pin(s, keys, "us")
    assert {task.key for task in s.clients["us"].wants_what} == {*keys}, "ClientState.wants_what changed"
    del x, y
    await async_poll_for(lambda: c.refcount == {}, 10)
    await c.submit(inc, 3)  # the client has said by now that it needs them no more
    assert all(s.tasks[key].state == "memory" for key in keys), "Scheduler.client_desires_keys keeps nothing"
    compat.unpin(s, keys[:1], "us")
    assert keys[0] not in s.tasks and keys[1] in s.tasks, "Scheduler.client_releases_keys releases nothing"
    compat.unpin_all_of(s, "u")
    assert keys[1] not in s.tasks and "us" not in s.clients and c.id in s.clients
    compat.unpin(s, keys, "us")
    compat.unpin_all(s, "us")


@two
async def test_what_workers_say_of_themselves_is_heard(c, s, a, b):
    a.metrics["ours"] = lambda worker: {"x": 1}
    await a.heartbeat()
    assert compat.metrics(s, "ours") == [(a.address, {"x": 1})], "WorkerState.metrics has no metrics of ours"
    assert compat.metrics(s, "others") == []


# --- many small results at once


@two
async def test_copies_are_asked_for_in_dasks_own_words(c, s, a, b):
    futures = await c.scatter({"x": 1, ("y", 0): 2}, workers=[a.address])
    await wait(list(futures.values()))
    sent, stream = [], s.stream_comms[b.address]
    plain, stream.send = stream.send, sent.append
    s.request_acquire_replicas(b.address, ["x", ("y", 0)], stimulus_id="test")
    compat.copy_to(s, b.address, ["x", ("y", 0)], "test")
    stream.send = plain
    theirs, ours = sent
    ours["who_has"] = {key: list(found) for key, found in ours["who_has"].items()}
    assert ours == theirs, "Scheduler.request_acquire_replicas sends something else"


@two
async def test_copies_are_forgotten_and_the_worker_hears_of_it_later(c, s, a, b):
    kept = await c.scatter({"z": 1}, workers=[a.address])
    futures = await c.scatter({"x": 1, "y": 2}, workers=[b.address])
    assert [compat.key_of(task) for task in compat.tasks_on(s, "nobody")] == []
    assert {compat.key_of(task) for task in compat.tasks_on(s, b.address)} == {"x", "y"}
    there = compat.tasks_on(s, b.address)
    seen = [compat.key_of(next(there))]
    more = await c.scatter({"more": 3}, workers=[b.address])
    assert {*seen, *(compat.key_of(task) for task in there)} == {"x", "y", "more"}, "has_what is no dict"
    del more
    compat.copy_to(s, a.address, ["x", "y"], "test")
    await async_poll_for(lambda: len(s.workers[a.address].has_what) == 3 and len(b.data) == 2, 5)
    compat.forget_copies(s, a.address, ["x", "y"])
    s.validate_state()
    assert compat.keys_on(s, a.address) == ["z"], "Scheduler.remove_replica changed"
    assert await c.submit(inc, 1, workers=[a.address]) == 2 and "x" in a.data
    compat.remind_of_drops(s, a.address, ["x", "y", "z"])
    await async_poll_for(lambda: set(a.data) == {"z"}, 5)
    assert set(b.data) == {"x", "y"} and len(futures) == 2 and len(kept) == 1


@two
async def test_results_of_another_worker_are_entered_and_told_at_once(c, s, a, b):
    assert "acquire-replicas" in b.stream_handlers, "Worker.stream_handlers has no acquire-replicas"
    futures = c.map(inc, range(10), workers=[a.address])
    await wait(futures)
    keys, heard, plain = [f.key for f in futures], [], s.stream_handlers["add-keys"]

    def hear(**message):
        heard.append(message["keys"])
        return plain(**message)

    s.stream_handlers["add-keys"] = hear
    packed = compat.pack_results(a, [*keys, "nobody's"])
    assert not any(compat.is_known_here(b, key) for key in keys) and compat.is_known_here(a, keys[0])
    spared = keys[3]
    b.state._ensure_task_exists(spared, priority=(0,), stimulus_id="test")  # as a task that needs it does
    assert set(compat.enter_results(b, packed, "test")) == {*keys} - {spared}
    await async_poll_for(lambda: len(s.workers[b.address].has_what) == 9, 5)
    assert [set(found) for found in heard] == [{*keys} - {spared}], "Worker.batched_send, add-keys changed"
    assert {b.state.tasks[key].state for key in keys} == {"memory", "released"}, "UpdateDataEvent changed"
    assert await c.submit(sum, futures, workers=[b.address]) == sum(range(11))
    b.state.validate_state()


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": "10 MB"},
    config={"distributed.worker.memory.target": 0.001, "distributed.worker.memory.pause": False},
)
async def test_too_much_that_comes_together_is_spilled(c, s, a, b):
    futures = c.map(bytes, range(1000, 1100), workers=[a.address])
    await wait(futures)
    keys, there = [future.key for future in futures], b.data
    assert set(compat.enter_results(b, compat.pack_results(a, keys), "test")) == set(keys)
    assert b.data is there is b.state.data, "WorkerState.data changed"
    spilled = len(there.slow)
    assert there.fast.total_weight <= there.n == 10_000, "SpillBuffer.set_noevict, evict changed"
    assert 80 < spilled < 100 == len(there)
    assert list(map(len, [there[key] for key in keys])) == [*range(1000, 1100)]


@gen_cluster(
    client=True,
    nthreads=[("", 1)],
    worker_kwargs={"memory_limit": "10 MB"},
    config={"distributed.worker.memory.target": 1e-9, "distributed.worker.memory.pause": False},
)
async def test_who_has_spilled_says_so(c, s, a):
    await a.heartbeat()
    assert not compat.has_spilled(s, a.address) and not compat.has_spilled(s, "nobody")
    x = c.submit(bytes, 1000)
    await x
    await a.heartbeat()
    assert compat.has_spilled(s, a.address), "WorkerState.metrics says nothing of spilled_bytes"


@gen_test()
async def test_signals_that_announce_an_end_are_heeded_in_a_process_of_dask():
    from distributed._signals import wait_for_signals  # what ``dask worker`` and its nanny wait for

    heard = []

    def heed(signum, frame):
        heard.append(signum)

    before = signal.getsignal(signal.SIGTERM)
    assert not compat.is_worker_command(before) and not compat.is_worker_command(signal.SIG_DFL)
    waiting = asyncio.ensure_future(wait_for_signals())
    await asyncio.sleep(0)
    assert compat.is_worker_command(signal.getsignal(signal.SIGTERM)), "distributed._signals is elsewhere"
    taken, *free = compat.NOTICES
    assert all(signal.getsignal(one) is signal.SIG_DFL for one in compat.NOTICES), "Dask has handlers itself"
    signal.signal(taken, signal.SIG_IGN)
    try:
        undo = compat.heed_notices(heed)
        assert signal.getsignal(taken) is signal.SIG_IGN, "somebody else's"
        for one in free:
            signal.raise_signal(one)
        assert heard == free
        signal.signal(free[0], signal.SIG_IGN)
        undo()
        assert [signal.getsignal(one) for one in free] == [signal.SIG_IGN, signal.SIG_DFL]
    finally:
        for one in compat.NOTICES:
            signal.signal(one, signal.SIG_DFL)
    # and its handler ends the process as SIGTERM does, also when it is called by ours
    signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)
    assert await waiting == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


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


def refuses(text):
    raise ValueError(text)


@one
async def test_the_first_line_of_what_a_task_raised(c, s, a):
    first = c.submit(refuses, "no\nway", key="first")
    await wait([first, c.submit(inc, first, key="second")])
    for key in ("first", "second"):
        task = compat.find_task(s, key)
        assert task.exception_blame is s.tasks["first"], "TaskState.exception_blame changed"
        assert compat.error_of(task) == "ValueError: no", "TaskState.exception_text is no repr"
    assert compat.error_of(None) == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("KeyError('x')", "KeyError: x"), ("ValueError()", "ValueError"), ("", ""), ("a\nb", "a"),
        ("OSError(2, 'No such file')", "OSError: 2, No such file"), ("Odd(<x at 0x1>)", "Odd: <x at 0x1>"),
        ("KilledWorker('a', <W>)", "KilledWorker: 'a', <W>"), ("my.Error('''two\nlines''')", "my.Error: two"),
        ("E('" + "x" * 300 + "')", "E: " + "x" * 196 + "…"), ("E('" + "x" * 20_000, "E('" + "x" * 196 + "…"),
    ],
)  # fmt: skip
def test_errors_in_one_line(text, line):
    assert compat.error_line(text) == line


@one
async def test_what_is_heard_of_a_worker(c, s, a):
    await a.heartbeat()
    found = compat.health_of(s, a.address)
    assert found.status == "running" and found.threads == 1 and found.limit == a.memory_manager.memory_limit
    assert 0 <= found.silent < 5 and found.memory > 0 and found.spilled == 0


@one
async def test_a_client_that_closes_says_so_first(c, s, a):
    states = []
    async with Client(s.address, asynchronous=True) as other:
        compat.at_close(other, lambda: states.append((other.status, other.scheduler is not None)))
        assert len(list(other.preloads)) == len(other.preloads._preloads), "Client.preloads changed"
    assert states == [("closing", True)]


@two
async def test_a_task_runs_twice(c, s, a, b):
    """``Scheduler._task_to_msg``, run ids, and what workers say of runs that Dask does not know of."""
    events = []
    runs = compat.ExtraRuns(s, lambda *who: events.append(who), events.append)
    plain = dict(s.stream_handlers)
    future = c.submit(blocked, "go", key="x", workers=[a.address], allow_other_workers=True)
    await async_poll_for(lambda: "x" in a.state.tasks and a.state.tasks["x"].state == "executing", 10)
    assert not runs.begin("x", a.address), "it is there already"
    assert not runs.begin("y", b.address) and not runs.begin("x", "tcp://nobody")
    run_id = s.tasks["x"].run_id
    assert runs.begin("x", b.address) and not runs.begin("x", b.address)
    assert s.tasks["x"].run_id == run_id, "Scheduler._task_to_msg does not give a run id to put back"
    assert s.stream_handlers != plain
    assert len(s.workers[b.address].processing) == 1 and compat.processing(s, b.address) == []
    assert [key for key, _ in compat.in_flight(s)] == ["x"] == [one.key for one in compat.sent_tasks(s)]
    assert compat.spare_threads(s) == {}
    s.validate_state()
    await async_poll_for(lambda: "x" in b.state.tasks and b.state.tasks["x"].state == "executing", 10)
    await Event("go").set()
    await future
    await async_poll_for(lambda: not runs.by_key, 10)
    s.validate_state()
    assert s.stream_handlers == plain, "Server.stream_handlers is not asked for each message"
    assert s.task_prefixes["x"].state_counts["memory"] == 1 and len(s.tasks["x"].who_has) == 1
    assert compat.usual_seconds(s, "x")[0] == 1 and compat.usual_seconds(s, "y") == (0, 0.0)
    assert compat.spare_threads(s) == {a.address: 1, b.address: 1}
    assert not [one for one in events if isinstance(one, Exception)]


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


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_what_was_sent_may_wait_behind_others_until_its_worker_says_that_it_runs(c, s, a):
    first = c.submit(blocked, "go", key="first")
    await async_poll_for(lambda: "first" in a.state.tasks, 10)
    assert [one.may_wait for one in compat.sent_tasks(s)] == [False]
    second = c.submit(blocked, "go", 1, key="second")
    await async_poll_for(lambda: "second" in a.state.tasks, 10)
    await async_poll_for(lambda: s.workers[a.address].executing, 10)
    assert {one.key: one.may_wait for one in compat.sent_tasks(s)} == {"first": False, "second": True}
    await Event("go").set()
    await c.gather([first, second])


@two
async def test_a_run_that_has_not_begun_is_given_back(c, s, a, b):
    runs = compat.ExtraRuns(s, lambda *who: None, lambda error: None)
    there = c.submit(blocked, "go-b", key="y", workers=[b.address])
    future = c.submit(blocked, "go", key="x", workers=[a.address])
    await async_poll_for(lambda: "y" in b.state.tasks and b.state.tasks["y"].state == "executing", 10)
    assert runs.begin("x", b.address)
    await async_poll_for(lambda: "x" in b.state.tasks, 10)
    await Event("go").set()
    await future
    runs.withdraw("x")
    await async_poll_for(lambda: not runs.by_key, 10)
    assert "x" not in b.state.tasks, "a worker does not give back what it has not begun"
    await Event("go-b").set()
    await there


@two
async def test_a_first_run_that_has_not_begun_is_given_back(c, s, a, b):
    runs = compat.ExtraRuns(s, lambda *who: None, lambda error: None)
    there = c.submit(blocked, "go-a", key="y", workers=[a.address])
    future = c.submit(inc, 1, key="x", workers=[a.address])
    await async_poll_for(lambda: "x" in a.state.tasks and a.state.tasks["y"].state == "executing", 10)
    assert runs.begin("x", b.address)
    assert await future == 2 and s.tasks["x"].who_has == {s.workers[b.address]}
    await async_poll_for(lambda: not runs.by_key, 10)
    assert "x" not in a.state.tasks, "it would run in vain"
    await Event("go-a").set()
    await there


@two
async def test_an_error_of_another_run_is_not_the_tasks(c, s, a, b):
    runs = compat.ExtraRuns(s, lambda *who: None, lambda error: None)
    future = c.submit(fails_on, b.address, key="x", workers=[a.address])
    await async_poll_for(lambda: "x" in a.state.tasks, 10)
    assert runs.begin("x", b.address)
    await async_poll_for(lambda: not runs.by_key, 10)
    assert s.tasks["x"].state == "processing"
    await async_poll_for(lambda: "x" not in b.state.tasks, 10)  # Dask would not tell it to forget that
    await Event("go").set()
    assert await future == a.address


@two
async def test_dask_sends_a_task_to_where_it_runs_already(c, s, a, b):
    """Then that is no extra run any more, and its error is the task's."""
    runs = compat.ExtraRuns(s, lambda *who: None, lambda error: None)
    future = c.submit(fails_on, b.address, "go", key="x", workers=[a.address], allow_other_workers=True)
    await async_poll_for(lambda: "x" in a.state.tasks, 10)
    assert runs.begin("x", b.address)
    await async_poll_for(lambda: "x" in b.state.tasks and b.state.tasks["x"].state == "executing", 10)
    await lose(a)
    runs.worker_leaves(a.address)
    await async_poll_for(lambda: s.tasks["x"].processing_on is s.workers[b.address], 10)
    await Event("go").set()
    with pytest.raises(ValueError, match="only here"):
        await future
    assert runs.by_key == {}


def fails_on(address, event=None):
    if get_worker().address == address:
        if event:
            blocked(event)
        raise ValueError("only here")
    return blocked("go")


@two
async def test_an_error_of_ours_loses_no_message(c, s, a, b):
    errors = []
    runs = compat.ExtraRuns(s, lambda *who: None, errors.append)
    future = c.submit(blocked, "go", key="x", workers=[a.address])
    await async_poll_for(lambda: "x" in a.state.tasks, 10)
    assert runs.begin("x", b.address)
    runs._end = None  # not to be called
    await Event("go").set()
    await future
    await async_poll_for(lambda: errors, 10)  # the other one may be the later


@one
async def test_a_worker_has_written_down_how_long_tasks_took(c, s, a):
    log = compat.DurationLog(a)
    await c.submit(slowinc, 1, delay=0.02, key="x")
    ((key, seconds),) = log.read(10)
    assert key == "x" and seconds >= 0.02, "WorkerState.stimulus_log changed"
    assert a.state.stimulus_log[-1].handled is not None, "StateMachineEvent.handled is gone"
    assert log.read(10) == []
    await c.gather(c.map(inc, range(5)))
    assert len(log.read(3)) == 3 and log.read(3) == []


@two
async def test_a_worker_writes_down_what_it_fetched(c, s, a, b):
    log = compat.ReceivedLog(b)
    one = c.submit(bytes, 10_000, key="one", workers=[a.address])
    two = c.submit(len, one, key="two", workers=[b.address])
    assert await two == 10_000
    assert log.read() == {a.address: s.tasks["one"].nbytes}, "Worker.transfer_incoming_log changed"
    assert log.read() == {} and compat.ReceivedLog(a).read() == {}
    more = [c.submit(bytes, 100 + i, key=f"more-{i}", workers=[a.address]) for i in range(3)]
    await c.gather([c.submit(len, one, key=f"of-{i}", workers=[b.address]) for i, one in enumerate(more)])
    assert log.read() == {a.address: sum(s.tasks[f"more-{i}"].nbytes for i in range(3))}
    b.transfer_incoming_log.clear()
    assert log.read() == {} and log.read() == {}


@two
async def test_what_is_of_a_shuffle_does_not_run_twice(c, s, a, b):
    with dask.annotate(impure=True):
        marked = c.submit(blocked, "go", key="m")
    barrier = c.submit(blocked, "go", key="shuffle-barrier-1")
    after = c.submit(inc, barrier, key="z")
    await async_poll_for(lambda: len([ts for ws in s.workers.values() for ts in ws.processing]) == 2, 10)
    await async_poll_for(lambda: "z" in s.tasks, 10)
    assert [one.key for one in compat.sent_tasks(s)] == ["m"]
    assert compat.annotation(s.tasks["m"], "impure") is True
    assert compat.annotation(s.tasks["z"], "impure") is None
    assert compat.allowed(s, "m", [a.address]) is None
    compat.restrict(s.tasks["m"], {b.address})
    assert compat.allowed(s, "m", [a.address, b.address]) == {b.address}
    await Event("go").set()
    await c.gather([marked, barrier])
    del after


@one
async def test_by_what_this_process_is_part_of_dask(c, s, a):
    assert a in Worker._instances, "Worker._instances is gone"
    assert compat.server_here() is c, "default_client is another"
    assert await c.submit(lambda: compat.server_here().address) == a.address


@two
async def test_what_a_worker_notes_of_its_tasks(c, s, a, b):
    log = compat.TaskLog(a)
    x = c.submit(inc, 1, key="x", workers=[a.address])
    y = c.submit(inc, 1, key="y", workers=[b.address])
    await c.submit(sum, [x, y], key="z", workers=[a.address])
    ended = {task.key: task for task in log.read()}
    assert set(ended) == {"x", "z"}, "ExecuteSuccessEvent changed"
    assert (ended["x"].inputs, ended["x"].moved, ended["x"].output) == (0, 0, 28)
    assert (ended["z"].inputs, ended["z"].moved) == (56, 28), "ComputeTaskEvent.nbytes or .who_has changed"
    assert log.complete_since <= ended["x"].start < ended["x"].stop <= ended["z"].start <= log.now()
    assert log.read() == [] and not log._needs
    future = c.submit(blocked, "go", key="on", workers=[a.address])
    await async_poll_for(lambda: compat.running_tasks(a), 10)
    ((key, since),) = compat.running_tasks(a)
    assert key == "on" and ended["z"].stop <= since <= compat.now_there(a), "TaskState.start_time changed"
    await Event("go").set()
    await future


@one
async def test_a_worker_notes_what_its_threads_run(c, s, a):
    begun, ended = [], []
    end = compat.watch_threads(a, begun.append, lambda key: ended.append((key, dict(a.active_threads))))
    assert await c.submit(inc, 1, key="x") == 2
    assert begun == ["x"], "Worker.active_threads is not written to any more"
    ((key, then),) = ended
    assert key == "x" and list(then.values()) == ["x"], "it was there until the end"
    assert not a.active_threads
    future = c.submit(blocked, "go", key="y")
    await async_poll_for(lambda: "y" in begun, 10)
    end()
    await Event("go").set()
    await future
    assert len(ended) == 1
    end()
    others = []
    again = compat.watch_threads(a, others.append, others.append)
    end()  # it is somebody else's now
    await c.submit(inc, 1, key="z")
    assert others == ["z", "z"] and begun == ["x", "y"]
    again()
    assert type(a.active_threads) is dict


@one
async def test_what_runs_already_is_found_in_the_threads(c, s, a):
    """A task that asks for itself."""
    future = c.submit(asks_for_itself, key="me")
    await async_poll_for(lambda: a.active_threads, 10)
    end = compat.watch_threads(a, print, print)
    await Event("go").set()
    assert await future == "me"
    end()
    assert type(a.active_threads) is dict


def asks_for_itself():
    Event("go").wait(10)
    return get_worker().get_current_task()


@two
async def test_bytes_of_results_that_a_worker_has(c, s, a, b):
    assert compat.managed_bytes(a) == 0 and compat.arriving_bytes(a) == 0
    x = c.submit(bytes, 10_000, key="x", workers=[a.address])
    y = c.submit(len, x, key="y", workers=[b.address])
    await y
    size = a.state.tasks["x"].nbytes
    assert compat.managed_bytes(a) == size and compat.managed_bytes(b) == size + 28
    assert compat.sizes_of(a, "x") == (size, 0) and compat.sizes_of(b, "y") == (28, size)
    assert compat.sizes_of(a, "nothing") == (0, 0)
    a.data.evict()
    assert compat.managed_bytes(a) == 0, "SpillBuffer.spilled_total changed"


@two
async def test_who_else_lives_in_a_process(c, s, a, b):
    assert compat.process_mates(a) == "several workers share a process"
    await b.close()
    assert compat.process_mates(a) == "the scheduler runs in the worker's process"


def test_what_threads_of_a_worker_run_is_guarded_by_a_lock():
    source = inspect.getsource(Worker)
    assert "active_threads_lock" in source and "active_keys" in source, (
        "Worker.active_threads is kept otherwise"
    )
    assert "scheduler_delay" in source, "a worker does not know the scheduler's clock any more"
    assert Status.init and Status.closing_gracefully
    assert isinstance(WorkerState(nthreads=1).transfer_incoming_bytes, int), "it is counted otherwise"


@gen_cluster(client=True, nthreads=[("", 2)] * 2, config={"distributed.worker.memory.pause": False})
async def test_room_on_workers(c, s, a, b):
    futures = [c.submit(blocked, "go", i, key=f"x-{i}", workers=[a.address]) for i in range(3)]
    await async_poll_for(lambda: len(s.workers[a.address].processing) == 3, 10)
    ws = s.workers[a.address]
    there, other = compat.worker_rooms(s, [a.address, b.address, "tcp://nobody:1"])
    assert there[:3] == (a.address, 2, 3) and other[:3] == (b.address, 2, 0)
    is_endless = isinf(s.WORKER_SATURATION)
    most = 2 if is_endless else 3
    assert (there.free, other.free) == (max(0, most - 3), most)
    assert there.limit == ws.memory_limit and there.process == ws.memory.process > 0
    assert there.results == ws.memory.managed == 0, "MemoryState.managed changed"
    assert compat.kinds_on(s, a.address) == {"x": 3} and compat.kinds_on(s, b.address) == {}
    assert set(compat.running_workers(s)) == {a.address, b.address}
    open_ = {a.address, b.address} if is_endless else {b.address}
    assert compat.open_workers(s) == open_, "SchedulerState.idle_task_count changed"
    assert sorted(key for key, _ in compat.in_flight_of(s, "x")) == ["x-0", "x-1", "x-2"]
    assert not list(compat.in_flight_of(s, "y")) and compat.kinds_left(s) == {"x": (3, 0)}
    assert {compat.address_of(task) for _, task in compat.in_flight(s)} == {a.address}
    b.status = Status.paused
    await async_poll_for(lambda: s.workers[b.address].status == Status.paused, 10)
    assert [room.address for room in compat.worker_rooms(s, None)] == [a.address]
    assert compat.running_workers(s) == {a.address}
    assert {room.address for room in compat.all_worker_rooms(s)} == {a.address, b.address}
    assert b.address not in compat.open_workers(s)
    await Event("go").set()
    await c.gather(futures)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_tasks_of_a_kind_that_were_not_sent(c, s, a, b):
    x = c.submit(bytes, 1000, key="data-0", workers=[a.address])
    await x
    first = [c.submit(blocked, "go", i, key=f"x-{i}") for i in range(8)]
    stuck = c.submit(blocked, "go", key="x-99", workers=["tcp://10.0.0.1:1"])
    late = c.submit(
        lambda *some: len(some), x, first[0], key="y-0", workers=[b.address], allow_other_workers=True
    )
    await async_poll_for(lambda: "y-0" in s.tasks and s.tasks["x-99"].state == "no-worker", 10)
    there = [key for key, task in s.tasks.items() if task.prefix.name == "x" and task.state != "processing"]
    assert sorted(compat.not_sent(s, "x")) == sorted(there) and "x-99" in there
    assert compat.not_sent(s, "y") == ["y-0"] and compat.not_sent(s, "z") == compat.not_sent(s, "data") == []
    tasks = s.tasks
    assert compat.is_held(tasks["x-99"]) and not compat.is_held(tasks["x-0"])
    assert [compat.is_queued(tasks[key]) for key in there] == [tasks[key].state == "queued" for key in there]
    assert compat.is_loose(tasks["y-0"]) and not compat.is_loose(tasks["x-99"])
    size = tasks["data-0"].get_nbytes()
    assert compat.bytes_there(tasks["y-0"]) == {a.address: size}
    left, waiting = compat.kinds_left(s)["x"]
    assert (left, waiting) == (9, len(there)), "TaskPrefix.states changed"
    await Event("go").set()
    await c.gather([*first, late])
    del stuck


@two
async def test_what_is_of_a_shuffle_is_known(c, s, a, b):
    y = await half_shuffled(c, s)
    tasks = s.tasks.values()
    barriers = [task for task in tasks if task.prefix.name == compat.BARRIER]
    assert barriers and all(map(compat.is_of_shuffle, barriers))
    assert all(compat.is_of_shuffle(task) for barrier in barriers for task in barrier.dependencies)
    assert all(compat.is_of_shuffle(task) for barrier in barriers for task in barrier.dependents)
    assert not all(map(compat.is_of_shuffle, tasks))
    await Event("go").set()
    await y
