"""A contract test for every private name of Dask that ``live/compat.py`` touches."""

import inspect
from time import monotonic

import dask
import pytest
from distributed import scheduler as ds
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


def test_only_compat_touches_private_names():
    """The names above appear in no other file of the live body."""
    from pathlib import Path

    import dask_hpc.live

    private = (
        "worker_restrictions", "host_restrictions", "loose_restrictions", "unrunnable", ".transitions(",
        ".computations", ".handlers", ".tasks[", ".tasks.get", "host_info", ".stream_comms", ".who_has",
    )  # fmt: skip
    for file in Path(dask_hpc.live.__file__).parent.glob("*.py"):
        if file.name != "compat.py":
            found = [name for name in private if name in file.read_text()]
            assert not found, f"{file.name} touches {found}"
