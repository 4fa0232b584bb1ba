"""What we know of Dask's tasks, their wishes, states and recipes."""

from time import monotonic

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import (
    Client,
    Event,
    Status,
    Worker,
    wait,
)
from distributed import scheduler as ds
from distributed.utils_test import async_poll_for, gen_cluster, inc, slowinc
from small_cluster import blocked

from dask_hpc import dask as compat
from dask_hpc.cluster.worker.farewell import FarewellPlugin

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


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


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_tasks_of_a_kind(c, s, a, b):
    x = c.submit(bytes, 1000, key="data-0", workers=[a.address])
    await x
    first = [c.submit(blocked, "go", i, key=f"x-{i}") for i in range(8)]
    stuck = c.submit(blocked, "go", key="x-99", workers=["tcp://10.0.0.1:1"])
    late = c.submit(
        lambda *some: len(some), x, first[0], key="y-0", workers=[b.address], allow_other_workers=True
    )
    await async_poll_for(lambda: "y-0" in s.tasks and s.tasks["x-99"].state == "no-worker", 10)
    there = [key for key, task in s.tasks.items() if task.prefix.name == "x" and task.state != "processing"]
    assert sorted(compat.of_kind(s, "x")) == sorted([*(future.key for future in first), "x-99"])
    assert compat.of_kind(s, "x", even_ended=True) == compat.of_kind(s, "x") and "x-99" in there
    assert compat.of_kind(s, "y") == ["y-0"] and compat.of_kind(s, "z") == compat.of_kind(s, "data") == []
    assert compat.of_kind(s, "data", even_ended=True) == ["data-0"]
    assert compat.of_kind(s, "z", even_ended=True) == []
    assert [compat.count_of_kind(s, name) for name in ("x", "y", "data", "z")] == [9, 1, 1, 0]
    assert not compat.count_new(s, s.tasks)
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
