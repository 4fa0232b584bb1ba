"""A Binder of this repository: what it installs is what we say, and it opens on notebook 1. That this runs
there and fits is in test_installed.py."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
NOTEBOOK = "notebooks/tutorials/1-first-steps.ipynb"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
POST_BUILD = (ROOT / "binder/postBuild").read_text()


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
