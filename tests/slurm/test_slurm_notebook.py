"""The tutorial on Slurm takes the Slurm there is, and leaves nothing in its queue."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from dask_on_slurm import job_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(find_spec("papermill") is None, reason="needs papermill"),
    pytest.mark.filterwarnings("ignore"),  # of those who run notebooks
]
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "tutorials" / "6-on-slurm.ipynb"
#: what the notebook says itself
ITS_OWN = ("cores", "processes", "memory", "walltime")


def test_the_notebook_runs_on_a_real_slurm(slurm, tmp_path, monkeypatch):
    import papermill

    site = {name: value for name, value in job_settings(slurm).items() if name not in ITS_OWN}
    configuration = tmp_path / "jobqueue.yaml"
    configuration.write_text(yaml.safe_dump({"jobqueue": {"slurm": site}}))
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))
    ran = papermill.execute_notebook(
        NOTEBOOK, tmp_path / NOTEBOOK.name, kernel_name="python3", cwd=tmp_path, progress_bar=False
    )
    printed = "".join(out.get("text", "") for cell in ran.cells for out in cell.get("outputs", ()))
    print(printed)
    assert printed.startswith("Slurm is here")
    assert "dask-worker RUNNING" in printed
    assert "4 workers are there" in printed
    slurm.wait_until_empty()
