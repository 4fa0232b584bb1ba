"""Slots of workers, root tasks, and Dask's own queue."""

from math import isinf

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import (
    Event,
    Reschedule,
    Status,
    Worker,
    secede,
)
from distributed import scheduler as ds
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


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
