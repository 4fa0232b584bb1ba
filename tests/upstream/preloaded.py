"""Clusters as people get them who name our preload module in Dask's configuration, and plain ones."""

import pytest
from distributed import Worker
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc.cluster.worker.farewell import NAME

PRELOAD = {"distributed.scheduler.preload": ["dask_hpc.preload"], "distributed.scheduler.preload-argv": []}


def run(ours, function, *, config=None, **options):
    """Run a test body on two workers, with us preloaded or without."""
    options = {"nthreads": [("", 1)] * 2, "config": (config or {}) | (PRELOAD if ours else {})} | options

    @gen_cluster(client=True, **options)
    async def body(c, s, *workers):
        assert ("dask-hpc" in s.plugins) == ours
        if ours and isinstance(workers[0], Worker):
            await async_poll_for(lambda: all(NAME in worker.plugins for worker in workers), 10)
        await function(c, s, *workers, ours=ours)
        assert not ours or s.plugins["dask-hpc"].errors == 0

    body()


def both(function=None, **options):
    """Run a test body without us and with us; it is told which as ``ours``."""
    if function is None:
        return lambda function: both(function, **options)

    @pytest.mark.parametrize("ours", [False, True], ids=["plain", "ours"])
    def test(ours):
        run(ours, function, **options)

    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test


def die(s, worker):
    """The connection to a worker breaks, as when its process is killed."""
    worker.periodic_callbacks["heartbeat"].stop()
    s.stream_comms[worker.address].abort()


def told(s, *kinds):
    """What our story says of these."""
    return [row.reason for row in s.plugins["dask-hpc"].story.happenings if row.decision in kinds]
