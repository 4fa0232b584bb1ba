"""Every notebook runs from top to bottom in a fresh kernel in the time it states, shows what it promises, and
is stored clean. With DASK_HPC_BUSY=1 tutorials run as readers run them, beside two busy loops, in twice that
time."""

import ast
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest
from promises import PROMISES, plain, with_checks

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.rglob("*.ipynb"))
TUTORIALS = [path for path in NOTEBOOKS if path.parent.name == "tutorials"]
BENCHMARKS = [path for path in NOTEBOOKS if path.parent.name == "benchmarks"]
#: it runs in an environment of its own, within its time, in test_installed.py, and in a page in tests/browser
ELSEWHERE = FOLDER / "tutorials/1-first-steps.ipynb"
#: whether two loops keep the machine busy meanwhile
BUSY = bool(os.environ.get("DASK_HPC_BUSY"))
RUN = TUTORIALS if BUSY else [path for path in NOTEBOOKS if path != ELSEWHERE]
#: seconds at the small scale for those that say nothing else in their metadata
USUAL = 60


@cache
def read(path):
    """Who changes it takes a copy."""
    import nbformat  # takes two seconds, of each process that collects tests

    return nbformat.read(path, as_version=4)


def code(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert len(BENCHMARKS) >= 11
    assert ELSEWHERE in TUTORIALS
    assert [path.stem.partition("-")[0] for path in TUTORIALS] == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "6b",
        "7",
        "8",
    ]


@pytest.fixture
def neighbours():
    """Two programs that compute all the time, if there are to be any."""
    with ExitStack() as ends:
        for _ in range(2 * BUSY):
            loop = ends.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            ends.callback(loop.kill)
        yield


@pytest.mark.timed
@pytest.mark.skipif(find_spec("papermill") is None, reason="needs papermill")
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of those who run notebooks
def test_a_notebook_runs_within_its_time(path, tmp_path, forked_workers, neighbours, slowness):
    import nbformat
    import papermill

    stated = read(path).metadata.get("dask_hpc", {}).get("seconds", USUAL)
    has_scale = any("parameters" in cell.metadata.get("tags", ()) for cell in code(path))
    source = path
    if path in TUTORIALS:
        source = tmp_path / f"checked-{path.name}"
        nbformat.write(with_checks(deepcopy(read(path)), path.stem, nbformat.v4.new_code_cell), source)
    began = monotonic()
    ran = papermill.execute_notebook(
        source,
        tmp_path / path.name,
        parameters={"scale": "small"} if has_scale and not BUSY else {},
        kernel_name="python3",
        cwd=path.parent if path in BENCHMARKS else tmp_path,
        progress_bar=False,
    )
    took = monotonic() - began
    print(f"{path.stem}: {took:.0f} s of {stated} s")
    assert took <= stated * (2 if BUSY else 1) * slowness()
    if path in BENCHMARKS:
        last = [out for cell in ran.cells for out in cell.get("outputs", ())][-6:]
        kinds = {kind for out in last for kind in out.get("data", {})}
        assert kinds & {"image/png", "image/svg+xml"}, "it ends in a plot"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_says_what_is_checked_of_it(path):
    cells = read(path).cells
    said = plain(" ".join(cell.source for cell in cells if cell.cell_type == "markdown"))
    promises = PROMISES[path.stem]
    assert [one.words for one in promises if plain(one.words) not in said] == []
    assert {one.after for one in promises} <= {cell.id for cell in cells}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_clean(path):
    notebook = read(path)
    assert [cell.id for cell in code(path) if cell.outputs or cell.execution_count is not None] == []
    assert notebook.metadata.kernelspec.name == "python3"
    assert re.match(r"# \S", notebook.cells[0].source), "it begins with a heading"


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_has_one_parameter_for_its_scale(path):
    (parameters,) = [cell for cell in code(path) if "parameters" in cell.metadata.get("tags", ())]
    assert parameters.source.startswith('scale = "full"')


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_states_its_time(path):
    assert 0 < read(path).metadata.dask_hpc.seconds <= 90


#: what ``pip install ".[widgets]"`` brings, which is all that README names for them
BROUGHT = {
    "IPython", "dask", "dask_hpc", "dask_hpc_widgets", "distributed", "fsspec", "numpy", "pandas", "xarray",
}  # fmt: skip

#: modules that a tutorial writes itself
WRITTEN = {"slow_shared"}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_needs_no_more_than_readme_names(path):
    for cell in code(path):
        body = [] if cell.source.startswith("%%") else ast.parse(cell.source).body
        for one in body:  # not what stands behind a condition
            names = [one.module] if isinstance(one, ast.ImportFrom) else []
            names += [alias.name for alias in one.names] if isinstance(one, ast.Import) else []
            assert {name.partition(".")[0] for name in names} <= BROUGHT | WRITTEN | sys.stdlib_module_names


def test_the_tutorial_about_slurm_goes_on_without_dask_jobqueue(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    names = {}
    sources = {cell.id: cell.source for cell in code(FOLDER / "tutorials/6-on-slurm.ipynb")}
    for one in ("on-slurm-01", "on-slurm-05"):
        exec(sources[one], names)
    assert "pip install 'dask-hpc[slurm]'" in capsys.readouterr().out and not names["IS_SLURM"]
