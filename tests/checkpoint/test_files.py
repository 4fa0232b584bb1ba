"""Files of a store: whole or not there, whatever kills us, on a disk and in fsspec's memory."""

import errno
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from dask_hpc.checkpoint.faults import POINTS, VARIABLE
from dask_hpc.checkpoint.store import files as files_module
from dask_hpc.checkpoint.store.files import Files, Missing, Trouble, is_local


@pytest.fixture(params=["path", "file URL", "memory"])
def files(request, tmp_path):
    root = {"path": f"{tmp_path}/s", "file URL": f"file://{tmp_path}/s", "memory": f"memory://{uuid4()}"}
    return Files(root[request.param])


def test_write_read_list_delete(files):
    assert files.names() == [] and files.names("none") == []
    assert files.write("a/b/c", [b"12", memoryview(b"345"), bytearray()]) == 5
    assert files.read("a/b/c") == b"12345" and files.size("a/b/c") == 5
    files.write("a/b/c", [b"other"])
    files.write("a/d", [])
    assert files.read("a/b/c") == b"other" and files.read("a/d") == b""
    assert files.names() == ["a"] and files.names("a") == ["b", "d"]
    files.delete("a/b")
    files.delete("a/b")
    files.delete("a/none")
    assert files.names("a") == ["d"]
    with pytest.raises(Missing, match="is not there"):
        files.read("a/b/c")


def test_the_same_file_under_another_name(files):
    files.write("1/u", [b"12345"])
    files.same("1/u", "2/deep/u")
    files.same("1/u", "2/deep/u")
    files.delete("1")
    assert files.read("2/deep/u") == b"12345"
    with pytest.raises(Missing):
        files.same("1/u", "3/u")
    if files.is_local:
        files.same("2/deep/u", "3/u")
        assert os.stat(f"{files.root}/3/u").st_nlink == 2  # stored once


def test_another_name_takes_the_place_of_a_file_that_has_it(tmp_path):
    files = Files(str(tmp_path))
    files.write("1/u", [b"right"])
    files.write("2/u", [b"wrong"])
    files.same("1/u", "2/u")
    assert os.stat(tmp_path / "2" / "u").st_nlink == 2 and files.read("2/u") == b"right"


def test_a_folder_that_is_half_deleted_has_no_name_any_longer_and_is_swept_away(tmp_path, monkeypatch):
    files = Files(str(tmp_path))
    files.write("run/1/u", [b"12345"])
    files.write("run/2/u", [b"12345"])
    with monkeypatch.context() as patch:
        patch.setattr(files_module.shutil, "rmtree", lambda *_, **__: None)  # as if killed there
        files.delete("run/1")
    assert files.names("run") == ["2"] and len(os.listdir(tmp_path / "run")) == 2
    files.sweep("run")
    assert os.listdir(tmp_path / "run") == ["2"]


def test_private_files_are_for_nobody_else(tmp_path):
    Files(f"{tmp_path}/s", is_private=True).write("a/u", [b"1"])
    modes = [os.stat(tmp_path / path).st_mode & 0o777 for path in ("s", "s/a", "s/a/u")]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("path", ["..", "a/../b", "/etc/passwd", "a//b", "./a", "a/./b", "a\\b", "a\0", "a/"])
def test_paths_that_lead_out(files, path):
    for call in (files.read, files.delete, files.names, files.size):
        with pytest.raises(Trouble, match="is no path within"):
            call(path)
    with pytest.raises(Trouble):
        files.write(path, [b""])
    with pytest.raises(Trouble):
        files.same(path, "b")


def test_what_is_local():
    assert is_local("/a/b") and is_local("a") and is_local("file:///a") and not is_local("s3://a")


SCRIPT = """
import sys
from dask_hpc.checkpoint.store.files import Files
Files(sys.argv[1]).write("a/u", [b"new" * 1000], sys.argv[2])
"""


def written(root, point, fault):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, root, point],
        env=os.environ | {VARIABLE: fault},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("point", [name for name in POINTS if name.startswith(("block", "manifest"))])
@pytest.mark.parametrize("is_new", [True, False])
def test_killed_at_every_step(tmp_path, point, is_new):
    files = Files(str(tmp_path))
    if not is_new:
        files.write("a/u", [b"old"])
    found = written(str(tmp_path), point.partition("-")[0], point)
    assert found.returncode == -signal.SIGKILL
    if point.endswith("named"):
        assert files.read("a/u") == b"new" * 1000
    elif is_new:
        assert files.names("a") == []
    else:
        assert files.names("a") == ["u"] and files.read("a/u") == b"old"


@pytest.mark.parametrize("step", ["begun", "written"])
def test_a_full_disk_leaves_nothing(tmp_path, step):
    found = written(str(tmp_path), "block", f"block-{step}!ENOSPC")
    assert "No space left on device" in found.stderr and "Trouble" in found.stderr
    assert list((tmp_path / "a").iterdir()) == []


def test_the_third_time(tmp_path):
    script = SCRIPT + "Files(sys.argv[1]).write('a/v', [b'2'])\nFiles(sys.argv[1]).write('a/w', [b'3'])"
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "block"],
        env=os.environ | {VARIABLE: "block-written:3"},
        check=False,
    )
    assert found.returncode == -signal.SIGKILL
    assert Files(str(tmp_path)).names("a") == ["u", "v"]


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Trouble) as told:
        Files(f"{tmp_path}/file/s").write("a", [b""])
    assert told.value.errno == errno.ENOTDIR and str(tmp_path) in told.value.strerror
    with pytest.raises(Trouble, match="Protocol not known"):
        Files("nosuch://a/b").write("a", [b""])


def test_a_file_is_on_disk_before_it_has_its_name_and_its_folder_after(tmp_path, monkeypatch):
    told = []

    def said(what, call):
        def hears(*args):
            told.append((what, os.readlink(f"/proc/self/fd/{args[0]}") if what == "sync" else args[1]))
            return call(*args)

        return hears

    monkeypatch.setattr(os, "fsync", said("sync", os.fsync))
    monkeypatch.setattr(os, "replace", said("name", os.replace))
    Files(str(tmp_path)).write("a/b", [b"1"])
    folder = str(tmp_path / "a")
    (parent, (what, new), named, synced) = told
    assert parent == ("sync", str(tmp_path)) and what == "sync" and new.startswith(f"{folder}/.new-b")
    assert named == ("name", f"{folder}/b") and synced == ("sync", folder)
    told.clear()
    Files(str(tmp_path), lasting=False).write("a/c", [b"1"])
    assert told == [("name", f"{folder}/c")]
