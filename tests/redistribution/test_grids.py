"""Grids by number of nodes, and layouts by hand, on real clusters: redistributed and restored."""

import threading

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import wait
from small_cluster import cluster4

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError
from dask_hpc.redistribution.client import lay_out_on

VALUES = np.random.default_rng(0).random((8, 8))


def owners(s, x):
    """For each chunk the one worker that has it, by number of the chunk."""
    found, futures = {}, dict(x.__dask_graph__())  # of one that was restored the keys are others
    for index in np.ndindex(*x.numblocks):
        (found[index],) = compat.holders(compat.find_task(s, futures[(x.name, *index)].key))
    return found


async def persisted(c, chunks=2, values=VALUES):
    x = c.persist(da.from_array(values, chunks=chunks))
    await wait(x)
    return x


@cluster4
async def test_the_grid_for_the_nodes_that_there_are(c, s, *workers):
    x = await persisted(c)
    grids = {4: (2, 2), 2: (1, 2)}
    x = await dask_hpc.redistribute(x, layout=grids)
    there = owners(s, x)
    quarters = [{there[i, j] for i in rows for j in columns} for rows in (range(2), range(2, 4))
                for columns in (range(2), range(2, 4))]  # fmt: skip
    assert all(len(one) == 1 for one in quarters) and len(set.union(*quarters)) == 4
    y = await dask_hpc.redistribute(x, 2, layout=grids)
    there = owners(s, y)
    assert len(set(there.values())) == 2
    assert {len({there[i, j] for i in range(4)}) for j in range(4)} == {1}
    assert np.array_equal(await c.compute(y), VALUES)
    with pytest.raises(InputError, match="redistribute: layout: no grid was given for 3 nodes"):
        await dask_hpc.redistribute(y, 3, layout=grids)


@cluster4
async def test_by_hand(c, s, *workers):
    x = await persisted(c)
    seen = []

    def diagonal(data, nodes):
        seen.append((data.sum().compute(), nodes, threading.current_thread()))
        return np.add.outer(range(4), range(4)) % len(nodes)

    plan = await dask_hpc.plan_redistribution(x, 3, layout=diagonal)
    assert len(plan.nodes) == 3 and plan.cuts == 0 and plan.bytes_moved == plan.lower_bound
    assert "by hand" in repr(plan)
    y = await plan.carry_out()
    ((total, nodes, thread),) = seen  # it was asked once
    assert total == pytest.approx(VALUES.sum()) and nodes == plan.nodes
    assert thread is not threading.current_thread()
    address = {str(worker.name): worker.address for worker in workers}
    there = owners(s, y)
    assert there == {(i, j): address[nodes[(i + j) % 3]] for i, j in there}
    assert y.name == x.name, "whole chunks keep their keys"
    assert np.array_equal(await c.compute(y), VALUES)


@cluster4
async def test_by_hand_a_worker_is_gone_before_it_is_done(c, s, *workers):
    x = c.persist(da.from_array(VALUES, chunks=2))
    await wait(x)
    asked = []

    def by_rows(data, nodes):
        asked.append(nodes)
        return np.repeat([[0], [0], [1], [1]], 4, axis=1)

    plan = await dask_hpc.plan_redistribution(x, 2, layout=by_rows)
    (gone,) = [worker for worker in workers if str(worker.name) == plan.nodes[1]]
    await gone.close()
    y = await plan.carry_out()
    there = owners(s, y)
    assert len(asked) == 1 and len(set(there.values())) == 2 and gone.address not in there.values()
    assert {there[i, j] for i in (0, 1) for j in range(4)}.isdisjoint(there[i, 0] for i in (2, 3))
    assert np.array_equal(await c.compute(y), VALUES)


@cluster4
async def test_nodes_come_in_the_order_of_an_allotment(c, s, *workers):
    x, order = await persisted(c), [workers[number].address for number in (2, 0, 3)]
    rows = np.repeat([[0], [1], [2], [2]], 4, axis=1)
    y, names = await lay_out_on(x, order, lambda data, nodes: rows, c)
    assert owners(s, y) == {index: order[number] for index, number in np.ndenumerate(rows)}
    assert names == [y.name]


