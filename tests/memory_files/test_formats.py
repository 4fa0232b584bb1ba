"""What people use by fsspec, on ``hpcmemory``: zarr, parquet, netCDF, plain files. From a client's process,
from tasks in threads and in other processes, and from programs with a client of their own."""

import csv
import gzip
import io
import json
import pickle
import subprocess
import sys
from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from forks import forked_nannies

import dask_hpc
from dask_hpc.checkpoint.worker.block import unpacked
from dask_hpc.memory_files.client.filesystem import MemoryFileSystem

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The inplace keyword"),  # dask.dataframe's, with the newest pandas
]

#: another program; its files are those of a cluster that was there
OTHER = """
import sys

import fsspec
import numpy as np
import xarray as xr
from distributed import Client

address, folder = sys.argv[1:]
with Client(address):
    fs = fsspec.filesystem("hpcmemory")
    with fsspec.open(f"{folder}/first.npy") as file:
        first = np.load(file)
    second = xr.open_zarr(f"{folder}/second.zarr").heat.mean("time").values
    with fsspec.open(f"{folder}/answer.npy", "wb") as file:
        np.save(file, first + second)
    print(*sorted(fs.ls(folder, detail=False)), sep="\\n")
"""


@pytest.fixture(scope="module")
def apart():
    """Two workers that are processes, with files of blocks of 64 kiB."""
    with (
        forked_nannies(),
        LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", memory_limit="2GB"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("apart", block="64 kiB", client=client) as files,
    ):
        yield SimpleNamespace(cluster=cluster, client=client, files=files)


@pytest.fixture(params=["threads", "processes"])
def place(request):
    """A URL that is one's own, in a file system of workers that are threads here, or processes."""
    name = "small_cluster" if request.param == "threads" else "apart"
    found = request.getfixturevalue(name)
    with found.client.as_current():
        yield found.files.url(request.node.name.replace("[", "-").rstrip("]"))


def heat(first=0, days=6):
    """Some days of a field; what it is at a place and time says where and when."""
    time = np.arange(first, first + days)
    values = 1000.0 * time[:, None, None] + 40.0 * np.arange(30)[:, None] + np.arange(40)
    return xr.Dataset({"heat": (("time", "lat", "lon"), values)}, {"time": time})


def table(rows=1000):
    numbers = np.arange(rows)
    return pd.DataFrame({"station": numbers % 7, "wind": numbers / 8, "name": [f"é{one}" for one in numbers]})


# zarr


@pytest.mark.parametrize("consolidated", [True, False])
def test_zarr_is_read_as_it_was_written(place, consolidated):
    heat().to_zarr(f"{place}/a.zarr", consolidated=consolidated)
    found = xr.open_zarr(f"{place}/a.zarr", consolidated=consolidated)
    xr.testing.assert_identical(found.load(), heat())
    fs = fsspec.filesystem("hpcmemory")
    metadata = json.loads(fs.cat_file(f"{place}/a.zarr/zarr.json"))
    assert ("consolidated_metadata" in metadata) == consolidated


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_is_written_by_tasks_and_read_by_them(place, version):
    lazy = heat(days=8).chunk(time=2, lat=15)
    lazy.to_zarr(f"{place}/a.zarr", zarr_format=version)
    found = xr.open_zarr(f"{place}/a.zarr")
    assert found.chunks["time"] == (2, 2, 2, 2)
    assert float(found.heat.sum().compute()) == float(heat(days=8).heat.sum())


def test_zarr_is_appended_along_a_dimension(place):
    for first in (0, 6, 12):
        more = {"append_dim": "time"} if first else {}
        heat(first).chunk(time=3).to_zarr(f"{place}/a.zarr", **more)
    xr.testing.assert_identical(xr.open_zarr(f"{place}/a.zarr").load(), heat(days=18))


