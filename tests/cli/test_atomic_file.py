"""Output files: complete or not at all, refused before the work, and never at the cost of what was there."""

import errno
import os
import stat
from pathlib import Path

import pytest

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.model.errors import InputError


class Broken(Exception):
    pass


def test_written_at_the_end(tmp_path):
    target = tmp_path / "out.nc"
    with atomic_file(target) as draft:
        draft.write_text("new")
        assert not target.exists()
        assert draft.suffix == ".nc"
        assert draft.parent == tmp_path
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("raised", [Broken, KeyboardInterrupt, SystemExit, InputError("x", "y")])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failure_changes_nothing(raised, existing, tmp_path):
    target = tmp_path / "out.csv"
    if existing:
        target.write_text("old")
    with pytest.raises(BaseException) as caught, atomic_file(str(target)) as draft:
        draft.write_text("half")
        raise raised
    assert isinstance(caught.value, raised if isinstance(raised, type) else InputError)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"] * existing


def test_permissions_are_kept(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")
    target.chmod(0o640)
    with atomic_file(target) as draft:
        draft.write_text("new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_obeys_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "out") as draft:
            draft.write_text("new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "out")
    with atomic_file(link) as draft:
        draft.write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "out").read_text() == "new"


def test_relative_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plain", ".hidden", "no suffix.", "two words.tar.gz", "é" * 60, "-dash"):
        with atomic_file(name) as draft:
            draft.write_text(name)
        assert Path(name).read_text() == name


def test_a_device_is_not_replaced():
    with atomic_file("/dev/null") as draft:
        draft.write_text("gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not draft.exists()


@pytest.mark.parametrize(
    "target, why",
    [
        ("", "is a folder"),
        (".", "is a folder"),
        ("sub/", "is a folder"),
        ("no/such/folder.nc", "there is no folder"),
        ("file/out.nc", "there is no folder"),
        ("new/", "is a folder"),
        ("x" * 300, "File name too long"),
        ("a\0b", "cannot be written"),
        ("/proc/out.nc", "cannot be written"),
    ],
)
def test_refused_before_the_work(target, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=why) as caught, atomic_file(target):
        pytest.fail("the work has begun")
    assert str(caught.value).isprintable()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "sub"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path):
    target = tmp_path / "out"
    target.touch(0o444)
    with pytest.raises(InputError, match="read-only"), atomic_file(target):
        pytest.fail("the work has begun")
    tmp_path.chmod(0o555)
    with pytest.raises(InputError, match="Permission denied"), atomic_file(tmp_path / "new"):
        pytest.fail("the work has begun")
    tmp_path.chmod(0o755)


def test_a_full_disk_is_said_in_one_line(tmp_path):
    with pytest.raises(InputError, match="No space left"), atomic_file(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ConnectionError), atomic_file(tmp_path / "out"):
        raise ConnectionError("not about this file")
    assert list(tmp_path.iterdir()) == []
