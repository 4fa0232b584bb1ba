"""Workers killed at every step of a copy and of a load: nothing protected is lost, and no value is wrong."""

import os
import signal
from functools import partial
from time import monotonic, sleep

import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, get_worker, wait
from forks import forked_nannies

import dask_hpc
from dask_hpc.checkpoint.faults import COPY_POINTS, LOAD_POINTS, SEND_POINTS, SHELF_POINTS, VARIABLE

pytestmark = pytest.mark.slow
SIZE = 2**17  # of numbers: a large block
PATIENCE = 30


@pytest.fixture
def cluster():
    """One for each test: a nanny that restarts its worker and is told to restart it may end without any."""
    with (
        forked_nannies(),
        LocalCluster(
            n_workers=3, threads_per_worker=1, memory_limit="1GB", dashboard_address=":0", silence_logs=50
        ) as found,
    ):
        yield found


@pytest.fixture
def client(cluster):
    with Client(cluster) as found:
        found.wait_for_workers(3)
        yield found


def until(condition):
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end, "it did not happen"
        sleep(0.02)


def workers(client):
    return sorted(client.nthreads())


def arm(client, worker, point):
    """It dies there."""
    client.run(set_variable, point, workers=[worker])


def set_variable(point):
    os.environ[VARIABLE] = point


def kill(cluster, worker):
    (nanny,) = [one for one in cluster.workers.values() if one.worker_address == worker]
    os.kill(nanny.pid, signal.SIGKILL)


def is_gone(client, worker):
    return worker not in workers(client)


def ask(client, call, **kwargs):
    return client.sync(getattr(client.scheduler, call), **kwargs)


def are_copied(client, name):
    found = ask(client, "hpc_protected", name=name)
    return found and found["copied"] == found["keys"]


def made(seed, size=SIZE):
    return np.random.default_rng(seed).random(size)


def state(client, worker, name):
    """A computed and a scattered result, large and small, on one worker."""
    x = client.submit(made, 1, workers=[worker], allow_other_workers=True, pure=False)
    y = client.scatter(made(2), workers=[worker], hash=False)
    z = client.scatter(b"small", workers=[worker], hash=False)
    wait([x, y, z])
    dask_hpc.protect([x, y, z], name=name, client=client)
    until(lambda: are_copied(client, name))
    return x, y, z


def check(x, y, z):
    np.testing.assert_array_equal(x.result(timeout=PATIENCE), made(1))
    np.testing.assert_array_equal(y.result(timeout=PATIENCE), made(2))
    assert z.result(timeout=PATIENCE) == b"small"


def holder_of(client, future):
    return client.who_has([future])[future.key][0]


async def copies_on(dask_scheduler):
    catalogue = dask_scheduler.plugins["dask-hpc-checkpoint"].catalogue
    return {content: sorted(one.where) for content, one in catalogue.contents.items()}


async def send(blocks, source, to, dask_scheduler):
    try:
        return await dask_scheduler.rpc(source).hpc_agent_send(blocks=blocks, to=to)
    except OSError as error:
        return str(error)


async def keep(agent, contents, dask_scheduler):
    try:
        return await dask_scheduler.rpc(agent).hpc_agent_keep(contents=contents)
    except OSError as error:
        return str(error)


def came(dask_worker):
    agent = dask_worker.plugins["dask-hpc-agent"]
    return agent.traffic.bytes_in, agent.kept.contents()


@pytest.mark.parametrize("point", COPY_POINTS)
def test_while_a_copy_is_made(client, cluster, point):
    a, b, _ = workers(client)
    old = state(client, a, "old")
    victim = a if point.startswith("give") else b
    arm(client, victim, point)
    new = [
        client.submit(made, seed, size, workers=[a], allow_other_workers=True, pure=False)
        # dealt in turn to two agents: each of them has a large one
        for seed, size in ((3, SIZE), (4, SIZE), (5, 10), (6, 20), (7, SIZE))
    ]
    wait(new)
    dask_hpc.protect(new, name="new", client=client)
    until(lambda: is_gone(client, victim))
    until(lambda: are_copied(client, "new") and are_copied(client, "old"))
    check(*old)
    for one, seed in zip(new, range(3, 8), strict=True):
        found = one.result(timeout=PATIENCE)
        np.testing.assert_array_equal(found, made(seed, len(found)))
    # and the copies are good for another death
    survivor = holder_of(client, old[1])
    kill(cluster, survivor)
    until(lambda: is_gone(client, survivor))
    check(*old)


