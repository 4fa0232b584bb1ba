"""S21: consumers submit their graph for all steps before there is any data; then four processes bring it.

Plain Dask cannot: data that is registered under the key of a waiting task wakes nobody. There the graph of a
step can be submitted only when its data are there.
"""

import numpy as np
import pytest
from bridge_producers import Producers, whole
from distributed import Client, LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc

RANKS, STEPS, WORKERS = 4, 10, 2


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_plain_dask_wakes_nobody(c, s, a, b):
    """The baseline: data for a key that a task has already, and the task after it."""
    waits = c.submit(sum, [1, 2], key="block", resources={"producer": 1})
    after = c.submit(lambda x: x + 1, waits, key="after")
    await async_poll_for(lambda: "after" in s.tasks and s.tasks["block"].state == "no-worker", 10)
    await c.scatter({"block": 3}, workers=[a.address], direct=True)
    assert s.tasks["block"].state == "memory" and s.tasks["after"].state == "waiting"
    after.release()


def messages(size):
    """A run with blocks of so many numbers: what the scheduler heard, and whether all was right."""
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.Bridge.open(client, "heat", shape=RANKS * size, chunks=size, most_steps=4) as reader,
    ):
        arrays = [reader.array("t", step) for step in range(STEPS)]
        futures = client.compute([array.data[::2].sum() for array in arrays])
        changes = client.compute(
            [(later.data - one.data).max() for one, later in zip(arrays, arrays[1:], strict=False)]
        )
        waiting = [future.status for future in (*futures, *changes)]
        # The workers are linger-free: however slow this machine is, they tell of a step when it is whole.
        with Producers(cluster.scheduler_address, RANKS, size, range(STEPS), most_steps=4) as producers:
            producers.hear("there", RANKS)
            nobody = [future.status for future in (*futures, *changes)]
            producers.start.set()
            done = producers.hear("done", RANKS)
            found, differences = client.gather(futures), client.gather(changes)
        heard = reader.status()["messages"]
    truth = [whole(RANKS, step, size) for step in range(STEPS)]
    np.testing.assert_allclose(found, [array[::2].sum() for array in truth], rtol=1e-14)
    assert differences == [(b - a).max() for a, b in zip(truth, truth[1:], strict=False)]
    assert set(waiting) | set(nobody) == {"pending"}
    per_step = [row[3]["scheduler"] for row in done]
    return heard, per_step


@pytest.mark.slow
def test_graph_first(report):
    small, big = messages(1_000), messages(500_000)
    for heard, producers in (small, big):
        # A producer says that it is there, and that it ends.
        assert producers == [1] * RANKS
        # A worker tells of a step once; or of a block, if its neighbour is late.
        assert STEPS * WORKERS <= heard["blocks"] <= STEPS * RANKS
    each = [heard["blocks"] / STEPS for heard, _ in (small, big)]
    report.add("S21", "graph of 10 steps before any data, 4 producers", plain="not possible", ours="right",
               bound="equal to numpy")  # fmt: skip
    report.add("S21", "messages to the scheduler per step, blocks of 8 kB and of 4 MB", plain="-",
               ours=f"{each[0]:g} and {each[1]:g}", bound=f"{WORKERS} (workers) to {RANKS}")  # fmt: skip
