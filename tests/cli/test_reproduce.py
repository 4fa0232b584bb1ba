"""``dask-hpc reproduce``: the list, the tables, JSON, complaints."""

import json

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli import reproduce as commands
from dask_hpc.reproduce import EXPERIMENTS


def run(*args, code=0):
    result = CliRunner().invoke(cli, ["reproduce", *args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    if code:
        assert len(result.stderr.splitlines()) == 1
    else:
        assert result.stderr == ""
    return result


def test_list():
    lines = run().stdout.splitlines()
    assert lines[0].split() == ["name", "seeds", "summary", "source"]
    assert [line.split()[0] for line in lines[1:]] == list(EXPERIMENTS)


def test_list_json():
    found = json.loads(run("--json").stdout)
    assert [one["name"] for one in found] == list(EXPERIMENTS)
    assert all(one["source"] and one["summary"] and one["simulations"] for one in found)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_it_is_about(name):
    out = run(name, "--about").stdout
    assert out.startswith(EXPERIMENTS[name].summary)
    assert "seed 00" in out, "it names its source"
    assert "by construction" not in out


def test_about_nothing():
    assert "allowed" in run("--about", code=2).stderr


def test_table():
    lines = run("node-stealing-toy").stdout.splitlines()
    assert lines[0].startswith("node-stealing-toy: reached 16 of 16, of which 0 by construction (")
    assert sum(" yes  " in line for line in lines) == 16
    assert any(line.startswith("Assumed") for line in lines)


def test_claims_that_are_not_reached_are_said_and_no_error():
    out = run("elastic-five-jobs").stdout
    assert " NO  " in out
    assert "elastic (ours): total" in out


def test_what_was_reached_by_construction_is_said_row_by_row_and_counted():
    lines = run("corridor-dynamic").stdout.splitlines()
    assert lines[0].startswith("corridor-dynamic: reached 7 of 7, of which 4 by construction (")
    rows = {line.partition("  ")[0]: line for line in lines}
    assert "yes  solved: watts, for 9 nodes and 4" in rows["nodes in the second corridor"]
    assert "yes said in words" in " ".join(rows["times outside for longer than one decision"].split())


def test_a_band_that_ends_at_zero_is_without_it():
    out = run("ma-ra-vs-ma-ma", "--seeds", "2").stdout
    row = next(line for line in out.splitlines() if line.startswith("smaller reads: the least that MA-RA"))
    assert "0 s more than 0 NO" in " ".join(row.split())


@pytest.fixture
def two(monkeypatch):
    """All experiments there are."""
    names = ("node-stealing-toy", "corridor-dynamic")
    monkeypatch.setattr(commands, "EXPERIMENTS", {name: EXPERIMENTS[name] for name in names})


def test_all(two):
    lines = run("all").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["name", "reached", "of", "by", "construction"],
        ["node-stealing-toy", "16", "16", "0"],
        ["corridor-dynamic", "7", "7", "4"],
    ]
    assert lines[-1] == "reached 23 of 23, of which 4 by construction"


def test_all_json(two):
    found = json.loads(run("all", "--json", "--seeds", "2").stdout)
    assert (found["reached"], found["claims"], found["by_construction"]) == (23, 23, 4)
    assert [(one["experiment"], one["seeds"]) for one in found["experiments"]] == [
        ("node-stealing-toy", 0),
        ("corridor-dynamic", 0),
    ]
    assert [one["by_construction"] for one in found["experiments"]] == [0, 4]


@pytest.mark.parametrize("name, options", [("node-stealing-toy", []), ("elastic-ten-jobs", ["--seeds", "1"])])
def test_json(name, options):
    found = json.loads(run(name, "--json", *options).stdout)
    assert found["experiment"] == name
    assert found["assumptions"] and all(isinstance(line, str) for line in found["assumptions"])
    for one in found["claims"]:
        assert {"claim", "published", "ours", "low", "high", "reached", "note"} <= set(one)
        assert isinstance(one["ours"], float) and isinstance(one["reached"], bool)
        assert isinstance(one["published"], int | float | str)
        assert all(one[key] is None or isinstance(one[key], float) for key in ("low", "high", "interval"))
        slack = -1e-6 if one["strict"] else 1e-6
        inside = (one["low"] is None or one["ours"] > one["low"] - slack) and (
            one["high"] is None or one["ours"] < one["high"] + slack
        )
        assert one["reached"] == inside


@pytest.mark.slow
def test_the_same_on_a_cluster():
    here, there = (
        json.loads(run("elastic-ten-jobs", "--seeds", "2", "--json", *more).stdout)
        for more in ([], ["--cluster", "local"])
    )
    assert here == there


@pytest.mark.parametrize(
    "args, words",
    [
        (["io-intensty"], "nearest: io-intensity"),
        (["node-stealing-toy", "--seeds", "3"], "nothing is random"),
        (["elastic-ten-jobs", "--seeds", "0"], "--seeds"),
        (["--seeds", "3"], "found none"),
        (["all", "--about"], "one experiment at a time"),
        (["elastic-ten-jobs", "--cluster", "tcp://127.0.0.1:1"], "--cluster"),
    ],
)
def test_complaints(args, words):
    assert words in run(*args, code=2).stderr
