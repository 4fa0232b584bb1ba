"""Blocks from outside: where they go, what they cost, and that nothing is left behind."""

import asyncio

import numpy as np
import pytest
from bridge_parts import close, declare, mailbox_of, make, plugin_of, put, shelf_of, whole
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.bridge.worker import NAME

cluster2 = gen_cluster(client=True, nthreads=[("", 1)] * 2)


def address(x):
    return x.__array_interface__["data"][0]


@cluster2
async def test_graph_first_and_nothing_is_left(c, s, a, b):
    before = [set(names) for one in (s, a, b) for names in (one.handlers, one.stream_handlers)]
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4) as reader:
        futures = c.compute([reader.array("t", step).data + 1 for step in range(3)])
        await async_poll_for(lambda: plugin_of(s)._status()["waiting"] == 12, 10)
        bridge = await declare(s)
        assert await put(bridge, range(3)) == [True] * 12
        for step, found in enumerate(await c.gather(futures)):
            np.testing.assert_array_equal(found, whole(step) + 1)
        await close(bridge)
    assert NAME not in s.plugins
    await async_poll_for(lambda: not any(NAME in name for w in (a, b) for name in w.plugins), 10)
    await async_poll_for(lambda: not any(NAME in name for w in (a, b) for name in w.stream_handlers), 10)
    assert before == [set(names) for one in (s, a, b) for names in (one.handlers, one.stream_handlers)]


@cluster2
async def test_again_after_the_end(c, s, a, b):
    for _ in range(2):
        bridge = await declare(s)
        async with await dask_hpc.Bridge.open(c, "heat") as reader:
            await put(bridge, [0])
            np.testing.assert_array_equal(await c.compute(reader.array("t", 0).data), whole(0))
            await close(bridge)


