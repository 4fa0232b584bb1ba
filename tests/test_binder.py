"""A Binder of this repository: what it installs is what we say, it opens on notebook 1, and that fits."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
NOTEBOOK = "notebooks/tutorials/1-first-steps.ipynb"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
POST_BUILD = (ROOT / "binder/postBuild").read_text()
MOST = 1.5e9  # bytes; public Binders give one to two gigabytes


def environment():
    """Requirements of environment.yml by name."""
    named = yaml.safe_load((ROOT / "binder/environment.yml").read_text())["dependencies"]
    found = [Requirement(re.sub(r"(?<![=<>!~])=(?!=)", "==", line)) for line in named]
    return {one.name: one for one in found}


def test_python_is_pinned_to_one_that_we_support():
    ((pin,),) = [environment()["python"].specifier]
    assert pin.operator == "==" and pin.version == "3.12"
    assert f"Programming Language :: Python :: {pin.version}" in PROJECT["classifiers"]
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{pin.version}.0")


def test_versions_agree_with_the_project():
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras.values() for line in extra)]
    ours = [Requirement(line) for line in lines]
    ours = {one.name: one.specifier for one in ours if not one.extras}
    for name, wanted in environment().items():
        if name in ours:
            assert wanted.specifier == ours[name], name
    (asked,) = re.findall(r'pip install .*"\.\[([\w,]+)\]"', POST_BUILD)
    assert "widgets" in asked.split(",") and set(asked.split(",")) <= set(extras)


def test_scripts_can_be_run_and_need_no_slurm():
    for script in ("start", "postBuild"):
        assert os.access(ROOT / "binder" / script, os.X_OK)
    needed = {*environment(), *re.findall(r"\w+", POST_BUILD)}
    assert not needed & {"slurm", "slurmctld", "dask-jobqueue"}


def test_it_opens_on_the_first_notebook():
    config = json.loads((ROOT / "binder/jupyter_config.json").read_text())
    assert {one["default_url"] for one in config.values()} == {f"/lab/tree/{NOTEBOOK}"}
    assert (ROOT / NOTEBOOK).exists() and f"lab/tree/{NOTEBOOK}" in (ROOT / "README.md").read_text()
    assert "ControlRoom(" in (ROOT / NOTEBOOK).read_text()


@pytest.mark.slow
def test_the_dashboard_goes_through_the_proxy():
    assert "jupyter-server-proxy" in environment()
    show = "import dask; print(dask.config.get('distributed.dashboard.link'))"
    command = ["bash", str(ROOT / "binder/start"), sys.executable, "-c", f"import distributed; {show}"]
    there = {"JUPYTERHUB_SERVICE_PREFIX": "/user/me/"}
    for extra, expected in (
        (there, "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"),
        ({}, "{scheme}://{host}"),
    ):
        clean = {key: value for key, value in os.environ.items() if key not in there}
        done = subprocess.run(command, env={**clean, **extra}, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(expected)


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The repository where Binder has it, and the environment, made by pip of what conda is told there."""
    folder = tmp_path_factory.mktemp("binder")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, folder / "home", ignore=ignored)
    run(sys.executable, "-m", "venv", folder / "env")
    wanted = [str(one) for name, one in environment().items() if name not in ("python", "pip")]
    run(folder / "env/bin/python", "-m", "pip", "install", "-q", *wanted)
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTHON", "DASK"))}
    mine |= {"PATH": f"{folder}/env/bin:{os.environ['PATH']}", "HOME": str(folder), "JUPYTER_TOKEN": "secret"}
    mine.pop("PIP_NO_CACHE_DIR", None)
    run("bash", "binder/postBuild", cwd=folder / "home", env=mine)
    return folder, mine


def memory(processes):
    """Bytes of these and all below them; what they share counts once where the system says so."""
    found = 0
    for one in processes:
        for process in [one, *one.children(recursive=True)]:
            with suppress(psutil.Error):
                info = process.memory_full_info()
                found += getattr(info, "pss", 0) or info.rss
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)  # the whole of JupyterLab is installed
def test_the_first_notebook_runs_there_and_fits(built):
    folder, mine = built
    home = folder / "home"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    options = [f"--port={port}", "--no-browser", "--allow-root", "--ServerApp.answer_yes=True"]
    program = (
        "import nbformat, nbclient; notebook = nbformat.read('1-first-steps.ipynb', as_version=4);"
        "nbclient.NotebookClient(notebook, timeout=300, kernel_name='python3').execute()"
    )
    with (folder / "lab.log").open("w") as log:
        lab = psutil.Popen(
            ["bash", "binder/start", "jupyter", "lab", *options], cwd=home, env=mine, stdout=log, stderr=log
        )
        try:
            limit = time.monotonic() + 120
            address = ""
            while not address:
                assert time.monotonic() < limit and lab.poll() is None, (folder / "lab.log").read_text()
                with suppress(URLError, ConnectionError):
                    address = urlopen(f"http://127.0.0.1:{port}/?token=secret", timeout=60).geturl()
                time.sleep(0.1)
            assert address.partition("?")[0].endswith(f"/lab/tree/{NOTEBOOK}")

            alone = most = memory([lab])
            ran = psutil.Popen(
                [folder / "env/bin/python", "-c", program], cwd=home / "notebooks/tutorials", env=mine,
                stdout=log, stderr=log,
            )  # fmt: skip
            while ran.poll() is None:
                most = max(most, memory([lab, ran]))
                time.sleep(0.2)
            assert ran.returncode == 0, (folder / "lab.log").read_text()[-3000:]
        finally:
            lab.terminate()
            lab.wait(30)
    print(f"JupyterLab {alone / 1e6:.0f} MB; with the notebook {most / 1e6:.0f} MB at most")
    assert alone < most < MOST
