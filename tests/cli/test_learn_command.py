"""``dask-hpc learn`` as a person and as a program use it."""

import json

import dask
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.history.runs import RunHistory

HEADS = "JobName|User|ElapsedRaw|TimelimitRaw|State|Submit|Eligible|Start|AllocNodes|MaxRSS"


def line(elapsed=3600, asked=120, state="COMPLETED", waited=600, name="cfd"):
    start = f"2026-03-02T{12 + waited // 3600:02}:{waited % 3600 // 60:02}:{waited % 60:02}"
    submit = "2026-03-02T12:00:00"
    return f"{name}|alice|{elapsed}|{asked}|{state}|{submit}|{submit}|{start}|4|"


@pytest.fixture
def said(tmp_path):
    def run(source, *args, code=0):
        words = ["learn", "--sacct", str(source), "--file", str(tmp_path / "runs.json"), *args]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == code, result.output
        return result.stderr if code else result.stdout

    return run


def written(tmp_path, *lines):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((HEADS, *lines)) + "\n")
    return path


def test_what_is_learnt_is_said(said, tmp_path):
    source = written(tmp_path, line(), line(7200, state="TIMEOUT"), line(state="RUNNING"), line(name="x"))
    told = said(source).splitlines()
    assert told[0] == "3 runs of 2 names; 1 job left out: not over, never begun, or steps of chains"
    assert told[1] == "walltimes: 2.0 times what the jobs needed (median of those that were done)"
    assert told[2].startswith("waiting: ") and "too few" in told[2]
    found = json.loads(said(source, "--json"))
    assert (found["names"], found["runs"], found["left_out"], found["asked"]) == (2, 3, 1, 2.0)
    runs = RunHistory(tmp_path / "runs.json").read()
    assert len(runs["alice/cfd"]) == 2  # what was learnt before counts once


def test_waits_that_grow_with_what_is_asked_for(said, tmp_path):
    lines = [line(60 * n, 60 + n, waited=300 + 30 * n) for n in range(1, 61)]
    wait = json.loads(said(written(tmp_path, *lines), "--json"))["wait"]
    assert wait["alpha"] == pytest.approx(0.5) and wait["gamma"] == pytest.approx(0.0, abs=1e-6)
    assert "fitted to 60 jobs" in wait["reason"]


def test_slurm_itself_is_asked(said, tmp_path, monkeypatch):
    written(tmp_path, line())
    program = tmp_path / "sacct"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/sacct.txt\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert said("90d").startswith("1 run of 1 name\n")


def test_nothing_is_learnt_in_part(said, tmp_path):
    told = said(written(tmp_path, line(), line("much")), code=2)
    assert "sacct.txt: line 3: ElapsedRaw: found 'much'" in told and len(told.splitlines()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["sacct.txt"]


@pytest.mark.parametrize("source, words", [
    ("none.txt", "found 'none.txt'; allowed: for how long"), ("-1d", "found -24.0 h"),
    ("inf", "up to ten years"), ("20y", "--sacct"), ("", "sacct"),
])  # fmt: skip
def test_bad_input_is_one_line(said, source, words):
    told = said(source, code=2)
    assert words in told and len(told.splitlines()) == 1


def test_the_configured_file_and_none(tmp_path):
    source = str(written(tmp_path, line()))
    with dask.config.set({"hpc.history": str(tmp_path / "mine.json")}):
        assert CliRunner().invoke(cli, ["learn", "--sacct", source]).exit_code == 0
        assert (tmp_path / "mine.json").exists()
    with dask.config.set({"hpc.history": None}):
        result = CliRunner().invoke(cli, ["learn", "--sacct", source])
    assert result.exit_code == 2 and "hpc.history" in result.stderr


def test_a_folder_that_cannot_be_made(said, tmp_path):
    (tmp_path / "file").write_text("")
    told = said(written(tmp_path, line()), "--file", f"{tmp_path}/file/runs.json", code=2)
    assert len(told.splitlines()) == 1
