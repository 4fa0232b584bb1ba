"""S23: a worker is killed at step 10 of 50, another comes; later a producer is killed, and returns.

Plain: the simulation scatters its blocks to workers. What was on one that dies is lost for good, and what
has not been analysed of it never will be.
"""

import asyncio
import os
import signal
from concurrent.futures import CancelledError
from functools import cache

import numpy as np
import pytest
from bridge_producers import SPAWN, Producers, block, whole
from distributed import Client, LocalCluster, Queue, Worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import lose

import dask_hpc

#: what Dask says where the consumer is given a block that is lost
pytestmark = pytest.mark.filterwarnings("ignore:Client .*desires key")

RANKS, STEPS, SIZE, MOST = 4, 50, 1_000, 2
KILLED, JOINED, USED_BY, PRODUCER_DIES = 10, 12, 15, 20


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def plainly(c, s, first, last, seen):
    """Dask alone: producers scatter blocks and tell the consumer by a queue, who analyses a step when it is
    whole. A worker dies in the middle of a step, and another one comes."""
    queue, late, puts, lost = Queue("blocks", client=c), Worker(s.address, nthreads=1), [], []
    for step in range(STEPS):
        if step == JOINED:
            await late
        for rank in range(RANKS):
            if (step, rank) == (KILLED, 2):
                await lose(first)
                await async_poll_for(lambda: first.address not in s.workers, 10)
            future = await c.scatter(block(rank, step, SIZE), hash=False)
            puts.append((step, *(ws.address for ws in s.tasks[future.key].who_has)))
            await queue.put(future)
        blocks = [await queue.get() for _ in range(RANKS)]
        try:
            found = await c.submit(sum_of, *blocks)
            assert np.isclose(found, whole(RANKS, step, SIZE).sum(), rtol=1e-13)
        except CancelledError:
            lost.append(step)
        del future, blocks
    seen["lost"] = lost
    seen["rerouted"] = next(step for step, place in puts[RANKS * KILLED + 2 :] if place != first.address)
    seen["late"] = next(step for step, place in puts if place == late.address)
    await late.close()


def sum_of(*blocks):
    return sum(one.sum() for one in blocks)


@cache
def plain():
    seen = {}
    plainly(seen=seen)
    return seen


def test_plain_dask_loses_what_was_scattered():
    """The baseline: the step whose blocks were on the worker that died is lost for good. The others are not:
    Dask scatters to whoever is there, so that the late worker is used as well."""
    assert plain()["lost"] == [KILLED]
    assert plain()["rerouted"] <= KILLED + 1 and plain()["late"] <= USED_BY


def routes(reader, is_fine):
    """The workers that blocks go to, when that has become so."""

    async def look():
        while True:
            found = await reader._status()
            if is_fine(set(found["workers"])):
                return found["workers"]
            await asyncio.sleep(0.05)

    return reader._client.sync(look, callback_timeout=60)


@pytest.mark.slow
def test_a_worker_dies_and_another_comes(report):
    gates = {step: SPAWN.Event() for step in (KILLED, KILLED + 1, JOINED, PRODUCER_DIES)}
    of_rank = {
        # Half of step 10 is there when the worker dies that has it.
        rank: {step: gates[step] for step in (KILLED + (rank < 2), JOINED, PRODUCER_DIES)}
        for rank in range(RANKS)
    }
    # Nobody sets it: an event waits for those that it wakes, also for a process that is dead.
    of_rank[RANKS - 1][PRODUCER_DIES] = SPAWN.Event()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(
        cluster
    ) as client:  # fmt: skip
        options = {"shape": RANKS * SIZE, "chunks": SIZE, "most_steps": MOST}
        with dask_hpc.Bridge.open(client, f"heat{SIZE}", **options) as reader:
            sums = client.compute([reader.array("t", step).data.sum() for step in range(STEPS)])
            first, last = routes(reader, lambda workers: len(workers) == 2)
            process = client.run(os.getpid, workers=[first])[first]
            with Producers(
                cluster.scheduler_address, RANKS, [SIZE], range(STEPS), gates=of_rank, most_steps=MOST
            ) as producers:
                producers.hear("there", RANKS)
                producers.start.set()
                puts = producers.hear("put", RANKS * KILLED + 2)
                # Results are on workers, too: those of the steps before have been fetched.
                found = client.gather(sums[:KILLED])
                del sums[:KILLED]
                os.kill(process, signal.SIGKILL)  # its nanny starts another
                routes(reader, lambda workers: first not in workers)
                gates[KILLED].set()
                gates[KILLED + 1].set()
                puts += producers.hear("put", 4 * (JOINED - KILLED) - 2)
                late = set(routes(reader, lambda workers: len(workers) == 2)) - {last}
                gates[JOINED].set()
                puts += producers.hear("put", RANKS * (PRODUCER_DIES - JOINED))
                producers.kill(RANKS - 1)
                producers.again(RANKS - 1, range(PRODUCER_DIES, STEPS))
                gates[PRODUCER_DIES].set()
                found += client.gather(sums)
                skipped = reader.skipped()
    np.testing.assert_allclose(found, [whole(RANKS, step, SIZE).sum() for step in range(STEPS)], rtol=1e-13)
    rerouted = [step for _, step, workers in puts if step >= KILLED and first not in workers]
    used = [step for _, step, workers in puts if late & set(workers)]
    whole_ones = STEPS - len(plain()["lost"])
    report.add("S23", f"steps that are right, of {STEPS}, when a worker is killed in one", plain=whole_ones,
               ours=len(found), bound="all")  # fmt: skip
    report.add("S23", "killed in step 10: first step that goes elsewhere", plain=plain()["rerouted"],
               ours=min(rerouted), bound=f"<= {KILLED + 1}")  # fmt: skip
    report.add("S23", "late worker is used from step", plain=plain()["late"], ours=min(used),
               bound=f"<= {USED_BY}")  # fmt: skip
    assert whole_ones < STEPS == len(found) and skipped == {}
    assert min(rerouted) <= KILLED + 1 and min(used) <= USED_BY
