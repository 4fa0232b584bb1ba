"""Arrays on a real cluster: from any number of workers to any other, in any layout, with the same values."""

from itertools import product

import cftime
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError

four = gen_cluster(client=True, nthreads=[("", 1)] * 4)
SHAPES = [(13,), (1,), (0,), (97, 5), (4, 0, 3), (3, 1, 7), ()]
LAYOUTS = ["block", "cyclic", "block-cyclic:3", "replicated"]


def holders(s, array):
    """By index of the chunk, where it is."""
    keys = {key[1:]: key for row in [array.__dask_keys__()] for key in _flat(row)}
    return {index: compat.holders(compat.find_task(s, key)) for index, key in keys.items()}


def _flat(keys):
    return [key for one in keys for key in _flat(one)] if isinstance(keys, list) else [keys]


async def persisted(c, array, chunks):
    x = c.persist(da.from_array(array, chunks=chunks))
    await wait(x)
    return x


async def from_to(c, s, workers, shape, old, new, before, after):
    array = np.random.default_rng(0).random(shape)
    x = await persisted(c, array, 2)
    x = await dask_hpc.redistribute(x, workers=workers[:old], layout=before)
    assert {where for there in holders(s, x).values() for where in there} <= set(workers[:old])
    plan = await dask_hpc.plan_redistribution(x, new, layout=after)
    assert len(plan.nodes) == new and plan.bytes_moved == plan.lower_bound
    y = await plan.carry_out()
    names = {worker.name: worker.address for worker in s.workers.values()}
    targets = {str(names[int(node)]) for node in plan.nodes}
    copies = new if after == "replicated" else 1
    for there in holders(s, y).values():
        assert len(there) == copies and set(there) <= targets
    assert np.array_equal(await c.compute(y), array) and y.dtype == array.dtype


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 9, timeout=280)
async def test_any_number_to_any_number(c, s, *workers):
    pairs = list(product(LAYOUTS, LAYOUTS))
    addresses = [worker.address for worker in workers]
    every = [(old, new) for old, new in product(range(1, 10), range(1, 10)) if (old + new) % 2 == 0]
    for number, (old, new) in enumerate(every):  # each number with five others or four
        before, after = pairs[number % len(pairs)]
        await from_to(c, s, addresses, SHAPES[number % len(SHAPES)], old, new, before, after)


def dataset(shape=(12, 6)):
    """Of what a user may have in it."""
    x, y = shape
    values = np.random.default_rng(1).random(shape)
    times = xr.date_range("2000-01-01", periods=x, calendar="360_day", use_cftime=True)
    assert isinstance(times[0], cftime.datetime)
    ds = xr.Dataset(
        {
            "u": (("x", "y"), da.from_array(values, chunks=(5, 4)), {"units": "K"}),
            "v": (("y", "x"), da.from_array(values.T.astype("f4"), chunks=(6, 5))),
            "mask": (("x",), da.from_array(values[:, 0] > 0.5, chunks=5)),
            "of_y": (("y",), da.from_array(values[0], chunks=2)),
            "here": (("x",), np.arange(x)),
            "name": ((), "a word"),
        },
        coords={
            "x": times,
            "y": [f"station {i}" for i in range(y)],
            "lon": (("x", "y"), da.from_array(-values, chunks=(7, 3)), {"standard_name": "longitude"}),
        },
        attrs={"title": "a test"},
    )
    ds.u.encoding = {"dtype": "f4", "chunksizes": (5, 4)}
    return ds


def same(found, wanted):
    xr.testing.assert_identical(found, wanted)
    assert found.attrs == wanted.attrs
    for name in wanted.variables if isinstance(wanted, xr.Dataset) else wanted.coords:
        assert found[name].encoding == wanted[name].encoding
        assert found[name].dtype == wanted[name].dtype


