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


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (
            ("--level", "a", "1s", "2s", "--level", "b", "100s", "10000s"),
            "a commit to b takes 1.7 min, and a failure comes every 2 s",
        ),
        (("--level", "a", "1s", "2s", "--restart", "a", "60s"), "a restart from a takes 60 s"),
    ],
)
def test_hopeless_is_said_with_a_code(levels, words):
    result = CliRunner().invoke(cli, ("plan", "interval", *levels))
    assert result.exit_code == 1 and "inf" not in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("hopeless: ") and words in last
    found = CliRunner().invoke(cli, ("plan", "interval", *levels, "--json")).stdout
    assert json.loads(found)["reason"] == last


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


ENERGY = ("--run", "24h", "--objective", "energy", "--power", "computing=750W,committing=178W")


def test_energy_beside_time():
    args = ("--level", "store", "267s", "22min", *ENERGY)
    rows = [line.split("  ") for line in run(*args).splitlines()]
    rows = {row[0]: [cell for cell in row[1:] if cell] for row in rows if row[0]}
    assert float(rows["this plan"][-1]) < float(rows["least time"][-1])
    assert rows["this plan"][1] < rows["least time"][1] and "of a run" not in rows
    found = json.loads(run(*args, "--json"))
    assert found["objective"] == "energy" and "parts" not in found
    assert found["others"][0]["name"] == "least time" and found["energy"] < found["others"][0]["energy"]
    assert "less energy" in found["reason"]
    steady = json.loads(run(*args[:6], "--objective", "steady", "--deviations", "5", "--json"))
    assert steady["work"] < json.loads(run(*args[:6], "--json"))["work"]


def test_the_breakdown():
    out = run(*LEVELS, "--run", "24h", "--breakdown")
    found = json.loads(run(*LEVELS, "--run", "24h", "--breakdown", "--json"))
    parts, models = found["parts"], found["models"]
    assert sum(parts.values()) == pytest.approx(86400 / found["efficiency"])
    for name, seconds in parts.items():
        line = next(line for line in out.splitlines() if line.startswith(name.replace("_", " ")))
        assert line.endswith(f"{seconds / sum(parts.values()):.2%}")
    assert "standard deviation" in out and found["deviation"] > 0
    assert [one["model"] for one in models][:3] == ["exact", "Dauwe", "Moody"]
    assert models[0]["efficiency"] == pytest.approx(found["efficiency"])
    for one in models:
        line = next(line for line in out.splitlines() if line.startswith(one["model"] + "  "))
        assert line.endswith(f"{one['efficiency']:.2%}") and one["levels"][0] in line
    nothing = json.loads(run("--level", "a", "1s", "inf", "--breakdown", "--json"))
    assert nothing["parts"] is None and nothing["models"] == []
    assert "of a period" in run("--level", "a", "1s", "1h", "--breakdown")
    never = CliRunner().invoke(cli, ("plan", "interval", "--level", "a", "1h", "1s", "--breakdown"))
    assert never.exit_code == 1 and "deviation" not in never.stdout, "it never ends"


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "--level"),
        (("--level", "a", "5 W", "1h"), "commit"),
        (("--level", "a", "5s", "0"), "mtbf"),
        ((*LEVELS, "--level", "disk", "1s", "1h"), "each name once"),
        ((*LEVELS, "--restart", "tape", "1s"), "'tape'"),
        ((*LEVELS, "--run", "never"), "run"),
        ((*LEVELS, "--objective", "money"), "money"),
        ((*LEVELS, "--objective", "energy"), "needs the power"),
        ((*LEVELS, "--objective", "steady"), "needs the run"),
        ((*LEVELS, "--power", "750W"), "--power"),
        ((*LEVELS, "--power", "computing=1,computing=2"), "--power"),
        ((*LEVELS, "--power", "computing=1W"), "committing: is missing"),
        ((*LEVELS, "--power", "computing=1W,committing=much"), "power: committing"),
    ],
)
def test_bad_input_is_one_line(args, words):
    told = run(*args, code=2)
    assert words in told.splitlines()[-1]