@cluster4
async def test_by_hand_of_a_dataset_and_what_is_wrong(c, s, *workers):
    ds = xr.Dataset({"u": (("x", "y"), VALUES), "v": ("x", VALUES[0])}).chunk(x=4, y=8)
    answer = {"u": [[3], [0]], "v": [1, 1]}
    new = await dask_hpc.redistribute(ds, layout=lambda data, nodes: answer)
    address = [worker.address for worker in workers]
    assert owners(s, new.u.data) == {(0, 0): address[3], (1, 0): address[0]}
    assert set(owners(s, new.v.data).values()) == {address[1]}
    assert (await c.compute(new)).identical(ds.compute(scheduler="sync"))
    for answer, words in [
        ({"u": [[3], [0]]}, "redistribute: layout: its function gave .*; allowed: nodes for u, v"),
        ({"u": [[4], [0]], "v": [1, 1]}, "redistribute: layout of u: its function gave 0 to 4"),
        (None, "redistribute: layout: its function gave None"),
    ]:
        with pytest.raises(InputError, match=words):
            await dask_hpc.redistribute(ds, layout=lambda data, nodes, answer=answer: answer)
    with pytest.raises(ZeroDivisionError):
        await dask_hpc.redistribute(ds, layout=lambda data, nodes: 1 / 0)


async def restored_in_a_grid_and_by_hand(root, c, s, *workers):
    u = c.persist(da.from_array(VALUES, chunks=((3, 1, 4), (2, 6))))
    plain = xr.Dataset({"w": (("x", "y"), VALUES), "z": ("x", VALUES[0])})
    ds = c.persist(plain.chunk(x=4, y=8))
    async with dask_hpc.Checkpoint("run", root) as ck:
        await ck.add("u", u)
        await ck.add("ds", ds)
        await ck.add("even", await persisted(c))
        async for _ in ck.loop(range(1)):
            pass
    del u, ck
    by_name = {str(worker.name): worker.address for worker in workers}
    address = []
    numbers = np.array([[0, 1], [2, 3], [1, 0]])

    def by_hand(data, nodes):
        address[:] = [by_name[node] for node in nodes]
        if isinstance(data, xr.Dataset):
            return {"w": [[1], [2]], "z": [3, 3]}
        if data.chunks[0] == (2, 2, 2, 2):
            return np.zeros((4, 4), int)
        assert data.chunks == ((3, 1, 4), (2, 6)) and data.sum().compute() == pytest.approx(VALUES.sum())
        return numbers

    found, _ = await dask_hpc.restore("run", root, layout=by_hand, client=c)
    assert found["u"].chunks == ((3, 1, 4), (2, 6))
    assert owners(s, found["u"]) == {index: address[n] for index, n in np.ndenumerate(numbers)}
    assert owners(s, found["ds"].w.data) == {(0, 0): address[1], (1, 0): address[2]}
    assert set(owners(s, found["ds"].z.data).values()) == {address[3]}
    assert np.array_equal(await c.compute(found["u"]), VALUES)
    assert (await c.compute(found["ds"])).identical(plain)
    del found

    found, _ = await dask_hpc.restore(
        "run", root, layout={4: (4, 1), 2: (2, 1)}, nodes=2, client=c, item="even"
    )
    there = owners(s, found)
    assert set(there.values()) == set(address[:2]) and np.array_equal(await c.compute(found), VALUES)
    assert len({there[0, j] for j in range(found.numblocks[1])}) == 1
    for layout, words in [
        ({4: (4, 1)}, "no grid was given for 2 nodes"),
        ({2: (2, 1, 1)}, "found a grid of 3 dimensions; allowed: at most 2"),
        (
            lambda data, nodes: [[0, 0]],
            "layout: its function gave .* numbers of nodes, 0 to 1",
        ),
    ]:
        with pytest.raises(InputError, match=words):
            await dask_hpc.restore("run", root, layout=layout, nodes=2, client=c, item="u")


def test_restored_in_a_grid_and_by_hand(tmp_path):
    """The chunks are those that the program had, also where the store has others."""

    @cluster4
    async def test(c, s, *workers):
        await restored_in_a_grid_and_by_hand(str(tmp_path), c, s, *workers)

    test()
