"""A live policy is asked again when it wants to be, though nothing has happened."""

import asyncio
import time

import dask_hpc

DWELL = 200.0


def slept(seconds, number):
    time.sleep(seconds)
    return number


async def started(cluster, name):
    """When a job started; waits for it."""
    control = cluster.scheduler.plugins["dask-hpc"].control
    limit = cluster.time() + 1000
    while not (found := [job for job in control.jobs.values() if job.name == name and job.nodes]):
        assert cluster.time() < limit, "it never came"
        await asyncio.sleep(0.05)
    return control.indices.running[found[0].id].started


def test_a_job_that_rests_between_resizes_gives_nodes_when_that_is_over(virtual_cluster):
    dwell = {f"{concern}.dwell": DWELL for concern in ("queue", "malleability")}
    policy = dask_hpc.Policy.load("elastic").with_(**dwell)

    async def main(cluster):
        client = await cluster.client()

        def job(name, **sizes):
            return dask_hpc.job(name, walltime="10h", client=client, **sizes)

        async with await dask_hpc.manage(client, policy=policy), job("a", nodes=4, min_nodes=1, max_nodes=4):
            futures = client.map(slept, [1000.0] * 8, range(8))
            await started(cluster, "a")
            async with job("b", nodes=1):
                futures.append(client.submit(slept, 5000.0, 8))
                first = await started(cluster, "b")
                async with job("c", nodes=1):
                    futures.append(client.submit(slept, 5000.0, 9))
                    second = await started(cluster, "c")
            assert await client.gather(futures) == list(range(10))
        assert DWELL <= second - first < DWELL + 1

    virtual_cluster(main, workers=4, until=50_000)
