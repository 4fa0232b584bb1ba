"""``dask-hpc history`` as a person and as a program use it."""

import json

import dask
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.history.runs import RunHistory
from dask_hpc.history.sacct import read_sacct

HEADS = "JobName|ElapsedRaw|TimelimitRaw|State|Submit|Start|AllocNodes|MaxRSS"
GOOD = f"""{HEADS}
cfd|3600|120|COMPLETED|2026-03-01T10:00:00|2026-03-01T12:00:00|4|1.5G
cfd|7200|120|TIMEOUT|2026-03-02T10:00:00|2026-03-02T12:00:00|8|
new|0|120|PENDING|2026-03-02T10:00:00|Unknown|1|
"""


@pytest.fixture
def said(tmp_path):
    runner = CliRunner()

    def run(*args, code=0):
        result = runner.invoke(cli, ["history", *args, "--file", str(tmp_path / "runs.json")])
        assert result.exit_code == code, result.output
        return result.stderr if code else result.stdout

    return run


@pytest.fixture
def known(tmp_path):
    """The history of two runs."""
    (tmp_path / "sacct.txt").write_text(GOOD)
    history = RunHistory(tmp_path / "runs.json")
    history.add(read_sacct(tmp_path / "sacct.txt").runs)
    history.write()


def test_nothing_is_known(said):
    assert said("list", "--json").strip() == "[]"


def test_list_show_forget(said, known):
    heads, row = said("list").splitlines()
    assert heads.split()[:4] == ["name", "runs", "done", "nodes"]
    assert " ".join(row.split()).startswith("cfd 2 1 4 to 8 60.0 min")
    (row,) = json.loads(said("list", "--json"))
    assert (row["runs"], row["done"], row["median"], row["io"]) == (2, 1, 3600.0, None)
    _, first, second = said("show", "cfd").splitlines()
    assert "done" in first and "1.5 GiB" in first and "walltime" in second and "2.0 h" in second
    assert [run["waited"] for run in json.loads(said("show", "cfd", "--json"))] == [7200.0, 7200.0]
    assert [run["seconds"] for run in json.loads(said("show", "cfd", "--json"))] == [3600.0, 7200.0]
    assert said("forget", "cfd") == "2 runs of cfd forgotten\n"
    assert said("list").splitlines()[1:] == []


def test_bad_input_is_one_line(said, known, tmp_path):
    for args in (("show", "cdf"), ("forget", "cdf"), ("show",), ("import", "sacct.txt")):
        assert len(said(*args, code=2).splitlines()) == 1
    assert "allowed: cfd" in said("show", "cdf", code=2)
    (tmp_path / "runs.json").write_text("{")
    assert "runs.json: damaged" in said("list", code=2)


def test_no_history_is_configured():
    with dask.config.set({"hpc.history": None}):
        result = CliRunner().invoke(cli, ["history", "list"])
    assert result.exit_code == 2 and "hpc.history" in result.stderr
