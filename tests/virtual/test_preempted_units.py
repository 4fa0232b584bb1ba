"""Batch jobs are preempted and requeued at random moments, under real Dask in virtual time: no result is
lost, no task runs twice, and there are never more jobs than were asked for.

That presumes somebody to take the results: whenever one is told to end, another is there that is not. Where
that is not so, what only the last one held is lost if nobody comes in its last seconds (``KillWait``): that,
and nothing else.
"""

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


def preempted(virtual_cluster, monkeypatch, seed, preemptions, requeues, least):
    """What became of it, if it happens only while so many jobs last: how many tasks ran twice, who ended
    while nobody else was there, and of how many workers results were lost; and numbers."""
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
                if len(lasting := site.lasting()) < least:
                    continue
                job, again = dice.choice(lasting), dice.choice([3.0, 30.0, 121.0])
                if events.pop() == "preempt":
                    site.slurm.preempt(job, dice.choice([0.0, 10.0, 60.0]), again)
                else:
                    site.slurm.requeue(job, again)
            found = await client.gather(futures)
            assert found == list(range(count))
            alone = list(site.alone)
            kinds = [row["decision"] for row in await manager.story()]
            assert "error" not in kinds
            await manager.close()
            await client.close()
            cluster.clients.clear()
        back = sum(job.restarts for job in site.slurm.jobs.values())
        lost = kinds.count("lost")
        return (
            alone,
            lost,
            count,
            site.most,
            back,
            len(site.slurm.jobs),
            len(site.slurm.questions),
            cluster.time(),
        )

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
@pytest.mark.parametrize("least", [2, 1])
@pytest.mark.parametrize("seed", range(int(os.environ.get("DASK_HPC_PREEMPTED_SEEDS", "1"))))
def test_nothing_is_lost_when_units_are_preempted_and_come_back(
    virtual_cluster, monkeypatch, seed, least, report
):
    share = float(os.environ.get("DASK_HPC_PREEMPTED_SHARE", "0.1"))
    preemptions, requeues = round(100 * share), round(50 * share)
    twice, alone, lost, count, most, back, jobs, questions, seconds = preempted(
        virtual_cluster, monkeypatch, seed, preemptions, requeues, least
    )
    print(
        f"seed {seed}, {least} last: {count} tasks, {twice} twice, {lost} lost, {len(alone)} alone, at most"
    )
    print(f"{most} jobs, {back} put back, {jobs} submitted, {questions} questions in {seconds:.0f} s")
    assert most == UNITS and back
    assert lost <= len(alone) and (alone or not twice)
    if least > 1:
        what = f"of {count} tasks run twice, {preemptions} preemptions and {requeues} requeues"
        report.add("S4", what, plain="", ours=twice, bound=0)
        assert twice == lost == 0 and not alone
