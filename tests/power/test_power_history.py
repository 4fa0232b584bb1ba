"""Power of past jobs: one small file that no writer, crash or damage can break."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange
from dask_hpc.power.scheduler.job_power import PowerHistory, default_path


def reread(path):
    history = PowerHistory(path)
    history.learn(history.read())
    return history


def test_same_size_first_else_the_last_time(tmp_path):
    history = PowerHistory(tmp_path / "power.json")
    assert history.expected("cfd", 4) is None
    history.note("cfd", 4, PowerRange(100, 200), 10.0)
    history.note("cfd", 8, PowerRange(110, 190), 20.0)
    history.note("cfd", 2, PowerRange(120, 220), 15.0)
    assert history.expected("cfd", 4) == (100, 200)
    assert history.expected("cfd", 16) == (110, 190)
    assert history.expected("other", 4) is None and history.highest == 220


def test_the_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "new" / "power.json"
    history = PowerHistory(path)
    assert not history.is_due
    history.note("cfd", 4, PowerRange(100.5, 200.25), 10.0)
    assert history.is_due
    history.write()
    assert not history.is_due and os.listdir(path.parent) == ["power.json", "power.lock"]
    again = reread(path)
    assert again.jobs == history.jobs == {"cfd": {4: (100.5, 200.25, 10.0)}} and again.highest == 200.25


def test_of_two_writers_both_are_kept_and_the_last_word_counts(tmp_path):
    path = tmp_path / "power.json"
    one, other = PowerHistory(path), PowerHistory(path)
    one.note("a", 1, PowerRange(1, 2), 1.0)
    one.note("both", 1, PowerRange(1, 2), 1.0)
    other.note("b", 1, PowerRange(3, 4), 2.0)
    other.note("both", 1, PowerRange(3, 4), 2.0)
    one.write()
    other.write()
    assert reread(path).jobs == {"a": {1: (1, 2, 1)}, "b": {1: (3, 4, 2)}, "both": {1: (3, 4, 2)}}


def _writes(path, name):
    history = PowerHistory(path)
    for number in range(20):
        history.note(f"{name}{number}", 1, PowerRange(1, 2), float(number))
        history.write()


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "power.json"
    with ThreadPoolExecutor(3) as writers:  # each opens the lock itself, as a process would
        list(writers.map(_writes, [path] * 3, "abc"))
    assert set(reread(path).jobs) == {f"{name}{number}" for name in "abc" for number in range(20)}
    assert sorted(os.listdir(tmp_path)) == ["power.json", "power.lock"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"format": "another", "highest": 1, "jobs": {}}',
        b'{"format": "dask-hpc power history 1", "highest": "much", "jobs": {}}',
        b'{"format": "dask-hpc power history 1", "highest": 1, "jobs": {"a": {"x": [1, 2, 3]}}}',
        b'{"format": "dask-hpc power history 1", "highest": 1, "jobs": {"a": {"1": [2, 1, 3]}}}',
        b'{"format": "dask-hpc power history 1", "highest": 1, "jobs": {"a": {"1": [1, NaN, 3]}}}',
        b'{"format": "dask-hpc power history 1", "highest": 1, "jobs": {"a": 1}}',
        b"[" * 100_000,
        b" " * 4_000_001,
    ],
)
def test_a_damaged_file_is_told_and_replaced(tmp_path, content):
    path = tmp_path / "power.json"
    path.write_bytes(content)
    history = PowerHistory(path)
    with pytest.raises(InputError, match=r"power\.json") as caught:
        history.read()
    assert len(str(caught.value).splitlines()) == 1
    history.note("a", 1, PowerRange(1, 2), 1.0)
    history.write()
    assert reread(path).jobs == {"a": {1: (1, 2, 1)}}


@given(st.binary(max_size=200))
def test_any_content_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        PowerHistory(path).read()


def test_only_the_newest_are_kept(tmp_path):
    path = tmp_path / "power.json"
    history = PowerHistory(path)
    for number in range(1200):
        history.note(f"job {number}", 1, PowerRange(1, 2), float(number))
    for size in range(1, 40):
        history.note("job 1199", size, PowerRange(1, 2), 2000.0 + size)
    history.write()
    jobs = reread(path).jobs
    assert len(jobs) == 1000 == len(history.jobs) and "job 199" not in jobs and "job 200" in jobs
    assert sorted(jobs["job 1199"]) == list(range(24, 40))


def test_what_cannot_be_written_is_kept_for_the_next_time(tmp_path):
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    history = PowerHistory(folder / "power.json")
    history.note("a", 1, PowerRange(1, 2), 1.0)
    with pytest.raises(OSError):
        history.write()
    assert history.is_due
    folder.unlink()
    history.write()
    assert reread(folder / "power.json").jobs == {"a": {1: (1, 2, 1)}}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "power.json"
    history = PowerHistory(path)
    history.note("a", 1, PowerRange(1, 2), 1.0)
    history.write()
    before = path.read_bytes()
    history.note("b", 1, PowerRange(1, 2), 1.0)
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        history.write()
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["power.json", "power.lock"]


def test_no_path_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = PowerHistory(None)
    assert history.read() == ({}, 0.0)
    history.note("a", 1, PowerRange(1, 2), 1.0)
    assert history.expected("a", 1) == (1, 2) and not history.is_due
    history.write()
    assert os.listdir(tmp_path) == []


def test_the_users_data_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "dask-hpc" / "power.json"
    for word in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", word)
        assert default_path().parts[-4:] == (".local", "share", "dask-hpc", "power.json")


def test_the_file_is_plain_json(tmp_path):
    path = tmp_path / "power.json"
    history = PowerHistory(path)
    history.note("a", 3, PowerRange(1, 2), 1.0)
    history.write()
    assert json.loads(path.read_text())["jobs"] == {"a": {"3": [1, 2, 1.0]}}
