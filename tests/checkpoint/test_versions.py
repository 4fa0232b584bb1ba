"""Versions in a store: whatever is killed or damaged, one that is whole can be read, never a wrong one."""

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from forks import FORKS
from small_stores import write

from dask_hpc.checkpoint.faults import COMMIT_POINTS, VARIABLE
from dask_hpc.checkpoint.store.cells import Reader
from dask_hpc.checkpoint.store.files import Files, Missing
from dask_hpc.checkpoint.store.items import Described
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey
from dask_hpc.checkpoint.store.versions import Versions, leave_note, names_in, read_note
from dask_hpc.model.errors import InputError

PLAIN = Services("never")


def commit(versions, text, services=PLAIN, **known):
    """A version whose one item has two blocks."""
    item = Described("u", "bag", {"partitions": 2}, {})
    value = lambda commit, place: f"{text} {place[1]}"  # noqa: E731
    return write(versions.files.root, versions.name, [item], value, services, keep=99, **known)


def contents(versions, manifest):
    reader = Reader(versions.files.root, "run", manifest.version, versions.key)
    blocks = manifest.items["u"].blocks.values()
    return [reader({"spec": {"form": "value"}, "block": block.as_plain()}) for block in blocks]


@pytest.fixture(params=["path", "memory"])
def versions(request, tmp_path):
    return Versions(Files(str(tmp_path) if request.param == "path" else f"memory://{uuid4()}"), "run")


def test_commit_read_prune(versions):
    assert versions.numbers() == [] and versions.latest() == (None, [])
    made = [commit(versions, text, step=step) for step, text in enumerate(["a", "b", "c", "d"])]
    assert versions.numbers() == [1, 2, 3, 4] and names_in(versions.files) == ["run"]
    assert versions.find("latest") == versions.find(4) == made[3]
    assert contents(versions, versions.find(2)) == ["b 0", "b 1"]
    assert versions.prune(2) == [1, 2] and versions.numbers() == [3, 4]
    assert versions.prune(0) == [3] and versions.numbers() == [4]
    assert versions.claim()[0] == 5 and versions.claim()[0] == 6
    versions.files.write("run/00000009/blocks/1", [b"too late"])  # of a version that was given up
    assert versions.claim()[0] == 10
    with pytest.raises(InputError, match="latest, or one of 4"):
        versions.find(3)
    with pytest.raises(InputError, match="latest"):
        versions.find("newest")


def test_a_list_of_folders_that_is_old_makes_no_number_a_second_time(versions, monkeypatch):
    """As network file systems and object stores give them."""
    assert [versions.claim()[0] for _ in "ab"] == [1, 2]
    lists = iter([["00000001"]] * 3)
    monkeypatch.setattr(Files, "names", lambda *_: next(lists))
    assert versions.claim()[0] == 3


def test_none_yet(versions):
    with pytest.raises(InputError, match="has none in"):
        versions.find("latest")


def test_a_version_that_is_damaged_is_not_the_latest_one(versions):
    commit(versions, "a")
    commit(versions, "b")
    path = "run/00000002/manifest.json"
    versions.files.write(path, [versions.files.read(path)[:-20]])
    found, wrong = versions.latest()
    assert found.version == 1 and len(wrong) == 1 and "version 2" in wrong[0]
    assert versions.prune(1) == [] and versions.latest()[0].version == 1  # the good one is kept
    commit(versions, "c")
    assert versions.prune(1) == [1] and versions.numbers() == [3]  # the damaged one went before


@pytest.mark.parametrize("harm", ["cut", "flipped", "missing", "foreign"])
def test_a_block_that_is_damaged_is_never_given_out(versions, harm):
    manifest = commit(versions, "a")
    path = f"run/00000001/{manifest.items['u'].blocks['0'].file}"
    body = bytearray(versions.files.read(path))
    if harm == "missing":
        versions.files.delete(path)
    else:
        body = {"cut": body[:-1], "flipped": bytes([body[0] ^ 1]) + body[1:], "foreign": b"something else"}[
            harm
        ]
        versions.files.write(path, [body])
    with pytest.raises((Damaged, Missing)):
        contents(versions, manifest)
    what = "missing" if harm == "missing" else "damaged"
    assert list(versions.problems(1)) == [f"run version 1: u[0] is {what}"]


def test_with_a_key(versions):
    key, other = Key(b"k" * 32), Key(b"o" * 32)
    secret = Versions(versions.files, "run", key)
    commit(secret, "hidden words", Services("never", key=key))
    assert contents(secret, secret.find("latest")) == ["hidden words 0", "hidden words 1"]
    for wrong in (Versions(versions.files, "run"), Versions(versions.files, "run", other)):
        with pytest.raises(WrongKey):
            wrong.latest()
    for path in ("manifest.json", secret.find(1).items["u"].blocks["0"].file):
        assert b"hidden" not in versions.files.read(f"run/00000001/{path}")


def test_versions_of_another_key_count_as_kept(versions):
    """Who has not the key cannot say that they are damaged."""
    key = Key(b"k" * 32)
    for text in ("a", "b"):
        commit(Versions(versions.files, "run", key), text, Services("never", key=key))
    commit(versions, "c")
    assert versions.prune(2) == [1] and versions.numbers() == [2, 3]


def test_a_note_counts_for_its_own_name_only(tmp_path):
    told = {"step": 3, "time": 1.0, "nbytes": 5, "levels": ["partner"]}
    leave_note(str(tmp_path), "run", told, ["a"])
    assert read_note(str(tmp_path), "run") == {"step": 3, "time": 1.0, "nbytes": 5, "where": ["a"]}
    (tmp_path / "run").rename(tmp_path / "other")
    assert read_note(str(tmp_path), "other") is read_note(str(tmp_path), "run") is None


def _commit_and_die(root, fault):
    os.environ[VARIABLE] = fault
    versions = Versions(Files(root), "run")
    commit(versions, "new")
    versions.prune(1)


REACHED = [point for point in COMMIT_POINTS if point.startswith(("block", "manifest", "prune"))]
OFTEN = [point for point in REACHED if point.startswith(("block", "prune"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point, times", [*((point, 1) for point in REACHED), *((point, 2) for point in OFTEN)]
)
def test_killed_at_every_step(tmp_path, point, times):
    versions = Versions(Files(str(tmp_path)), "run")
    for text in ("older", "old"):
        commit(versions, text)
    process = FORKS.Process(target=_commit_and_die, args=(str(tmp_path), f"{point}:{times}"))
    process.start()
    process.join(100)
    assert process.exitcode == -signal.SIGKILL
    manifest, wrong = versions.latest()
    is_new = manifest.version == 3
    assert contents(versions, manifest) == (["new 0", "new 1"] if is_new else ["old 0", "old 1"])
    assert wrong == [] and is_new == (point in ("manifest-named", "prune-begun", "prune-hidden"))
    # the next one finds its way, and nothing half written stays
    commit(versions, "next")
    versions.prune(1)
    assert contents(versions, versions.find("latest")) == ["next 0", "next 1"]
    assert len(list(Path(tmp_path, "run").iterdir())) == 1
