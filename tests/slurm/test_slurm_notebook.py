"""The tutorials on Slurm take the Slurm there is, and leave nothing in its queue."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from dask_on_slurm import job_settings

from dask_hpc.cli import cli

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.skipif(find_spec("papermill") is None, reason="needs papermill"),
    pytest.mark.filterwarnings("ignore"),  # of those who run notebooks
]
TUTORIALS = Path(__file__).parents[2] / "notebooks" / "tutorials"
#: what the notebooks say themselves
ITS_OWN = ("cores", "processes", "memory", "walltime")


@pytest.fixture
def printed(slurm, tmp_path, monkeypatch):
    """What a notebook prints, run on this site."""
    import papermill

    site = {name: value for name, value in job_settings(slurm).items() if name not in ITS_OWN}
    configuration = {"jobqueue": {"slurm": site}, "hpc": {"history": str(tmp_path / "runs.json")}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(configuration))
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def run(name):
        ran = papermill.execute_notebook(
            TUTORIALS / name, tmp_path / name, kernel_name="python3", cwd=tmp_path, progress_bar=False
        )
        found = "".join(out.get("text", "") for cell in ran.cells for out in cell.get("outputs", ()))
        print(found)
        return found

    return run


def test_the_notebook_runs_on_a_real_slurm(slurm, printed):
    text = printed("6-on-slurm.ipynb")
    assert text.startswith("Slurm is here")
    assert "dask-worker RUNNING" in text
    assert "4 workers are there" in text
    slurm.wait_until_empty()


def test_asking_well_on_a_real_slurm(slurm, printed):
    """Three nodes are busy for an hour, then all four are wanted: a hole of one node."""
    for nodes, minutes in ((3, 60), (4, 60)):
        what = ("-N", nodes, "--exclusive", "-t", minutes, "-o", "/dev/null", "--wrap", "sleep 600")
        slurm.run("sbatch", "-J", "others", *what)
    slurm.wait_until(lambda: sorted(slurm.jobs().values()) == ["PENDING", "RUNNING"], "a busy machine")
    text = printed("6b-ask-well.ipynb")
    assert "storm: job " in text and "starts now" in text and "sum: 4950" in text
    slurm.wait_until(lambda: set(slurm.jobs()) == set(slurm.jobs(name="others")), "only others' jobs")
    told = CliRunner().invoke(cli, ["submit", "--status", "storm", "--json"]).stdout
    assert json.loads(told)["state"] == "done", told
