"""``dask-hpc plan``: what it prints for a person and for programs, and what it says of bad files."""

import json

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

JOBS = """\
- {id: pi, nodes: 4, min_nodes: 1, max_nodes: 14, power: 170 W}
- {id: heat, nodes: 8, min_nodes: 1, max_nodes: 14, power: [240 W, 260 W]}
- {id: next, nodes: 0, min_nodes: 2, max_nodes: 4, power: 0.2 kW}
"""
CSV = """\
id, nodes, min_nodes, max_nodes, power, least, most
pi, 4, 1, 14, 170 W, ,
heat, 8, 1, 14, , 240 W, 260 W
next, 0, 2, 4, 0.2 kW, ,
"""


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return path


def run(path, *args, code=0):
    words = ("plan", "corridor", "--nodes", "14", "--idle", "71W", "--jobs", str(path), *args)
    result = CliRunner().invoke(cli, words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == (1 if code else 0)
    return result.stderr if code else result.stdout


def test_what_a_person_sees(jobs):
    out = run(jobs, "--lower", "1.7kW", "--upper", "2.5kW")
    assert "corridor   from 1.7 kW up to 2.5 kW\n" in out
    assert "before     2.74 kW to 2.9 kW, 402 W above\n" in out
    assert "after      2.45 kW to 2.47 kW, inside\n" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["pi", "4", "13", "+9", "170", "W"] in rows
    assert ["heat", "8", "1", "-7", "240", "W", "to", "260", "W"] in rows
    assert ["next", "0", "0", "waits", "200", "W"] in rows
    assert ["(idle)", "2", "0", "71", "W"] in rows
    assert out.endswith("inside with 0 idle nodes, by 16 nodes given or taken; no plan is better\n")


def test_csv_and_json_say_the_same(jobs, tmp_path):
    other = tmp_path / "jobs.csv"
    other.write_text(CSV)
    bounds = ("--lower", "1.7kW", "--upper", "2500", "--json")
    found = json.loads(run(jobs, *bounds))
    assert found == json.loads(run(other, *bounds))
    assert found["nodes"] == {"pi": 13, "heat": 1, "next": 0} and found["optimal"]
    assert found["changes"] == {"pi": [4, 13], "heat": [8, 1]}
    assert found["after"] == [2450, 2470] and found["upper"] == 2500


def test_bounds_are_shown_as_they_were_said_and_uncertain_power_as_a_range(jobs):
    jobs.write_text("- {id: fix, nodes: 4, power: [200 W, 220 W]}")
    out = run(jobs, "--lower", "1.5001kW", "--upper", "1.61kW")
    assert "corridor   from 1.5001 kW up to 1.61 kW\n" in out
    assert "before     1.51 kW to 1.59 kW, inside\n" in out
    assert "reachable  1.51 kW to 1.59 kW\n" in out
    assert out.endswith("inside, and no change leaves fewer nodes idle; no plan is better\n")


def test_what_is_impossible_is_said_with_what_would_help(jobs):
    out = run(jobs, "--upper", "900")
    assert "impossible: the least that can be drawn is 1.28 kW: raise the upper bound by 382 W" in out
    assert "after      1.26 kW to 1.28 kW, 382 W above" in out
    found = json.loads(run(jobs, "--lower", "5kW", "--json"))
    assert not found["feasible"] and found["upper"] is None
    assert found["highest"] == 3290 and "lower the lower bound by 1.71 kW" in found["help"]


@pytest.mark.parametrize(
    ("text", "args", "said"),
    [
        (JOBS, ("--lower", "3kW", "--upper", "2kW"), "found 3000 to 2000 W"),
        (JOBS, ("--lower", "many"), "lower: found 'many'; allowed: a quantity"),
        (JOBS, ("--nodes", "9"), "nodes: found 9, but jobs hold 12"),
        (JOBS.replace("170 W", "170 V"), (), "jobs.yaml: job 'pi': power: found the unit 'V'"),
        (JOBS.replace("heat", "pi"), (), "job 'pi': id: is said twice"),
        (JOBS.replace("max_nodes: 4", "max_nodes: 1"), (), "job 'next': nodes: found 2 to 1"),
        (JOBS.replace("max_nodes: 4", "limit: 4"), (), "job 3.limit: unknown key"),
        (JOBS.replace("nodes: 8", "nodes: 8.5"), (), "job 'heat': nodes: found 8.5"),
        (JOBS.replace("0.2 kW}", "200, constraint: prime}"), (), "constraint: found 'prime'"),
        (JOBS.replace("0.2 kW}", "200, constraint: cube}"), (), "no size from 2 to 4 is cube"),
        ("jobs: 3", (), "jobs.yaml: found 3; allowed: a list of jobs"),
        ("[1]", (), "job 1: found 1; allowed: a mapping with id"),
        ("{", (), "not YAML"),
    ],
)
def test_bad_input_is_one_line(jobs, text, args, said):
    jobs.write_text(text)
    assert said in run(jobs, *args, code=2)


def test_a_file_that_is_not_there(tmp_path):
    assert "cannot be read" in run(tmp_path / "none.yaml", code=2)
    (tmp_path / "bad.csv").write_text("id,nodes\na\n")
    assert "line 2: not as many values" in run(tmp_path / "bad.csv", code=2)


def test_a_file_that_is_too_large_is_not_read_in_part(tmp_path):
    (tmp_path / "many.csv").write_text("id,nodes,least,most\n" + "job,1,100 W,200 W\n" * 600_000)
    assert "many.csv: more than 10 MB" in run(tmp_path / "many.csv", code=2)
