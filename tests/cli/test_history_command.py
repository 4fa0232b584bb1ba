"""``dask-hpc history`` as a person and as a program use it."""

import json

import dask
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

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
def sacct(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(GOOD)
    return str(path)


def test_import_list_show_forget(said, sacct):
    assert said("list", "--json").strip() == "[]"
    assert said("import", sacct) == "2 runs of 1 name; 1 job left out: not over, or never begun\n"
    assert json.loads(said("import", sacct, "--json")) == {"names": 1, "runs": 2, "left_out": 1}
    heads, row = said("list").splitlines()
    assert heads.split()[:4] == ["name", "runs", "done", "nodes"]
    assert " ".join(row.split()).startswith("cfd 2 1 4 to 8 60.0 min")
    (row,) = json.loads(said("list", "--json"))
    assert (row["runs"], row["done"], row["median"], row["io"]) == (2, 1, 3600.0, None)
    _, first, second = said("show", "cfd").splitlines()
    assert "done" in first and "1.5 GiB" in first and "walltime" in second and "2.0 h" in second
    assert [run["seconds"] for run in json.loads(said("show", "cfd", "--json"))] == [3600.0, 7200.0]
    assert said("forget", "cfd") == "2 runs of cfd forgotten\n"
    assert said("list").splitlines()[1:] == []


def test_nothing_is_imported_in_part(said, sacct, tmp_path):
    with open(sacct, "a") as file:
        file.write("cfd|much|120|COMPLETED|2026-03-01T10:00:00|2026-03-01T12:00:00|4|\n")
    told = said("import", sacct, code=2)
    assert "sacct.txt: line 5: ElapsedRaw: found 'much'" in told and len(told.splitlines()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["sacct.txt"]


def test_bad_input_is_one_line(said, sacct, tmp_path):
    said("import", sacct)
    for args in (("show", "cdf"), ("forget", "cdf"), ("show",), ("import", "none.txt")):
        assert len(said(*args, code=2).splitlines()) == 1
    assert "allowed: cfd" in said("show", "cdf", code=2)
    (tmp_path / "runs.json").write_text("{")
    assert "runs.json: damaged" in said("list", code=2)


def test_the_configured_file_and_none(tmp_path, sacct):
    with dask.config.set({"hpc.history": str(tmp_path / "mine.json")}):
        assert CliRunner().invoke(cli, ["history", "import", sacct]).exit_code == 0
        assert (tmp_path / "mine.json").exists()
    with dask.config.set({"hpc.history": None}):
        result = CliRunner().invoke(cli, ["history", "list"])
    assert result.exit_code == 2 and "hpc.history" in result.stderr


def test_a_folder_that_cannot_be_made(tmp_path, sacct):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(cli, ["history", "import", sacct, "--file", f"{tmp_path}/file/runs.json"])
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
