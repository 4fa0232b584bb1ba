"""``dask-hpc plan resilience``: the tables, JSON, the picture, and what it says of bad input."""

import json
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

GIVEN = ("--nodes", "60000", "--run", "24h", "--memory", "64GB", "--messages", "0.75")


def resilience(*args, code=0):
    result = CliRunner().invoke(cli, ("plan", "resilience", *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_tables_and_json_agree():
    asked = (*GIVEN, "--redundancy", "1.5,2", "--machine", "100000", "--objective", "energy")
    asked += ("--power", "computing=750W, committing=178.33W")
    out, found = resilience(*asked), json.loads(resilience(*asked, "--json"))
    lines = out.splitlines()
    assert lines[0].startswith("protocol") and lines[1].startswith(found["best"])
    for name, way in found["ways"].items():
        if way["time"] is not None:
            assert f"{way['efficiency']:.1%}" in next(line for line in lines if line.startswith(name + " "))
    assert found["reason"] in lines and "note: redundancy 2: would need 120000 nodes" in out
    assert found["ways"]["redundancy 2"]["time"] is None
    assert "(partner)" in out and "(store)" in out and "<0.1 s" not in lines[1]


def test_played_runs_stand_beside_what_is_computed():
    asked = (*GIVEN, "--nodes", "6000", "--played", "20")
    out, found = resilience(*asked), json.loads(resilience(*asked, "--json"))
    assert "played (95 %)" in out.splitlines()[0] and out.count(" ± ") == 6
    for name, (mean, half) in found["played"].items():
        assert abs(mean - found["ways"][name]["time"]) < 3 * half
    assert json.loads(resilience(*GIVEN, "--json"))["played"] == {}


def test_a_small_machine():
    out = resilience("--nodes", "4", "--run", "1h", "--memory", "1GB", "--mtbf", "90d", "--commit", "1,2,600")
    assert "never" in out and "recovery" in out


def test_the_picture_of_protocols(tmp_path):
    path = tmp_path / "plan.svg"
    resilience(*GIVEN, "--redundancy", "2", "--mtbf", "1y", "--plot", str(path))
    texts = [one.text for one in ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "redundancy 2 costs least time" and "recovery" in texts and "failed commits" in texts
    # the longest bar is cut, and says so
    assert sum(text.startswith("… ") for text in texts) == 1


@pytest.mark.parametrize(
    "args, words",
    [
        (("--redundancy", "1.5,x"), "--redundancy"),
        (("--redundancy", "3"), "a degree from 1 to 2"),
        (("--severity", "0.1,0.1,0.1"), "whose sum is 0.3"),
        (("--power", "750W"), "--power"),
        (("--mtbf", "0"), "mtbf"),
        (("--machine", "10"), "up to 10"),
        (("--objective", "money"), "'money'"),
    ],
)
def test_bad_options_of_resilience(args, words):
    told = resilience(*GIVEN, *args, code=2)
    assert words in told and "Traceback" not in told
