"""The demo as a person runs it."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli


@pytest.mark.slow
@pytest.mark.timed
def test_demo_ends_by_itself_and_writes_its_report(tmp_path, forked_workers):
    report = tmp_path / "demo.html"
    command = [sys.executable, "-m", "dask_hpc", "demo", "--seconds", "10", "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any("0 lost or wrong, 0 executed twice" in line for line in lines)
    assert sum("  start  " in line for line in lines) >= 5
    assert lines[-1].endswith("dask-hpc lab")
    for what in ("shrink", "grow", "hold", "release", "leave", "node-joined"):
        assert any(f"  {what}  " in line for line in lines), what
    page = report.read_text()
    assert page.count('class="gantt"') == 2 and "so that job urgent can start" in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


@pytest.mark.slow
@pytest.mark.timed
def test_the_corridor_moves_twice_and_is_kept(tmp_path, forked_workers):
    report = tmp_path / "corridor.html"
    command = [
        sys.executable,
        "-m",
        "dask_hpc",
        "demo",
        "--corridor",
        "--seconds",
        "15",
        "--report",
        str(report),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any("0 lost or wrong, 0 executed twice" in line for line in lines)
    inside, of = map(int, re.search(r"inside in (\d+) of (\d+) samples", done.stdout).groups())
    assert of > 15 and inside >= 0.95 * of, done.stdout
    assert any("  shrink  " in line for line in lines) and any("  grow  " in line for line in lines)
    page = report.read_text()
    assert "simulated power" in page and ",480.0,800.0," in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_a_corridor_needs_a_policy_that_keeps_it():
    done = CliRunner().invoke(cli, ["demo", "--corridor", "--policy", "fcfs"])
    assert done.exit_code == 2 and "power-corridor" in done.output
