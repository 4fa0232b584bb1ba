"""Kinds of tasks that slow each other, in virtual time: by a law that tasks themselves follow."""

import asyncio
import contextlib
import time

import pytest
from distributed import get_worker
from distributed.utils import sync

import dask_hpc
from dask_hpc.together.scheduler.service import KindLanes

#: who runs on each worker
NODES = {}


class Machine:
    """What runs on one worker. Each task gets on at its own rate, which changes whenever another comes or
    goes."""

    def __init__(self, law):
        self.law = law
        self.left = {}
        self.changed = asyncio.Event()
        self.since = time.time()

    def _slowdown(self, me):
        others = [one.kind for one in self.left if one is not me]
        return 1 + sum(self.law.get((me.kind, other), 0.0) for other in others)

    def _move_on(self):
        passed = time.time() - self.since
        self.since += passed
        for one in self.left:
            self.left[one] -= passed / self._slowdown(one)

    def _others_look(self):
        self.changed.set()
        self.changed = asyncio.Event()

    async def work(self, me, seconds):
        self._move_on()
        self.left[me] = seconds
        self._others_look()
        while self.left[me] > 1e-6:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), self.left[me] * self._slowdown(me))
            self._move_on()
        del self.left[me]
        self._others_look()


class Piece:
    """A task's work."""

    def __init__(self, kind):
        self.kind = kind


def _work(kind, seconds, law):
    worker = get_worker()
    machine = NODES.get(worker.address) or NODES.setdefault(worker.address, Machine(law))
    sync(worker.loop, machine.work, Piece(kind), seconds)


def stream(i, seconds, law):
    _work("stream", seconds, law)
    return i


def compute(i, seconds, law):
    _work("compute", seconds, law)
    return i


def seconds_of(virtual_cluster, policy, law, count=300, seconds=0.2, workers=1, nthreads=2, kinds=2):
    NODES.clear()

    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy) as manager:
            began = cluster.time()
            some = [client.map(stream, range(count), seconds=seconds, law=law, pure=False)]
            await asyncio.sleep(1)  # or Dask would take both for one stream of tasks, and mix them
            if kinds > 1:
                some.append(client.map(compute, range(count), seconds=seconds, law=law, pure=False))
            for futures in some:
                assert await client.gather(futures) == list(range(count))
            took = cluster.time() - began
            status = await manager.status()
            assert status["errors"] == 0, [
                row["reason"] for row in await manager.story() if row["decision"] == "error"
            ]
            story = [row["reason"] for row in await manager.story() if row["decision"] == "together"]
            lanes = cluster.scheduler.plugins["dask-hpc"].context.get(KindLanes)
            assert not lanes.row_of or not lanes.count_waiting()
            return took, story, status["together"]

    return virtual_cluster(main, workers=workers, nthreads=nthreads)


@pytest.mark.parametrize("workers, nthreads", [(1, 2), (2, 4)])
def test_a_kind_that_slows_its_own_runs_beside_another(virtual_cluster, workers, nthreads):
    law = {("stream", "stream"): 0.9}
    shape = {"workers": workers, "nthreads": nthreads, "count": 300 * workers}
    plain, nothing, _ = seconds_of(virtual_cluster, "easy-backfill", law, **shape)
    ours, story, told = seconds_of(virtual_cluster, "together", law, **shape)
    assert ours < 0.9 * plain
    assert nothing == []


def test_kinds_that_do_not_mind_are_left_alone(virtual_cluster):
    plain, _, _ = seconds_of(virtual_cluster, "easy-backfill", {})
    ours, story, _ = seconds_of(virtual_cluster, "together", {})
    assert ours <= 1.01 * plain
