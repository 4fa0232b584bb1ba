"""Blocks as files, and back."""

import os
from pathlib import Path

import cftime
import numpy as np
import pytest

from dask_hpc.checkpoint.faults import VARIABLE
from dask_hpc.checkpoint.store.cells import Reader, Sampler, Writer, framed, opened, unframed
from dask_hpc.checkpoint.store.files import Files, Missing
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services
from dask_hpc.checkpoint.store.value import decode, encode, pack, unpack

KEY = Key(b"k" * 32)
PLAIN = Services("never")


def spec(array, cell=None, **more):
    found = {"file": "u.zarr/u/c/0", "where": "u[u/0]", "form": "cell", "dtype": array.dtype.str}
    return found | {"shape": list(array.shape), "cell": list(cell or array.shape)} | more


def write_block(root, name, version, spec, value, services):
    return Writer(root, name, version, services)(spec, value)


def read_block(root, name, version, spec, block, key=None):
    return Reader(root, name, version, key)({"spec": spec, "block": block})


def test_a_cell_is_what_zarr_expects(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    write_block(str(tmp_path), "run", 1, spec(array, (3, 4)), array, PLAIN)
    stored = np.fromfile(tmp_path / "run" / "00000001" / "u.zarr" / "u" / "c" / "0").reshape(3, 4)
    assert (stored[:2, :3] == array).all() and not stored[2:].any() and not stored[:, 3:].any()


def test_an_array_is_read_into_its_own_memory(tmp_path):
    array = np.arange(12.0).reshape(4, 3)
    for cell, is_view in (((4, 3), True), ((6, 3), True), ((4, 5), False)):
        made = spec(array, cell)
        block = write_block(str(tmp_path), "run", 1, made, array, PLAIN)
        body = Files(str(tmp_path)).load("run/00000001/u.zarr/u/c/0")
        found = opened(body, "run/x", "here", made, block["note"], None, False)
        assert np.shares_memory(found, body) == is_view
        assert found.flags.c_contiguous and found.flags.writeable and (found == array).all()


def test_what_did_not_change_keeps_its_file_if_it_is_compressed_alike(tmp_path):
    array = np.zeros(1000)
    made = spec(array, compress="never")
    first = write_block(str(tmp_path), "run", 1, made, array, PLAIN)
    old = {"version": 1, **first}

    def inode(version):
        return os.stat(tmp_path / "run" / f"{version:08}" / "u.zarr" / "u" / "c" / "0").st_ino

    assert write_block(str(tmp_path), "run", 2, made | {"old": old}, array, PLAIN) == first
    assert inode(2) == inode(1)
    write_block(str(tmp_path), "run", 3, made | {"old": old}, array + 1, PLAIN)
    packed = write_block(str(tmp_path), "run", 4, made | {"old": old, "compress": "always"}, array, PLAIN)
    assert packed["content"] == first["content"] and packed["note"]["codec"] == "zstd"
    assert len({inode(version) for version in (1, 3, 4)}) == 3
    Files(str(tmp_path)).delete("run/00000001")
    write_block(str(tmp_path), "run", 5, made | {"old": old}, array, PLAIN)
    for version in (2, 5):
        assert (read_block(str(tmp_path), "run", version, made, first) == 0).all()


def test_the_same_numbers_of_another_calendar_are_another_block(tmp_path):
    made = spec(np.arange(3.0)) | {"form": "objects", "dtype": None}
    dates = {
        calendar: np.array(cftime.num2date([0, 10, 20], "days since 1970-01-01", calendar=calendar), object)
        for calendar in ("noleap", "360_day")
    }
    first = write_block(str(tmp_path), "run", 1, made, dates["noleap"], PLAIN)
    old = {"version": 1, **first}
    second = write_block(str(tmp_path), "run", 2, made | {"old": old}, dates["360_day"], PLAIN)
    assert second["content"] == first["content"] and second["note"]["calendar"] == "360_day"
    assert (read_block(str(tmp_path), "run", 2, made, second) == dates["360_day"]).all()


@pytest.mark.parametrize("was, kept", [(None, 1), (True, 1), (False, 0)])
def test_an_array_that_did_not_change_stays_as_it_was_stored(was, kept):
    smooth, services = np.zeros(2**18), Services(rate=1e6)
    old = {"content": services.name_of([smooth]), "note": {"codec": "zstd"} if was else {}}
    made = spec(smooth) | ({} if was is None else {"old": old})
    assert Sampler(services)(made, smooth) == kept
    noise = np.random.default_rng(0).random(2**18)
    assert Sampler(services)(made, smooth + 1) and not Sampler(Services(rate=1e9))(made, noise)


def test_the_sum_is_that_of_the_file_as_it_is(tmp_path):
    array = np.arange(4.0)
    block = write_block(str(tmp_path), "run", 1, spec(array), array, PLAIN)
    path = Path(tmp_path, "run", "00000001", "u.zarr", "u", "c", "0")
    path.write_bytes(np.arange(1, 5.0).tobytes())
    with pytest.raises(Damaged, match=r"run version 1: u\[u/0\] is damaged"):
        read_block(str(tmp_path), "run", 1, spec(array), block)
    path.unlink()
    with pytest.raises(Missing, match=r"run version 1: u\[u/0\] is missing"):
        read_block(str(tmp_path), "run", 1, spec(array), block)


def test_another_spec_than_it_was_written_with(tmp_path):
    array = np.arange(4.0)
    block = write_block(str(tmp_path), "run", 1, spec(array), array, PLAIN)
    for wrong in ({"cell": [5]}, {"dtype": "O"}, {"dtype": "nonsense"}, {"cell": [2**60]}, {"cell": None}):
        with pytest.raises(Damaged):
            read_block(str(tmp_path), "run", 1, spec(array) | wrong, block)


def test_pieces_of_several_blocks(tmp_path):
    reader = Reader(str(tmp_path), "run", 1)
    wanted = []
    for number in range(2):
        array = np.arange(3.0) + 10 * number
        made = spec(array) | {"file": str(number)}
        wanted.append({"spec": made, "block": write_block(str(tmp_path), "run", 1, made, array, PLAIN)})
    pieces = [(wanted[0], [(1, 3)], [(0, 2)]), (wanted[1], [(0, 1)], [(2, 3)])]
    assert reader({"shape": [3], "pieces": pieces}).tolist() == [1, 2, 10]


@pytest.mark.parametrize("point", ["load-begun", "load-read"])
def test_a_disk_that_fails_while_a_block_is_read(tmp_path, monkeypatch, point):
    array = np.arange(4.0)
    block = write_block(str(tmp_path), "run", 1, spec(array), array, PLAIN)
    monkeypatch.setenv(VARIABLE, f"{point}!EIO")
    with pytest.raises(OSError):
        read_block(str(tmp_path), "run", 1, spec(array), block)
    assert (read_block(str(tmp_path), "run", 1, spec(array), block) == array).all()


def test_mixed_objects_are_one_value():
    days = [kind(2000, 1, 1) for kind in (cftime.DatetimeNoLeap, cftime.Datetime360Day)]
    zeros = [cftime.DatetimeGregorian(2000, 1, 1, has_year_zero=zero) for zero in (True, False)]
    plain = [cftime.datetime(2000, 1, 1, calendar=calendar) for calendar in ("noleap", "360_day")]
    for odd in ([1, "a"], ["a", None], ["\ud800"], [np.str_("a")], days, [days[0], None], zeros, plain):
        array = np.empty(len(odd), object)
        array[:] = odd
        made = spec(array) | {"form": "objects", "dtype": None}
        frames, told = framed(made, array)
        assert told["form"] == "value"
        found = unframed(made, told, [bytearray(memoryview(one).cast("B")) for one in frames], True)
        assert list(map(repr, found.tolist())) == list(map(repr, odd))


def test_small_values_as_json():
    for value in (np.dtype("i2"), np.dtype([("a", ">i4"), ("b", "M8[s]")]), np.float32(3), {"a": b"x" * 5}):
        assert unpack(pack(value)) == value
    for value in (np.dtype("O"), np.dtype("f8", metadata={"a": 1})):
        assert encode(value).head["is"] == "opaque"
    import pandas as pd

    for series in (
        pd.Series([1, 2], name="n"),
        pd.Series(["a", None], index=pd.date_range("2000", periods=2)),
        pd.Series([1.0], name=("a", 1)),
        pd.Series(pd.Categorical(["a", "b"])),
    ):
        encoded = encode(series)
        assert encoded.head["is"] == "series"
        pd.testing.assert_series_equal(decode(encoded.head, encoded.frames), series)


@pytest.mark.parametrize("services", [Services("never", key=KEY), Services("always", key=KEY), PLAIN])
def test_a_block_that_is_written_twice_is_as_either_was_told(tmp_path, services):
    """As by a worker that was thought dead, after all is done."""
    array = np.arange(4.0)
    for made, value in ((spec(array), array), (spec(array) | {"form": "value", "file": "v"}, {1, 2, 3})):
        told = [write_block(str(tmp_path), "run", 1, made, value, services) for _ in range(2)]
        for block in told:
            found = read_block(str(tmp_path), "run", 1, made, block, services.key)
            assert np.array_equal(found, value)
