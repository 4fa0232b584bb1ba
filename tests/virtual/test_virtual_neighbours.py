"""Kinds of tasks that slow each other, in virtual time: by a law that tasks themselves follow."""

import asyncio
import itertools
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
        self.since = time.time()
        self._next = None

    def _slowdown(self, me):
        others = [one.kind for one in self.left if one is not me]
        return 1 + sum(self.law.get((me.kind, other), 0.0) for other in others)

    def _move_on(self):
        passed = time.time() - self.since
        self.since += passed
        for one in self.left:
            self.left[one] -= passed / self._slowdown(one)

    def _look_ahead(self):
        """To the first that will be done if nobody comes before."""
        if self._next is not None:
            self._next.cancel()
        self._next = None
        if self.left:
            soon = min(left * self._slowdown(one) for one, left in self.left.items())
            self._next = asyncio.get_running_loop().call_later(max(soon, 0.0), self._end)

    def _end(self):
        self._move_on()
        for one in [one for one, left in self.left.items() if left <= 1e-6]:
            del self.left[one]
            if not one.done.done():  # or it was cancelled
                one.done.set_result(None)
        self._look_ahead()

    async def work(self, me, seconds):
        self._move_on()
        self.left[me] = seconds
        me.done = asyncio.get_running_loop().create_future()
        self._look_ahead()
        await me.done


class Piece:
    """A task's work."""

    def __init__(self, kind):
        self.kind = kind
        self.done = None


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
    ours, _, _ = seconds_of(virtual_cluster, "together", law, **shape)
    assert ours < 0.9 * plain
    assert nothing == []


def test_kinds_that_do_not_mind_are_left_alone(virtual_cluster):
    plain, _, _ = seconds_of(virtual_cluster, "easy-backfill", {})
    ours, story, told = seconds_of(virtual_cluster, "together", {})
    assert ours <= 1.01 * plain
    assert not told["neighbours"]["limits"]
    assert all("tries" in reason or "no limit" in reason for reason in story)


# --- any shape of a program


def reduce(*some, seconds=0.0, law=None):
    _work("reduce", seconds, law)
    return sum(some)


def run(virtual_cluster, policy, program, workers=3, nthreads=4, law=None):
    """Seconds that a program took, its answer, and what was told."""
    NODES.clear()

    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy) as manager:
            began = cluster.time()
            found = await program(client, cluster, law or {})
            took = cluster.time() - began
            status = await manager.status()
            assert status["errors"] == 0, status
            story = [row["reason"] for row in await manager.story() if row["decision"] == "together"]
            lanes = cluster.scheduler.plugins["dask-hpc"].context.get(KindLanes)
            assert not lanes.count_waiting() and not cluster.scheduler.unrunnable
            return took, found, story, status["together"]

    return virtual_cluster(main, workers=workers, nthreads=nthreads)


def mapped(client, name, count, seconds, law, **options):
    return client.map(
        stream if name == "stream" else compute,
        range(count),
        seconds=seconds,
        law=law,
        key=[(name, next(_numbers)) for _ in range(count)],
        **options,
    )


_numbers = itertools.count()


async def fan_out(client, cluster, law):
    (first,) = mapped(client, "first", 1, 0.1, law)
    futures = client.map(lambda one, i, seconds, law: compute(i, seconds, law), [first] * 400, range(400),
                         seconds=0.1, law=law, key=[("fan", i) for i in range(400)])  # fmt: skip
    return await client.gather(futures)


async def chains(client, cluster, law):
    futures = mapped(client, "begin", 48, 0.1, law)
    for step in range(8):
        keys = [(f"step{step % 2}", step * 100 + i) for i in range(48)]
        futures = client.map(
            lambda x, seconds, law: compute(x, seconds, law), futures, seconds=0.1, law=law, key=keys
        )
    return await client.gather(futures)


async def tree(client, cluster, law):
    futures, level = mapped(client, "leaf", 256, 0.1, law), 0
    while len(futures) > 1:
        pairs = zip(futures[::2], futures[1::2], strict=True)
        futures = [
            client.submit(reduce, *pair, seconds=0.1, law=law, key=("reduce", level * 1000 + i))
            for i, pair in enumerate(pairs)
        ]
        level += 1
    return await client.gather(futures)


