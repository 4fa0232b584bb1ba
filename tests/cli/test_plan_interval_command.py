"""``dask-hpc plan interval``: the tables, JSON, the picture, and what it says of bad input."""

import json
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

LEVELS = ("--level partner 5s 10h", "--level disk 20s 1d", "--level store 150s 7d")
LEVELS = tuple(word for level in LEVELS for word in level.split(" "))


def run(*args, code=0):
    result = CliRunner().invoke(cli, ("plan", "interval", *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_table_and_json_say_the_same():
    out, found = run(*LEVELS, "--run", "24h"), json.loads(run(*LEVELS, "--run", "24h", "--json"))
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:2] == ["level", "commit"] and [row[0] for row in rows[1:4]] == [
        "partner",
        "disk",
        "store",
    ]
    assert f"{found['efficiency']:.2%}" in out and out.endswith(found["reason"] + "\n")
    assert found["every"]["partner"] == found["work"] and found["run"] == 86400
    assert len(found["curve"]) == 41 and all(0 <= share <= 1 for _, share in found["curve"])


def test_a_level_that_is_left_out():
    out = run("--level", "a", "9s", "100d", "--level", "b", "10s", "1h")
    assert "only with b" in out
    found = json.loads(run("--level", "a", "150s", "1000d", "--run", "1h", "--json"))
    assert found["every"] == {"a": None} and found["work"] is None and found["curve"] == []
    assert "never" in run("--level", "a", "150s", "1000d", "--run", "1h")


def test_the_picture(tmp_path):
    path = tmp_path / "plan.svg"
    run(*LEVELS, "--plot", str(path))
    root = ET.parse(path).getroot()
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "of the time is work" in texts[0] and any("this plan" in text for text in texts)
    run("--level", "a", "150s", "inf", "--plot", str(path))
    assert "nothing ever fails" in path.read_text()


def test_a_restart_of_its_own():
    slow = json.loads(run(*LEVELS, "--restart", "store", "2h", "--json"))
    assert slow["efficiency"] < json.loads(run(*LEVELS, "--json"))["efficiency"]


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "--level"),
        (("--level", "a", "5 W", "1h"), "commit"),
        (("--level", "a", "5s", "0"), "mtbf"),
        ((*LEVELS, "--level", "disk", "1s", "1h"), "each name once"),
        ((*LEVELS, "--restart", "tape", "1s"), "'tape'"),
        ((*LEVELS, "--run", "never"), "run"),
    ],
)
def test_bad_input_is_one_line(args, words):
    told = run(*args, code=2)
    assert words in told.splitlines()[-1]
