"""A soak: what a scheduler holds does not grow with the tasks and jobs that are over.

Some 5,000 tasks in 100 jobs. More of it: DASK_HPC_SOAK=1000000, with ten jobs a thousand tasks.
"""

import gc
import os
from collections import Counter
from collections.abc import Sized

import pytest
from distributed.utils_test import async_poll_for, gen_cluster, inc

import dask_hpc
from dask_hpc.cluster.scheduler import lifecycle
from dask_hpc.history import runs

TASKS = int(os.environ.get("DASK_HPC_SOAK", 5000))
AT_ONCE, PER_JOB = 5, 100 if TASKS > 100_000 else 50
#: what Dask and we keep of what was, each up to a length of its own: a short one, so that it is full soon
SHORT = {
    "distributed.admin.log-length": 10,
    "distributed.admin.low-level-log-length": 1,
    "distributed.diagnostics.computations.max-history": 10,
    "hpc.story-length": 100,
}  # fmt: skip
KEPT = 10  # jobs that are over, instead of 1,000
REMEMBERED = 2  # runs of each name, instead of 200
TELL = {"Happening", "Explanation"}


def is_ours(thing):
    return str(type(thing).__module__).startswith("dask_hpc")


def census(scheduler):
    """How many objects there are of each class of ours; entries of all containers that these have; and
    objects in all."""
    scheduler.plugins["dask-hpc"].context.recorded.clear()  # the last few decisions, each with all it saw
    gc.collect()
    everything = gc.get_objects()
    ours = [thing for thing in everything if is_ours(thing)]
    entries = Counter()
    for thing in ours:
        names = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
        for name in names | getattr(thing, "__dict__", {}).keys():
            value = getattr(thing, name, None)
            if isinstance(value, Sized) and not isinstance(value, str | bytes | type):
                place = f"{type(thing).__qualname__}.{name}"
                # what happened differs in how much it tells, and the story has so many of it
                tells = type(thing).__name__ in TELL
                entries[place] = max(entries[place], len(value)) if tells else entries[place] + len(value)
    return Counter(type(thing).__qualname__ for thing in ours), entries, len(everything)


def grown(before, after):
    return {name: (before[name], count) for name, count in after.items() if count > before[name] + 2}


@pytest.mark.slow
def test_what_is_held_does_not_grow_with_what_is_over(monkeypatch, report):
    monkeypatch.setattr(lifecycle, "_KEPT", KEPT)
    monkeypatch.setattr(runs, "_RUNS", REMEMBERED)

    @gen_cluster(client=True, nthreads=[("", 2)] * 4, timeout=60 + TASKS // 100, config=SHORT)
    async def body(c, s, *workers):
        for state in (s, *(worker.state for worker in workers)):  # tests of Dask are short, and look at all
            state.transition_counter_max = state.validate = False

        async def soak(tasks):
            for first in range(0, tasks, AT_ONCE * PER_JOB):
                jobs = []
                for number in range(AT_ONCE):
                    with dask_hpc.job(f"soak-{number}", nodes=1 + number % 2, min_nodes=1, max_nodes=3):
                        jobs.append(c.map(inc, range(first, first + PER_JOB), pure=False))
                for futures in jobs:
                    assert await c.gather(futures) == list(range(first + 1, first + PER_JOB + 1))
                del futures, jobs
            await async_poll_for(lambda: not s.tasks, 30)
            for _ in range(3):  # Dask keeps the last messages to each worker, and they may be hundreds
                await c.gather(c.map(inc, range(8), pure=False))
            await async_poll_for(lambda: not s.tasks, 30)
            # jobs grew: nodes that did wait a moment for their share of the data
            spread = s.plugins["dask-hpc"].control.spread
            await async_poll_for(lambda: not spread._new and not spread.is_under_way, 30)

        async with await dask_hpc.manage(c, "fpsma-pwma"):
            censuses = []
            for tasks in (TASKS // 5, TASKS * 2 // 5, TASKS * 2 // 5):
                await soak(tasks)
                censuses.append(census(s))
        (first, _, _), (half, some, many), (ours, entries, total) = censuses
        assert first and half["LiveJob"] == ours["LiveJob"]
        assert not grown(half, ours)
        assert not grown(some, entries)
        jobs = TASKS * 2 // 5 // PER_JOB
        what = f"objects left of each of {jobs:,} jobs with {PER_JOB} tasks, after {TASKS:,} tasks"
        report.add("soak", what, plain="", ours=f"{(total - many) / jobs:.2f}", bound="< 10")
        assert total - many < 10 * jobs  # not one for each task; Dask's own come and go by a few hundred

    body()
