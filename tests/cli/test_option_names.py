"""What is wrong with an option is said of the option, not of the keyword of a function behind it."""

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli

STORE = ("plan", "interval", "--level", "store", "10s", "1h")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("simulate", "builtin:esp", "--nodes", "0"), "--nodes: found 0"),
        (("simulate", "builtin:esp", "--machine", "nowhere"), "--machine: no machine is named"),
        (("simulate", "builtin:esp", "--malleable", "2"), "--malleable: found 2"),
        (("simulate", "builtin:esp", "--load", "-1"), "--load: found -1"),
        ((*STORE, "--run", "-5s"), "--run: found"),
        ((*STORE, "--power", "computing=0,committing=1"), "--power: computing: found"),
        ((*STORE, "--objective", "energy"), "--objective: 'energy' needs the power"),
        (("plan", "interval", "--level", "store", "10s", "0s"), "--level 'store': mtbf: found"),
        (("plan", "reservation", "--law", "nonsense"), "--law"),
    ],
)
def test_options_are_named(args, said):
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"dask-hpc: {said}"), result.stderr


def test_keys_of_files_and_policies_stay_what_they_are(tmp_path):
    path = tmp_path / "work.yaml"
    path.write_text("nodes: 0\njobs: [{id: a, nodes: 1, runtime: 1s}]\n")
    said = CliRunner().invoke(cli, ("simulate", str(path))).stderr
    assert f"{path}: " in said and "--nodes" not in said
    said = CliRunner().invoke(cli, ("simulate", str(path), "--nodes", "4")).stderr
    assert f"{path}: " in said and "--nodes" not in said
    path.write_text("jobs: [{id: a, nodes: 1, runtime: 1s}]\n")
    said = CliRunner().invoke(cli, ("simulate", str(path))).stderr
    assert (
        said == "dask-hpc: --nodes: work.yaml does not say how many nodes its machine has; "
        "allowed: --nodes N\n"
    )
    said = CliRunner().invoke(cli, ("simulate", "builtin:esp", "--set", "power.upper=much")).stderr
    assert "power.upper" in said and "--power" not in said