@pytest.mark.slow
@four
async def test_a_dataset_keeps_everything_but_its_place(c, s, *workers):
    ds = dataset()
    plain = ds.compute(scheduler="sync")
    for layout in ["block", "cyclic", {"x": "block", "y": "cyclic"}, {"y": "block-cyclic:2"}, "replicated"]:
        new = await dask_hpc.redistribute(ds, 4, layout=layout)
        assert isinstance(new.here.data, np.ndarray) and isinstance(new.u.data, da.Array)
        where = {}
        divided = list(layout) if isinstance(layout, dict) else ["x"]
        for name in ["u", "v", "mask", "lon"] if layout != "replicated" else []:
            array = new[name]
            if not set(divided) <= set(array.dims):
                continue
            for index, there in holders(s, array.data).items():
                spans = [
                    range(*np.cumsum([0, *array.chunks[axis]])[index[axis] : index[axis] + 2])
                    for axis in map(array.dims.index, divided)
                ]
                for element in product(*spans):
                    assert where.setdefault(element, set(there)) == set(there)
        assert (len(set(map(frozenset, where.values()))) >= 3) == (layout != "replicated")
        same(await c.compute(new), plain)


@four
async def test_a_data_array_with_lazy_coordinates(c, s, *workers):
    ds = dataset()
    one = ds.u
    new = await dask_hpc.redistribute(one, 2, layout={"y": "cyclic"})
    assert isinstance(new, xr.DataArray) and new.name == "u"
    same(await c.compute(new), one.compute(scheduler="sync"))
    assert {w for n in (new, new.lon) for there in holders(s, n.data).values() for w in there} <= set(
        s.workers
    )


@four
async def test_chunks_that_stay_whole_keep_their_keys_and_move_once(c, s, *workers):
    x = await persisted(c, np.arange(16.0), 1)
    before = holders(s, x)
    plan = await dask_hpc.plan_redistribution(x, 2)
    assert holders(s, x) == before and "from 4 to 2 nodes, block" in repr(plan) and "leaving: " in repr(plan)
    assert plan.cuts == 0 and len(plan.leaving) == 2 and not set(plan.leaving) & set(plan.nodes)
    told = []
    y = await plan.carry_out(progress=lambda done, total: told.append((done, total)))
    assert y.name == x.name and told[-1] == (plan.bytes_moved, plan.bytes_moved)
    assert told == sorted(told)
    names = {worker.address: str(worker.name) for worker in workers}
    moved = sum(before[index] != there for index, there in holders(s, y).items())
    assert moved * 8 == plan.bytes_moved
    assert {names[w] for there in holders(s, x).values() for w in there} == set(plan.nodes)
    again = await dask_hpc.plan_redistribution(y, 2)
    assert again.bytes_moved == 0 and again.nodes == plan.nodes
    with pytest.raises(InputError, match="carried out"):
        await plan.carry_out()
    await again.carry_out()
    del x, y
    await async_poll_for(lambda: not s.tasks, 5)  # plans keep nothing


@four
async def test_only_the_piece_that_is_needed_travels(c, s, *workers):
    a, b, *_ = workers
    x = c.persist(da.ones(2_000_000, chunks=-1), workers=[a.address])
    await wait(x)
    y = await dask_hpc.redistribute(x, workers=[a.address, b.address], layout=[1_900_000, 100_000])
    assert y.chunks == ((1_900_000, 100_000),)
    assert holders(s, y) == {(0,): (a.address,), (1,): (b.address,)}
    piece = b.data[y.__dask_keys__()[1]]
    assert piece.nbytes == 800_000 and (piece.base is None or piece.base.nbytes < 2_000_000)


@four
async def test_what_is_ours_is_let_go(c, s, *workers):
    x = da.random.random((64, 8), chunks=(8, 8))
    y = await dask_hpc.redistribute(x, 3, layout="block-cyclic:3")
    in_memory = [task.key for task in s.tasks.values() if task.state == "memory"]
    assert set(in_memory) == set(_flat(y.__dask_keys__()))
    assert not any(task.worker_restrictions for task in s.tasks.values())
    assert "dask-hpc-redistribution" not in s.plugins
    del y
    await async_poll_for(lambda: not s.tasks, 5)


