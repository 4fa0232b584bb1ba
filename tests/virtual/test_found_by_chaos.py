"""What chaos found, each in the fewest steps, by the room of the package it was in."""

import asyncio
import time

import pytest

import dask_hpc


def slept(seconds, *values):
    time.sleep(seconds)
    return sum(values)


@pytest.mark.slow
def test_dask_drops_a_copy_while_the_other_worker_says_farewell(virtual_cluster):
    """A result was on two workers, so the one that closed handed over everything else. Meanwhile Dask gave up
    the copy of the other one, which was held. Nobody had it then, and it could not be computed again if it
    came from scattered data."""

    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client) as manager:
            (data,) = await client.scatter([5], workers=["w0"], hash=False)
            result = client.submit(slept, 0.1, data, key="result", workers=["w0"])
            await result
            data.release()
            other = client.submit(slept, 0.1, 1, key="other", workers=["w1"])
            busy = client.submit(slept, 60, result, key="busy", workers=["w1"], allow_other_workers=True)
            await asyncio.sleep(1)
            scheduler = cluster.scheduler
            assert len(scheduler.tasks["result"].who_has) == 2
            await manager.hold(["w0"])
            taker = cluster.workers["w2"]
            cluster.delay("w1", 1)  # so that there is time
            closing = asyncio.ensure_future(cluster.close_worker("w1", executor_wait=False))
            while "other" not in taker.state.tasks:  # it has been asked to take over what only w1 had
                await asyncio.sleep(0.01)
            scheduler.extensions["amm"].run_once()
            assert [worker.name for worker in scheduler.tasks["result"].who_has] == ["w1"]
            await closing
            await manager.release(["w0"])
            assert await client.gather([result, other, busy]) == [5, 1, 5]
            assert (await manager.status())["results_lost"] == 0

    virtual_cluster(
        main, workers=3, until=200, config={"distributed.scheduler.active-memory-manager.interval": "1h"}
    )


@pytest.mark.slow
def test_a_job_grows_whose_other_workers_are_all_on_their_way_out(virtual_cluster):
    """A task started again elsewhere because its worker's time was over; all other workers of its job were
    held, so it waited. The job got an idle node, and nobody looked at the task again."""

    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy="elastic") as manager:
            with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=2, client=client) as job:
                futures = [client.submit(slept, 20, i, key=f"m-{i}") for i in range(2)]
            await asyncio.sleep(0.5)
            leaving = []
            for name in (await job.status())["nodes"]:
                address = cluster.workers[name].address
                leaving.append(asyncio.ensure_future(client.retire_workers([address])))
                await asyncio.sleep(1)
            await leaving[0]
            assert len((await job.status())["nodes"]) == 2 and not leaving[1].done()
            assert await client.gather(futures) == [0, 1]
            await asyncio.gather(*leaving)
            assert any(row["decision"] == "task-waits" for row in await manager.story())

    virtual_cluster(main, workers=4, until=300, config={"hpc.drain": "2s"})
