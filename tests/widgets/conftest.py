"""A small managed cluster with one job that runs and one that waits, and a widget's messages."""

import time

import pytest
from distributed import Client, Event, LocalCluster

import dask_hpc


def blocked(event):
    Event(event).wait(60)
    return 1


def until(condition, seconds=30):
    """Wait for something that another thread does."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > limit:
            raise AssertionError("it never happened")
        time.sleep(0.01)
    return found


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


def hear(view, **message):
    """As if a front end had sent it; answers when it is carried out."""
    answers = []
    send = view.send
    view.send = lambda content, buffers=None: (answers.append(content), send(content, buffers))[-1]
    try:
        view._hear(None, message, [])
        return until(lambda: next((one for one in answers if "answer" in one), None))
    finally:
        view.send = send
