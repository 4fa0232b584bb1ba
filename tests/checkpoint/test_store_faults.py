"""Killed at any step, or with anything wrong with its files: a version can be restored, never a wrong one."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from forks import FORKS, forked_nannies
from small_stores import save

from dask_hpc import Checkpoint, restore
from dask_hpc.checkpoint.faults import COMMIT_POINTS, RESTORE_POINTS, VARIABLE
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.items import describe
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.store.versions import Overtaken, abandon, begin, finish
from dask_hpc.model.errors import InputError


def items(step):
    dataset = xr.Dataset({"u": ("x", np.arange(5) * step), "same": ("x", np.arange(5))})
    return {"u": dataset, "n": step}


def _do(root, what, step, fault, size):
    os.environ[VARIABLE] = fault
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        if what == "save":
            save(None, str(root), "run", items(step), step=step, keep=1)
        else:
            restore("run", str(root))
    except OSError as error:
        sys.exit(error.errno)


def in_another_process(root, what, step=0, fault="", size=None):
    """How it ended: minus the signal, the number of an error of the system, 0 if all went well."""
    process = FORKS.Process(target=_do, args=(root, what, step, fault, size))
    process.start()
    process.join(100)
    return process.exitcode


def assert_is(root, step, **options):
    found, meta = restore("run", str(root), **options)
    assert meta.step == step and found["n"] == step
    xr.testing.assert_identical(found["u"], items(step)["u"])
    return meta


@pytest.fixture
def store(tmp_path):
    for step in (1, 2):
        save(None, str(tmp_path), "run", items(step), step=step)
    return tmp_path


OFTEN = [point for point in COMMIT_POINTS if point.startswith(("block", "metadata", "prune"))]


SECOND = [pytest.param(f"{point}:2", marks=pytest.mark.slow) for point in OFTEN]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*COMMIT_POINTS, *SECOND])
def test_killed_at_every_step_of_a_commit(store, fault):
    assert in_another_process(store, "save", 3, fault) == -signal.SIGKILL
    is_new = fault.partition(":")[0] in ("manifest-named", "prune-begun", "prune-hidden")
    assert_is(store, 3 if is_new else 2)
    # the next one finds its way, and nothing half written stays
    save(None, str(store), "run", items(4), step=4, keep=1)
    assert_is(store, 4)
    assert len(os.listdir(store / "run")) == 1


@pytest.mark.parametrize("fault", [*RESTORE_POINTS, *(f"{point}:3" for point in RESTORE_POINTS)])
def test_killed_at_every_step_of_a_restore(store, fault):
    assert in_another_process(store, "restore", 0, fault) == -signal.SIGKILL
    assert_is(store, 2)


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EIO", "EDQUOT"])
@pytest.mark.parametrize("point", [point for point in COMMIT_POINTS if not point.startswith("prune")])
def test_a_store_that_fails_at_any_step(store, monkeypatch, point, error):
    monkeypatch.setenv(VARIABLE, f"{point}!{error}")
    with pytest.raises((Trouble, OSError)) as found:
        save(None, str(store), "run", items(3), step=3)
    assert found.value.errno == getattr(errno, error)
    monkeypatch.delenv(VARIABLE)
    assert_is(store, 2) if point != "manifest-named" else restore("run", str(store))
    save(None, str(store), "run", items(4), step=4, keep=1)
    assert_is(store, 4)


def test_a_folder_that_was_deleted_by_halves_goes_with_the_next_commit(store):
    Path(store, "run", ".new-00000000-0a").mkdir()
    save(None, str(store), "run", items(3), step=3, keep=1)
    assert os.listdir(store / "run") == ["00000003"]


@pytest.mark.slow
def test_a_disk_that_is_really_full(store):
    """A limit on the size of files stands in for the disk."""
    assert in_another_process(store, "save", 3, size=100) == errno.EFBIG
    assert_is(store, 2)
    assert sorted(os.listdir(store / "run")) == ["00000001", "00000002"]


def files_of(root, version):
    folder = Path(root, "run", f"{version:08}")
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("claim", "zarr.json")
    ]


def spoil(path, harm):
    body = bytearray(path.read_bytes())
    path.unlink()  # it may have another name in another version
    if harm == "cut":
        path.write_bytes(body[:-1])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "longer":
        path.write_bytes(body + b"\0")
    elif harm == "flipped":
        body[len(body) // 2] ^= 4
        path.write_bytes(body)
    elif harm == "foreign":
        path.write_bytes(os.urandom(len(body)))
    elif harm == "folder":
        path.mkdir()


HARMS = ("cut", "empty", "longer", "flipped", "foreign", "missing")


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("which", range(4))
def test_whatever_is_damaged_an_older_version_is_restored(store, harm, which):
    spoil(files_of(store, 2)[which], harm)
    if files_of(store, 1)[which].name == "manifest.json" and harm == "missing":
        assert assert_is(store, 1).skipped == ()  # then it is no version
        return
    meta = assert_is(store, 1)
    assert len(meta.skipped) == 1 and "version 2" in meta.skipped[0]
    with pytest.raises((Damaged, Trouble)):
        restore("run", str(store), 2)
    spoil(files_of(store, 1)[which], "cut")
    with pytest.raises(Damaged, match=r"no intact version.*version 2.*version 1"):
        restore("run", str(store))


def test_a_damaged_block_that_is_read_later(tmp_path):
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for step in (1, 2):
            save(client, str(tmp_path), "run", {"u": da.arange(6, chunks=2) * step}, step=step)
        spoil(Path(tmp_path, "run", "00000002", "u.zarr", "u", "c", "1"), "flipped")
        found, meta = restore("run", str(tmp_path))  # the workers read it at once
        assert meta.step == 1 and "u[u/1] is damaged" in meta.skipped[0]
        assert found.compute().tolist() == list(range(6))
        with pytest.raises(Damaged, match=r"version 2: u\[u/1\] is damaged"):
            restore("run", str(tmp_path), 2)
    found, meta = restore("run", str(tmp_path))
    assert meta.step == 2
    with pytest.raises(ValueError, match=r"version 2: u\[u/1\] is damaged"):
        found.compute(scheduler="sync")
    found, meta = restore("run", str(tmp_path), verify=True)
    assert meta.step == 1 and found.compute(scheduler="sync").tolist() == list(range(6))


@contextmanager
def mounted(folder, *options):
    """Only root may, and not everywhere."""
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_store_that_is_read_only(store):
    with mounted(store, "--bind", str(store)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True)
        with pytest.raises(Trouble, match="Read-only") as found:
            save(None, str(store), "run", items(3), step=3)
        assert found.value.errno == errno.EROFS
        assert_is(store, 2)
    assert sorted(os.listdir(store / "run")) == ["00000001", "00000002"]


def test_a_file_system_that_is_full(tmp_path):
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=512k", "none"):
        for step in (1, 2):
            save(None, str(tmp_path), "run", items(step), step=step)
        much = {"u": xr.Dataset({"u": ("x", np.random.default_rng(0).random(100_000))}), "n": 3}
        with pytest.raises(Trouble, match="No space") as found:
            save(None, str(tmp_path), "run", much, step=3)
        assert found.value.errno == errno.ENOSPC
        assert_is(tmp_path, 2)
        save(None, str(tmp_path), "run", items(4), step=4, keep=1)
        assert_is(tmp_path, 4)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_that_cannot_be_written(store):
    os.chmod(store / "run", 0o500)
    with pytest.raises(Trouble, match="Permission"):
        save(None, str(store), "run", items(3))
    assert_is(store, 2)
    os.chmod(store / "run", 0o700)


def test_a_store_that_is_no_folder(tmp_path):
    Path(tmp_path, "file").write_text("")
    with pytest.raises(Trouble):
        save(None, str(tmp_path / "file"), "run", items(3))
    with pytest.raises(InputError, match="has none in"):
        restore("run", str(tmp_path / "file"))


def test_no_clock_decides(tmp_path, monkeypatch):
    for step, now in enumerate((3e9, 2e9, -5.0, 0.0)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        save(None, str(tmp_path), "run", items(step), step=step, keep=2)
    assert assert_is(tmp_path, 3).time == 0.0
    assert sorted(os.listdir(tmp_path / "run")) == ["00000003", "00000004"]


def blocks_of(commit):
    return {
        place: commit.writer(spec, commit.items[place[0]].sources[place[1]].value)
        for place, spec in commit.specs.items()
    }


def commit_of(root, step):
    return begin(str(root), "run", [describe(one, label) for label, one in items(step).items()])


@pytest.mark.parametrize("root", ["path", "memory"])
def test_two_that_write_one_name_do_not_mix(tmp_path, root):
    root = str(tmp_path) if root == "path" else "memory://two-writers"
    first, second = commit_of(root, 1), commit_of(root, 2)
    assert first.version != second.version
    mine, theirs = blocks_of(first), blocks_of(second)
    finish(first, mine, step=1)
    finish(second, theirs, step=2)
    assert_is(root, 1, version=first.version)
    assert_is(root, 2)


def test_who_is_overtaken_is_told(tmp_path):
    slow, fast = commit_of(tmp_path, 1), commit_of(tmp_path, 2)
    written = blocks_of(slow)
    finish(fast, blocks_of(fast), step=2)
    with pytest.raises(Overtaken, match="somebody else finished"):
        finish(slow, written, step=1)
    blocks_of(slow)  # comes too late, and is swept away by the next one
    with pytest.raises(Overtaken):
        finish(slow, written, step=1)
    assert_is(tmp_path, 2)
    abandon(slow)
    save(None, str(tmp_path), "run", items(3), step=3, keep=1)
    assert len(os.listdir(tmp_path / "run")) == 1


def test_a_folder_that_goes_just_before_its_manifest_comes(tmp_path, monkeypatch):
    commit = commit_of(tmp_path, 1)
    written, check = blocks_of(commit), type(commit).check_claim

    def lost(self):
        check(self)
        self.versions.files.delete(self.versions.folder(self.version))

    monkeypatch.setattr(type(commit), "check_claim", lost)
    with pytest.raises(Overtaken):
        finish(commit, written, step=1)
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("is_anothers", [False, True])
def test_on_an_object_store_a_folder_that_goes_meanwhile_is_noticed_afterwards(monkeypatch, is_anothers):
    """There a file makes its folder: nothing fails, and a manifest without blocks would be a version."""
    commit = commit_of(f"memory://gone-meanwhile-{is_anothers}", 1)
    folder, written, write = commit.versions.folder(commit.version), blocks_of(commit), Files.write

    def too_late(files, path, *args, **known):
        if path.endswith("manifest.json"):
            files.delete(folder)
            if is_anothers:
                files.claim(f"{folder}/claim", b"another's")
        return write(files, path, *args, **known)

    monkeypatch.setattr(Files, "write", too_late)
    with pytest.raises(Overtaken):
        finish(commit, written, step=1)
    assert ("claim" in commit.versions.files.names(folder)) == is_anothers
    assert is_anothers or commit.versions.numbers() == []


def test_who_gives_up_deletes_nobody_elses_folder():
    first = commit_of("memory://given-up", 1)
    first.versions.files.write(f"{first.versions.folder(first.version)}/claim", [b"another's"])
    with pytest.raises(Overtaken):
        finish(first, blocks_of(first), step=1)
    abandon(first)
    assert first.versions.files.names(first.versions.folder(first.version))


def test_many_claims_at_once(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(commit_of(tmp_path, 1).version)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["block-begun", "block-written", "block-named", "load-begun", "load-read:2"]
)
def test_a_worker_that_dies_in_the_middle(tmp_path, fault):
    with (
        forked_nannies(),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        array = da.arange(24, chunks=2).persist()
        is_load = fault.startswith("load")
        if is_load:
            save(client, str(tmp_path), "run", {"u": array}, step=1)
        (victim, *_) = client.nthreads()
        client.run(lambda: os.environ.__setitem__(VARIABLE, fault), workers=[victim])
        before = client.run(os.getpid, workers=[victim])[victim]
        if not is_load:
            with Checkpoint("run", str(tmp_path), levels="store") as ck:
                array = ck.add("u", array)
                ck.commit()
                while "store" not in ck.stats().versions:  # it is tried again
                    time.sleep(0.1)
        found, meta = restore("run", str(tmp_path))
        assert meta.step == int(is_load) and found.compute().tolist() == list(range(24))
        assert before not in client.run(os.getpid).values()
