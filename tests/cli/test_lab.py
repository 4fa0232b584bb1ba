"""``dask-hpc lab`` up to the page: what it serves, how it ends, and what it says when it cannot start."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.cli.lab import tutorials

FIRST = "1-first-steps.ipynb"
needs_jupyter = pytest.mark.skipif(find_spec("jupyterlab") is None, reason="needs jupyterlab")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def running(home, folder, *options):
    """The command in a terminal, with a home where nothing of this machine's users is."""
    folder.mkdir(exist_ok=True)
    mine = {name: os.environ[name] for name in os.environ if not name.startswith("JUPYTER")}
    mine |= {"HOME": str(home), "JUPYTER_TOKEN": "secret", "IPYTHONDIR": str(home / "ipython")}
    command = [sys.executable, "-m", "dask_hpc", "lab", "--no-browser", *options]
    ours, terminal = pty.openpty()
    with (home / "lab.log").open("w+") as log, open(ours, "wb"), open(terminal, "rb") as keys:
        process = subprocess.Popen(command, cwd=folder, env=mine, stdin=keys, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def fetched(port, path, log):
    """What JupyterLab answers, once it does."""
    limit = time.monotonic() + 90
    asked = Request(f"http://127.0.0.1:{port}/{quote(path)}", headers={"Authorization": "token secret"})
    while True:
        try:
            with urlopen(asked, timeout=60) as answer:
                return answer.geturl(), answer.read().decode()
        except (URLError, ConnectionError):
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.1)


def complaint(*args):
    result = CliRunner().invoke(cli, ["lab", *args])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


@needs_jupyter
@pytest.mark.slow
def test_it_serves_the_notebook_and_ends_by_ctrl_c(tmp_path):
    place, port = tmp_path / "a place", free_port()
    with running(tmp_path, place, "--port", str(port)) as process:
        log = tmp_path / "lab.log"
        address, page = fetched(port, "", log)
        assert address.endswith(f"/lab/tree/{FIRST}") and "<title>JupyterLab" in page
        _, served = fetched(port, f"api/contents/{FIRST}", log)
        sources = "".join("".join(cell["source"]) for cell in json.loads(served)["content"]["cells"])
        assert "ControlRoom(" in sources and "LocalCluster(" in sources
        assert (place / FIRST).read_text() == (tutorials() / FIRST).read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    said = log.read_text()
    assert f"/lab/tree/{FIRST}" in said
    assert "Traceback" not in said and "press Shift+Enter" in said.splitlines()[0]


@needs_jupyter
@pytest.mark.slow
def test_a_notebook_that_is_there_is_left_as_it_is(tmp_path):
    place, port = tmp_path / "work", free_port()
    place.mkdir()
    own = (tutorials() / FIRST).read_text().replace("First steps", "My own steps")
    (place / FIRST).write_text(own)
    with running(tmp_path, place, "--port", str(port)):
        assert "My own steps" in fetched(port, f"api/contents/{FIRST}", tmp_path / "lab.log")[1]
    assert (place / FIRST).read_text() == own


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
