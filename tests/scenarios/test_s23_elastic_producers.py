"""S23: a worker is killed at step 10 of 50, another comes; later a producer is killed, and returns.

Plain: the simulation scatters its blocks to workers. What was on one that dies is lost for good, and what
has not been analysed of it never will be.
"""

import asyncio
import os
import signal

import numpy as np
import pytest
from bridge_producers import SPAWN, Producers, whole
from distributed import Client, LocalCluster
from distributed.utils_test import async_poll_for, gen_test

import dask_hpc

RANKS, STEPS, SIZE, MOST = 4, 50, 1_000, 2
KILLED, JOINED, USED_BY, PRODUCER_DIES = 10, 12, 15, 20


@gen_test()
async def test_plain_dask_loses_what_was_scattered():
    """The baseline: what was on the worker that died."""
    async with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as c,
    ):
        workers = list(cluster.workers.values())
        blocks = [await c.scatter(np.ones(4), workers=[one.address], hash=False) for one in workers]
        await workers[0].close()
        await async_poll_for(lambda: blocks[0].status in ("lost", "cancelled"), 10)
        assert blocks[1].status == "finished"


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
    report.add("S23", "blocks that were on the killed worker", plain="lost for good", ours="put again",
               bound=f"{len(found)} of {STEPS} steps right")  # fmt: skip
    report.add("S23", "killed in step 10: first step that goes elsewhere", plain="-", ours=min(rerouted),
               bound=f"<= {KILLED + 1}")  # fmt: skip
    report.add("S23", "late worker is used from step", plain="-", ours=min(used), bound=f"<= {USED_BY}")
    assert skipped == {}
    assert min(rerouted) <= KILLED + 1 and min(used) <= USED_BY
