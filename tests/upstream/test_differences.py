"""The list of differences, and the runner that finds them in a checkout of distributed's tests."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")

MADE_UP = """
from pathlib import Path

import pytest
from distributed.utils_test import gen_cluster


@gen_cluster()
async def test_same(s, a, b):
    assert s.workers


@gen_cluster()
async def test_no_plugins_of_others(s, a, b):
    assert "dask-hpc" not in s.plugins


@pytest.mark.parametrize("x", [1])
@gen_cluster()
async def test_scatter_creates_ts(s, a, b, x):
    assert "dask-hpc" not in s.plugins


def test_once_in_a_while():
    counter = Path(__file__).with_suffix(".count")
    counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
    assert len(counter.read_text()) != 2
"""


@pytest.mark.slow
def test_runner_lists_what_differs_in_each_try(tmp_path):
    tests = tmp_path / "test_made_up.py"
    tests.write_text(MADE_UP)
    command = [sys.executable, str(RUN), str(tests), "--tries", "2", "--", "-p", "no:cacheprovider"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    lines = found.stdout.splitlines()
    assert [line.partition(": ")[0].rpartition("::")[2] for line in lines] == [
        "test_no_plugins_of_others",
        "test_scatter_creates_ts[1]",
        "2 tests differ, 1 of them for no known reason",
    ], found.stdout + found.stderr
    assert "passed without us, failure with us. Not known." in lines[0] and "handed over" in lines[1]
    assert found.returncode == 1
