"""``dask-hpc run --cluster slurm``: a script gets workers, and no batch job is left however it ends."""

import signal
import subprocess
import sys

import pytest
import yaml
from dask_on_slurm import job_settings

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SCRIPT = """
import sys, time
from distributed import Client, get_worker

def where(number):
    time.sleep(0.2)
    return get_worker().address

if __name__ == "__main__":
    with Client() as client:
        client.wait_for_workers(2, timeout=60)
        print(len(set(client.gather(client.map(where, range(20))))), flush=True)
        if sys.argv[1:] == ["wait"]:
            print("ready", flush=True)
            time.sleep(300)
        if sys.argv[1:] == ["fail"]:
            raise SystemExit(5)
"""


@pytest.fixture
def command(slurm, tmp_path, monkeypatch):
    """The command of a user whose Dask configuration says what a batch job is."""
    configured = job_settings(slurm)
    (tmp_path / "jobqueue.yaml").write_text(yaml.safe_dump({"jobqueue": {"slurm": configured}}))
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))
    script = str(tmp_path / "script.py")
    return [sys.executable, "-m", "dask_hpc", "run", script, "--cluster", "slurm", "--nodes", "2"]


@pytest.mark.parametrize("argument, code", [("fine", 0), ("fail", 5)])
def test_a_script_gets_its_nodes_and_gives_them_back(slurm, command, argument, code):
    done = subprocess.run([*command, argument], capture_output=True, text=True, timeout=180)
    assert done.returncode == code, done.stderr
    assert done.stdout.split() == ["2"]
    assert "2 nodes of Slurm" in done.stderr and "results lost  0" in done.stderr
    slurm.wait_until_empty()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_batch_job(slurm, command, number):
    with subprocess.Popen(
        [*command, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["2\n", "ready\n"], process.stderr.read()
        assert sorted(slurm.jobs().values()) == ["RUNNING"] * 2
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    slurm.wait_until_empty()


def test_a_signal_while_the_batch_jobs_are_on_their_way(slurm, command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        slurm.wait_until(slurm.jobs, "a batch job")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    slurm.wait_until_empty()


def test_a_configuration_without_what_is_needed(slurm, command, tmp_path):
    (tmp_path / "jobqueue.yaml").write_text("jobqueue: {slurm: {queue: debug}}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dask-hpc: --cluster slurm: ") and "jobqueue.slurm" in line and "cores" in line
