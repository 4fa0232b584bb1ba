"""Batch jobs are preempted and requeued at random moments, under real Dask in virtual time: no result is
lost, no task runs twice, and there are never more jobs than were asked for."""

import asyncio
import os
import random
import time

import pytest
from batch_units import VirtualSite, batch_cluster_on

import dask_hpc

UNITS = 4
LENGTH = 4.0  # seconds of a task
EVERY = 30  # seconds between events, about


def effect(number, ran):
    time.sleep(LENGTH)
    ran.append(number)
    return number


def preempted(virtual_cluster, monkeypatch, seed, preemptions, requeues):
    """How many results were lost, how many tasks ran twice, and the most jobs at one time."""
    ran = RAN = []

    async def main(cluster):
        dice = random.Random(seed)
        site = VirtualSite(cluster, iter(lambda: dice.choice([1.0, 10.0, 60.0]), None))
        client = await cluster.client()
        async with batch_cluster_on(cluster, site, monkeypatch) as batch:
            manager = await dask_hpc.malleable(batch)
            batch.adapt(minimum=UNITS, maximum=UNITS)
            await client.wait_for_workers(UNITS)
            site.most = 0
            events = ["preempt"] * preemptions + ["requeue"] * requeues
            dice.shuffle(events)
            count = int(len(events) * EVERY * UNITS / LENGTH)
            futures = client.map(effect, range(count), ran=Ran(RAN), pure=False)
            while events:
                await asyncio.sleep(dice.uniform(1, 2 * EVERY))
                if len(lasting := site.lasting()) < 2:
                    continue  # somebody has to be there who takes the results
                job, again = dice.choice(lasting), dice.choice([3.0, 30.0, 121.0])
                if events.pop() == "preempt":
                    site.slurm.preempt(job, dice.choice([0.0, 10.0, 60.0]), again)
                else:
                    site.slurm.requeue(job, again)
            found = await client.gather(futures)
            assert found == list(range(count))
            story = await manager.story()
            kinds = [row["decision"] for row in story]
            assert not {"error", "lost"}.intersection(kinds), [
                r for r in story if r["decision"] in ("error", "lost")
            ]
            await manager.close()
            await client.close()
            cluster.clients.clear()
        back = sum(job.restarts for job in site.slurm.jobs.values())
        return count, site.most, back, len(site.slurm.jobs), len(site.slurm.questions), cluster.time()

    found = virtual_cluster(main, seed=seed, workers=0, until=100_000.0)
    return (len(ran) - len(set(ran)), *found)


class Ran:
    """A list that travels by reference: workers are in this process."""

    lists = {}

    def __init__(self, found):
        self.lists[id(found)] = found
        self.key = id(found)

    def append(self, number):
        self.lists[self.key].append(number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("DASK_HPC_PREEMPTED_SEEDS", "1"))))
def test_nothing_is_lost_when_units_are_preempted_and_come_back(virtual_cluster, monkeypatch, seed, report):
    share = float(os.environ.get("DASK_HPC_PREEMPTED_SHARE", "0.1"))
    preemptions, requeues = round(100 * share), round(50 * share)
    twice, count, most, back, jobs, questions, seconds = preempted(
        virtual_cluster, monkeypatch, seed, preemptions, requeues
    )
    print(
        f"seed {seed}: {count} tasks, {twice} twice, at most {most} jobs, {back} put back, {jobs} submitted"
    )
    print(f"{questions} questions in {seconds:.0f} s")
    what = f"of {count} tasks run twice, {preemptions} preemptions and {requeues} requeues"
    report.add("S4", what, plain="", ours=twice, bound=0)
    assert twice == 0 and most == UNITS and back