@pytest.mark.parametrize("point", LOAD_POINTS)
def test_while_a_copy_is_loaded(client, cluster, point):
    a, b, c = workers(client)
    x = client.submit(made, 1, workers=[a], allow_other_workers=True, pure=False)
    y = client.scatter(made(2), workers=[a], hash=False)
    wait([x, y])
    dask_hpc.protect([x, y], name="twice", copies=2, client=client)
    until(lambda: are_copied(client, "twice"))
    until(lambda: all(len(where) == 2 for where in client.run_on_scheduler(copies_on).values()))
    go = Event("go", client=client)
    there = Event("there", client=client)
    blocker = client.submit(blocked, workers=[c], pure=False)
    there.wait(PATIENCE)
    arm(client, b, point)
    kill(cluster, a)
    until(lambda: is_gone(client, b))
    go.set()
    np.testing.assert_array_equal(x.result(timeout=PATIENCE), made(1))
    np.testing.assert_array_equal(y.result(timeout=PATIENCE), made(2))
    assert blocker.result(timeout=PATIENCE)


def blocked():
    Event("there").set()
    return Event("go").wait(PATIENCE)


@pytest.mark.parametrize("point", [*SEND_POINTS, *COPY_POINTS])
def test_while_blocks_are_sent(client, cluster, point):
    a, b, _ = workers(client)
    old = state(client, a, "old")
    victim, other = (a, b) if point.startswith(("send", "give")) else (b, a)
    arm(client, victim, point)
    blocks = [{"key": one.key} for one in old]
    said = client.run_on_scheduler(partial(send, blocks, a, b))
    assert isinstance(said, str) or all("error" in one for one in said)
    until(lambda: is_gone(client, victim))
    check(*old)
    until(lambda: are_copied(client, "old"))
    assert other in workers(client)


@pytest.mark.parametrize("point", SHELF_POINTS)
def test_while_a_copy_goes_to_disk(client, cluster, point):
    a, *_ = workers(client)
    old = state(client, a, "old")
    copies = client.run_on_scheduler(copies_on)
    (agent, *_) = next(iter(copies.values()))
    theirs = [content for content, where in copies.items() if where == [agent]]
    arm(client, agent, point)
    assert isinstance(client.run_on_scheduler(partial(keep, agent, theirs)), str)
    until(lambda: is_gone(client, agent))
    until(lambda: are_copied(client, "old"))
    kill(cluster, a)
    until(lambda: is_gone(client, a))
    check(*old)


def test_the_next_worker_of_the_node_has_the_copies_on_disk(client, cluster):
    a, *_ = workers(client)
    old = state(client, a, "old")
    copies = client.run_on_scheduler(copies_on)
    for agent in {where[0] for where in copies.values()}:
        theirs = [content for content, where in copies.items() if agent in where]
        assert sorted(client.run_on_scheduler(partial(keep, agent, theirs))["disk"]) == sorted(theirs)
    before = workers(client)
    kill(cluster, agent)
    until(lambda: is_gone(client, agent) and len(workers(client)) == 3)
    (new,) = set(workers(client)) - set(before)
    until(lambda: client.run(has_agent, workers=[new])[new])
    until(lambda: set(theirs) <= set(client.run(came, workers=[new])[new][1]))
    check(*old)
    client.cancel(list(old))
    del old


def has_agent(dask_worker):
    agent = dask_worker.plugins.get("dask-hpc-agent")
    return agent is not None and agent.kept.shelf.folder


def test_arming_is_for_one_worker(client):
    a, b, _ = workers(client)
    arm(client, b, "nowhere")
    assert client.submit(lambda: os.environ.get(VARIABLE), workers=[a]).result() is None
    assert client.submit(lambda: (get_worker().address, os.environ[VARIABLE]), workers=[b]).result()[0] == b