@four
async def test_replicated_chunks_are_not_reduced(c, s, *workers):
    x = await persisted(c, np.arange(16.0), 2)
    y = await dask_hpc.redistribute(x, 3, layout="replicated")
    for _ in range(2):
        s.extensions["amm"].run_once()
    assert {len(there) for there in holders(s, y).values()} == {3}
    await dask_hpc.redistribute(y, 2)  # not replicated any more
    keys = y.__dask_keys__()
    await async_poll_for(lambda: {len(compat.find_task(s, key).who_has) for key in keys} == {1}, 5)
    await dask_hpc.redistribute(y, 4, layout="replicated")
    del x, y
    await async_poll_for(lambda: not s.tasks and compat.SparedCopies.of(s) is None, 5)
    assert "dask-hpc-redistribution" not in s.plugins


@gen_cluster(
    client=True, nthreads=[("127.0.0.1", 1)] * 2 + [("127.0.0.2", 1)] * 2, config={"hpc.node": "host"}
)
async def test_nodes_are_hosts_with_several_workers(c, s, *workers):
    x = c.persist(da.ones(32, chunks=1), workers=[workers[0].address])
    await wait(x)
    plan = await dask_hpc.plan_redistribution(x, 2)
    assert set(plan.nodes) == {"127.0.0.1", "127.0.0.2"} and plan.bytes_moved == 16 * 8
    y = await plan.carry_out()
    count = {w.address: sum(w.address in there for there in holders(s, y).values()) for w in workers}
    assert count[workers[0].address] + count[workers[1].address] == 16
    assert min(count.values()) >= 6


def test_with_a_synchronous_client(loop):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0", loop=loop
        ) as cluster,
        Client(cluster) as client,
    ):
        ds = dataset()
        plan = dask_hpc.plan_redistribution(ds, 2)
        assert len(plan.nodes) == 2
        same(plan.carry_out().compute(), ds.compute())
        new = dask_hpc.redistribute(ds, workers=[0, "2"], layout={"x": "block"})
        addresses = client.run_on_scheduler(
            lambda dask_scheduler: {w.name: w.address for w in dask_scheduler.workers.values()}
        )
        there = {where for held in client.who_has(new.u.data).values() for where in held}
        assert there == {addresses[0], addresses[2]}


@pytest.mark.parametrize(
    "given, words",
    [
        ({"nodes": 0}, "nodes: found 0"),
        ({"nodes": 5}, "from 1 to 4"),
        ({"nodes": "two"}, "nodes: found 'two'"),
        ({"nodes": True}, "nodes: found True"),
        ({"nodes": 2, "workers": [0]}, "one of them"),
        ({"workers": []}, "names or addresses"),
        ({"workers": [1.5]}, "names or addresses"),
        ({"workers": ["tcp://nowhere:1"]}, "connected"),
        ({"layout": "blocks"}, "layout"),
        ({"layout": {"z": "block"}}, "'z'"),
        ({"layout": [4, 5]}, "4 nodes"),
        ({"nodes": 2, "layout": [4, 5]}, "12 elements"),
    ],
)
def test_bad_input_is_refused_in_one_line(given, words):
    @four
    async def test(c, s, *workers):
        ds = dataset()[["mask"]]
        with pytest.raises(InputError) as told:
            await dask_hpc.redistribute(ds, **given)
        assert words in str(told.value) and "\n" not in str(told.value)
        assert "dask-hpc-redistribution" not in s.plugins

    test()


@four
async def test_what_cannot_be_redistributed(c, s, *workers):
    for obj, words in [
        (3, "found 3"),
        (np.ones(3), "a dask array"),
        (xr.DataArray(np.ones(3)), "nothing in this DataArray"),
        (da.ones(5, chunks=2)[da.arange(5, chunks=2) > 2], "not known"),
    ]:
        with pytest.raises(InputError, match=words):
            await dask_hpc.redistribute(obj, 2)
    x = await persisted(c, np.ones(8), 2)
    await c.cancel(x)
    with pytest.raises(InputError, match="4 chunks were lost or cancelled"):
        await dask_hpc.redistribute(x, 2)
    bad = da.ones(8, chunks=2).map_blocks(lambda block: 1 // len(block[9:]), dtype=float)
    with pytest.raises(ZeroDivisionError):
        await dask_hpc.redistribute(bad, 2)


def test_without_a_client():
    with pytest.raises(InputError, match="client"):
        dask_hpc.redistribute(da.ones(5, chunks=2), 2)
