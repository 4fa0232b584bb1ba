"""S12: a worker is held in the middle of a computation; nothing is stranded, everything runs once."""

from time import monotonic, sleep

import pytest
from distributed import Event, Queue, Status
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc

TASKS = 30
slow_monitor = {"distributed.worker.memory.monitor-interval": "100ms"}
cluster = gen_cluster(client=True, nthreads=[("", 1)] * 2, config=slow_monitor, timeout=60)


def counted(x):
    Queue("executions").put(x)
    sleep(0.2)
    return x


async def executions(c):
    return len(await Queue("executions", client=c).get(batch=True))


async def half_way(c, s, a):
    """All tasks submitted, and some done: about 0.4 s have passed."""
    futures = c.map(counted, range(TASKS), pure=False)
    await async_poll_for(lambda: sum(ts.state == "memory" for ts in s.tasks.values()) >= 4, 10)
    await async_poll_for(lambda: len(s.workers[a.address].processing) >= 2, 10)
    return futures


def plain_run():
    """Plain Dask has no hold, so the only way is to pause the worker itself. What its memory monitor does
    about that, and what is left on it when the monitor cannot."""
    found = {}

    @gen_cluster(client=True, nthreads=[("", 1)] * 2, config=slow_monitor)
    async def undone(c, s, a, b):
        a.status = Status.paused
        since = monotonic()
        await async_poll_for(lambda: a.status == Status.running, 10)
        found["undone after"] = monotonic() - since

    @gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})
    async def stranded(c, s, a, b):
        futures = await half_way(c, s, a)
        a.status = Status.paused
        await async_poll_for(lambda: not s.queued and not s.workers[b.address].processing, 30)
        await async_poll_for(lambda: not a.state.executing_count, 10)
        found["stranded"] = sum(not f.done() for f in futures)
        a.status = Status.running
        await c.gather(futures)

    undone()
    stranded()
    return found


@pytest.mark.slow
@pytest.mark.timed
def test_hold(report):
    plain = plain_run()
    assert plain["stranded"] >= 1
    ours = {}

    @cluster
    async def managed(c, s, a, b):
        async with await dask_hpc.manage(c) as manager:
            futures = await half_way(c, s, a)
            since = monotonic()
            await manager.hold(a.address, why="power")
            await c.gather(futures)
            ours["seconds"] = monotonic() - since
            ours["executions"] = await executions(c)
            # The monitor looks every 0.1 s and finds a worker that is not paused: nothing to undo
            await Event("never").wait(timeout=0.5)
            assert s.workers[a.address].status == Status.paused and a.status == Status.running
            held = [row["reason"] for row in await manager.story() if row["decision"] == "hold"]
            assert held == [f"worker {a.address}: power"]
            late = c.submit(counted, -1, workers=[a.address], pure=False)
            await async_poll_for(lambda: late.key in s.plugins["dask-hpc"].control.holds.stuck, 10)
            assert (await manager.status())["waiting_for_held_workers"] == [late.key]
            assert any(row["decision"] == "task-waits" for row in await manager.story())
            await manager.release(a.address, why="power")
            assert await late == -1

    managed()
    report.add("S12", "tasks stranded by a hold", plain=plain["stranded"], ours=0, bound="0")
    report.add("S12", f"executions of {TASKS} tasks", plain="hangs", ours=ours["executions"], bound=TASKS)
    report.add("S12", "seconds to finish", plain="for ever", ours=f"{ours['seconds']:.1f}", bound="<= 6")
    undone = f"{plain['undone after']:.2f} s"
    report.add("S12", "the memory monitor undoes it after", plain=undone, ours="never", bound="never")
    assert ours["executions"] == TASKS and ours["seconds"] <= 6


@pytest.mark.slow
@pytest.mark.parametrize("order", ["hPRr", "hPrR", "PhRr", "PhrR", "PRhr", "hrPR"])
def test_hold_and_a_real_memory_pause(order, report):
    """h, r: hold, release. P, R: the worker's memory is full, and free again, as its own monitor finds."""
    limit, full = 2**30, [False]

    @gen_cluster(
        client=True,
        nthreads=[("", 1)] * 2,
        config=slow_monitor,
        worker_kwargs={"memory_limit": limit},
        timeout=60,
    )
    async def run(c, s, a, b):
        b.memory_manager.memory_pause_fraction = False
        a.monitor.get_process_memory = lambda: int(limit * 0.9) if full[0] else 0
        ws = s.workers[a.address]
        async with await dask_hpc.manage(c) as manager:
            held, futures = False, await half_way(c, s, a)
            for letter in order:
                if letter in "hr":
                    held = letter == "h"
                    await (manager.hold if held else manager.release)(a.address)
                else:
                    full[0] = letter == "P"
                    expected = Status.paused if full[0] else Status.running
                    await async_poll_for(lambda expected=expected: a.status == expected, 10)
                paused = Status.paused if held or full[0] else Status.running
                await async_poll_for(lambda paused=paused: ws.status == paused, 10)
                s.validate_state()
            await c.gather(futures)
            assert await executions(c) == TASKS

    run()
    report.add(
        "S12", f"executions, hold and memory pause in order {order}", plain="-", ours=TASKS, bound=TASKS
    )
