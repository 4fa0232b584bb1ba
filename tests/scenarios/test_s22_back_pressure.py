"""S22: consumers that take five times as long as the simulation needs for a step.

Plain: the simulation scatters each step to a worker and submits its analysis. Nothing holds it back, so what
has not been analysed piles up in the workers' memory.
"""

from time import sleep

import dask
import numpy as np
import pytest
from bridge_producers import Producers
from distributed import Client, LocalCluster, SchedulerPlugin

import dask_hpc

RANKS, STEPS, SIZE, WORKERS, MOST = 4, 16, 50_000, 2, 2
STEP = 0.1  # seconds that the simulation needs for one
SLOW = 5 * STEP
STALL = 0.3
LATE = 1.0  # seconds that a loaded machine may add to a call


def analyse(block):
    """Each worker takes so long for a step: it has one thread, and two of four blocks."""
    sleep(SLOW / (RANKS / WORKERS))
    return np.array([block.sum()])


def held(dask_worker):
    """Bytes of blocks of the simulation on this worker: in its mailbox, and as results."""
    found = {
        id(x): x.nbytes for x in dask_worker.data.values() if isinstance(x, np.ndarray) and x.size == SIZE
    }
    for plugin in dask_worker.plugins.values():
        for shelf in getattr(plugin, "shelves", {}).values():
            for blocks in shelf.steps.values():
                found |= {id(one.data): one.data.nbytes for one in blocks.values() if not one.path}
    return sum(found.values())


class Most(SchedulerPlugin):
    """The most bytes of blocks that there were on one worker, whenever a task was done."""

    def __init__(self, cluster):
        self.cluster, self.most = cluster, 0

    def transition(self, key, start, finish, *args, **kwargs):
        for worker in self.cluster.workers.values():
            self.most = max(self.most, held(worker))


def local():
    # A block that is stolen is there twice: that is not what is measured here.
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        return LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        )


def plain():
    """The most bytes on a worker, if nothing holds the simulation back."""
    with local() as cluster, Client(cluster) as client:
        most = Most(cluster)
        cluster.scheduler.add_plugin(most, name="most")
        workers, futures = list(cluster.scheduler.workers), []
        for step in range(STEPS):
            sleep(STEP / 10)
            for rank in range(RANKS):
                where = [workers[rank * WORKERS // RANKS]]
                data = client.scatter(np.full(SIZE, float(step)), workers=where, direct=True, hash=False)
                futures.append(client.submit(analyse, data, workers=where, pure=False))
        cluster.scheduler.remove_plugin("most")
        for future in futures:
            future.cancel()
        return max(most.most, *(held(worker) for worker in cluster.workers.values()))


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("policy", ["skip", "subsample", "spill"])
def test_slow_consumers(report, policy):
    options = {"most_steps": MOST, "when_slow": policy, "stall": STALL}
    with local() as cluster, Client(cluster) as client:
        declared = {"shape": RANKS * SIZE, "chunks": SIZE, "most_steps": MOST, "when_slow": policy}
        with dask_hpc.Bridge.open(client, f"heat{SIZE}", **declared) as reader:
            most = Most(cluster)
            cluster.scheduler.add_plugin(most, name="most")
            futures = client.compute(
                [reader.array("t", step).data.map_blocks(analyse, chunks=(1,), dtype=float)
                 for step in range(STEPS)]
            )  # fmt: skip
            with Producers(
                cluster.scheduler_address, RANKS, [SIZE], range(STEPS), pause=STEP, **options
            ) as producers:
                producers.hear("there", RANKS)
                producers.start.set()
                done = producers.hear("done", RANKS)
            results = client.gather(futures, errors="skip")
            skipped = reader.skipped()
            there = [step for step, future in enumerate(futures) if future.status == "finished"]
            cluster.scheduler.remove_plugin("most")
    stalls = [stalled for _, rows, *_ in done for _, _, stalled, _ in rows]
    puts = [seconds for _, rows, *_ in done for _, seconds, _, _ in rows]
    share = SIZE * 8 * RANKS // WORKERS  # bytes of one step on one worker
    if policy == "skip":
        before = plain()
        report.add("S22", "blocks on one worker at most, steps", plain=f"{before / share:g}",
                   ours=f"{most.most / share:g}", bound=f"{MOST}, and one that a task has")  # fmt: skip
        assert before > (MOST + 1) * share
    report.add("S22", f"longest stall of a step, {policy}, s", plain="none", ours=f"{max(stalls):.2f}",
               bound=f"{STALL}, and what a call takes")  # fmt: skip
    report.add("S22", f"steps of {STEPS} that were dropped and listed, {policy}", plain="none: memory fills",
               ours=len(skipped), bound="all that were not analysed")  # fmt: skip
    assert max(stalls) <= STALL + LATE and max(puts) <= STALL + 2 * LATE
    assert most.most <= (MOST + 1) * share
    # What was not analysed is listed, and nothing else.
    assert sorted([*there, *skipped]) == list(range(STEPS))
    assert len(results) == len(there)
    assert bool(skipped) == (policy != "spill")
