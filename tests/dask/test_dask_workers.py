"""Workers that come, go, pause, are told things and say things."""

import asyncio
import signal
from contextlib import suppress

import dask
import dask.array as da
import pytest
from distributed import (
    Event,
    Nanny,
    Reschedule,
    Status,
    Worker,
    _signals,
    get_worker,
    wait,
)
from distributed import scheduler as ds
from distributed.utils_test import async_poll_for, gen_cluster, gen_test, inc, slowinc
from small_cluster import blocked

from dask_hpc import dask as compat
from dask_hpc.cluster.worker.farewell import FarewellPlugin

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


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
async def test_what_workers_say_of_themselves_is_heard(c, s, a, b):
    a.metrics["ours"] = lambda worker: {"x": 1}
    await a.heartbeat()
    assert compat.metrics(s, "ours") == [(a.address, {"x": 1})], "WorkerState.metrics has no metrics of ours"
    assert compat.metrics(s, "others") == []


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


@one
async def test_what_is_heard_of_a_worker(c, s, a):
    await a.heartbeat()
    found = compat.health_of(s, a.address)
    assert found.status == "running" and found.threads == 1 and found.limit == a.memory_manager.memory_limit
    assert 0 <= found.silent < 5 and found.memory > 0 and found.spilled == 0


@one
async def test_by_what_this_process_is_part_of_dask(c, s, a):
    assert a in Worker._instances, "Worker._instances is gone"
    assert compat.server_here() is c, "default_client is another"
    assert await c.submit(lambda: compat.server_here().address) == a.address
