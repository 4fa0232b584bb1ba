"""``dask-hpc lab`` up to JupyterLab: what that is told, and what is said when it cannot start. What it serves
and how it ends is in test_installed.py."""

import json
import socket
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli.lab import tutorials

FIRST = "1-first-steps.ipynb"
needs_jupyter = pytest.mark.skipif(find_spec("jupyterlab") is None, reason="needs jupyterlab")


@pytest.fixture(autouse=True)
def workspaces(tmp_path_factory, monkeypatch):
    """Where JupyterLab would keep them."""
    folder = tmp_path_factory.mktemp("workspaces")
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(folder))
    return folder


@pytest.fixture
def told(monkeypatch):
    """What would be run."""
    found = []
    monkeypatch.setattr("os.execv", lambda program, command: found.extend(command))
    return found


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
def test_what_jupyterlab_is_told(tmp_path, told):
    result = CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "--no-browser" not in told and not any("port" in word for word in told)
    assert f"--ServerApp.root_dir={tmp_path}" in told
    assert (tmp_path / FIRST).exists()


@needs_jupyter
def test_the_room_is_right_of_the_notebook(tmp_path, told, workspaces):
    for _ in range(2):  # it is laid out anew each time
        assert CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)]).exit_code == 0
    assert f"--LabApp.default_url=/lab/workspaces/dask-hpc/tree/{FIRST}" in told
    (file,) = workspaces.iterdir()
    found = json.loads(file.read_text())
    cells = json.loads((tmp_path / FIRST).read_text())["cells"]
    left, right = found["data"]["layout-restorer:data"]["main"]["dock"]["children"]
    assert left["widgets"] == [f"notebook:{FIRST}"]
    shown = found["data"][right["widgets"][0]]["data"]
    assert shown["path"] == FIRST and "ControlRoom(" in "".join(cells[shown["index"]]["source"])


@needs_jupyter
@pytest.mark.parametrize("text", ["{}", "no notebook", '{"cells": [{"cell_type": "code", "source": "1"}]}'])
def test_a_notebook_without_a_room_opens_alone(tmp_path, told, workspaces, text):
    (tmp_path / FIRST).write_text(text)
    assert CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)]).exit_code == 0
    assert f"--LabApp.default_url=/lab/tree/{FIRST}" in told and not list(workspaces.iterdir())


@needs_jupyter
def test_where_no_workspace_can_be_kept_it_opens_alone(tmp_path, told, workspaces, monkeypatch):
    taken = workspaces / "a file"
    taken.touch()
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(taken / "below"))
    assert CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)]).exit_code == 0
    assert f"--LabApp.default_url=/lab/tree/{FIRST}" in told


@needs_jupyter
def test_another_tutorial(tmp_path, told):
    assert CliRunner().invoke(cli, ["lab", "6b", "--folder", str(tmp_path)]).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["6b-ask-well.ipynb"]
    assert "allowed: one of 1, 2, 3, 4, 5, 6, 6b, 7, 8" in complaint("9", "--folder", str(tmp_path))


@needs_jupyter
def test_a_notebook_that_is_there_is_left_as_it_is(tmp_path, told):
    own = (tutorials() / FIRST).read_text().replace("First steps", "My own steps")
    (tmp_path / FIRST).write_text(own)
    result = CliRunner().invoke(cli, ["lab", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / FIRST).read_text() == own
