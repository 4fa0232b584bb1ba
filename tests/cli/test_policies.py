"""``dask-hpc policies``: what it lists, shows and checks."""

import json

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.policy import Policy, ready_made


def run(*args, code=0):
    result = CliRunner().invoke(cli, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    if code:
        assert len(result.stderr.splitlines()) == 1
    else:
        assert result.stderr == ""
    return result


def test_list():
    lines = run("policies").stdout.splitlines()
    assert lines[0].split() == ["name", "summary", "source"]
    assert len(lines) == 1 + len(ready_made()), "one line each when piped"
    for line, name in zip(lines[1:], ready_made(), strict=True):
        policy = Policy.load(name)
        assert line.split("  ")[0] == name
        assert policy.summary in line
        assert line.endswith(policy.source)


def test_list_json():
    found = json.loads(run("policies", "--json").stdout)
    assert [row["name"] for row in found] == list(ready_made())
    assert all(row["summary"] and row["source"] for row in found)


def test_show():
    out = run("policies", "show", "easy-backfill").stdout
    assert out.startswith("easy-backfill: Fill holes")
    row = next(line for line in out.splitlines() if line.startswith("queue.depth"))
    assert row.split()[1:4] == ["1000000", "jobs", "0"]
    assert "how many jobs may overtake" in row


@pytest.mark.parametrize("name", sorted(ready_made()))
def test_every_parameter_is_shown(name):
    out = run("policies", "show", name).stdout
    (data,) = [json.loads(run("policies", "show", name, "--json").stdout)]
    assert [one["path"] for one in data["parameters"]] == [
        path for path, *_ in Policy.load(name).parameters()
    ]
    for one in data["parameters"]:
        assert one["path"] in out
        assert one["help"] in out
        assert set(one) >= {"value", "unit", "low", "high", "allowed", "default"}


@pytest.mark.parametrize(
    "args", [["show", "x.yaml", "--json"], ["show", "--json", "x.yaml"], ["--json", "show", "x.yaml"]]
)
def test_show_a_file_and_json_anywhere(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("queue: {strategy: easy-backfill, depth: 3}\nsummary: 'a [b] \\ é\x85c'")
    data = json.loads(run("policies", *args).stdout)
    assert data["parameters"][0]["value"] == 3
    assert data["strategies"] == {
        "queue": "easy-backfill",
        "malleability": "none",
        "nodes": "none",
        "failure": "none",
        "lending": "none",
        "power": "none",
        "placement": "none",
        "io": "none",
        "tail": "none",
        "memory": "none",
        "together": "none",
        "files": "none",
        "checkpoint": "none",
        "size": "demand",
    }
    assert "a [b]" in run("policies", "show", "x.yaml").stdout


def test_check_a_good_file(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text("queue: {strategy: fcfs}")
    assert run("policies", "check", str(path)).stdout == f"{path}: a valid policy\n"
    assert json.loads(run("policies", "check", str(path), "--json").stdout)["ok"] is True


@pytest.mark.parametrize("args", [["check", "bad.yaml", "--json"], ["--json", "check", "bad.yaml"]])
def test_check_a_bad_file(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("queue: {strategy: easy-backfill, depht: 5}")
    result = run("policies", "check", "bad.yaml", code=2)
    assert result.stdout == ""
    assert result.stderr == (
        "dask-hpc: bad.yaml: queue.depht: unknown key (nearest: depth); allowed: strategy, depth\n"
    )
    assert json.loads(run("policies", *args, code=2).stdout) == {
        "ok": False,
        "file": "bad.yaml",
        "key": "queue.depht",
        "found": "unknown key (nearest: depth)",
        "allowed": "strategy, depth",
    }


def test_a_file_wins_over_a_name_when_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("policies", "check", "fcfs")
    (tmp_path / "fcfs").write_text("nonsense")
    assert "found 'nonsense'" in run("policies", "check", "fcfs", code=2).stderr


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0", b"[" * 5000, b"", b"a: &a [*a]", b"\x1b[31mred"])
def test_check_hostile_files(content, tmp_path):
    path = tmp_path / "hostile.yaml"
    path.write_bytes(content)
    error = run("policies", "check", str(path), code=2).stderr
    assert str(path) in error
    assert error.strip().isprintable()


def test_columns_are_not_cut_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("dask_hpc.cli.terminal.sys.stdout.isatty", lambda: True, raising=False)
    out = run("policies").stdout
    for name in ready_made():
        assert any(line.split(" ")[0] == name for line in out.splitlines())
    assert "…" not in out