def test_regions_of_one_zarr_are_written_by_several_tasks(place):
    url = f"{place}/a.zarr"
    heat(days=8).chunk(time=2).to_zarr(url, compute=False)
    heat(days=8)[["time"]].to_zarr(url, mode="a")

    def write(first):
        heat(first, 2).drop_vars("time").to_zarr(url, region={"time": slice(first, first + 2)})

    client = Client.current()
    client.gather(client.map(write, [0, 2, 4, 6], pure=False))
    xr.testing.assert_identical(xr.open_zarr(url).load(), heat(days=8))


def test_a_zarr_that_is_there_is_kept_or_written_anew(place):
    heat().to_zarr(f"{place}/a.zarr")
    with pytest.raises(FileExistsError):
        heat().to_zarr(f"{place}/a.zarr", mode="w-")
    heat(days=2).to_zarr(f"{place}/a.zarr", mode="w")
    xr.testing.assert_identical(xr.open_zarr(f"{place}/a.zarr").load(), heat(days=2))


def test_groups_shards_and_plain_arrays_of_zarr(place):
    group = zarr.open_group(f"{place}/g.zarr", mode="w")
    group.create_group("deep").create_array("a", shape=(64, 64), chunks=(8, 8), shards=(32, 32), dtype="f8")[
        :
    ] = np.arange(4096.0).reshape(64, 64)
    found = zarr.open_group(f"{place}/g.zarr", mode="r")["deep/a"]
    assert np.array_equal(found[5:40, 60:], np.arange(4096.0).reshape(64, 64)[5:40, 60:])
    stack = da.random.default_rng(1).random((50, 40), chunks=(10, 20))
    da.to_zarr(stack, f"{place}/d.zarr")
    assert np.array_equal(da.from_zarr(f"{place}/d.zarr").compute(), stack.compute())


def test_another_client_reads_what_worker_processes_wrote(apart):
    url = apart.files.url("another.zarr")
    with apart.client.as_current():
        heat(days=8).chunk(time=1).to_zarr(url)
    with Client(apart.cluster.scheduler_address, set_as_default=False) as client, client.as_current():
        xr.testing.assert_identical(xr.open_zarr(url).load(), heat(days=8))


# tables


def test_parquet_of_dask(place):
    dd.from_pandas(table(), npartitions=4).to_parquet(f"{place}/t", write_index=False)
    found = dd.read_parquet(f"{place}/t")
    assert found.npartitions == 4
    pd.testing.assert_frame_equal(found.compute().reset_index(drop=True), table(), check_dtype=False)
    few = dd.read_parquet(f"{place}/t", columns=["wind"], filters=[("wind", ">=", 120.0)])
    assert len(few) == 40 and float(few.wind.min().compute()) == 120.0


def test_parquet_of_dask_by_partition(place):
    dd.from_pandas(table(), npartitions=2).to_parquet(f"{place}/t", partition_on=["station"])
    found = dd.read_parquet(f"{place}/t", filters=[("station", "==", 3)]).compute()
    assert len(found) == len(table().query("station == 3")) and set(found.station.astype(int)) == {3}
    dd.from_pandas(table(), npartitions=2).to_parquet(f"{place}/t", partition_on=["station"], overwrite=True)
    assert len(dd.read_parquet(f"{place}/t")) == 1000


def test_parquet_of_pandas_and_pyarrow(place):
    table().to_parquet(f"{place}/t.parquet", row_group_size=100)
    found = pd.read_parquet(f"{place}/t.parquet", filters=[("station", "in", [1, 2])], columns=["station"])
    assert sorted(set(found.station)) == [1, 2]
    fs = fsspec.filesystem("hpcmemory")
    with fs.open(f"{place}/t.parquet") as file:
        assert pq.ParquetFile(file).num_row_groups == 10
    assert pq.read_table(f"{place}/t.parquet".split("://")[1], filesystem=fs).num_rows == 1000


