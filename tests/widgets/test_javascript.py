"""The pure functions of the widgets' JavaScript, by Node's own test runner."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from module_syntax import syntax_errors

HERE = Path(__file__).parent
MODULES = sorted((HERE.parent.parent / "dask_hpc" / "view" / "kit").rglob("*.js"))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_pure_functions():
    """The layouts, scales and hit tests, as Node sees them: all files in one run."""
    files = sorted(HERE.glob("*.test.mjs"))
    command = ["node", "--test", "--test-reporter=tap", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed) >= len(files) > 10


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_syntax():
    assert len(MODULES) > 20
    assert syntax_errors({str(path): path.read_text() for path in MODULES}) == {}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_what_is_no_module():
    found = syntax_errors({"fine.js": "export const one = 1;", "names.js": "let a; let a;", "open.js": "f("})
    assert found.keys() == {"names.js", "open.js"}
    assert "SyntaxError" in found["names.js"] and "'a' has already been declared" in found["names.js"]
