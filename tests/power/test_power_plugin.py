"""Workers tell their power with their heartbeats: also without any counter."""

import asyncio
import os
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from distributed import Event, Nanny
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import cluster2

from dask_hpc.cluster.scheduler.service import WorkerSetting
from dask_hpc.power import service
from dask_hpc.power.service import worker_meters
from dask_hpc.power.worker.plugin import KEY, NAME, Heartbeat, PowerPlugin, of_each

QUICK = {"distributed.scheduler.worker-ttl": None}


def poll(until, seconds=10):
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def do(where, work):
    return asyncio.ensure_future(work)


def sampling(s, *given):
    metering: WorkerSetting = worker_meters(SimpleNamespace(scheduler=s, do=do))
    metering.set(given)
    return metering


async def stopped(metering):
    metering.set(None)
    await metering.settle()


def told(s, worker):
    found = s.workers[worker.address].metrics.get(KEY)
    return None if found is None else Heartbeat.read(found)


async def everybody_tells(s, *workers, after=0):
    """Every worker has told a sample after this one."""
    await async_poll_for(
        lambda: all((one := told(s, w)) is not None and one.sequence > after for w in workers), 10
    )


@cluster2
async def test_workers_without_a_counter_tell_what_the_model_says(c, s, a, b):
    metering = sampling(s, 0.05, [(0, 100), (1, 300)])
    await everybody_tells(s, a, b, after=2)
    one, other = told(s, a), told(s, b)
    assert one.source == "modelled" and one.meters == []
    assert 100 <= one.watts <= 300 and one.idle == pytest.approx(100)
    assert one.watts == pytest.approx(100 + 200 * one.use) and one.uncertainty > 0
    assert one.host == other.host and one.pid == other.pid == os.getpid()
    assert one.share <= 0.5  # both are in this process
    await stopped(metering)
    assert not any(NAME in w.plugins for w in (a, b))
    assert not any(KEY in w.metrics for w in (a, b))
    await a.heartbeat()
    assert KEY not in s.workers[a.address].metrics
    await async_poll_for(lambda: all(t.name != NAME for t in threading.enumerate()), 5)


@cluster2
async def test_metering_can_start_again(c, s, a, b):
    for _ in range(2):
        metering = sampling(s, 0.05)
        await everybody_tells(s, a, b)
        await stopped(metering)
        assert KEY not in a.metrics


def spin(event):
    while not Event(event).is_set():
        sum(range(100_000))


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, config=QUICK)
async def test_each_worker_has_the_share_of_its_work(c, s, a, b):
    """Processes of one host: who works has nearly all of what both have."""
    metering = sampling(s, 0.2)
    busy = c.submit(spin, "over", workers=[a.worker_address])

    def shares():
        found = [s.workers[n.worker_address].metrics.get(KEY) for n in (a, b)]
        return [Heartbeat.read(one) for one in found] if all(found) else None

    def seen():
        found = shares()
        return found and found[0].share > 0.1 and found[0].share > 5 * found[1].share

    await async_poll_for(seen, 20)
    one, other = shares()
    assert one.host == other.host and one.pid != other.pid
    watts = of_each({"a": one, "b": other})
    assert watts["a"][0] > watts["b"][0]
    await Event("over").set()
    await busy
    await stopped(metering)


@pytest.fixture
def slow_machine(tmp_path, monkeypatch):
    """Its management controller answers when the file ``answer`` is opened: a stand-in for ipmitool, and a
    made-up device."""
    os.mkfifo(tmp_path / "answer")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ipmi0").write_text("")
    command = tmp_path / "ipmitool"
    command.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec cat {tmp_path}/answer\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    sampler = partial(PowerPlugin, root=str(tmp_path))
    sampler.name = PowerPlugin.name
    monkeypatch.setattr(service, "PowerPlugin", sampler)
    return tmp_path


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_a_sensor_that_does_not_answer_keeps_nobody_waiting(c, s, a, slow_machine):
    slow = sampling(s, 0.05)
    await async_poll_for((slow_machine / "asked").exists, 10)
    assert await c.submit(inc, 1) == 2
    await a.heartbeat()
    assert a.metrics[KEY](a) is None  # the sensor still thinks: its patience is some seconds
    await stopped(slow)
    (slow_machine / "answer").write_text("")
    assert NAME not in a.plugins and KEY not in a.metrics
