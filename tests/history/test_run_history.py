"""Runs of past jobs: what follows from them, and a file that no writer, crash or damage can break."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.data_file import LIMIT
from dask_hpc.history.runs import PastRun, RunHistory, default_path, key_of, path_of
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import Amdahl


def run(seconds, when=0.0, **more):
    return PastRun(**{"nodes": 1, "seconds": seconds, "when": when, **more})


def reread(path):
    history = RunHistory(path)
    history.learn(history.read())
    return history


def test_durations_of_what_was_done_and_of_what_was_cut_off():
    history = RunHistory(None)
    assert history.durations("cfd") == ([], [])
    history.note("cfd", run(10.0, 1.0))
    history.note("cfd", run(30.0, 3.0, ended="walltime"))
    history.note("cfd", run(20.0, 2.0, ended="killed"))
    history.note("cfd", run(12.0, 4.0))
    assert history.durations("cfd") == ([10.0, 12.0], [20.0, 30.0])


def test_recorded_is_the_median_brought_to_the_start_nodes():
    history = RunHistory(None)
    assert history.recorded("cfd", Job(id="a", nodes=2)) is None
    history.note("cfd", run(1000.0, 1.0, ended="killed"))
    assert history.recorded("cfd", Job(id="a", nodes=2)) is None
    history.note("cfd", run(100.0, 2.0, nodes=4))
    assert history.recorded("cfd", Job(id="a", nodes=2)) == 200.0
    history.note("cfd", run(300.0, 3.0, nodes=2))
    history.note("cfd", run(500.0, 4.0, nodes=1.0))
    assert history.recorded("cfd", Job(id="a", nodes=2)) == 250.0
    amdahl = Job(id="a", nodes=2, speedup=Amdahl(1.0))
    assert history.recorded("cfd", amdahl) == 300.0  # no number of nodes makes any difference


def test_the_share_of_reads_and_writes_is_that_of_the_newest_that_knows_it():
    history = RunHistory(None)
    history.note("cfd", run(10.0, 1.0))
    assert history.io_share("cfd") is None
    history.note("cfd", run(10.0, 2.0, io_seconds=5.0))
    history.note("cfd", run(10.0, 3.0, io_seconds=2.0))
    history.note("cfd", run(10.0, 4.0))
    assert history.io_share("cfd") == 0.2


def test_two_users_may_mean_different_things_by_one_name():
    assert key_of("cfd", "") == "cfd" and key_of("cfd", "alice") == "alice/cfd"


@pytest.mark.parametrize(
    "bad",
    [
        {"nodes": 0},
        {"seconds": float("nan")},
        {"seconds": 0},
        {"ended": "well"},
        {"when": -1},
        {"io_seconds": -1},
        {"commit": (1.0, float("nan"))},
        {"restore": (-1.0, 1.0)},
    ],
)
def test_what_is_no_run(bad):
    with pytest.raises(ValueError, match="no run"):
        PastRun(**{"nodes": 1, "seconds": 1.0, **bad})


def test_the_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "new" / "runs.json"
    history = RunHistory(path)
    whole = run(5.5, 7.0, ended="walltime", saved_seconds=3.0, peak_bytes=1e9, io_seconds=1.0,
                commit=(1.0, 2e9), restore=(2.0, 2e9))  # fmt: skip
    history.note("cfd", whole)
    assert history.is_due
    history.write()
    assert not history.is_due and sorted(os.listdir(path.parent)) == ["runs.json", "runs.lock"]
    assert reread(path).runs == {"cfd": [whole]}
    assert json.loads(path.read_text())["jobs"]["cfd"][0]["commit"] == [1.0, 2e9]


def _writes(path, name):
    history = RunHistory(path)
    for number in range(20):
        history.note(name, run(1.0, number))
        history.write()


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "runs.json"
    with ThreadPoolExecutor(3) as writers:
        list(writers.map(_writes, [path] * 3, "aab"))
    found = reread(path).runs
    assert {name: len(runs) for name, runs in found.items()} == {"a": 20, "b": 20}  # the same runs, once each


def test_runs_that_look_the_same_are_not_one(tmp_path):
    history = RunHistory(tmp_path / "runs.json")
    history.add({"array": [run(60.0, 5.0)] * 3})
    history.write()
    again = reread(history.path)
    again.add({"array": [run(60.0, 5.0)] * 3})  # the same import once more
    again.write()
    assert len(reread(history.path).runs["array"]) == 3


def test_what_was_noted_before_the_file_was_read_stays(tmp_path):
    path = tmp_path / "runs.json"
    _writes(path, "old")
    history = RunHistory(path)
    found = history.read()
    history.note("new", run(1.0, 1.0))
    history.note("old", run(2.0, 100.0))
    history.learn(found)
    assert len(history.runs["old"]) == 21 and history.runs["old"][-1].seconds == 2.0
    assert history.durations("new") == ([1.0], [])


def test_only_the_newest_are_kept(tmp_path):
    path = tmp_path / "runs.json"
    history = RunHistory(path)
    history.add({"one": [run(1.0, when) for when in range(300)]})
    history.add({f"job {number}": [run(1.0, number)] for number in range(1200)})
    history.write()
    for found in (history.runs, reread(path).runs):
        assert len(found) == 1000 and "job 199" not in found and "job 1199" in found
    kept = history.runs.get("one", reread(path).runs.get("one"))
    assert kept is None or [one.when for one in kept] == list(range(100, 300))
    short = RunHistory(tmp_path / "short.json")
    short.add({"one": [run(1.0, when) for when in range(300)]})
    assert [one.when for one in short.runs["one"]] == list(range(100, 300))


def test_a_file_that_would_be_too_large_keeps_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr("dask_hpc.history.runs.LIMIT", LIMIT // 100)  # or it takes seconds
    path = tmp_path / "runs.json"
    history = RunHistory(path)
    history.add({f"job {number}": [run(1.0, 1000 * number + when) for when in range(200)]
                 for number in range(8)})  # fmt: skip
    history.write()
    assert LIMIT / 200 < path.stat().st_size <= LIMIT / 100
    found = reread(path).runs
    assert len(found["job 7"]) == 200 and "job 0" not in found


def test_who_reads_meanwhile_has_the_old_file(tmp_path):
    path = tmp_path / "runs.json"
    _writes(path, "a")
    os.link(path, tmp_path / "seen.json")
    _writes(path, "b")
    assert set(reread(tmp_path / "seen.json").runs) == {"a"} and set(reread(path).runs) == {"a", "b"}


def test_forget_is_in_the_file_too(tmp_path):
    path = tmp_path / "runs.json"
    for name in "ab":
        _writes(path, name)
    history = reread(path)
    history.forget("a")
    assert set(history.runs) == {"b"} == set(reread(path).runs)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"format": "dask-hpc power history 1", "jobs": {}}',
        b'{"format": "dask-hpc run history 1", "jobs": {"a": [{"nodes": 1}]}}',
        b'{"format": "dask-hpc run history 1", "jobs": {"a": [{"nodes": 1, "seconds": 1, "colour": 2}]}}',
        b'{"format": "dask-hpc run history 1", "jobs": {"a": [{"nodes": 1, "seconds": "1"}]}}',
        b'{"format": "dask-hpc run history 1", "jobs": {"a": [{"nodes": 1, "seconds": 1, "commit": 5}]}}',
        b'{"format": "dask-hpc run history 1", "jobs": []}',
        b" " * (LIMIT + 1),
    ],
    ids=lambda content: content[:40],
)
def test_a_damaged_file_is_told_and_replaced(tmp_path, content):
    path = tmp_path / "runs.json"
    path.write_bytes(content)
    history = RunHistory(path)
    with pytest.raises(InputError, match=r"runs\.json") as caught:
        history.read()
    assert len(str(caught.value).splitlines()) == 1
    history.note("a", run(1.0))
    history.write()
    assert reread(path).runs == {"a": [run(1.0)]}


@given(st.binary(max_size=200))
def test_any_content_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any_runs.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        RunHistory(path).read()


def test_what_cannot_be_written_is_kept_for_the_next_time(tmp_path):
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    history = RunHistory(folder / "runs.json")
    history.note("a", run(1.0))
    with pytest.raises(OSError):
        history.write()
    assert history.is_due
    folder.unlink()
    history.write()
    assert reread(folder / "runs.json").runs == {"a": [run(1.0)]}


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == path_of("default") == tmp_path / "dask-hpc" / "runs.json"
    assert path_of(None) is None and path_of("/x/y") == default_path().__class__("/x/y")
    nowhere = RunHistory(None)
    nowhere.note("a", run(1.0))
    nowhere.write()
    nowhere.forget("a")
    assert not nowhere.is_due and nowhere.read() == {} and not list(tmp_path.iterdir())
