"""A contract test for every private name of Dask that ``live/compat.py`` touches."""

import inspect
from time import monotonic

import dask
import pytest
from distributed import Event
from distributed import scheduler as ds
from distributed.core import Status
from distributed.utils_test import async_poll_for, gen_cluster, inc

from dask_hpc.live import compat

one = gen_cluster(client=True, nthreads=[("", 1)])


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
        (ds.WorkerState, "name"),
        (ds.WorkerState, "host"),
        (ds.Computation, "annotations"),
        (ds.Scheduler, "transitions"),
        (ds.Scheduler, "coerce_hostname"),
        (ds.Scheduler, "remove_plugin"),
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
    ],
)
def test_name_exists(owner, name):
    assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"


@one
async def test_scheduler_attributes_exist(c, s, a):
    for name, kind in [
        ("tasks", dict), ("unrunnable", dict), ("handlers", dict), ("host_info", dict), ("plugins", dict),
    ]:  # fmt: skip
        assert isinstance(getattr(s, name, None), kind), f"Scheduler.{name} is not a {kind.__name__}"
    assert hasattr(s, "computations"), "Scheduler.computations is gone"
    assert "no_workers_timeout" in vars(s), "Scheduler.no_workers_timeout is gone"
    assert compat.no_workers_timeout(s) is None
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

    compat.add_handlers(s, {"hpc_test": answer})
    assert await c.scheduler.hpc_test(value=3) == {"value": 3}, "Scheduler.handlers changed"
    compat.remove_handlers(s, ["hpc_test"])
    assert await c.scheduler.hpc_test(value=3) is None, "an unknown remote call is not answered by None"


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
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


def test_only_compat_touches_private_names():
    """The names above appear in no other file of the live body."""
    from pathlib import Path

    import dask_hpc.live

    private = (
        "worker_restrictions", "host_restrictions", "loose_restrictions", "unrunnable", ".transitions(",
        ".computations", ".handlers", ".tasks[", ".tasks.get", "host_info", ".stream_comms", ".who_has",
        ".has_what", ".who_wants", ".waiters", ".processing_on", ".request_acquire", ".request_remove",
    )  # fmt: skip
    for file in Path(dask_hpc.live.__file__).parent.glob("*.py"):
        if file.name != "compat.py":
            found = [name for name in private if name in file.read_text()]
            assert not found, f"{file.name} touches {found}"
