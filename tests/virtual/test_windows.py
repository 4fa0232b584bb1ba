"""Windows by the virtual clock: what a program may cost a change, and that what it is told adds up."""

import asyncio
import time

import pytest

import dask_hpc

WINDOW, DRAIN = 40.0, 5.0
CONFIG = {"hpc.drain": "5s", "hpc.spread": False}


def slept(seconds, x=None):
    time.sleep(seconds)
    return x


async def until(cluster, what, seconds=200):
    limit = cluster.time() + seconds
    while not what():
        assert cluster.time() < limit, "it never came"
        await asyncio.sleep(0.05)


def job_of(cluster):
    control = cluster.scheduler.plugins["dask-hpc"].control
    (job,) = control.jobs.values()
    return control, job


def evolving(client, **more):
    return dask_hpc.job("e", nodes=2, min_nodes=1, max_nodes=4, kind="evolving", client=client, **more)


def reasons(cluster, decision):
    return [
        row.reason
        for row in cluster.scheduler.plugins["dask-hpc"].story.happenings
        if row.decision == decision
    ]


async def change(cluster, job, by):
    """How long it takes."""
    _, live = job_of(cluster)
    size, began = len(live.nodes) + by, cluster.time()
    await job.request(by)
    await until(cluster, lambda: len(live.nodes) == size)
    return cluster.time() - began


async def hangs(change):
    await asyncio.Event().wait()


async def is_slow(change):
    await asyncio.sleep(3)


async def is_late(change):
    await asyncio.sleep(70)


@pytest.mark.parametrize(
    "function, window, least, most",
    [
        (hangs, WINDOW, WINDOW, WINDOW + 0.2),
        (is_slow, WINDOW, 3, 3.2),
        (is_late, WINDOW, WINDOW, WINDOW + 0.2),
        (hangs, None, DRAIN, DRAIN + 0.2),  # as long as running tasks
        (hangs, 0, 0, 0.2),
    ],
)
def test_a_change_waits_no_longer_than_its_window(virtual_cluster, function, window, least, most):
    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy="fcfs"):
            async with evolving(client, on_resize=function, window=window) as job:
                await client.submit(slept, 1)
                await asyncio.sleep(100)  # the first call, when the job starts, may last
                grown, shrunk = await change(cluster, job, +2), await change(cluster, job, -3)
                assert least <= grown <= most and least <= shrunk <= most
                assert await client.submit(slept, 1, 7) == 7
            is_told = [one for one in reasons(cluster, "window") if "not done within" in one]
            assert len(is_told) == (2 if function is not is_slow and window != 0 else 0)

    virtual_cluster(main, config=CONFIG, until=1000)


def test_nobody_waits_for_a_client_that_is_gone(virtual_cluster):
    async def main(cluster):
        client, other = await cluster.client("a"), await cluster.client("b")
        async with await dask_hpc.manage(other, policy="fcfs"):

            async def enter():
                job = evolving(client, on_resize=hangs, window="10 min")
                await job.__aenter__()
                client.submit(slept, 300, key="long")
                await asyncio.sleep(2)
                await job.request(+2)
                await asyncio.sleep(2)

            await cluster.within("a", enter())
            control, live = job_of(cluster)
            assert control.indices.running[live.id].target == 4 and len(live.nodes) == 2
            future = other.submit(slept, 300, key="long")  # so that the job goes on
            await asyncio.sleep(1)
            began = cluster.time()
            cluster.kill("a")
            await until(cluster, lambda: len(live.nodes) == 4)
            assert cluster.time() - began < 60 and not control.windows._programs
            assert await future is None

    virtual_cluster(main, config=CONFIG, until=1000)


def chaos(seed):
    """Whatever happens to its nodes and however slow its program is: what it was told is what it has."""

    async def main(cluster):
        client, dice, told, inside = await cluster.client(), cluster.random, [], []

        async def adapt(change):
            assert not inside, "windows of one job do not nest"
            inside.append(change)
            await asyncio.sleep(dice.choice([0, 0.5, 8]))
            told.append(change)
            inside.clear()
            if dice.random() < 0.2:
                raise RuntimeError("whatever")

        async with await dask_hpc.manage(client, policy="fpsma-pwma"):
            job = dask_hpc.job(
                "m", nodes=2, min_nodes=1, max_nodes=5, on_resize=adapt, window="4s", client=client
            )
            async with job:
                work = client.map(slept, [3] * 60, range(60), pure=False)
                rivals = []
                for _ in range(8):
                    await asyncio.sleep(dice.uniform(0.2, 9))
                    match dice.choice(["kill", "join", "rival", "leave", "nothing"]):
                        case "kill" if len(cluster.workers) > 2:
                            cluster.kill(dice.choice(sorted(cluster.workers)))
                        case "leave" if len(cluster.workers) > 2:
                            await cluster.close_worker(dice.choice(sorted(cluster.workers)), is_graceful=True)
                        case "join":
                            await cluster.add_worker()
                        case "rival":
                            with dask_hpc.job("r", nodes=dice.choice([1, 2]), walltime="1h", client=client):
                                rivals += client.map(slept, [4, 4], pure=False)
                assert await client.gather(work) == list(range(60))
                await asyncio.sleep(60)
                control = cluster.scheduler.plugins["dask-hpc"].control
                knows = ()
                for one in told:
                    assert {*one.staying, *one.leaving} == set(knows), "it adds up"
                    assert not {*one.joining} & {*knows}
                    knows = one.nodes
                live = control.jobs[job.id]
                assert set(knows) == set(live.nodes) == {name for one in told[-1:] for name in one.nodes}
                assert set(told[-1].workers) == live.workers
                assert cluster.scheduler.plugins["dask-hpc"].errors == 0
            await client.gather(rivals)
            return len(told)

    return main


def test_what_it_is_told_adds_up(virtual_cluster):
    changes = [virtual_cluster(chaos(seed), seed, workers=3, config=CONFIG, until=2000) for seed in range(4)]
    assert sum(changes) > 10


@pytest.mark.slow
def test_what_it_is_told_adds_up_under_many_seeds(virtual_cluster):
    for seed in (*range(100, 123), 305):
        virtual_cluster(chaos(seed), seed, workers=3, config=CONFIG, until=2000)
