"""The wheel carries all that is needed, and the top of the repository only what belongs there."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
import yaml

import dask_hpc
from dask_hpc.policy import ready_made

ROOT = Path(__file__).parents[1]
TOP = {
    "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml",
    "binder", "dask_hpc", "notebooks", "policies", "tests", "widgets",
}  # fmt: skip


def tracked_files():
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_top_of_the_repository():
    top = {name.partition("/")[0] for name in tracked_files()}
    assert {name for name in top if not name.startswith(".")} <= TOP


def test_no_large_or_generated_files():
    for name in tracked_files():
        path = ROOT / name
        if path.exists():
            assert path.stat().st_size < 1_000_000, name
        assert not re.search(r"__pycache__|\.pyc$|\.egg-info|\.ipynb_checkpoints", name)


def test_version_and_entry_points():
    assert re.fullmatch(r"\d+\.\d+\.\d+", dask_hpc.__version__)
    assert version("dask-hpc") == dask_hpc.__version__
    (hpc,) = entry_points(group="dask_cli", name="hpc")
    assert hpc.value == "dask_hpc.cli:cli"
    (script,) = entry_points(group="console_scripts", name="dask-hpc")
    assert script.value == "dask_hpc.cli:main"


def test_public_names_are_there():
    for name in dask_hpc.__all__:
        assert getattr(dask_hpc, name) is not None
        assert name in dir(dask_hpc)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dask_hpc.nonsense  # noqa: B018


@pytest.mark.slow
def test_the_wheel(tmp_path):
    copy = tmp_path / "tree"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignored)  # building must not leave anything in the tree
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(copy)]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("dask_hpc-*.whl")
    assert wheel.name == f"dask_hpc-{dask_hpc.__version__}-py3-none-any.whl"

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    (metadata,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in names} == {"dask_hpc", "dask_hpc_widgets", metadata}
    wanted = {
        "dask_hpc/py.typed",
        "dask_hpc/hpc.yaml",
        "dask_hpc/hpc-schema.yaml",
        "dask_hpc_widgets/__init__.py",
    }
    wanted |= {f"dask_hpc/policies/{path.name}" for path in ready_made().values()}
    for folder, package in ((ROOT, "dask_hpc"), (ROOT / "widgets", "dask_hpc_widgets")):
        for suffix in ("py", "yaml", "js", "css", "html"):
            wanted |= {str(path.relative_to(folder)) for path in (folder / package).rglob(f"*.{suffix}")}
    assert wanted <= names
    assert any(name.endswith("/LICENSE") for name in names)

    # what was unpacked works on its own: -I keeps the checkout out, so the policies are the wheel's
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import dask_hpc, dask_hpc.policy as p;"
        "print(dask_hpc.__file__, *p.ready_made())"
    )
    site = str(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, site], capture_output=True, text=True, check=True
    )
    found, *policies = done.stdout.split()
    assert found.startswith(site)
    assert policies == list(ready_made())


def test_binder():
    environment = yaml.safe_load((ROOT / "binder/environment.yml").read_text())
    assert "python=3.12" in environment["dependencies"]
    for script in ("start", "postBuild"):
        assert os.access(ROOT / "binder" / script, os.X_OK)
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
