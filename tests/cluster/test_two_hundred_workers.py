"""Two hundred live workers: jobs, a resize, fifty that are retired at once; and what that costs the
event loop.

All in one process, without sockets. Plain Dask goes first, and loses fifty workers of its own by that.
"""

import asyncio
import gc
from asyncio.events import Handle
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from threading import Event, current_thread, main_thread
from time import monotonic, thread_time

import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.utils_test import async_poll_for, gen_test
from small_cluster import losses, plugin_of

import dask_hpc

WORKERS, LEAVE, JOBS, TASKS = 200, 50, 4, 100
#: nobody looks at process memory, of which two hundred workers would each think that it is theirs
QUIET = {
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "hpc.drain": "30s",
}
ran, go = Counter(), Event()


def work(key, after=None):
    ran[key] += 1
    return key


def held_up(key):
    ran[key] += 1
    assert go.wait(60)
    return key


@contextmanager
def steps():
    """The processor time of the longest step of the event loop meanwhile, and what that was.

    Python's search of all that two hundred workers keep, which takes a fifth of a second, is of no step.
    """
    longest, plain = [(0.0, "")], Handle._run

    def run(self):
        if current_thread() is not main_thread():
            return plain(self)
        since = thread_time()
        try:
            return plain(self)
        finally:
            if (took := thread_time() - since) > longest[0][0]:
                longest[0] = took, repr(self._callback)[:200]

    gc.collect()
    gc.freeze()
    Handle._run = run
    try:
        yield longest
    finally:
        Handle._run = plain
        gc.unfreeze()


async def several_jobs(c, name):
    """As many tasks on each node as four jobs side by side have, and as many that need two of them."""
    futures, keys = [], []
    for number in range(JOBS):
        async with dask_hpc.job(f"{name}-{number}", nodes=WORKERS // JOBS):
            mine = [f"{name}-{number}-{i}" for i in range(TASKS)]
            first = c.map(work, mine, key=mine)
            second = c.map(work, [f"{one}-next" for one in mine], first, key=[f"{one}-next" for one in mine])
            futures += [first, second]
            keys += [mine, [f"{one}-next" for one in mine]]
    assert await c.gather(futures) == keys
    return futures


async def a_job_makes_room(c, s, name):
    """A job on all nodes shrinks for another one, and grows again."""
    async with dask_hpc.job(f"{name}-large", nodes=WORKERS, min_nodes=1, max_nodes=WORKERS):
        large = c.map(work, keys := [f"{name}-large-{i}" for i in range(4 * TASKS)], key=keys)
        async with dask_hpc.job(f"{name}-other", nodes=WORKERS // 4):
            other = c.map(work, theirs := [f"{name}-other-{i}" for i in range(TASKS)], key=theirs)
            assert await c.gather(other) == theirs
        assert await c.gather(large) == keys
    return large, other


async def retire_many(c, s, name):
    """Fifty at once, that have results and run tasks. Gives results that nobody else had."""
    going = sorted(s.workers, key=lambda address: s.workers[address].name)[-LEAVE:]
    keys = [f"{name}-kept-{i}" for i in range(4 * LEAVE)]
    kept = [
        c.submit(work, key, key=key, workers=[going[i % LEAVE]], allow_other_workers=True)
        for i, key in enumerate(keys)
    ]
    await wait(kept)
    go.clear()
    keys += (late := [f"{name}-late-{i}" for i in range(LEAVE)])
    kept += [
        c.submit(held_up, key, key=key, workers=[going[i]], allow_other_workers=True)
        for i, key in enumerate(late)
    ]
    await async_poll_for(lambda: all(ran[key] for key in late), 30)
    retiring = asyncio.ensure_future(c.retire_workers(workers=going))
    await async_poll_for(
        lambda: all(s.workers[one].status.name != "running" for one in going if one in s.workers), 30
    )
    await asyncio.sleep(3)  # plain Dask looks every two seconds whether results have moved, and then goes on
    go.set()
    assert sorted(await retiring) == sorted(going)
    await async_poll_for(lambda: s.workers.keys().isdisjoint(going), 30)
    assert await c.gather(kept) == keys
    return kept


async def everything(c, s, name):
    """What it took: seconds of the longest step of the event loop and what that was, seconds of it all, how
    many tasks ran twice, and how many results were lost."""
    since, lost = monotonic(), losses(s)
    with steps() as longest:
        futures = (
            await several_jobs(c, name),
            await a_job_makes_room(c, s, name),
            await retire_many(c, s, name),
        )
    twice = sum(count - 1 for key, count in ran.items() if key.startswith(name))
    del futures
    return {"step": longest[0], "seconds": monotonic() - since, "twice": twice, "lost": losses(s) - lost}


@pytest.mark.timed
@pytest.mark.slow
def test_nothing_is_lost_nothing_runs_twice_and_nobody_waits_long(report):
    ran.clear()
    found, cycles = {}, []

    @gen_test(timeout=280, config=QUIET)
    async def run():
        async with AsyncExitStack() as stack:
            quiet = {"port": 0, "dashboard": False, "dashboard_address": ":0", "protocol": "inproc://"}
            s = await stack.enter_async_context(Scheduler(**quiet))
            c = await stack.enter_async_context(Client(s.address, asynchronous=True))
            for first in range(0, WORKERS + LEAVE, 25):
                some = [Worker(s.address, nthreads=1, name=i) for i in range(first, first + 25)]
                await asyncio.gather(*(stack.enter_async_context(worker) for worker in some))
            found["plain"] = await everything(c, s, "plain")
            assert len(s.workers) == WORKERS
            async with await dask_hpc.manage(c, "fpsma-pwma"):
                plugin = plugin_of(s)
                decide = plugin.context.decide

                def timed():
                    since = thread_time()
                    decide()
                    cycles.append(thread_time() - since)

                plugin.context.decide = timed
                found["ours"] = await everything(c, s, "ours")
                assert plugin.errors == 0
                decisions = Counter(happening.decision for happening in plugin.story.happenings)
                assert decisions["start"] == JOBS + 2 and decisions["shrink"] and decisions["restart"] == 0
                assert decisions["leave"] == LEAVE
            assert len(s.workers) == WORKERS - LEAVE

    run()
    plain, ours = found["plain"], found["ours"]
    print(f"\n{found}\n{len(cycles)} cycles, the longest {max(cycles) * 1e3:.1f} ms")
    what = f"{LEAVE} of {WORKERS} workers are retired at once"
    for name in ("lost", "twice"):
        report.add("S28", f"{what}: {name}", plain=plain[name], ours=ours[name], bound="0")
    words = [f"{one['step'][0] * 1e3:.0f} ms" for one in (plain, ours)]
    report.add(
        "S28", f"{WORKERS} workers: longest step of the loop", plain=words[0], ours=words[1], bound="2 x"
    )
    cycle = f"{max(cycles) * 1e3:.1f} ms"
    report.add("S28", f"{WORKERS} workers: longest decision", plain="-", ours=cycle, bound="plain step")
    assert plain["twice"] >= 1 and ours["lost"] == ours["twice"] == 0
    assert ours["step"][0] <= 2 * plain["step"][0] and max(cycles) < plain["step"][0]
