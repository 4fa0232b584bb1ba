"""The demo as a person runs it."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli


@pytest.mark.slow
def test_demo_ends_by_itself_and_writes_its_report(tmp_path):
    report = tmp_path / "demo.html"
    command = [sys.executable, "-m", "dask_hpc", "demo", "--seconds", "10", "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any("0 lost or wrong, 0 executed twice" in line for line in lines)
    assert sum("  start  " in line for line in lines) >= 5
    for what in ("shrink", "grow", "hold", "release", "leave", "node-joined"):
        assert any(f"  {what}  " in line for line in lines), what
    page = report.read_text()
    assert page.count('class="gantt"') == 2 and "so that job urgent can start" in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_a_corridor_needs_a_policy_that_keeps_it():
    done = CliRunner().invoke(cli, ["demo", "--corridor", "--policy", "fcfs"])
    assert done.exit_code == 2 and "power-corridor" in done.output
