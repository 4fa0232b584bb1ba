"""``dask-hpc simulate``: which sizes and speed-up malleable jobs get, and what becomes of overruns."""

import json

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.model.errors import InputError
from dask_hpc.model.speedup import Amdahl, PowerLaw
from dask_hpc.simulator import load_workload
from dask_hpc.simulator.overlay import Overlay


def run(*args, code=0):
    result = CliRunner().invoke(cli, ("simulate", *map(str, args)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def trace(tmp_path):
    """Two jobs on four nodes: one runs for 100 s of the 60 s it asked for."""
    path = tmp_path / "two.swf"
    rows = [(1, 0, -1, 100, 4, -1, -1, 4, 60), (2, 0, -1, 50, 4, -1, -1, 4, 80)]
    path.write_text("; MaxNodes: 4\n" + "".join(" ".join(map(str, [*row, *[-1] * 9])) + "\n" for row in rows))
    return path


def test_what_malleable_gives_is_said():
    said = run("builtin:esp", "--malleable", 0.5).stderr
    assert "note: 50% of the rigid jobs are malleable; sizes constraint: from 1 node to the whole" in said
    assert "speed-up unchanged: as the workload says, linear where it says nothing" in said
    chosen = ("--sizes", "half-double", "--speedup", "power:0.8")
    said = run("builtin:esp", "--malleable", 0.5, *chosen).stderr
    assert "half-double: from half to twice" in said and "speed-up power:0.8: power 0.8 for all" in said
    assert "0.5:4 times the nodes" in run("builtin:esp", "--malleable", 0.5, "--sizes", "0.5:4").stderr
    assert "malleable;" not in run("builtin:esp", "--load", 0.9).stderr
    assert (
        "half-double"
        in run("builtin:five-jobs", "--malleable", 1, "--sizes", "half-double", "--seeds", 2).stderr
    )


def test_one_law_for_all():
    workload = load_workload("builtin:esp")
    for words, law in (("power:0.8", PowerLaw(0.8)), ("amdahl:0.05", Amdahl(0.05))):
        found = Overlay(malleable=1.0, law=words).over(workload)
        assert {arrival.speedup for arrival in found if arrival.job.kind == "malleable"} == {law}
        assert {arrival.job.speedup for arrival in found if arrival.job.kind == "malleable"} == {law}
    for wrong in ("power:", "power:x", "power:-1", "amdahl:2", "linear:1", "power:1.2.3", ":", 7, None):
        with pytest.raises(InputError, match=r"law: found .*power:0\.8"):
            Overlay(law=wrong)


def test_chosen_speedup_counts():
    data = [
        json.loads(
            run("builtin:esp", "--policy", "elastic", "--malleable", 1, "--speedup", law, "--json").stdout
        )
        for law in ("linear", "power:0.3")
    ]
    spans = [one["policies"]["elastic"]["makespan"] for one in data]
    assert spans[0] != spans[1]


def test_overruns_are_killed_or_kept(trace):
    def played(*more):
        return json.loads(run(trace, "--policy", "fcfs", "--json", *more).stdout)["policies"]["fcfs"]

    assert played()["makespan"] == played("--overrun", "kill")["makespan"] == 60 + 50
    kept = played("--overrun", "keep")
    assert kept["makespan"] == 100 + 50 and kept["completed"] == 2


def test_overruns_of_a_workload_that_keeps_them(tmp_path):
    path = tmp_path / "work.yaml"
    path.write_text("nodes: 2\njobs: [{id: v, nodes: 2, runtime: 3h, walltime: 2h, overstays: true}]\n")
    spans = [
        json.loads(run(path, "--json", *more).stdout)["policies"]["easy-backfill"]["makespan"]
        for more in ((), ("--overrun", "kill"), ("--overrun", "keep"))
    ]
    assert spans == [3 * 3600, 2 * 3600, 3 * 3600]
    assert "--overrun" in run(path, "--overrun", "maybe", code=2).stderr
    with pytest.raises(InputError, match="overrun"):
        Overlay(overrun="maybe")
