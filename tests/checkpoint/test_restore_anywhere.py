"""Restore on any number of nodes in any layout, from any chunks, through any kind of store: bit-identical."""

import itertools
import warnings
from uuid import uuid4

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from small_stores import computed, save, write

from dask_hpc import restore
from dask_hpc.checkpoint.client.restore import _wanted, laid_out
from dask_hpc.checkpoint.store.cells import Reader
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.items import describe, rebuild
from dask_hpc.checkpoint.store.seal import Services
from dask_hpc.checkpoint.store.versions import Versions
from dask_hpc.planning.moves.layout import Layout

LAYOUTS = ["block", "cyclic", "block-cyclic:2", "replicated", {"x": "block"}, {"x": "block", "y": "cyclic"}]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=9, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.amm.stop()  # it would reduce what is replicated to one copy, at any time
        yield client


def cases():
    """Each pair of numbers once, and each layout with every number before and every number after."""
    for old, new in itertools.product(range(1, 10), range(1, 10)):
        yield old, new, (old + new) % len(LAYOUTS)


def test_the_cases_cover_all_pairs():
    found, numbers, layouts = set(cases()), range(1, 10), range(len(LAYOUTS))
    assert {(old, new) for old, new, _ in found} == set(itertools.product(numbers, numbers))
    assert {(old, layout) for old, _, layout in found} == set(itertools.product(numbers, layouts))
    assert {(new, layout) for _, new, layout in found} == set(itertools.product(numbers, layouts))


@pytest.fixture(scope="module")
def stored(client, tmp_path_factory):
    root = tmp_path_factory.mktemp("anywhere")
    for old in range(1, 10):
        save(client, str(root), f"from-{old}", {"u": grid(old)})
    return str(root)


def grid(nodes):
    """17 x 5, over so many nodes; more nodes than a dimension of prime length divides into."""
    values = np.arange(85.0).reshape(17, 5)
    return xr.Dataset({"u": (("x", "y"), values), "v": ("x", values[:, 0])}).chunk(x=-(-17 // nodes), y=3)


@pytest.mark.slow
@pytest.mark.parametrize("old, new, layout", list(cases()))
def test_from_any_to_any_number_of_nodes(client, stored, old, new, layout):
    found, _ = restore(f"from-{old}", stored, layout=LAYOUTS[layout], nodes=new, client=client)
    holders = client.who_has(found.u.data)
    on = {one for there in holders.values() for one in there}
    assert len(on) <= new
    if LAYOUTS[layout] == "replicated":
        assert all(len(there) == new for there in holders.values())
    assert found.compute().identical(grid(1).compute())


def sizes(data, length):
    cuts = data.draw(st.lists(st.integers(0, length), max_size=3))
    return tuple(int(one) for one in np.diff([0, *sorted(cuts), length]))


def layouts(data, dims):
    kinds = st.sampled_from(["block", "cyclic", "block-cyclic:1", "block-cyclic:3", "replicated"])
    word = data.draw(kinds)
    if not dims or data.draw(st.booleans()):
        return word
    chosen = data.draw(st.lists(st.sampled_from(dims), min_size=1, unique=True))
    return {dim: data.draw(kinds) for dim in chosen}


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.data())
def test_any_shape_in_any_layout(tmp_path_factory, data):
    """Without a cluster: every chunk is read as a worker would."""
    shape = data.draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=13))
    dims = tuple("xyz"[: len(shape)])
    values = np.random.default_rng(1).integers(0, 99, shape).astype(data.draw(st.sampled_from(["i4", "U3"])))
    array = da.from_array(values, chunks=tuple(sizes(data, length) for length in shape))
    nodes = [f"n{number}" for number in range(data.draw(st.integers(1, 9)))]
    root = str(tmp_path_factory.mktemp("s"))
    item = describe(xr.DataArray(array, dims=dims, name="u"), "u")
    write(root, "run", [item], computed(item), Services(data.draw(st.sampled_from(["always", "never"]))))
    stored = Versions(Files(root), "run").find("latest").items["u"]
    reader = Reader(root, "run", 1)
    layout = Layout.read(layouts(data, dims))
    wanted, grids = laid_out(stored, _wanted("u", stored), layout, nodes)
    found = rebuild(
        stored.kind, stored.meta, {place: reader(one.plain) for place, one in wanted.items()}, grids=grids
    )
    assert found.dtype == values.dtype and found.dims == dims
    np.testing.assert_array_equal(found.compute(scheduler="sync").values, values)
    for one in wanted.values():
        assert one.targets and set(one.targets) <= set(nodes)


