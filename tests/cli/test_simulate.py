"""``dask-hpc simulate`` from the outside: tables, files, and one line for whatever is wrong."""

import csv
import json
import re

import pytest
import xarray as xr
from click.testing import CliRunner

from dask_hpc.cli import cli

JOBS = """
nodes: 4
jobs:
- {id: a, nodes: 2, runtime: 100 s, walltime: 120 s}
- {id: b, submit: 1, nodes: 4, runtime: 50 s, walltime: 60 s}
- {id: c, submit: 2, nodes: 2, runtime: 90 s, walltime: 100 s}
- {id: d, submit: 3, nodes: 9, runtime: 90 s, walltime: 100 s}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(JOBS)
    return lambda *words: CliRunner().invoke(cli, ["simulate", *words], prog_name="dask-hpc")


def test_table_of_metrics_for_each_policy(run):
    result = run("w.yaml", "--policy", "fcfs", "--policy", "easy-backfill")
    assert result.exit_code == 0 and result.stderr == ""
    for word in ("makespan", "utilisation", "mean bounded slowdown", "throughput", "fcfs", "easy-backfill"):
        assert word in result.stdout


def test_json_in_seconds(run):
    found = json.loads(run("w.yaml", "--policy", "fcfs", "--json").stdout)
    assert found["policies"]["fcfs"]["makespan"] == 240.0
    assert found["policies"]["fcfs"]["rejected"] == 1
    assert (found["jobs"], found["nodes"]) == (4, 4)


def test_jobs_csv(run, tmp_path):
    assert run("w.yaml", "--policy", "easy-backfill", "--jobs-csv", "jobs.csv").exit_code == 0
    rows = list(csv.reader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert rows[0] == ["id", "submit", "start", "end", "wait", "nodes", "state"]
    assert rows[1] == ["a", "0.0", "0.0", "100.0", "0.0", "2", "completed"]
    assert rows[4] == ["d", "3.0", "", "", "", "9", "rejected"]


def test_several_policies_in_one_csv(run, tmp_path):
    run("w.yaml", "--policy", "fcfs", "--policy", "easy-backfill", "--jobs-csv", "jobs.csv")
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert [row["policy"] for row in rows] == ["fcfs"] * 4 + ["easy-backfill"] * 4


def test_trace_of_one_and_of_several_policies(run, tmp_path):
    result = run("w.yaml", "--policy", "fcfs", "--out", "one.nc")
    assert result.exit_code == 0, result.output + repr(result.exception)
    with xr.open_dataset(tmp_path / "one.nc") as trace:
        assert trace.sizes["job"] == 4 and trace.attrs["nodes"] == 4
    result = run("w.yaml", "--policy", "fcfs", "--policy", "easy-backfill", "--out", "two.nc")
    assert result.exit_code == 0, result.output + repr(result.exception)
    with xr.open_datatree(tmp_path / "two.nc") as tree:
        assert set(tree.children) == {"fcfs", "easy-backfill"}


def test_trace_as_a_zarr_store_is_replaced_but_nothing_else_is(run, tmp_path):
    assert run("w.yaml", "--policy", "fcfs", "--out", "t.zarr").exit_code == 0
    assert run("w.yaml", "--policy", "easy-backfill", "--out", "t.zarr").exit_code == 0
    with xr.open_zarr(tmp_path / "t.zarr", consolidated=False) as trace:
        assert "easy-backfill" in trace.attrs["policy"]
    (tmp_path / "mine.zarr").mkdir()
    result = run("w.yaml", "--out", "mine.zarr")
    assert result.exit_code == 2 and "exists and is no Zarr store" in result.stderr


def test_report_is_one_page_with_pictures_and_reasons(run, tmp_path):
    assert run("w.yaml", "--policy", "fcfs", "--policy", "easy-backfill", "--report", "r.html").exit_code == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("<script>daskHpc.show(") == 2 and page.count('"story_view"') == 2
    assert "first in the queue" in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_seeds_and_sweeps(run, tmp_path):
    words = [
        "w.yaml",
        "--policy",
        "easy-backfill",
        "--malleable",
        "0.5",
        "--seeds",
        "3",
        "--resume",
        "s.jsonl",
    ]
    found = json.loads(run(*words, "--sweep", "queue.depth=1,5", "--json").stdout)
    assert set(found["policies"]) == {"easy-backfill queue.depth=1", "easy-backfill queue.depth=5"}
    assert all("makespan_ci" in row for row in found["policies"].values())
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 6
    assert "mean of 3 seeds" in run(*words).stdout


def test_malleable_share_of_a_rigid_trace(run):
    found = json.loads(run("w.yaml", "--malleable", "1", "--policy", "fpsma-pwma", "--json").stdout)
    assert found["policies"]["fpsma-pwma"]["resizes"] > 0


def test_built_in_workload(run):
    found = json.loads(run("builtin:five-jobs", "--policy", "fcfs", "--json").stdout)
    assert (found["jobs"], found["nodes"]) == (5, 16)


def test_a_known_machine_and_its_power_corridor(run):
    words = (
        "builtin:five-jobs",
        "--machine",
        "supermuc-ng-partition",
        "--policy",
        "power-corridor",
        "--json",
    )
    found = json.loads(run(*words, "--set", "power.upper=3 kW").stdout)
    figures = found["policies"]["power-corridor"]
    assert found["nodes"] == 16 and figures["violations"] == 0 and figures["energy"] > 0
    assert run(*words, "--nodes", "4", "--malleable", "1").exit_code == 0
    table = run("builtin:power-batch", "--policy", "easy-backfill").stdout
    assert "violations" in table and "energy outside" in table


def test_set_changes_a_parameter(run):
    assert run("w.yaml", "--policy", "easy-backfill", "--set", "queue.depth=0", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["w.yaml", "--nodes", "0"], "nodes: found 0"),
        (["w.yaml", "--nodes", "many"], "'many' is not a valid integer"),
        (["w.yaml", "--policy", "fcsf"], "no policy is named 'fcsf' (nearest: fcfs)"),
        (["w.yaml", "--policy", "fcfs", "--policy", "fcfs"], "each policy once"),
        (["w.yaml", "--set", "queue.deth=3"], "queue.deth: unknown key (nearest: depth)"),
        (["w.yaml", "--set", "depth"], "--set: found 'depth'; allowed: KEY=VALUE"),
        (["w.yaml", "--set", "queue.depth=-1"], "queue.depth: found '-1'"),
        (["none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["w.txt"], "unknown kind of workload file"),
        (["w.yaml", "--out", "no/such/folder/x.nc"], "there is no folder"),
        (["w.yaml", "--jobs-csv", "."], "is a folder"),
        (["bad.swf"], "bad.swf, line 1: 3 fields"),
        (["w.yaml", "--processors", "some"], "'some' is not one of 'requested', 'used'"),
        (["w.yaml", "--frobnicate"], "No such option"),
        (["w.yaml", "--seeds", "0"], "0 is not in the range"),
        (["w.yaml", "--seeds", "2", "--out", "x.nc"], "need a single run"),
        (["w.yaml", "--malleable", "2"], "malleable: found 2.0; allowed: 0 to 1"),
        (["w.yaml", "--sweep", "queue.deth=1,2"], "queue.deth: unknown key"),
        (["w.yaml", "--cluster", "tcp://127.0.0.1:1"], "--cluster: found 'tcp://127.0.0.1:1'"),
        (["builtin:espp"], "nearest: esp"),
        (["builtin:esp?malleabel=1"], "malleable"),
        (["w.yaml", "--machine", "fronteir"], "no machine is named 'fronteir' (nearest: frontier)"),
        (
            ["w.yaml", "--policy", "power-corridor", "--set", "power.upper=2kW"],
            "nothing says what the machine",
        ),
        ([], "Missing argument"),
    ],
)
def test_one_line_and_exit_code_2(run, tmp_path, words, complaint):
    (tmp_path / "bad.swf").write_text("1 2 3\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert complaint in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_nothing_half_written_when_the_workload_is_bad(run, tmp_path):
    (tmp_path / "jobs.csv").write_text("old")
    (tmp_path / "bad.swf").write_text("1 2 3\n")
    assert run("bad.swf", "--nodes", "3", "--jobs-csv", "jobs.csv", "--out", "x.nc").exit_code == 2
    assert (tmp_path / "jobs.csv").read_text() == "old" and not (tmp_path / "x.nc").exists()


def test_workload_without_a_machine_size(run, tmp_path):
    (tmp_path / "n.yaml").write_text("jobs: [{nodes: 1, runtime: 3}]")
    result = run("n.yaml")
    assert result.exit_code == 2 and "--nodes N" in result.stderr


def test_in_situ_pipelines_are_told(run, tmp_path):
    policies = ("--policy", "in-situ-async", "--policy", "in-situ-sync")
    page = tmp_path / "page.html"
    out = run("builtin:in-situ?iterations=40", *policies, "--report", str(page)).stdout
    assert "in situ pipelines" in out and "all in transit" in out
    assert "in-situ-async, steps, iteration 0: first partition, as declared: " in out
    assert "analysis spectrum takes" in page.read_text()
    data = json.loads(run("builtin:in-situ?iterations=40", *policies, "--json").stdout)
    told = data["pipelines"]["in-situ-async"]["steps"]
    assert told["iterations"] == 40 and told["total"] < told["divided_once"]
    assert told["changes"][0]["partition"]["mode"] == "async"
    assert data["policies"]["in-situ-sync"]["placements"] >= 3
    assert "pipelines" not in json.loads(run("builtin:five-jobs", "--json").stdout)


def test_limits_on_reads_are_told(run):
    told = run("builtin:readers?iterations=8", "--policy", "io-lanes", "--policy", "fcfs").stdout
    (line,) = [line for line in told.splitlines() if "a limit on reads" in line]
    assert re.match(
        r"io-lanes: a limit on reads was set \d+ times, last: reads of the file system: \d+ at", line
    )
