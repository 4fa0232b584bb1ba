"""Whole commits straight to a store by real workers, and what plain xarray and a restore see of them."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from zipfile import ZipFile

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from small_stores import save

import dask_hpc
from dask_hpc.checkpoint.store.seal import Key, Services
from dask_hpc.model.errors import InputError

KEY = Key(b"k" * 32)


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def field(seed=0):
    values = np.random.default_rng(seed).random((4, 7))
    return xr.Dataset(
        {
            "u": (("t", "x"), da.from_array(values, chunks=(2, 3)), {"units": "m", "of": np.float32(3)}),
            "z": ((), 3.0),
            "uneven": ("y", da.arange(7, chunks=((2, 5),))),
        },
        coords={
            "t": xr.date_range("2000-01-01", periods=4, calendar="noleap", use_cftime=True),
            "x": list("hijklmn"),
            "lat": ("x", np.arange(7.0)),
        },
        attrs={"title": "a field"},
    )


def links(root):
    return sum(path.stat().st_nlink > 1 for path in Path(root).rglob("*") if path.is_file())


def test_a_commit_is_readable_by_plain_xarray_and_comes_back_as_it_was(client, tmp_path):
    dataset = field()
    items = {"u": dataset.persist(), "dt": 0.1, "later": client.submit(lambda: 5)}
    made = save(client, str(tmp_path), "run", items, step=3, token="abc")
    assert made.version == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = xr.open_zarr(tmp_path / "run" / "00000001" / "u.zarr")
    xr.testing.assert_identical(opened.load().drop_encoding(), _sayable(dataset.compute()))
    found, meta = dask_hpc.restore("run", str(tmp_path))
    assert (meta.step, meta.version, meta.token, meta.skipped) == (3, 1, "abc", ())
    assert len(meta.nodes) == 3
    assert found["dt"] == 0.1 and found["later"].result() == 5
    xr.testing.assert_identical(found["u"].compute(), dataset.compute())
    assert found["u"].chunks == dataset.chunks and found["u"].indexes["t"].equals(dataset.indexes["t"])


def _sayable(dataset):
    dataset.u.attrs["of"] = float(dataset.u.attrs["of"])
    return dataset


def test_what_did_not_change_is_stored_once(client, tmp_path):
    first, changed = field(), field()
    changed["u"] = changed.u.where(changed.u.x != "n", -1.0)
    save(client, str(tmp_path), "run", {"u": first})
    assert links(tmp_path) == 0
    save(client, str(tmp_path), "run", {"u": changed})
    # all but the two chunks with column n, twice each
    assert links(tmp_path) == 2 * (4 + 2 + 1 + 3)
    for version, right in ((1, first), (2, changed)):
        found, _ = dask_hpc.restore("run", str(tmp_path), version)
        xr.testing.assert_identical(found.compute(), right.compute())
    save(client, str(tmp_path), "run", {"u": changed}, keep=1)
    assert sorted(os.listdir(tmp_path / "run")) == ["00000003"]
    xr.testing.assert_identical(dask_hpc.restore("run", str(tmp_path))[0].compute(), changed.compute())


@pytest.mark.parametrize("services", [Services("always"), Services("auto", least=1), Services(key=KEY)])
def test_services(client, tmp_path, services):
    dataset = field()
    save(client, str(tmp_path), "run", {"u": dataset}, services=services)
    if services.key is None:
        xr.testing.assert_equal(
            xr.open_zarr(tmp_path / "run" / "00000001" / "u.zarr").load(), dataset.compute()
        )
    found, _ = dask_hpc.restore("run", str(tmp_path), key=services.key)
    xr.testing.assert_identical(found.compute(), dataset.compute())


def test_layouts_of_a_restore(client, tmp_path):
    dataset = field()
    save(client, str(tmp_path), "run", {"u": dataset})
    for nodes in (1, 2, 3):
        found, _ = dask_hpc.restore("run", str(tmp_path), layout={"t": "block"}, nodes=nodes)
        xr.testing.assert_identical(found.compute(), dataset.compute())
        assert found.chunks["x"] == (3, 3, 1) and len(found.chunks["t"]) >= nodes
        holders = {one for there in client.who_has(found.u.data).values() for one in there}
        assert len(holders) == nodes
    save(client, str(tmp_path), "two", {"u": dataset, "w": da.ones((4, 4), chunks=2), "n": 1})
    found, _ = dask_hpc.restore("two", str(tmp_path), layout={"t": "block"}, nodes=2)
    assert found["w"].chunks == ((2, 2), (2, 2)) and found["n"] == 1
    with pytest.raises(InputError, match="from 1 to 3"):
        dask_hpc.restore("run", str(tmp_path), nodes=4)
    with pytest.raises(InputError, match="t, x, y"):
        dask_hpc.restore("run", str(tmp_path), layout={"q": "block"})


@pytest.mark.slow
def test_without_a_client(client, tmp_path):
    save(client, str(tmp_path), "run", {"u": field()})
    other = "import sys, dask_hpc; v, m = dask_hpc.restore('run', sys.argv[1]); print(float(v.u.sum()))"
    done = subprocess.run(
        [sys.executable, "-c", other, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(float(field().u.sum()))
    assert save(None, str(tmp_path), "plain", {"a": [1, 2], "b": "x"}).version == 1
    assert dask_hpc.restore("plain", str(tmp_path))[0] == {"a": [1, 2], "b": "x"}
    with pytest.raises(InputError, match="no client"):
        save(None, str(tmp_path), "plain", {"a": da.ones(3)})


def test_values_of_every_node_follow_their_rules(client, tmp_path):
    rules = {"dt": "default:0.5", "n": "size", "rank": "rank", "kept": "constant"}
    save(client, str(tmp_path), "run", dict.fromkeys(rules, 7.0), on_resize=rules)
    same, _ = dask_hpc.restore("run", str(tmp_path))
    assert same["dt"] == same["kept"] == 7.0
    fewer, _ = dask_hpc.restore("run", str(tmp_path), nodes=2)
    assert fewer["dt"] == 0.5 and fewer["n"] == 2 and fewer["kept"] == 7.0
    assert list(fewer["rank"].values()) == [0, 1]
    assert dask_hpc.restore("run", str(tmp_path), item="dt", nodes=1, on_resize={"dt": "constant"})[0] == 7.0


def test_versions_of_the_first_release_are_read_and_go_on(client, tmp_path):
    with ZipFile(Path(__file__).parent / "first_format.zip") as archive:
        archive.extractall(tmp_path)
    dataset = xr.Dataset(
        {"u": (("t", "x"), np.arange(12.0).reshape(3, 4))}, {"x": list("abcd")}, {"title": "first"}
    )
    for version, step, dt in ((1, 3, 0.5), (2, 4, 0.25)):
        found, meta = dask_hpc.restore(
            "run", str(tmp_path / "plain"), version, on_resize={"rank": "constant"}
        )
        xr.testing.assert_identical(found["u"].compute(), dataset)
        assert (meta.step, found["dt"], found["rank"]) == (step, dt, {"a": 1})
    found, _ = dask_hpc.restore("run", str(tmp_path / "secret"), key=KEY)
    xr.testing.assert_identical(found["u"].compute(), dataset)
    chunked = dataset.chunk(t=2, x=3)
    save(client, str(tmp_path / "plain"), "run", {"u": chunked}, services=Services("always"))
    assert links(tmp_path / "plain") == 2 * (4 + 1)
