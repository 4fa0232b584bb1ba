"""What the README says works, works."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dask_hpc.cli import COMMANDS
from dask_hpc.policy import ready_made

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_two_lines_to_paste():
    lines = [line for block in re.findall(r"```bash\n(.*?)```", README, re.S) for line in block.splitlines()]
    assert len(lines) == 4
    assert lines[0].endswith("&& dask-hpc demo") and lines[1].endswith("&& python -m pytest -n 4")
    # these two end in JupyterLab, as tests/browser/test_lab_command.py sees it
    assert lines[2].endswith('pip install -e ".[widgets]"') and lines[3] == "dask-hpc lab"


def test_what_it_names_is_there():
    for path in re.findall(r"\]\(([^)#:]+)\)|`((?:notebooks|policies|tests|dask_hpc)/[^`]*)`", README):
        assert (ROOT / (path[0] or path[1])).exists(), path
    for name in re.findall(r"`(\w+(?:Explorer|View|Panel|Chart|Table|Map))`", README):
        assert f'"{name}"' in (ROOT / "widgets/dask_hpc_widgets/__init__.py").read_text()


def test_pictures_are_small():
    for path in (ROOT / "notebooks/pictures").glob("*.png"):
        assert path.stat().st_size < 120_000, path.name


def test_every_command_is_listed_and_no_other():
    assert set(re.findall(r"^\| `dask-hpc (\w+)", README, re.M)) == set(COMMANDS)


def test_number_of_policies():
    (number,) = re.findall(r"(\d+) ready-made policies", README)
    assert int(number) == len(ready_made())


@pytest.mark.slow
def test_example_runs(tmp_path):
    program = re.findall(r"```python\n(.*?)```", README, re.S)[0]
    assert len(program.strip().splitlines()) <= 12
    (tmp_path / "example.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "makes good use of" in done.stdout
    # Closing a cluster may cut off the heartbeat of one of its workers, which Dask logs, without us as well.
    records = re.split(r"^(?=\d{4}-\d\d-\d\d )", done.stderr, flags=re.M)
    of_dask = "distributed.worker - ERROR - Failed to communicate with scheduler during heartbeat."
    ours = "".join(record for record in records if of_dask not in record or "dask_hpc" in record)
    assert "Traceback" not in ours
