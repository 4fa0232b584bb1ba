"""The pure functions of the widgets' JavaScript, by Node's own test runner."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = sorted((HERE.parent.parent / "dask_hpc" / "view" / "kit").rglob("*.js"))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.mjs")), ids=lambda path: path.name)
def test_pure_functions(path):
    done = subprocess.run(["node", "--test", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_syntax(path):
    done = subprocess.run(["node", "--check", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
