"""S29 by seed: whatever of ours raises, every computation comes to its end, and no worker is lost.

``DASK_HPC_OUR_FAILURES``: how many seeds the slow test runs.
"""

import logging
import os

import pytest
from distributed.diagnostics.plugin import SchedulerPlugin
from sabotage import sabotage, workload

import dask_hpc

RATES = (0.003, 0.01, 0.03)


class Unasked(SchedulerPlugin):
    """Workers that Dask removed although nobody asked it to."""

    def __init__(self):
        self.removed = []

    def remove_worker(self, scheduler, worker, *, stimulus_id, **kwargs):
        if stimulus_id.startswith("handle-worker-cleanup"):
            self.removed.append(worker)


def check(virtual_cluster, monkeypatch, seeds):
    """A failure says its seed."""
    logging.disable(logging.CRITICAL)
    failed = {}
    for seed in seeds:

        async def main(cluster, seed=seed):
            client, scheduler = await cluster.client(), cluster.scheduler
            unasked = Unasked()
            scheduler.add_plugin(unasked)
            manager = await dask_hpc.manage(client, "fpsma-pwma")
            await manager.set(**{"settings.fair-shares": True})
            with monkeypatch.context() as patch:
                sabotage(patch, seed, RATES[seed % len(RATES)])
                await workload(client, scheduler)
            assert not unasked.removed
            await manager.close()

        try:
            virtual_cluster(main, seed, until=300)
        except Exception as error:
            failed[seed] = repr(error)
    logging.disable(logging.NOTSET)
    assert not failed


def test_our_failures_stop_nobody(virtual_cluster, monkeypatch):
    check(virtual_cluster, monkeypatch, (*range(10), 132))


@pytest.mark.slow
def test_our_failures_stop_nobody_under_many_seeds(virtual_cluster, monkeypatch):
    check(virtual_cluster, monkeypatch, range(100, 100 + int(os.environ.get("DASK_HPC_OUR_FAILURES", "60"))))
