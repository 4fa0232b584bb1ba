"""What is installed of this repository works: the wheel with its extra ``widgets`` and no more, as Binder's
``postBuild`` installs it, and then a Binder's JupyterLab."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from promises import with_checks
from test_binder import NOTEBOOK, ROOT, environment

#: the notebook states how long it takes at most; all of these share what was installed
pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.xdist_group("installed")]

FIRST = Path(NOTEBOOK).name
MOST = 1.5e9  # bytes; public Binders give one to two gigabytes


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def pip(python, *words):
    """Of this Python's, for another: what is installed is compiled when it is imported, if it is."""
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", *words)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the repository where Binder has it, an environment where only ``postBuild`` has installed
    something, and what is set there. Building must not leave anything in the tree, so it is a copy."""
    folder = tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, folder / "home", ignore=ignored)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    pip(folder / "env/bin/python", "pip")
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTHON", "DASK"))}
    mine |= {"PATH": f"{folder}/env/bin:{os.environ['PATH']}", "HOME": str(folder), "JUPYTER_TOKEN": "secret"}
    mine |= {"IPYTHONDIR": str(folder / "ipython")}
    mine.pop("PIP_NO_CACHE_DIR", None)
    run("bash", "binder/postBuild", cwd=folder / "home", env=mine | {"PIP_COMPILE": "0"})
    return folder, mine


@contextmanager
def lab(command, log, **options):
    """A JupyterLab on a free port, whose number the command takes last."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with log.open("w") as file:
        process = psutil.Popen([*map(str, command), f"--port={port}"], stdout=file, stderr=file, **options)
    try:
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def answer(process, port, log, path):
    """The address and the text of what JupyterLab answers, once it does."""
    limit = time.monotonic() + 120
    while True:
        assert time.monotonic() < limit and process.poll() is None, log.read_text()
        address = f"http://127.0.0.1:{port}/{path}?token=secret"
        with suppress(OSError), urlopen(address, timeout=60) as found:
            return found.geturl(), found.read().decode()
        time.sleep(0.1)


@pytest.mark.timeout(1200)  # the whole of JupyterLab is installed
def test_the_wheel_and_its_extra_have_all_that_the_widgets_need(installed):
    folder, mine = installed
    program = (
        "import dask_hpc_widgets as w; assert 'site-packages' in w.__file__;"
        "from importlib.metadata import entry_points;"
        "[point.load() for point in entry_points(group='dask_hpc.displays')];"
        "explorers = [getattr(w, name)() for name in w.__all__ if name.endswith('Explorer')];"
        "modules = [getattr(w, name)._esm for name in w.__all__ if hasattr(getattr(w, name), '_esm')];"
        "print(len(explorers), len(modules), min(len(str(text)) for text in modules) > 500)"
    )
    explorers, modules, are_long = run("python", "-I", "-c", program, cwd=folder, env=mine).split()
    assert (int(explorers), are_long) == (4, "True") and int(modules) >= 10


@pytest.mark.timeout(1200)
def test_the_wheels_command_serves_its_notebook_and_ends_by_ctrl_c(installed, tmp_path):
    folder, mine = installed
    place, log = tmp_path / "a place", tmp_path / "lab.log"
    place.mkdir()
    # in a terminal, where Jupyter would ask back
    ours, terminal = os.openpty()
    command = [folder / "env/bin/dask-hpc", "lab", "--no-browser"]
    with (
        open(ours, "wb"),
        open(terminal, "rb") as keys,
        lab(command, log, cwd=place, env=mine, stdin=keys) as (process, port),
    ):
        address, page = answer(process, port, log, "")
        assert (
            address.partition("?")[0].endswith(f"/lab/workspaces/dask-hpc/tree/{FIRST}")
            and "<title>JupyterLab" in page
        )
        _, served = answer(process, port, log, f"api/contents/{FIRST}")
        sources = "".join("".join(cell["source"]) for cell in json.loads(served)["content"]["cells"])
        assert "ControlRoom(" in sources and "LocalCluster(" in sources
        (packed,) = folder.glob(f"env/lib/*/site-packages/dask_hpc/notebooks/{FIRST}")
        assert (place / FIRST).read_text() == packed.read_text() == (ROOT / NOTEBOOK).read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    said = log.read_text()
    assert f"/tree/{FIRST}" in said
    assert "Traceback" not in said and "press Shift+Enter" in said.splitlines()[0]


def memory(processes):
    """Bytes of these and all below them; what they share counts once where the system says so."""
    found = 0
    for one in processes:
        for process in [one, *one.children(recursive=True)]:
            with suppress(psutil.Error):
                info = process.memory_full_info()
                found += getattr(info, "pss", 0) or info.rss
    return found


@pytest.mark.timeout(1200)
def test_in_a_binder_the_first_notebook_runs_within_its_time_and_fits(installed, slowness):
    folder, mine = installed
    home, log = folder / "home", folder / "lab.log"
    wanted = [str(one) for name, one in environment().items() if name not in ("python", "pip")]
    pip(folder / "env/bin/python", *wanted)
    run("python", "-m", "pip", "check", env=mine)
    program = (
        "import sys, nbformat, nbclient; notebook = nbformat.read(sys.argv[1], as_version=4);"
        "nbclient.NotebookClient(notebook, timeout=300, kernel_name='python3').execute()"
    )
    import nbformat

    checked, cell = folder / FIRST, nbformat.v4.new_code_cell
    nbformat.write(with_checks(nbformat.read(ROOT / NOTEBOOK, as_version=4), checked.stem, cell), checked)
    stated = json.loads((ROOT / NOTEBOOK).read_text())["metadata"]["dask_hpc"]["seconds"]
    command = ["bash", "binder/start", "jupyter", "lab", "--no-browser", "--allow-root"]
    with lab([*command, "--ServerApp.answer_yes=True"], log, cwd=home, env=mine) as (process, port):
        address, _ = answer(process, port, log, "")
        assert address.partition("?")[0].endswith(f"/lab/tree/{NOTEBOOK}")
        alone = most = memory([process])
        errors, began = folder / "notebook.log", time.monotonic()
        with errors.open("w") as file:
            ran = psutil.Popen(
                [folder / "env/bin/python", "-c", program, checked],
                cwd=home / "notebooks/tutorials", env=mine, stdout=file, stderr=file,
            )  # fmt: skip
        while ran.poll() is None:
            most = max(most, memory([process, ran]))
            time.sleep(0.5)
        took = time.monotonic() - began
        assert ran.returncode == 0, errors.read_text()[-3000:]
        process.terminate()
        process.wait(30)
    print(f"JupyterLab {alone / 1e6:.0f} MB; with the notebook {most / 1e6:.0f} MB at most, {took:.0f} s")
    assert alone < most < MOST
    assert took <= stated * slowness()
