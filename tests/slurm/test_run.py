"""``dask-hpc run --cluster slurm``: an unmodified script on nodes that Slurm gives and gets back."""

import subprocess
import sys

import pytest
import yaml
from dask_on_slurm import job_settings

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SCRIPT = """\
import sys
from pathlib import Path
from distributed import Client, get_worker

def effect(number, log):
    with open(log, "a") as file:
        file.write(f"{number} {get_worker().name}\\n")
    return number

if __name__ == "__main__":
    client = Client()
    futures = client.map(effect, range(40), log=sys.argv[1], pure=False)
    print(sum(client.gather(futures)))
    sys.exit(7)
"""


def test_an_unmodified_script_runs_on_batch_jobs(slurm, tmp_path):
    configuration = {"jobqueue": {"slurm": job_settings(slurm)}, "hpc": {"node": "worker"}}
    (tmp_path / "jobqueue.yaml").write_text(yaml.safe_dump(configuration))
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "dask_hpc", "run", script, log, "--cluster", "slurm", "--nodes", "1:3"],
        env=slurm.environment | {"DASK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    print(done.stderr)
    assert done.stdout == f"{sum(range(40))}\n"
    assert done.returncode == 7
    assert "results lost  0" in done.stderr
    rows = [row.split() for row in log.read_text().splitlines()]
    assert sorted(int(number) for number, _ in rows) == list(range(40))
    assert all(name.startswith("SLURMCluster-") for _, name in rows)
    slurm.wait_until_empty()
    assert len(slurm.jobs(name="dask-worker", states="all")) == 3
