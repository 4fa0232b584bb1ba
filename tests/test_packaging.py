"""The wheel carries all that is needed, and the top of the repository only what belongs there."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

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


def wanted_files():
    """What a wheel has to hold, as paths in it."""
    found = {"dask_hpc/py.typed", "dask_hpc/hpc.yaml", "dask_hpc/hpc-schema.yaml"}
    found |= {"dask_hpc/view/kit/package.json", "dask_hpc/view/kit/shared/style.css"}
    found |= {f"dask_hpc/policies/{path.name}" for path in ready_made().values()}
    found |= {f"dask_hpc/notebooks/{path.name}" for path in (ROOT / "notebooks/tutorials").glob("*.ipynb")}
    for folder, package in ((ROOT, "dask_hpc"), (ROOT / "widgets", "dask_hpc_widgets")):
        for suffix in ("py", "yaml", "js", "css", "html"):
            found |= {str(path.relative_to(folder)) for path in (folder / package).rglob(f"*.{suffix}")}
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, the files of the sdist, and the wheel that is made of the sdist."""
    folder = tmp_path_factory.mktemp("built")
    copy, again = folder / "tree", folder / "again"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignored)  # building must not leave anything in the tree
    tools = folder / "tools"  # once, instead of a new environment for each
    run(sys.executable, "-m", "pip", "install", "-q", "--target", tools, "hatchling")
    env = os.environ | {"PYTHONPATH": str(tools)}
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w"]
    run(*build, folder, copy, env=env)
    (wheel,) = folder.glob("dask_hpc-*.whl")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=copy, env=env)
    (sdist,) = folder.glob("dask_hpc-*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    run(*build, again, sdist, env=env)
    return wheel, packed, next(again.glob("*.whl"))


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel(built, tmp_path):
    wheel, _, again = built
    assert wheel.name == again.name == f"dask_hpc-{dask_hpc.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    with zipfile.ZipFile(again) as archive:
        assert set(archive.namelist()) == names
    (metadata,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in names} == {"dask_hpc", "dask_hpc_widgets", metadata}
    assert wanted_files() <= names
    assert any(name.endswith("/LICENSE") for name in names)

    # what was unpacked works on its own: -I keeps the checkout out, so the policies are the wheel's
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import dask_hpc, dask_hpc.policy as p;"
        "print(dask_hpc.__file__, *p.ready_made())"
    )
    site = str(tmp_path / "site")
    found, *policies = run(sys.executable, "-I", "-c", program, site).split()
    assert found.startswith(site)
    assert policies == list(ready_made())


@pytest.mark.slow
def test_the_sdist(built):
    _, packed, _ = built
    mine = {name for name in tracked_files() if not name.startswith(".")}
    assert mine - packed == set()
    assert not any(name.startswith(".ci/") for name in packed)
