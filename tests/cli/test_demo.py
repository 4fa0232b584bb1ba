"""The demo as a person runs it."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_demo_ends_by_itself_and_writes_its_report(tmp_path):
    report = tmp_path / "demo.html"
    command = [sys.executable, "-m", "dask_hpc", "demo", "--seconds", "10", "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert any("tasks done, every result checked" in line for line in lines)
    assert sum(" start " in line for line in lines) >= 6
    page = report.read_text()
    assert page.count('class="gantt"') == 2 and "overtakes job" in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
