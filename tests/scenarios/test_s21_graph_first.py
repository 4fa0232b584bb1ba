"""S21: consumers submit their graph for all steps before there is any data; then four processes bring it.

Plain Dask cannot: data that is registered under the key of a waiting task wakes nobody. There the graph of a
step can be submitted only when its data are there.
"""

import asyncio
from functools import partial, wraps
from itertools import pairwise

import numpy as np
import pytest
from bridge_parts import mailbox_of
from bridge_producers import Producers, whole
from distributed import Client, LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster, gen_test

import dask_hpc

RANKS, STEPS, WORKERS = 4, 10, 2
SIZES = (1_000, 500_000)  # numbers in a block: 8 kB, 4 MB


def local(**options):
    return LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0",
        **options,
    )  # fmt: skip


@gen_test()
async def test_plain_dask_wakes_nobody():
    """The baseline: data for a key that a task has already, and the task after it."""
    async with local(asynchronous=True) as cluster, Client(cluster, asynchronous=True) as c:
        tasks = cluster.scheduler.tasks
        waits = c.submit(sum, [1, 2], key="block", resources={"producer": 1})
        after = c.submit(lambda x: x + 1, waits, key="after")
        await async_poll_for(lambda: "after" in tasks and tasks["block"].state == "no-worker", 10)
        data = await c.scatter({"block": 3}, workers=[next(iter(cluster.scheduler.workers))])
        assert await data["block"] == 3
        assert tasks["block"].state == "memory" and tasks["after"].state == "waiting"
        assert after.status == "pending"


@pytest.mark.slow
def test_graph_first(report):
    with local() as cluster, Client(cluster) as client:
        readers = [
            dask_hpc.Bridge.open(client, f"heat{size}", shape=RANKS * size, chunks=size, most_steps=4)
            for size in SIZES
        ]
        futures = []
        for reader in readers:
            arrays = [reader.array("t", step) for step in range(STEPS)]
            sums = client.compute([array.data[::2].sum() for array in arrays])
            changes = client.compute([(later.data - one.data).max() for one, later in pairwise(arrays)])
            futures.append((sums, changes))
        with Producers(cluster.scheduler_address, RANKS, SIZES, range(STEPS), most_steps=4) as producers:
            producers.hear("there", RANKS)
            assert {one.status for sums, changes in futures for one in (*sums, *changes)} == {"pending"}
            producers.start.set()
            found = [(client.gather(sums), client.gather(changes)) for sums, changes in futures]
            done = producers.hear("done", RANKS * len(SIZES))
            heard = [reader.status()["messages"] for reader in readers]
        for reader in readers:
            reader.close()
    for size, (sums, changes) in zip(SIZES, found, strict=True):
        truth = [whole(RANKS, step, size) for step in range(STEPS)]
        np.testing.assert_allclose(sums, [array[::2].sum() for array in truth], rtol=1e-13)
        assert changes == [(b - a).max() for a, b in pairwise(truth)]
    # A producer says that it is there and that it ends, and nothing in between.
    assert [row[3]["scheduler"] for row in done] == [1] * len(done)
    counts = [messages["blocks"] for messages in heard]
    # A worker tells once of a step; or of its blocks one by one, if they come far from each other.
    assert all(STEPS * WORKERS <= count <= STEPS * RANKS for count in counts), counts
    report.add("S21", "graph of 10 steps before any data, 4 producers", plain="never runs", ours="runs",
               bound="equal to numpy")  # fmt: skip
    small, big = (f"{count / STEPS:g}" for count in counts)
    report.add("S21", "messages to the scheduler per step, blocks of 8 kB and 4 MB", plain="-",
               ours=f"{small} and {big}", bound="2 (workers) to 4 (producers)")  # fmt: skip


# --- messages to the scheduler do not grow with the producers


FEW, MANY, TURNS = 2, 16, 5


async def bridged(c, s, workers, ranks, count):
    """Messages of a step that the scheduler has had, when so many producers share so many blocks."""
    declared = {"shape": count * 8, "chunks": 8, "most_steps": TURNS}
    name, blocks = f"of-{ranks}-{count}", range(count)
    async with await dask_hpc.Bridge.open(c, name, **declared) as reader:
        open_one = partial(asyncio.to_thread, dask_hpc.Bridge, s.address, name, size=ranks, **declared)
        producers = await asyncio.gather(*(open_one(rank=rank) for rank in range(ranks)))
        for worker in workers:
            # Blocks that come late are told one by one, ten times a second at most: a matter of time, and of
            # how busy this machine is. Here nothing is late.
            mailbox_of(worker)._linger = 60
        total = c.compute(reader.array("t", range(TURNS)).data.sum())
        for step in range(TURNS):
            puts = [
                asyncio.to_thread(producers[i % ranks].put, "t", np.full(8, float(step + i)), i, step)
                for i in blocks
            ]
            assert all(await asyncio.gather(*puts))
        assert await total == sum(8.0 * (step + i) for step in range(TURNS) for i in blocks)
        before = (await reader.status())["messages"]
        assert {one.messages["scheduler"] for one in producers} == {1}  # that it is there
        await asyncio.gather(*(asyncio.to_thread(producer.close) for producer in producers))
    assert before.pop("producer") == ranks and before.keys() == {"blocks"}
    return before["blocks"] / TURNS


async def scattered(c, s, ranks):
    """The same in plain Dask: each producer scatters its blocks of a step at once."""
    heard, update = [], s.handlers["update_data"]

    @wraps(update)
    def counted(*args, **kwargs):
        heard.append(1)
        return update(*args, **kwargs)

    s.handlers["update_data"] = counted
    for step in range(TURNS):
        blocks = [np.full(8, float(step + i)) for i in range(MANY)]
        share = [blocks[rank::ranks] for rank in range(ranks)]
        await asyncio.gather(*(c.scatter(one, direct=True, hash=False) for one in share))
    s.handlers["update_data"] = update
    return len(heard) / TURNS


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * WORKERS)
async def test_messages_of_a_step_do_not_grow_with_the_producers(c, s, a, b, report):
    """Each brings one block of a step, or two bring those of sixteen."""
    plain = [await scattered(c, s, ranks) for ranks in (FEW, MANY)]
    cases = [(FEW, FEW), (FEW, MANY), (MANY, MANY)]
    ours = [await bridged(c, s, (a, b), *case) for case in cases]
    report.add("S21", f"messages to the scheduler per step, {FEW} and {MANY} producers",
               plain=f"{plain[0]:g} and {plain[1]:g}", ours=f"{ours[0]:g} and {ours[-1]:g}",
               bound=f"{WORKERS} (workers)")  # fmt: skip
    assert plain == [FEW, MANY]
    assert ours == [WORKERS] * len(cases)
