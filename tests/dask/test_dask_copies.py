"""Tasks that run twice."""

import dask
import pytest
from distributed import (
    Event,
    get_worker,
)
from distributed.utils_test import async_poll_for, gen_cluster, inc, slowinc
from small_cluster import blocked, half_shuffled, lose

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


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
