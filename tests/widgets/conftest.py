"""A small managed cluster with one job that runs and one that waits."""

import pytest
from distributed import Client, Event, LocalCluster
from heard import until

import dask_hpc


def blocked(event):
    Event(event).wait(60)
    return 1


@pytest.fixture
def managed(loop):
    """The manager of three nodes."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0", loop=loop
        ) as cluster,
        Client(cluster, loop=loop) as client,
        dask_hpc.manage(client, "easy-backfill") as manager,
    ):
        yield manager


@pytest.fixture
def busy(managed):
    """The same with a job "runs" on one node, and "waits", which wants three."""
    client = managed.client
    with dask_hpc.job("runs", nodes=1, min_nodes=1, max_nodes=3, walltime="60s"):
        runs = client.submit(blocked, "go")
    until(lambda: any(job["state"] == "running" for job in managed.status()["jobs"]))
    with dask_hpc.job("waits", nodes=3, walltime="30s"):
        waits = client.submit(blocked, "go", pure=False)
    until(lambda: any(job["state"] == "waiting" for job in managed.status()["jobs"]))
    yield managed
    Event("go", client=client).set()
    client.gather([runs, waits], errors="skip")
