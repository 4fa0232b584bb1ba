"""``dask-hpc lab`` up to JupyterLab: what that is told, and what is said when it cannot start. What it serves
and how it ends is in test_installed.py."""

import socket
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli.lab import tutorials

FIRST = "1-first-steps.ipynb"
needs_jupyter = pytest.mark.skipif(find_spec("jupyterlab") is None, reason="needs jupyterlab")


def complaint(*args):
    result = CliRunner().invoke(cli, ["lab", *args])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


@needs_jupyter
def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port: {port} is in use; allowed: a port that is free" in complaint("--port", port)


@needs_jupyter
def test_a_folder_that_cannot_be(tmp_path):
    missing = str(tmp_path / "missing")
    assert f"--folder: found {missing!r}; allowed: a folder that exists" in complaint("--folder", missing)
    file = tmp_path / "file"
    file.touch()
    assert "allowed: a folder that exists" in complaint("--folder", str(file))


@needs_jupyter
def test_a_folder_where_nothing_can_be_written(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dask_hpc.cli.lab.copyfile", full)
    line = complaint("--folder", str(tmp_path))
    assert "No space left on device; allowed: a folder to write to" in line


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr("dask_hpc.cli.lab.find_spec", lambda name: None if name == "anywidget" else name)
    line = complaint()
    assert "anywidget is missing" in line and "dask-hpc[widgets]" in line


@needs_jupyter
def test_what_jupyterlab_is_told(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("os.execv", lambda program, command: told.extend(command))
    result = CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "--no-browser" not in told and not any("port" in word for word in told)
    assert f"--ServerApp.root_dir={tmp_path}" in told
    assert (tmp_path / FIRST).exists()


@needs_jupyter
def test_a_notebook_that_is_there_is_left_as_it_is(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("os.execv", lambda program, command: told.extend(command))
    own = (tutorials() / FIRST).read_text().replace("First steps", "My own steps")
    (tmp_path / FIRST).write_text(own)
    result = CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / FIRST).read_text() == own
    assert f"--LabApp.default_url=/lab/tree/{FIRST}" in told