def test_dataframes_over_nodes(client, tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"a": range(40)}), npartitions=8)
    save(client, str(tmp_path), "run", {"df": frame})
    found, _ = restore("run", str(tmp_path), nodes=4, client=client)
    pd.testing.assert_frame_equal(found.compute(), frame.compute())
    assert found.divisions == frame.divisions
    assert len({one for there in client.who_has(found).values() for one in there}) == 4


@pytest.mark.parametrize("scheme", ["memory", "file", "path"])
def test_any_store(client, tmp_path, scheme):
    root = {"memory": f"memory://{uuid4()}/a", "file": f"file://{tmp_path}/a b", "path": f"{tmp_path}/c"}[
        scheme
    ]
    for step in range(3):
        array = da.from_array(np.arange(20.0) + 100 * (step // 2), chunks=6)
        dataset = xr.Dataset({"u": ("x", array)}, coords={"x": np.arange(20)})
        save(client, root, "run", {"u": dataset, "n": step}, keep=2)
    found, meta = restore("run", root, client=client, nodes=2)
    xr.testing.assert_identical(found["u"].compute(), dataset.compute())
    assert meta.version == 3 and restore("run", root, 2, item="n")[0] == 1
    assert Versions(Files(root), "run").numbers() == [2, 3]
    opened = xr.open_zarr(f"{root}/run/00000003/u.zarr").compute()
    xr.testing.assert_equal(opened, dataset.compute())


PLAIN = {
    "float64": np.array([1.0, np.nan, -np.inf]),
    "float16": np.array([1.5, np.nan, 2], "f2"),
    "big-endian": np.array([1, 2, 3], ">i4"),
    "bool": np.array([True, False, True]),
    "int8": np.array([1, -2, 3], "i1"),
    "complex": np.array([1 + 2j, np.nan, 0]),
    "datetime": np.array(["2000-01-01T12:00:00.000000001", "NaT", "1850-03-01"], "M8[ns]"),
    "datetime in seconds": np.array(["2000-01-01", "NaT", "1850-03-01"], "M8[s]"),
    "big-endian datetime": np.array(["2000-01-01", "NaT", "1850-03-01"], ">M8[s]"),
    "timedelta": np.array([1, 2, 3], "m8[s]"),
    "text": np.array(["a", "", "\N{SNOWMAN} long"]),
    "bytes": np.array([b"a", b"", b"long"]),
    "objects of text": np.array(["a", "", "\N{SNOWMAN}"], object),
    "cftime": np.asarray(xr.date_range("2000-02-27", periods=3, calendar="noleap", use_cftime=True)),
}


@pytest.mark.parametrize("compress", ["always", "never"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_xarray_sees_the_same_values(client, tmp_path, name, compress):
    data = PLAIN[name]
    attrs = {"scale_factor": 3.0, "note": "kept"}  # of what was decoded, and must not be so again
    dataset = xr.Dataset(
        {"a": ("x", data, attrs), "b": (("y", "x"), da.from_array(data[None], chunks=(1, 2)))}
    )
    dataset = dataset.assign_coords(c=("x", data), scalar=data[0])
    save(client, str(tmp_path), "run", {"u": dataset}, services=Services(compress))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = xr.open_zarr(tmp_path / "run" / "00000001" / "u.zarr").compute()
    assert set(opened.coords) == {"c", "scalar"} and opened.a.attrs["note"] == "kept"
    for variable in ("a", "b", "c", "scalar"):
        np.testing.assert_array_equal(
            np.asarray(opened[variable].values, data.dtype), dataset[variable].compute().values
        )
        if data.dtype.kind in "Mm":
            assert opened[variable].dtype.kind == data.dtype.kind
