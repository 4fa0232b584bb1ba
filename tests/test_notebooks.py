"""Every notebook runs from top to bottom, with small parameters, and has no error in its stored output."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").rglob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jupyter_client and its parts
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_notebook_runs(path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("DASK_HPC_BENCHMARK", "small")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=280, kernel_name="python3").execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_output_is_there_and_has_no_error(path):
    nbformat = pytest.importorskip("nbformat")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in cells), "run the notebook before committing it"
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
