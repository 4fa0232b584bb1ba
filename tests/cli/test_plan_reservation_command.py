"""``dask-hpc plan reservation``: the table, JSON, the file, the picture, runs, and bad input."""

import json
import xml.etree.ElementTree as ET

import dask
import numpy as np
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.history.runs import PastRun, RunHistory
from dask_hpc.planning.reservation.plan import ReservationPlan

TRACE = ("--law", "lognormal mean=21.4h std=19.7h max=80h", "--cost", "cloud")


def run(*args, code=0):
    result = CliRunner().invoke(cli, ("plan", "reservation", *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_table_json_and_file_say_the_same(tmp_path):
    file = tmp_path / "plan.json"
    args = (*TRACE, "--checkpoint", "7h")
    out, found = run(*args, "-o", str(file)), json.loads(run(*args, "--json"))
    heads, *rows = out.splitlines()
    assert heads.split("  ")[0] == "request" and "ended by then" in heads
    count = len(found["requests"])
    assert [row.split()[0] for row in rows[:count]] == [f"{n}." for n in range(1, count + 1)]
    assert [" yes " in row for row in rows[:count]] == [one["commit"] for one in found["requests"]]
    assert rows[count - 1].endswith("100 %") and rows[0].split()[1:3] == ["21.7", "h"]
    assert f"{found['over_omniscient']:.3f}" in out and out.endswith(found["reason"] + "\n")
    plan = ReservationPlan.of(json.loads(file.read_text()))
    assert plan.expected == found["expected"] and plan.checkpoint == 7 * 3600
    assert [one.length for one in plan.requests] == [one["length"] for one in found["requests"]]
    ways = [row for row in rows if "no-checkpoint " in row]
    assert len(ways) == 1 and ways[0].endswith("%")
    made = [one["made"] for one in found["requests"]]
    assert made[0] == 1 and made == sorted(made, reverse=True)
    assert found["requests"][0]["ended"] == pytest.approx(1 - made[1])


def test_long_plans_are_cut_in_the_table_only():
    law = ("--law", "exponential mean=1h", "--checkpoint", "1min", "--cost", "cloud")
    out = run(*law, "--method", "all-checkpoint 200")
    assert "more, needed by" in out and "12. " in out and "\n13. " not in out


def test_the_picture(tmp_path):
    path = tmp_path / "plan.svg"
    run(*TRACE, "--checkpoint", "7h", "--plot", str(path))
    root = ET.parse(path).getroot()
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Ask for 21.7 h first" in texts[0] and "jobs that take longer" in texts
    hints = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "with a commit" in hints[1] and hints[-1].endswith("100.00% ended")
    bars = [float(one.get("width")) for one in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert all(wide >= 0 for wide in bars)
    places = [
        (float(o.get("x", 0)), float(o.get("width"))) for o in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert all(x >= -1 and x + wide <= 761 for x, wide in places)


def test_runs_of_a_file(tmp_path):
    file = tmp_path / "runs.csv"
    runs = np.random.default_rng(1).lognormal(8, 0.5, 30)
    file.write_text("seconds\n" + "\n".join(f"{one:.0f}" for one in runs) + "\n>9000, 2h\n")
    found = json.loads(run("--runs", str(file), "--json"))
    assert "from 31 runs and 1 that were cut off" in found["reason"] and len(found["runs"]) == 31
    file.write_text("3600\n")
    assert "note: 1 run that ended: too few" in run("--runs", str(file))
    file.write_text("3600\nsoon\n")
    assert "runs.csv: runs: 2: found 'soon'" in run("--runs", str(file), code=2)
    file.write_text("")
    assert "runs.csv: runs: found none" in run("--runs", str(file), code=2)
    file.write_text(">3600\n>1h")
    assert "all cut off" in run("--runs", str(file), code=2)
    file.write_bytes(b"\xff\xfe")
    assert "runs.csv: is no text" in run("--runs", str(file), code=2)
    file.write_bytes(b"3600\n" * 2_000_000 + "é".encode())  # not silently its first part
    assert "runs.csv: more than 10 MB" in run("--runs", str(file), code=2)


def test_runs_that_are_remembered(tmp_path):
    path = tmp_path / "history.json"
    history = RunHistory(path)
    for number in range(12):
        history.note("cfd", PastRun(nodes=1, seconds=3000 + 100 * number, when=number + 1))
    history.note("cfd", PastRun(nodes=1, seconds=5000, ended="walltime", when=20))
    history.write()
    with dask.config.set({"hpc.history": str(path)}):
        assert "from 12 runs and 1 that were cut off" in run("--runs", "cfd")
        told = run("--runs", "cdf", code=2)
        assert (
            "--runs: found 'cdf', of which no run is known; allowed: a file of seconds, or one of: cfd"
            in told
        )
    with dask.config.set({"hpc.history": None}):
        assert "hpc.history is null" in run("--runs", "cfd", code=2)


def test_waits_of_a_file(tmp_path):
    file = tmp_path / "waits.csv"
    asked = np.linspace(600, 86400, 60)
    file.write_text("requested,waited\n" + "\n".join(f"{one:.0f},{0.5 * one + 900:.0f}" for one in asked))
    out = run("--law", "exponential mean=1h", "--waits", str(file))
    assert "note: a wait of 15.0 min and 0.5 times the request, fitted to 60 jobs" in out
    file.write_text("1,2\n3,4\n")
    assert "too few" in run("--law", "exponential mean=1h", "--waits", str(file))
    for text, told in (("1,2,3", "not two numbers"), ("1,x2-", "no numbers")):
        file.write_text(text)
        assert told in run("--law", "exponential mean=1h", "--waits", str(file), code=2)


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "--law, --runs: found none"),
        ((*TRACE, "--runs", "x"), "--law, --runs: found both"),
        ((*TRACE, "--restart", "1h"), "--restart"),
        (("--law", "lognormal mean=21.4 std=1h"), "law: mean: found '21.4' without a unit"),
        ((*TRACE, "--checkpoint", "-1h"), "checkpoint: found '-1h'"),
        ((*TRACE, "--checkpoint", "7"), "without a unit"),
        ((*TRACE, "--cost", "0,1,1h"), "cost: alpha"),
        ((*TRACE, "--waits", "x"), "--waits"),
        ((*TRACE, "--method", "guess"), "--method: found 'guess'"),
        ((*TRACE, "--max-walltime", "1h"), "--max-walltime: found 60.0 min"),
        ((*TRACE, "--max-walltime", "2h", "--checkpoint", "1h"), "a restart and a commit"),
        ((*TRACE, "-o", "/nowhere/plan.json"), "/nowhere/plan.json"),
        (("--law", "pareto min=1h shape=0.9"), "mean of inf"),
    ],
)
def test_bad_input_is_one_line(args, words):
    told = run(*args, code=2)
    assert words in told.splitlines()[-1] and len(told.splitlines()) == 1


def test_nothing_is_written_of_a_plan_that_cannot_be(tmp_path):
    run(*TRACE, "--max-walltime", "1h", "-o", str(tmp_path / "a"), "--plot", str(tmp_path / "b"), code=2)
    assert list(tmp_path.iterdir()) == []