async def tiny_kinds(client, cluster, law):
    futures = [one for i in range(60) for one in mapped(client, f"tiny{i}", 8, 0.05, law)]
    return await client.gather(futures)


@pytest.mark.parametrize("program", [fan_out, chains, tree, tiny_kinds])
def test_where_nobody_interferes_nothing_is_lost(virtual_cluster, program):
    plain, expected, _, _ = run(virtual_cluster, "easy-backfill", program)
    ours, found, _, told = run(virtual_cluster, "together", program)
    assert found == expected and not told["neighbours"]["limits"]
    assert ours <= 1.01 * plain, (ours, plain)


async def three_kinds(client, cluster, law):
    futures = [*mapped(client, "stream", 900, 0.2, law)]
    await asyncio.sleep(1)
    for name in ("compute", "other"):
        futures += mapped(client, name, 900, 0.2, law)
        await asyncio.sleep(0.1)
    return await client.gather(futures)


@pytest.mark.slow
def test_three_kinds_on_several_workers(virtual_cluster):
    law = {("stream", "stream"): 0.9}
    plain, expected, _, _ = run(virtual_cluster, "easy-backfill", three_kinds, law=law)
    ours, found, story, _ = run(virtual_cluster, "together", three_kinds, law=law)
    assert found == expected and ours < 0.95 * plain
    assert any(reason.startswith("stream: ") for reason in story)


def test_short_tasks_are_left_alone(virtual_cluster):
    async def short(client, cluster, law):
        futures = mapped(client, "stream", 800, 0.005, law)
        await asyncio.sleep(0.1)
        return await client.gather([*futures, *mapped(client, "compute", 800, 0.005, law)])

    law = {("stream", "stream"): 0.1}
    _, found, story, told = run(virtual_cluster, "together", short, law=law, workers=2)
    assert len(found) == 1600 and story == [] and told["kept"] == []


@pytest.mark.slow
def test_killed_workers_and_all_is_done(virtual_cluster):
    async def kills(client, cluster, law):
        work = asyncio.ensure_future(three_kinds(client, cluster, law))
        for _ in range(2):
            await asyncio.sleep(15)
            name = next(iter(cluster.workers))
            cluster.kill(name)
            await cluster.scheduler.remove_worker(
                next(a for a, w in cluster.scheduler.workers.items() if w.name == name), stimulus_id="test"
            )
            await cluster.add_worker(4)
        return await work

    law = {("stream", "stream"): 0.9}
    _, found, story, _ = run(virtual_cluster, "together", kills, law=law)
    assert sorted(found) == sorted([*range(900)] * 3) and story


@pytest.mark.slow
def test_a_law_that_changes_half_way(virtual_cluster):
    """Who slowed its own does not any more: the limits go, and all threads are used again."""

    async def half(client, cluster, law):
        first = asyncio.ensure_future(three_kinds(client, cluster, law))
        found = await first
        law.clear()
        for machine in NODES.values():
            machine.law = law
        began = cluster.time()
        found += await client.gather(mapped(client, "stream", 3000, 0.2, law))
        return found, cluster.time() - began

    _, (found, took), _, told = run(virtual_cluster, "together", half, law={("stream", "stream"): 0.9})
    assert len(found) == 5700
    best = 3000 * 0.2 / 12
    assert took < 2.1 * best, (took, best, told["neighbours"]["limits"])


def test_a_job_with_nodes_of_its_own_beside_others(virtual_cluster):
    async def job_and_others(client, cluster, law):
        async with dask_hpc.job("j", nodes=1, client=client) as _:
            futures = mapped(client, "stream", 300, 0.2, law)
            await asyncio.sleep(1)
            futures += mapped(client, "compute", 300, 0.2, law)
        await asyncio.sleep(0.1)
        futures += mapped(client, "other", 300, 0.2, law)
        found = await client.gather(futures)
        context = cluster.scheduler.plugins["dask-hpc"].context
        await asyncio.sleep(5)
        assert context.get(KindLanes).neighbours.limits.keys() <= {None}, "of a job that is over"
        return found

    _, found, _, _ = run(virtual_cluster, "together", job_and_others, law={("stream", "stream"): 0.9})
    assert sorted(found) == sorted([*range(300)] * 3)
