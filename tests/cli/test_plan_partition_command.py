"""``dask-hpc plan partition``: the table, JSON, the picture, and what it says of bad files."""

import json
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

FILE = """\
platform: {nodes: 50, cores: 8, memory: 64 GiB, bandwidth: 10 GB/s}
simulation: {time: 30 min, memory: 2 TiB, serial: 0.0005}
analyses:
  - {name: spectrum, time: 90 s, memory: 300 GiB}
  - {name: front, time: 3 min, memory: 200 GiB, moved: 20 GiB}
  - {name: statistics, time: 40 s, memory: 500 GiB}
  - {name: isosurface, time: 4 min, memory: 250 GiB, serial: 0.001}
mode: async
"""


@pytest.fixture
def heat(tmp_path):
    path = tmp_path / "heat.yaml"
    path.write_text(FILE)
    return path


def run(path, *args, code=0):
    result = CliRunner().invoke(cli, ("plan", "partition", str(path), *args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == (1 if code else 0)
    return result.stderr if code else result.stdout


def test_table_and_json_say_the_same(heat):
    out, found = run(heat), json.loads(run(heat, "--json"))
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["machine", "50", "nodes,", "cores", "of", "each:", "8"]
    assert ["staging", str(found["staging_nodes"]), "nodes"] in rows
    assert found["nodes"] + found["staging_nodes"] == 50
    for name in ("spectrum", "front", "statistics", "isosurface"):
        row = next(row for row in rows if row[:1] == [name])
        assert ("situ" in row) == (name in found["in_situ"]) != (name in found["in_transit"])
    assert found["iteration"] == max(found["phases"].values()) >= found["bound"]
    assert (
        found["all_in_transit"]["in_situ"] == [] and found["all_in_transit"]["iteration"] > found["iteration"]
    )
    assert "memory does not suffice" in found["all_in_situ"]["warning"] and "does not fit" in out
    assert out.endswith(found["reason"] + "\n") and found["order"] == "exact"


def test_orders_and_modes(heat):
    found = json.loads(run(heat, "--json", "--order", "increasing-peak"))
    assert found["order"] == "increasing-peak"
    heat.write_text(FILE.replace("mode: async", "mode: sync\norder: enumerate"))
    found = json.loads(run(heat, "--json"))
    assert (found["mode"], found["order"], found["helper_cores"]) == ("sync", "enumerate", 0)
    assert "by turns with what is in situ" in run(heat)


def test_what_does_not_fit_is_planned_and_said(heat):
    heat.write_text(FILE.replace("64 GiB", "8 GiB"))
    assert "memory does not suffice: 49 nodes that simulate need 44.9 GB each" in run(heat)


def test_the_picture(heat, tmp_path):
    picture = tmp_path / "out.svg"
    run(heat, "--plot", str(picture))
    words = [one.text for one in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"this plan", "all in situ", "all in transit", "does not fit"} <= set(words)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1]", "heat.yaml: found [1]; allowed: a mapping with platform"),
        ("platform: {nodes: 2, cores: 2}", "heat.yaml: simulation: is missing"),
        ("platform: {nodes: 2}\nsimulation: {time: 1}", "heat.yaml: platform.cores: is missing"),
        ("platform: {nodes: 2, cores: 2, gpus: 1}\nsimulation: {time: 1}", "platform.gpus: unknown key"),
        (FILE.replace("30 min", "30 parsec"), "simulation: time: found the unit 'parsec'"),
        (FILE + "seed: 3\n", "heat.yaml: seed: unknown key"),
        (FILE.replace("- {name: front", "- {name: spectrum"), "found 'spectrum' more than once"),
        ("a: [", "heat.yaml: line "),
    ],
)
def test_bad_files(heat, tmp_path, text, message):
    heat.write_text(text)
    assert message in run(heat, "--plot", str(tmp_path / "out.svg"), code=2)
    assert not (tmp_path / "out.svg").exists()


def test_files_that_cannot_be_read_or_written(heat, tmp_path):
    assert "cannot be read" in run(tmp_path / "none.yaml", code=2)
    assert "no folder" in run(heat, "--plot", str(tmp_path / "none" / "out.svg"), code=2)
