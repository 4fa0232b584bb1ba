"""Dask's work stealing beside jobs: it is not asked what nobody could take over, and goes on as ever else."""

from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, plugin_of, until, where

import dask_hpc

cluster3 = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 3,
    config={
        "distributed.scheduler.work-stealing-interval": "1h",
        "distributed.scheduler.default-task-durations": {"blocked": "1s"},
    },
)


def vain(s):
    return plugin_of(s).control.gate._idle_in_vain()


@cluster3
async def test_an_idle_worker_is_asked_only_where_it_could_help(c, s, *workers):
    balance = s.periodic_callbacks["stealing"].callback
    asked = []
    s.extensions["stealing"]._get_thief = lambda *args, **kwargs: asked.append(args)
    async with await dask_hpc.manage(c):
        with dask_hpc.job("j", nodes=2):
            shared = c.map(
                where, range(6), pure=False
            )  # so many that those which need them are no root tasks
            of_job = [c.submit(blocked, "go", shared, key=("b", i), pure=False) for i in range(20)]
            job = await until(s, "j", "running")
            await async_poll_for(lambda: sum(len(w.processing) for w in s.workers.values()) == 20, 10)
        (idle,) = set(s.workers) - job.workers
        assert vain(s) == [idle]
        s.periodic_callbacks["stealing"].callback()
        assert not asked and idle in s.idle
        outside = [
            c.submit(blocked, "go", i, pure=False, workers=[w], allow_other_workers=True)
            for i in range(3)
            for w in [next(iter(job.workers))]
        ]
        await async_poll_for(
            lambda: all(f.key in s.tasks and s.tasks[f.key].state == "processing" for f in outside), 10
        )
        assert vain(s) == []
        s.periodic_callbacks["stealing"].callback()
        assert asked
        await Event("go").set()
        await c.gather([*of_job, *outside])
    assert s.periodic_callbacks["stealing"].callback == balance
