"""S22: consumers that take five times as long as the simulation needs for a step.

Plain: the simulation scatters each step to a worker and submits its analysis. Nothing holds it back, so what
has not been analysed piles up in the workers' memory.
"""

import asyncio
from functools import cache
from time import monotonic, sleep
from typing import NamedTuple

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
MOMENT = 0.1  # seconds of a call to a worker


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


class Lateness:
    """By how much the workers' event loop was late at most: nobody could have been answered sooner."""

    def __init__(self, cluster):
        self.most = 0.0
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), cluster.loop.asyncio_loop)

    async def _watch(self):
        while True:
            since = monotonic()
            await asyncio.sleep(MOMENT / 10)
            self.most = max(self.most, monotonic() - since - MOMENT / 10)

    def stop(self):
        self._watching.cancel()
        return self.most


def local():
    # A block that is stolen is there twice: that is not what is measured here.
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        return LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        )


class PlainRun(NamedTuple):
    """What comes of a simulation that nothing holds back."""

    #: bytes on one worker at most, after each step
    most: list
    #: seconds that a step took at most
    longest: float
    #: steps that were not analysed when the simulation was over
    behind: float


@cache
def plain():
    with local() as cluster, Client(cluster) as client:
        most = Most(cluster)
        cluster.scheduler.add_plugin(most, name="most")
        workers, futures, grown, longest = list(cluster.scheduler.workers), [], [], 0.0
        for step in range(STEPS):
            sleep(STEP)
            since = monotonic()
            for rank in range(RANKS):
                where = [workers[rank * WORKERS // RANKS]]
                data = client.scatter(np.full(SIZE, float(step)), workers=where, direct=True, hash=False)
                futures.append(client.submit(analyse, data, workers=where, pure=False))
            longest = max(longest, monotonic() - since)
            grown.append(max(most.most, *(held(worker) for worker in cluster.workers.values())))
        behind = sum(not future.done() for future in futures) / RANKS
        cluster.scheduler.remove_plugin("most")
        for future in futures:
            future.cancel()
        return PlainRun(grown, longest, behind)


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
                lateness = Lateness(cluster)
                producers.start.set()
                done = producers.hear("done", RANKS)
                late = lateness.stop()
            results = client.gather(futures, errors="skip")
            skipped = reader.skipped()
            there = [step for step, future in enumerate(futures) if future.status == "finished"]
            cluster.scheduler.remove_plugin("most")
    stalls = [stalled for _, rows, *_ in done for _, _, stalled, _ in rows]
    puts = [seconds for _, rows, *_ in done for _, seconds, _, _ in rows]
    share = SIZE * 8 * RANKS // WORKERS  # bytes of one step on one worker
    if policy == "skip":
        before = plain().most[-1]
        report.add("S22", "blocks on one worker at most, steps", plain=f"{before / share:g}",
                   ours=f"{most.most / share:g}", bound=f"{MOST}, and one that a task has")  # fmt: skip
        assert before > (MOST + 1) * share
    report.add("S22", f"longest stall of a step, {policy}, s", plain="none", ours=f"{max(stalls):.2f}",
               bound=f"{STALL} + {MOMENT} for a call + {late:.2f}, as the loop was late")  # fmt: skip
    report.add("S22", f"steps of {STEPS} that were dropped and listed, {policy}", plain="none: memory fills",
               ours=len(skipped), bound="all that were not analysed")  # fmt: skip
    assert max(stalls) <= STALL + MOMENT + late
    assert max(puts) <= STALL + 2 * (MOMENT + late)  # it asks for room, and brings the block
    assert most.most <= (MOST + 1) * share
    # What was not analysed is listed, and nothing else.
    assert sorted([*there, *skipped]) == list(range(STEPS))
    assert len(results) == len(there)
    assert bool(skipped) == (policy != "spill")


@pytest.mark.slow
@pytest.mark.timed
def test_plain_dask_holds_nothing_back(report):
    """The baseline: nobody waits, nothing is dropped, and what is there grows with the steps."""
    share, run = SIZE * 8 * RANKS // WORKERS, plain()
    half, whole = run.most[STEPS // 2 - 1] / share, run.most[-1] / share
    report.add("S22", f"steps on a worker at most, after {STEPS // 2} and after {STEPS}",
               plain=f"{half:g}, {whole:g}", ours="as above", bound="not more and more")  # fmt: skip
    report.add("S22", "longest that the simulation needs for the calls of a step, s; steps behind in the end",
               plain=f"{run.longest:.2f}; {run.behind:g}", ours="as above", bound="-")  # fmt: skip
    assert half > MOST + 1 and whole > 1.5 * half
    # Producers do not stall, so nothing tells the simulation before memory is full.
    assert run.longest < STALL and run.behind > STEPS / 2