@cluster2
async def test_neighbours_meet_on_one_worker_and_nothing_is_copied(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        await put(bridge, [0])
        for worker, indices in ((a, (0, 1)), (b, (2, 3))):
            assert {index for _, index in shelf_of(worker).steps[0]} == {(i,) for i in indices}
        array = reader.array("t", 0)
        keys = [key for row in array.data.__dask_keys__() for key in [row]]
        held = c.persist(array.data)
        seen = c.persist(held.map_blocks(lambda x: np.full(4, address(x)), dtype=int))
        await wait([held, seen])
        for worker in (a, b):
            for (variable, index), block in shelf_of(worker).steps[0].items():
                key = keys[index[0]]
                assert variable == "t" and worker.data[key] is block.data
        addresses = await c.compute(seen)
        for worker in (a, b):
            for (_, index), block in shelf_of(worker).steps[0].items():
                assert addresses[4 * index[0]] == address(block.data)
        await close(bridge)


@pytest.mark.parametrize("chunks", [4, 1])
@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_messages(c, s, a, b, chunks):
    """What the scheduler hears: one message of each worker and step, whatever there are of blocks and
    producers; of producers nothing but that they come and go."""
    steps, blocks = 5, 16 // chunks
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=chunks) as reader:
        await async_poll_for(lambda: len(plugin_of(s).streams["heat"].workers) == 2, 10)
        for worker in (a, b):
            mailbox_of(worker)._linger = 60  # however slow this machine is
        futures = c.compute([reader.array("t", step).data.sum() for step in range(steps)])
        bridges = [await declare(s, rank, chunks=chunks) for rank in range(4)]
        before = [dict(bridge.messages) for bridge in bridges]
        for step in range(steps):
            for i in range(blocks):
                block = np.full(chunks, float(i))
                await asyncio.to_thread(bridges[i * 4 // blocks].put, "t", block, i, step)
        assert await c.gather(futures) == [chunks * sum(range(blocks))] * steps
        heard = (await reader.status())["messages"]
        assert heard == {"producer": 4, "blocks": 2 * steps}
        for bridge, old in zip(bridges, before, strict=True):
            assert bridge.messages["scheduler"] == old["scheduler"]
            # one for each block, and for each step and worker perhaps whether there is room
            assert bridge.messages["workers"] <= steps * (blocks // 4 + 1)
        await close(*bridges)


@cluster2
async def test_late_neighbour(c, s, a, b):
    """A block is consumed although its neighbours on the same worker are late."""
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        first = c.compute(reader.array("t", 0).data[:4])
        await put(bridge, [0], [0])
        np.testing.assert_array_equal(await first, make(0, 0))
        await close(bridge)


@cluster2
async def test_several_steps_and_variables(c, s, a, b):
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4, dims=["x"], most_steps=4) as reader:
        t, u = (reader.array(name, range(3)) for name in ("t", "u"))
        assert t.dims == ("step", "x") and t.name == "t" and list(t.step.values) == [0, 1, 2]
        both = c.compute((t + u).data)
        bridge = await declare(s, dims=["x"], most_steps=4)
        for step in range(3):
            await put(bridge, [step])
            await put(bridge, [step], variable="u")
        np.testing.assert_array_equal(await both, 2 * np.stack([whole(step) for step in range(3)]))
        await close(bridge)


@cluster2
async def test_put_again_changes_nothing(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        await put(bridge, [0])
        kept = [block.data for block in shelf_of(a).steps[0].values()]
        assert await put(bridge, [0]) == [True] * 4
        assert all(x is block.data for x, block in zip(kept, shelf_of(a).steps[0].values(), strict=True))
        np.testing.assert_array_equal(await c.compute(reader.array("t", 0).data), whole(0))
        await close(bridge)


@cluster2
async def test_the_block_may_be_changed_after_put(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        block = np.zeros(4)
        for i in range(4):
            block[:] = make(i, 0)
            await asyncio.to_thread(bridge.put, "t", block, i, 0)
        np.testing.assert_array_equal(await c.compute(reader.array("t", 0).data), whole(0))
        await close(bridge)


@cluster2
async def test_two_consumers_share_a_step_and_a_late_one_is_told(c, s, a, b):
    bridge = await declare(s, most_steps=1)
    async with await dask_hpc.Bridge.open(c, "heat") as one, await dask_hpc.Bridge.open(c, "heat") as two:
        sums = [c.compute(reader.array("t", 0).data.sum()) for reader in (one, two)]
        await put(bridge, [0])
        assert await c.gather(sums) == [whole(0).sum()] * 2
        assert (
            await c.compute(one.array("t", 0).data.max()) == whole(0).max()
        )  # still there: room is not needed
        await put(bridge, [1])
        with pytest.raises(
            LookupError, match="step 0 of t from bridge heat is not there: it has been consumed"
        ):
            await c.compute(two.array("t", 0).data.max())
        await close(bridge)


@cluster2
async def test_the_end_is_told(c, s, a, b):
    bridge = await declare(s)
    async with await dask_hpc.Bridge.open(c, "heat") as reader:
        early = c.compute(reader.array("t", 7).data.sum())
        await put(bridge, [0])
        await close(bridge)
        with pytest.raises(LookupError, match=r"the producers have ended; the last step was 0"):
            await early
        with pytest.raises(LookupError, match="the producers have ended"):
            await c.compute(reader.array("t", 8).data.sum())


@cluster2
async def test_closed_with_tasks_waiting(c, s, a, b):
    reader = await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4)
    waiting = c.compute(reader.array("t", 7).data.sum())
    await async_poll_for(lambda: plugin_of(s)._status()["waiting"] == 4, 10)
    await reader.close()
    with pytest.raises(LookupError, match="bridge"):
        await waiting
    assert NAME not in s.plugins


@cluster2
async def test_bad_input(c, s, a, b):
    bridge = await declare(s)
    with pytest.raises(dask_hpc.InputError, match="as declared before"):
        await declare(s, rank=1, chunks=8)
    for call, words in (
        (lambda: bridge.put("t", np.zeros(3), 0, 0), "allowed: float64"),
        (lambda: bridge.put("t", np.zeros(4, "f4"), 0, 0), "allowed: float64"),
        (lambda: bridge.put("t", np.zeros(4), 4, 0), "index"),
        (lambda: bridge.put("t", np.zeros(4), (0, 0), 0), "index"),
        (lambda: bridge.put("a/b", np.zeros(4), 0, 0), "variable"),
        (lambda: bridge.put("t", np.zeros(4), 0, -1), "step"),
        (lambda: bridge.put("t", np.zeros(4), 0, 1.5), "step"),
    ):
        with pytest.raises(dask_hpc.InputError, match=words):
            await asyncio.to_thread(call)
    await close(bridge)
    with pytest.raises(RuntimeError, match="closed"):
        await put(bridge, [0])
    with pytest.raises(dask_hpc.InputError, match="no producer came"):
        await dask_hpc.Bridge.open(c, "nobody", timeout="100ms")
    with pytest.raises(dask_hpc.InputError, match="chunks"):
        await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=(5, 5))
    assert NAME not in s.plugins


def test_nobody_at_the_address():
    for address in ("tcp://127.0.0.1:1", "no address", "xyz://1", "", None):
        with pytest.raises(dask_hpc.InputError, match="address"):
            dask_hpc.Bridge(address, "heat", shape=4, chunks=2, timeout="500ms")


class Communicator:
    """A stand-in for one of mpi4py's."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size


@cluster2
async def test_ranks_of_mpi(c, s, a, b):
    async with await dask_hpc.Bridge.open(c, "heat", shape=16, chunks=4) as reader:
        total = c.compute(reader.array("t", 0).data.sum())
        never = c.compute(reader.array("t", 1).data.sum())
        for rank in range(2):
            comm = Communicator(rank, 2)
            bridge = await asyncio.to_thread(dask_hpc.Bridge.from_mpi, comm, s.address, "heat", 16, 4)
            await put(bridge, [0], [2 * rank, 2 * rank + 1])
            await close(bridge)  # the first one to end is not the end
            producer = plugin_of(s).streams["heat"].producers[rank]
            await async_poll_for(lambda p=producer: p.has_ended, 10)
            assert plugin_of(s).streams["heat"].has_ended is (rank == 1)
        assert await total == whole(0).sum()
        with pytest.raises(LookupError, match="the producers have ended"):
            await never
