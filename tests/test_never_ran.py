"""What runs of the tests note of what they left out, and what follows from the notes of all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULE = """
import pytest

def test_runs():
    pass

def test_fails():
    assert False

@pytest.mark.xfail
def test_is_known_to_fail():
    assert False

@pytest.mark.slow
def test_is_slow():
    pass

def test_misses():
    pytest.skip("a reason, and\\n more")
"""


@pytest.mark.slow
def test_what_was_left_out_each_time_is_named(tmp_path):
    notes = tmp_path / "ran"
    (tmp_path / "test_them.py").write_text(MODULE)
    (tmp_path / "test_nothing.py").write_text("import pytest\npytest.importorskip('not_there')\n")

    def run(*command):
        env = os.environ | {"DASK_HPC_RAN": str(notes)}
        # what conftest imports then is not there
        env.pop("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", None)
        return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True).stdout

    def left_out(code=1):
        done = subprocess.run(
            [sys.executable, HERE / "never_ran.py", notes], stdout=subprocess.PIPE, text=True, check=False
        )
        assert done.returncode == code
        return [line.rpartition("/")[2] for line in done.stdout.splitlines()]

    tests = ("-m", "pytest", "-q", "-c", HERE.parent / "pyproject.toml", "--rootdir", tmp_path)
    tests += ("-o", f"pythonpath={HERE}", "-p", "conftest", "-p", "no:cacheprovider", tmp_path)
    said = run(*tests)
    assert "1 failed, 1 passed, 3 skipped, 1 xfailed" in said, said
    slow, misses = "test_them.py::test_is_slow: ", "test_them.py::test_misses: Skipped: a reason, and more"
    found = left_out()
    assert len(found) == 3 and found[0].startswith("test_nothing.py: Skipped: could not import")
    assert found[1].startswith(slow) and found[2] == misses
    run(*tests, "--runslow", "-n", "1")
    assert [line.partition(":")[0] for line in left_out()] == ["test_nothing.py", "test_them.py"]
    assert left_out()[1] == misses
    (tmp_path / "test_nothing.py").unlink()
    notes.unlink()
    (tmp_path / "test_them.py").write_text(MODULE.replace("a reason, and\\n more", "mount: not for you"))
    run(*tests, "--runslow")
    assert left_out(0) == ["test_them.py::test_misses: Skipped: mount: not for you"]
