"""``dask-hpc reproduce``: the list, the tables, JSON, complaints."""

import json

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
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
    assert "claims reproduced" not in out


def test_about_nothing():
    assert "allowed" in run("--about", code=2).stderr


def test_table():
    lines = run("node-stealing-toy").stdout.splitlines()
    assert lines[0].startswith("node-stealing-toy: 16 of 16 claims reproduced")
    assert sum(" yes  " in line for line in lines) == 16
    assert any(line.startswith("Assumed") for line in lines)


def test_claims_that_are_not_reached_are_said_and_no_error():
    out = run("elastic-five-jobs").stdout
    assert " NO  " in out
    assert "elastic (ours): total" in out


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
        inside = (one["low"] is None or one["ours"] > one["low"] - 1e-6) and (
            one["high"] is None or one["ours"] < one["high"] + 1e-6
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
        (["elastic-ten-jobs", "--cluster", "tcp://127.0.0.1:1"], "--cluster"),
    ],
)
def test_complaints(args, words):
    assert words in run(*args, code=2).stderr
