"""The fixture ``slurm``: a real Slurm, started once per test session and made new after each test."""

import tempfile
from pathlib import Path

import pytest
from small_slurm import SmallSlurm, require_slurm


@pytest.fixture(scope="session")
def running_slurm():
    require_slurm()
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory, SmallSlurm(Path(directory)) as slurm:
        yield slurm


@pytest.fixture
def slurm(running_slurm, monkeypatch):
    """Four idle nodes. Commands of Slurm, ours and dask-jobqueue's, speak to it during the test."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, running_slurm.environment[name])
    yield running_slurm
    running_slurm.clear()
