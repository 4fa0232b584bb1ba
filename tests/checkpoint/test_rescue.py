"""A file is there as a whole or not at all; damaged, foreign and forged ones are never used."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from dask_hpc.checkpoint.store import value as store_value
from dask_hpc.checkpoint.worker import loaders
from dask_hpc.checkpoint.worker.loaders import Store, Unreadable, is_content_key, may_be_stored

TOKEN = "0123456789abcdef" * 2
KEY = (f"ones-{TOKEN}", 0, 3)


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "results"), "run-1")
    assert found.open() == set()
    return found


def path(store, key):
    return Path(store.directory, store.name(key))


@pytest.mark.parametrize("value", [None, 3, "x", {"a": [1, (2,)]}, b"\0" * 999, np.array([{}], dtype=object)])
def test_any_value_comes_back(store, value):
    store.write(KEY, value)
    assert pickle.dumps(store.read(KEY)) == pickle.dumps(value)
    assert store.open() == {store.name(KEY)}


any_array = arrays(scalar_dtypes(), array_shapes(min_dims=0, min_side=0, max_side=4))


@settings(deadline=None, max_examples=50)
@given(value=any_array, order=st.sampled_from("CF"))
def test_arrays_come_back_bit_for_bit_without_pickle(tmp_path_factory, value, order):
    store = Store(str(tmp_path_factory.mktemp("s")), "run")
    store.open()
    value = np.asarray(value, order=order)
    store.write(KEY, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_value.pickle, "loads", None)
        found = store.read(KEY)
    assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert found.flags.writeable and found.flags.f_contiguous == value.flags.f_contiguous


def test_a_subclass_of_an_array_keeps_its_type(store):
    store.write(KEY, np.ma.array([1, 2], mask=[True, False]))
    assert isinstance(store.read(KEY), np.ma.MaskedArray)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_damage_goes_unseen(tmp_path_factory, data):
    store = Store(str(tmp_path_factory.mktemp("s")), "run")
    store.open()
    store.write(KEY, np.arange(20))
    good = path(store, KEY).read_bytes()
    how = data.draw(st.sampled_from(["cut", "flip", "add"]))
    place = data.draw(st.integers(0, len(good) - 1))
    bad = {
        "cut": good[:place],
        "flip": good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :],
        "add": good + b"x" * (place + 1),
    }[how]
    path(store, KEY).write_bytes(bad)
    with pytest.raises(Unreadable):
        store.read(KEY)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("something foreign was unpickled",)


def test_nothing_foreign_is_unpickled(store, tmp_path):
    theirs = Store(str(tmp_path / "theirs"), "run-1")
    theirs.open()
    theirs.write(KEY, Bomb())
    path(theirs, KEY).rename(path(store, KEY))
    with pytest.raises(Unreadable, match="not written by us"):
        store.read(KEY)
    path(store, KEY).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(Unreadable):
        store.read(KEY)
    path(store, KEY).unlink()
    with pytest.raises(Unreadable, match="not there"):
        store.read(KEY)


def test_a_file_under_another_name_is_not_used(store):
    store.write(KEY, 1)
    path(store, KEY).rename(path(store, "other"))
    with pytest.raises(Unreadable, match="something else"):
        store.read("other")


def test_other_keys_belong_to_one_run(store):
    assert is_content_key(KEY) and is_content_key(f"inc-{TOKEN}")
    assert not any(map(is_content_key, ["x", "inc-1", ("x", 1), 3, (), f"inc-{TOKEN}0", "a-" + "g" * 32]))
    next_run = Store(store.directory, "run-2")
    assert store.name(KEY) == next_run.name(KEY) and store.name("x") != next_run.name("x")
    store.write("x", 1)
    with pytest.raises(Unreadable):
        next_run.read("x")
    assert store.read("x") == 1
    store.delete("x")
    store.delete("x")
    assert store.open() == set()


def test_tasks_of_shuffles_are_not_stored():
    assert may_be_stored(KEY) and may_be_stored("inc-1")
    assert not may_be_stored((f"shuffle-transfer-{TOKEN}", 1)) and not may_be_stored(f"rechunk-p2p-{TOKEN}")


def test_only_the_owner_can_read(store):
    store.write(KEY, 1)
    files = [Path(store.directory), *Path(store.directory).iterdir()]
    assert len(files) == 3 and all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize("spoil", ["open", "short", "link", "foreign"])
def test_a_key_that_others_may_know_is_not_used(store, spoil, monkeypatch, tmp_path):
    store.write(KEY, 1)
    secret = Path(store.directory, loaders._KEY_FILE)
    if spoil == "open":
        secret.chmod(0o644)
    elif spoil == "short":
        secret.write_bytes(b"x")
    elif spoil == "link":
        secret.rename(tmp_path / "elsewhere")
        secret.symlink_to(tmp_path / "elsewhere")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError):
        store.open()
    with pytest.raises(OSError):
        store.write(KEY, 2)
    with pytest.raises(Unreadable):
        store.read(KEY)


@pytest.mark.slow
def test_two_that_open_a_new_directory_get_one_key(tmp_path):
    code = "from dask_hpc.checkpoint.worker.loaders import Store; print(Store(sys.argv[1], 'r').open())"
    program = f"import sys; {code}"
    command = [sys.executable, "-c", program, str(tmp_path / "new")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[0] for one in both] == ["set()\n"] * 2
    assert os.listdir(tmp_path / "new") == [loaders._KEY_FILE]


def test_a_full_disk_leaves_nothing_half(store):
    """A limit on the size of files stands in for the disk."""
    program = (
        "import resource, sys; from dask_hpc.checkpoint.worker.loaders import Store; import numpy as np;"
        "store = Store(sys.argv[1], 'run-1'); store.write('small', 1);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000));"
        "store.write('large', np.zeros(100_000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, store.directory], capture_output=True, text=True, timeout=60
    )
    assert "File too large" in done.stderr
    assert store.open() == {store.name("small")}
    assert sorted(os.listdir(store.directory)) == sorted([loaders._KEY_FILE, store.name("small")])


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/nowhere"])
def test_what_is_no_directory_is_an_oserror(tmp_path, where):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Store(str(tmp_path / where), "run").open()


def test_files_of_the_first_format_are_read(tmp_path):
    """Written by the release before this format."""
    with ZipFile(Path(__file__).parent / "first_format.zip") as archive:
        archive.extractall(tmp_path)
    (tmp_path / "results" / loaders._KEY_FILE).chmod(0o600)
    store = Store(str(tmp_path / "results"), "run-2")
    assert len(store.open()) == 2 and store.read(f"inc-{TOKEN}") == {"a": [1, (2,)]}
    assert (store.read((f"ones-{TOKEN}", 0)) == np.arange(6.0).reshape(2, 3)).all()
