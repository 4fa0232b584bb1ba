"""What a worker knows of the tasks that its threads run."""

import inspect

from distributed import (
    Event,
    Status,
    Worker,
    get_worker,
)
from distributed.utils_test import async_poll_for, gen_cluster, inc
from distributed.worker_state_machine import WorkerState
from small_cluster import blocked

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])
two = gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})


@two
async def test_what_a_worker_notes_of_its_tasks(c, s, a, b):
    log = compat.TaskLog(a)
    x = c.submit(inc, 1, key="x", workers=[a.address])
    y = c.submit(inc, 1, key="y", workers=[b.address])
    await c.submit(sum, [x, y], key="z", workers=[a.address])
    ended = {task.key: task for task in log.read()}
    assert set(ended) == {"x", "z"}, "ExecuteSuccessEvent changed"
    assert (ended["x"].inputs, ended["x"].output) == (0, 28)
    assert ended["z"].inputs == 56, "ComputeTaskEvent.nbytes changed"
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
