"""``dask-hpc plan network``: tables, JSON, the picture, and what it says of bad input."""

import json
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

GOOD = """
topology: {tree: {rack0: "node[00-07]", rack1: "node[08-15]"}, port: 12.5 GB/s, oversubscription: 4}
jobs:
  heat: {nodes: "node[04-11]", rate: 2 GB/s}
  save: {nodes: all of rack1, pattern: partner, rate: 1 GB/s}
"""
SLURM = "SwitchName=leaf0 Nodes=n[0-3]\nSwitchName=leaf1 Nodes=n[4-7]\nSwitchName=top Switches=leaf[0-1]\n"


@pytest.fixture
def network(tmp_path):
    def run(text, *args, code=0):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        result = CliRunner().invoke(cli, ("plan", "network", str(path), *args))
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stderr if code else result.stdout

    return run


def test_tables_and_json_agree(network):
    out, found = network(GOOD), json.loads(network(GOOD, "--json"))
    lines = out.splitlines()
    assert lines[0].split()[0] == "job" and found["is_exact"] and found["objective"] == "sum"
    for name, job in found["jobs"].items():
        row = next(line for line in lines if line.startswith(f"{name} "))
        for key in ("theta", "alone", "contiguous"):
            assert f"{job[key]:.1%}" in row
        assert f"{1 / job['theta']:.2f}x" in row
    # 16 pairs of 2 GB/s each way, and of the other job 8 from rack1, over uplinks of 25 GB/s
    assert found["jobs"]["heat"]["theta"] == pytest.approx((25 - 8) / 32)
    assert found["jobs"]["heat"]["alone"] == pytest.approx(25 / 32)
    assert found["levels"]["rack"] == pytest.approx({"links": 4, "full": 2, "mean": 0.84, "most": 1.0})
    assert found["busiest"][0] == {"link": "up from rack1", "level": "rack", "load": pytest.approx(25e9),
                                   "bandwidth": 25e9}  # fmt: skip
    assert "up from rack1" in out and lines[-1] == found["reason"]
    assert "partner" in lines[2] and "node12" not in out
    fair = json.loads(network(GOOD, "--json", "--objective", "min"))
    assert fair["least"] == pytest.approx(25 / 40) == pytest.approx(fair["jobs"]["save"]["theta"])


def test_partners(network):
    out, found = network(GOOD, "--partners"), json.loads(network(GOOD, "--json"))
    assert found["jobs"]["heat"]["partners"]["node04"] == "node12"
    assert ["heat", "node04", "node12"] in [line.split() for line in out.splitlines()]


def test_the_picture(network, tmp_path):
    network(GOOD, "--plot", str(tmp_path / "out.svg"))
    root = ET.parse(tmp_path / "out.svg").getroot()
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "2 jobs: heat gets 53% of what they send"
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "up from rack1 (rack): 25 GB/s, 100%" in titles and "node05: heat" in titles


def test_slurm_s_topology_beside_the_file(network, tmp_path):
    (tmp_path / "topology.conf").write_text(SLURM)
    text = "topology: {slurm: topology.conf}\njobs: {a: {nodes: 'n[2-5]', rate: 10 GB/s}}"
    found = json.loads(network(text, "--json"))
    assert found["jobs"]["a"]["theta"] == pytest.approx(12.5 / 30)
    assert found["levels"]["leaf"]["links"] == 4
    (tmp_path / "topology.conf").write_text(SLURM.replace("SwitchName=top", "#"))
    said = network(text, code=2)
    assert (
        "cluster.yaml: topology: slurm: nothing joins 'leaf0' with 'leaf1'; allowed: a switch above" in said
    )


def test_bounds_are_said(network):
    text = "topology: {preset: fat-tree, arity: 13, levels: 3}\njobs: {a: {nodes: all, rate: 1 GB/s}}"
    out = network(text)
    assert "bounds, not a linear programme (2,197 endpoints)" in out.splitlines()[-1]


JOBS = "jobs: {a: {nodes: all, rate: 1}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found None; allowed: a mapping with topology, jobs"),
        ("topology: {preset: xc30}", "jobs: found None; allowed: a mapping"),
        ("topology: xc30\n" + JOBS, "topology: found 'xc30'; allowed: a mapping"),
        ("topology: {preset: xc30}\njobs: {}", "jobs: found {}; allowed: 1 to 1,000"),
        ("topology: {preset: xc30}\nmore: 1\n" + JOBS, "more: unknown key"),
        (GOOD.replace("04-11", "04-16"), "jobs: heat: nodes: found 'node16', which is not in the topology"),
        (GOOD.replace("all of rack1", "all of rack2"), "jobs: save: nodes: found the part 'rack2'"),
        (GOOD.replace("12.5 GB/s", "0 GB/s"), "topology: port: found 0.0; allowed: bytes a second"),
        (GOOD.replace("2 GB/s}", "2 apples}"), "jobs: heat: rate: found the unit 'apples'"),
        (GOOD.replace("2 GB/s}", "-2 GB/s}"), "jobs: heat: rate: found -2000000000.0; allowed: bytes"),
        (GOOD.replace("partner", "gossip"), "pattern: found 'gossip'; allowed: all-to-all, partner, store"),
        ("topology: {preset: xc30, cabinets: 1}\njobs: {a: {nodes: all, pattern: partner}}",
         "jobs: a: found one cabinet: no partner is in another; allowed: two or more"),
        ("topology: {slurm: no/such.conf}\n" + JOBS, "no/such.conf: cannot be read: No such file"),
        ("topology: {tree: {r: 'n[0-']}", "cluster.yaml: line 1: not YAML"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(network, tmp_path, text, said):
    found = network(text, "--plot", str(tmp_path / "out.svg"), code=2)
    assert said in found and len(found.splitlines()) == 1
    assert not (tmp_path / "out.svg").exists()


def test_a_file_that_is_not_there(tmp_path):
    result = CliRunner().invoke(cli, ("plan", "network", str(tmp_path / "none.yaml")))
    assert result.exit_code == 2 and "none.yaml: cannot be read: No such file" in result.stderr