def test_csv_and_json(place):
    table().to_csv(f"{place}/t.csv", index=False)
    table().to_json(f"{place}/t.json.gz", orient="records", lines=True)
    pd.testing.assert_frame_equal(pd.read_csv(f"{place}/t.csv"), table(), check_dtype=False)
    assert pd.read_json(f"{place}/t.json.gz", orient="records", lines=True).wind.sum() == table().wind.sum()
    dd.from_pandas(table(), npartitions=3).to_csv(f"{place}/parts-*.csv", index=False)
    assert len(dd.read_csv(f"{place}/parts-*.csv")) == 1000
    with fsspec.open(f"{place}/own.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [1, "x, y"], [2, "ü\nz"]])
    with fsspec.open(f"{place}/own.csv", "r", newline="") as file:
        assert list(csv.reader(file)) == [["a", "b"], ["1", "x, y"], ["2", "ü\nz"]]


def test_bags_of_text(place):
    import dask.bag

    numbers = dask.bag.from_sequence(range(20), npartitions=4)
    numbers.map(json.dumps).to_textfiles(f"{place}/*.json")
    assert dask.bag.read_text(f"{place}/*.json").map(json.loads).sum().compute() == 190


# arrays and netCDF


def test_numpy_files(place):
    values = np.arange(50_000.0)
    with fsspec.open(f"{place}/a.npy", "wb") as file:
        np.save(file, values)
    with fsspec.open(f"{place}/a.npy") as file:
        assert np.array_equal(np.load(file), values)
    with fsspec.open(f"{place}/a.npz", "wb") as file:  # it seeks while it writes
        np.savez_compressed(file, first=values, second=values[::-1])
    with fsspec.open(f"{place}/a.npz") as file:
        assert np.array_equal(np.load(file)["second"], values[::-1])


def test_several_files_of_netcdf(place):
    for day in range(3):
        with fsspec.open(f"{place}/{day}.nc", "wb") as file:
            file.write(heat(day, 1).to_netcdf(engine="scipy"))
    files = [one.open() for one in fsspec.open_files(f"{place}/*.nc")]
    # what xarray makes of open files for this engine cannot be unpickled by another process
    here = {"scheduler": "threads"} if "processes" in place else {}
    with dask.config.set(here), xr.open_mfdataset(files, engine="scipy", combine="by_coords") as found:
        xr.testing.assert_equal(found.load(), heat(days=3))
    for one in files:
        one.close()


def test_netcdf_4_by_its_bytes(place):
    with fsspec.open(f"{place}/a.nc", "wb") as file:
        file.write(heat().to_netcdf(engine="netcdf4"))
    with fsspec.open(f"{place}/a.nc") as file, xr.open_dataset(file.read(), engine="netcdf4") as found:
        xr.testing.assert_equal(found.load(), heat())


def test_several_zarrs_as_one(place):
    urls = [f"{place}/{first}.zarr" for first in (0, 6, 12)]
    for url, first in zip(urls, (0, 6, 12), strict=True):
        heat(first).to_zarr(url)
    with xr.open_mfdataset(urls, engine="zarr", parallel=True) as found:
        xr.testing.assert_equal(found.load(), heat(days=18))


# plain files


def test_text(place):
    with fsspec.open(f"{place}/a.txt", "w", encoding="latin-1") as file:
        file.write("Küste\n")
        file.writelines(["zwei\n", "ohne Ende"])
    fs = fsspec.filesystem("hpcmemory")
    assert fs.cat_file(f"{place}/a.txt") == "Küste\nzwei\nohne Ende".encode("latin-1")
    with fsspec.open(f"{place}/a.txt", "r", encoding="latin-1") as file:
        assert list(file) == ["Küste\n", "zwei\n", "ohne Ende"]
    with fsspec.open(f"{place}/a.txt", "a", encoding="latin-1") as file:
        file.write(", aber ä")
    assert fs.read_text(f"{place}/a.txt", encoding="latin-1").endswith("ohne Ende, aber ä")
    fs.write_text(f"{place}/b.txt", "€\r\n")
    assert fs.read_text(f"{place}/b.txt", newline="") == "€\r\n"
    with fs.open(f"{place}/b.txt") as file:
        assert file.readline() == "€\r\n".encode() and file.readline() == b""


def use(opened):
    """Read and write anywhere in a file of 153,600 bytes, and tell what it said; ``opened`` gives it."""
    said = []
    with opened("r+b") as file:
        said += [file.seek(65_530), file.write(b"over the edge"), file.tell(), file.read(5)]
        said += [file.seek(-7, 2), file.read(), file.seek(0), file.read(3), file.write(b"xyz"), file.read(1)]
        said += [file.seek(200_000), file.write(b"far"), file.truncate(200_001), file.tell(), file.read()]
        said += [file.seek(150_000), file.read(10), file.seek(65_525, 0), file.read(20)]
        file.flush()
        said += [file.seek(1, 0), file.read(4)]
    with opened("a+b") as file:
        said += [file.tell(), file.seek(0), file.read(4), file.write(b"end"), file.tell()]
    with opened("w+b") as file:
        said += [file.write(b"anew"), file.seek(1), file.read(), file.truncate(2), file.tell()]
    return said


def test_a_file_is_read_and_written_anywhere(place, tmp_path):
    """As one of the operating system is, step by step."""
    fs, url, twin = fsspec.filesystem("hpcmemory"), f"{place}/a", tmp_path / "a"
    fs.pipe_file(url, bytes(range(256)) * 600)
    twin.write_bytes(bytes(range(256)) * 600)
    assert use(lambda mode: fs.open(url, mode)) == use(lambda mode: twin.open(mode, buffering=0))
    assert fs.cat_file(url) == twin.read_bytes() == b"an"
    with pytest.raises(FileExistsError):
        fs.open(url, "xb").close()
    with pytest.raises(FileNotFoundError):
        fs.open(f"{place}/nothing", "r+b")


def test_files_that_grow(place):
    fs = fsspec.filesystem("hpcmemory")
    for number in range(30):
        with fs.open(f"{place}/log", "ab") as file:
            assert file.tell() == 999 * number
            file.write(bytes([number]) * 999)
    assert fs.cat_file(f"{place}/log") == b"".join(bytes([number]) * 999 for number in range(30))


def test_compressed(place):
    for kind in ("gzip", "bz2", "xz"):
        with fsspec.open(f"{place}/a.{kind}", "wb", compression=kind) as file:
            file.write(b"again and again " * 10_000)
        with fsspec.open(f"{place}/a.{kind}", compression=kind) as file:
            assert file.read() == b"again and again " * 10_000, kind
        assert fsspec.filesystem("hpcmemory").size(f"{place}/a.{kind}") < 5_000
    with fsspec.open(f"{place}/b.txt.gz", "wt", compression="infer") as file:
        file.write("ä\n")
    assert gzip.decompress(fsspec.filesystem("hpcmemory").cat_file(f"{place}/b.txt.gz")) == "ä\n".encode()


def test_pickles(place):
    fs = fsspec.filesystem("hpcmemory")
    with fs.open(f"{place}/a.pickle", "wb") as file:
        pickle.dump({"a": np.arange(100_000)}, file, protocol=5)
    with fs.open(f"{place}/a.pickle") as file:
        assert pickle.load(file)["a"].sum() == 4_999_950_000


def test_buffers_around_files(place):
    fs = fsspec.filesystem("hpcmemory")
    with fs.open(f"{place}/a", "wb") as raw, io.BufferedWriter(raw, 10_000) as file:
        for number in range(3000):
            file.write(b"%8d" % number)
    with fs.open(f"{place}/a") as raw, io.BufferedReader(raw, 1000) as file:
        file.seek(8 * 1234)
        assert file.read(8) == b"    1234"
    with fs.open(f"{place}/a", "r+b") as raw:
        file = io.BufferedRandom(raw)
        file.seek(8)
        assert file.read(8) == b"       1"
        file.write(b"_" * 8)
        file.flush()
    assert fs.cat_file(f"{place}/a", 0, 32) == b"       0       1________       3"


def test_tar_and_zip_archives(place):
    import tarfile
    import zipfile

    fs = fsspec.filesystem("hpcmemory")
    with fs.open(f"{place}/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("one", b"1" * 70_000)
    with fsspec.open(f"zip://one::{place}/a.zip") as file:
        assert file.read() == b"1" * 70_000
    with fs.open(f"{place}/a.tar", "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        about = tarfile.TarInfo("two")
        about.size = 70_000
        archive.addfile(about, io.BytesIO(b"2" * 70_000))
    with fsspec.open(f"tar://two::{place}/a.tar") as file:
        assert file.read() == b"2" * 70_000


# names


def test_globbing_walking_and_sizes(place):
    fs, below = fsspec.filesystem("hpcmemory"), place.split("://")[1]
    names = ["a.txt", "b.dat", "deep/c.txt", "deep/er/d.txt"]
    fs.pipe({f"{place}/{name}": name.encode() * 10 for name in names})
    assert fs.glob(f"{place}/*.txt") == [f"{below}/a.txt"]
    assert fs.glob(f"{place}/**/*.txt") == [f"{below}/{name}" for name in names if name.endswith("txt")]
    assert fs.glob(f"{place}/[ab].*") == [f"{below}/a.txt", f"{below}/b.dat"]
    assert fs.glob(f"{place}/nothing*") == []
    walked = [(path, sorted(folders), sorted(files)) for path, folders, files in fs.walk(place)]
    assert walked == [
        (below, ["deep"], ["a.txt", "b.dat"]),
        (f"{below}/deep", ["er"], ["c.txt"]),
        (f"{below}/deep/er", [], ["d.txt"]),
    ]
    assert fs.find(place) == [f"{below}/{name}" for name in names]
    assert fs.du(place) == 10 * sum(map(len, names)) == sum(fs.du(place, total=False).values())
    assert fs.isdir(f"{place}/deep") and fs.isfile(f"{place}/a.txt") and not fs.exists(f"{place}/c")
    assert "er" in fs.tree(place)
    with pytest.raises(FileNotFoundError, match="nothing"):
        fs.ls(f"{place}/nothing")


def test_folders_are_moved_and_copied(place):
    fs, below = fsspec.filesystem("hpcmemory"), place.split("://")[1]
    heat().chunk(time=2).to_zarr(f"{place}/part/a.zarr")
    fs.mv(f"{place}/part", f"{place}/whole", recursive=True)
    assert not fs.exists(f"{place}/part")
    xr.testing.assert_identical(xr.open_zarr(f"{place}/whole/a.zarr").load(), heat())
    fs.cp(f"{place}/whole/a.zarr", f"{place}/b.zarr", recursive=True)
    fs.rm(f"{place}/whole", recursive=True)
    xr.testing.assert_identical(xr.open_zarr(f"{place}/b.zarr").load(), heat())
    fs.makedirs(f"{place}/into")
    fs.mv(f"{place}/b.zarr", f"{place}/into/", recursive=True)
    assert fs.ls(f"{place}/into", detail=False) == [f"{below}/into/b.zarr"]
    xr.testing.assert_identical(xr.open_zarr(f"{place}/into/b.zarr").load(), heat())


def test_folders_go_to_local_ones_and_back(place, tmp_path):
    fs = fsspec.filesystem("hpcmemory")
    heat().chunk(time=2).to_zarr(tmp_path / "a.zarr")
    fs.put(str(tmp_path / "a.zarr"), f"{place}/a.zarr", recursive=True)
    xr.testing.assert_identical(xr.open_zarr(f"{place}/a.zarr").load(), heat())
    fs.get(f"{place}/a.zarr", str(tmp_path / "b.zarr"), recursive=True)
    xr.testing.assert_identical(xr.open_zarr(tmp_path / "b.zarr").load(), heat())
    fs.get(f"{place}/a.zarr", str(tmp_path / "c") + "/", recursive=True)
    assert (tmp_path / "b.zarr" / "zarr.json").exists() and any((tmp_path / "c").rglob("zarr.json"))


def test_ranges_of_several_files(place):
    fs = fsspec.filesystem("hpcmemory")
    data = {f"{place}/{name}": name.encode() * 40_000 for name in "abc"}
    fs.pipe(data)
    found = fs.cat_ranges(list(data), [0, 39_999, -2], [3, 40_001, None])
    assert found == [b"aaa", b"b", b"cc"]
    (wrong,) = fs.cat_ranges([f"{place}/nothing"], 0, 5, on_error="return")
    assert isinstance(wrong, FileNotFoundError)
    assert list(fs.cat(f"{place}/*").values()) == list(data.values())
    assert (fs.head(f"{place}/a", 2), fs.tail(f"{place}/c", 2)) == (b"aa", b"cc")
    assert fs.read_block(f"{place}/b", 10, 4) == b"bbbb"


def test_a_transaction_is_all_or_nothing(place):
    fs = fsspec.filesystem("hpcmemory")
    with fs.transaction:
        for name in "ab":
            with fs.open(f"{place}/{name}", "wb") as file:
                file.write(name.encode() * 10_000)
        assert not fs.exists(f"{place}/a")
    assert fs.cat_file(f"{place}/b") == b"b" * 10_000
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{place}/a", "wb") as file:
            file.write(b"other")
        raise ZeroDivisionError
    assert fs.cat_file(f"{place}/a") == b"a" * 10_000


def test_a_mapper(place):
    mapper = fsspec.get_mapper(f"{place}/m", create=True)
    mapper.update({"a/b": b"1", "c": b"2"})
    assert dict(mapper) == {"a/b": b"1", "c": b"2"} and "a/b" in mapper and len(mapper) == 2
    del mapper["a/b"]
    assert list(mapper) == ["c"] and mapper.getitems(["c", "d"], on_error="omit") == {"c": b"2"}
    mapper.clear()
    assert list(mapper) == []


# from several places


def test_file_systems_and_files_travel_to_workers(place):
    fs, client = fsspec.filesystem("hpcmemory"), Client.current()
    fs.pipe_file(f"{place}/a", b"0123456789" * 20_000)
    assert pickle.loads(pickle.dumps(fs)) is fs and fs == MemoryFileSystem()
    assert client.submit(fs.cat_file, f"{place}/a", 5, 8, pure=False).result() == b"567"
    with fs.open(f"{place}/a") as file:
        file.seek(100_003)
        assert client.submit(lambda file: (file.tell(), file.read(4)), file).result() == (100_003, b"3456")
    opener = fsspec.open(f"{place}/a", "rt")

    def first(opener):
        with opener as file:
            return file.read(3)

    assert client.submit(first, opener).result() == "012"
    assert client.submit(MemoryFileSystem.from_json, fs.to_json()).result() == fs


def test_who_passes_an_open_file_on_asks_nobody(small_cluster, fs, monkeypatch):
    """A scheduler unpickles graphs in its event loop; would it wait there for an answer of its own, all would
    stop."""
    fs.pipe_file("scratch/passed", b"0123456789")
    with fs.open("scratch/passed") as file:
        file.seek(3)
        sent = pickle.dumps(file)

    def ask(*args):
        raise AssertionError("somebody was asked")

    with monkeypatch.context() as patch:
        patch.setattr("dask_hpc.memory_files.client.filesystem.port_here", ask)
        file = pickle.loads(sent)
        assert hash(file) == hash(pickle.loads(pickle.dumps(file)))
    assert file.read(4) == b"3456"
    file.close()


def test_threads_of_tasks_and_of_the_client_at_once(place):
    from concurrent.futures import ThreadPoolExecutor

    fs, client = fsspec.filesystem("hpcmemory"), Client.current()

    def exchange(name):
        here = fsspec.filesystem("hpcmemory")
        for number in range(5):
            with here.open(f"{place}/{name}-{number}", "wb") as file:
                file.write(f"{name} {number} ".encode() * 3000)
            assert here.cat_file(f"{place}/{name}-{number}") == f"{name} {number} ".encode() * 3000
        return name

    with ThreadPoolExecutor(4) as pool:
        tasks = client.map(exchange, [f"task-{one}" for one in range(8)], pure=False)
        assert sorted(pool.map(exchange, "abcd")) == list("abcd")
        client.gather(tasks)
    assert len(fs.ls(place)) == 60 and fs.cat_file(f"{place}/task-7-4") == b"task-7 4 " * 3000


def test_programs_see_what_others_write(apart):
    url = apart.files.url("programs")
    with apart.client.as_current():
        with fsspec.open(f"{url}/first.npy", "wb") as file:
            np.save(file, np.ones((30, 40)))
        heat(days=3).chunk(time=1).to_zarr(f"{url}/second.zarr")
        command = [sys.executable, "-c", OTHER, apart.cluster.scheduler_address, url]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stderr
        assert [line.rpartition("/")[2] for line in told.stdout.split()] == [
            "answer.npy", "first.npy", "second.zarr",
        ]  # fmt: skip
        with fsspec.open(f"{url}/answer.npy") as file:
            assert np.array_equal(np.load(file), 1 + heat(days=3).heat.mean("time").values)


def test_many_files_at_once_each_with_what_was_wrong(small_cluster):
    """Some are large, some are folders, some are not there: the others are as they should be."""
    fs, url = small_cluster.files.fs, small_cluster.files.url
    files = {url(f"many/{number}"): bytes([number]) * number * 7000 for number in range(60)}
    files[url("many/large")] = b"L" * 2_000_000
    fs.pipe(files)
    names = {one.removeprefix("hpcmemory://"): data for one, data in files.items()}
    assert fs.cat(list(files)) == names
    assert fs.cat([*files, url("many/none")], on_error="omit") == names
    found = fs.cat_ranges([url("many/9"), url("many/none"), url("many/large")], [10, 0, 5], [20, 5, None])
    assert (found[0], found[2]) == (b"\x09" * 10, b"L" * 1_999_995)
    assert isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat([url("many/9"), url("many/none")])
    fs.makedirs(url("many/folder"))
    with pytest.raises(IsADirectoryError):
        fs.pipe({url("many/first"): b"1", url("many/folder"): b"x", url("many/last"): b"2"})
    assert fs.cat_file(url("many/first")) + fs.cat_file(url("many/last")) == b"12"
    with pytest.raises(FileExistsError):
        fs.pipe({url("many/last"): b"3", url("many/new"): b"4"}, mode="create")
    assert fs.cat_file(url("many/last")) + fs.cat_file(url("many/new")) == b"24"
    fs.rm(url("many"), recursive=True)
    assert small_cluster.files.status()["writers"] == 0


def test_very_many_small_files_in_few_messages(small_cluster, monkeypatch):
    """Each agent gets the bytes of a set of files in one piece. Of what is wrong the first is told, and it
    keeps nothing else back."""
    fs, url = small_cluster.files.fs, small_cluster.files.url
    messages = []

    def counted(offers, parts, apart=True):
        messages.append((len(offers), len(parts)))
        return unpacked(offers, parts, apart)

    monkeypatch.setattr("dask_hpc.checkpoint.worker.agent.unpacked", counted)
    fs.makedirs(url("sets/7"))
    fs.pipe_file(url("sets/file"), b"f")
    messages.clear()
    good = {f"scratch/sets/{number}": number.to_bytes(2, "big") * 40 for number in range(600) if number != 7}
    folder, below = {"scratch/sets/7": b"x"}, {"scratch/sets/file/below": b"x"}
    with pytest.raises(IsADirectoryError):
        fs.pipe(folder | good | below)
    assert sum(blocks for blocks, _ in messages) == len(good)
    assert {parts for _, parts in messages} == {1} and len(messages) <= 9  # three sets for three agents
    with pytest.raises(NotADirectoryError):
        fs.pipe(below | good | folder)
    assert fs.cat(list(good)) == good
    fs.rm(url("sets"), recursive=True)
    assert small_cluster.files.status()["writers"] == 0
