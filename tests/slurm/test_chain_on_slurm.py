"""``dask-hpc submit`` on a real Slurm: whatever becomes of its batch jobs, the program gets to its end."""

import getpass
import json
import os
import sys
from itertools import pairwise

import dask
import pytest
from click.testing import CliRunner

from dask_hpc.cli import cli
from dask_hpc.history.runs import RunHistory
from dask_hpc.reservations.state import ChainFile

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

FIRST = 3  # seconds that the first job may work
PACE = 0.4
N = int(3.5 * FIRST / PACE)

PROGRAM = """
import os, sys, time
from pathlib import Path
from distributed import Client, LocalCluster, wait
import dask.array as da
import dask_hpc

place = Path(sys.argv[1])
job = os.environ["SLURM_JOB_ID"]

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        dask_hpc.Checkpoint("run", str(place / "store"), every=1, levels=["store"]) as ck,
    ):
        u = ck.add("u", da.zeros(4, chunks=2).persist())
        (place / f"ready-{job}").touch()
        while not (place / f"go-{job}").exists():
            time.sleep(0.02)
        for i in ck.loop(range(int(sys.argv[2]))):
            time.sleep(float(sys.argv[3]))
            u = (u + i).persist()
            wait(u)
            ck.update(u=u)
            with open(place / f"did-{job}", "a") as log:
                log.write(f"{i}\\n")
        (place / "result").write_text(str(float(u.sum().compute())))
"""

PLAIN = """
import os, sys, time
from pathlib import Path
place, job = Path(sys.argv[1]), os.environ["SLURM_JOB_ID"]
(place / f"ready-{job}").touch()
while not (place / f"go-{job}").exists():
    time.sleep(0.02)
sys.exit(int(sys.argv[2]))
"""


class ChainUser:
    """A person who submits a chain called ``fmri``, and looks at it."""

    def __init__(self, slurm, place):
        self.slurm = slurm
        self.place = place

    def run(self, *words):
        result = CliRunner().invoke(cli, ["submit", *words])
        assert result.exit_code == 0, result.output + result.stderr
        return result.stdout

    def submit(self, program, *arguments):
        (self.place / "program.py").write_text(program)
        law = ("--law", "empirical 30s 100s 200s", "--cost", "cloud", "--checkpoint", "1s", "--restart", "1s")
        sbatch = ("--sbatch", "--cpus-per-task=2", "--sbatch", "--mem=900")
        script = str(self.place / "program.py")
        self.run("--name", "fmri", *law, *sbatch, script, "--", str(self.place), *map(str, arguments))
        return self.status()["steps"][0]["job"]

    def status(self):
        return json.loads(self.run("--status", "fmri", "--json"))

    def until_ready(self, job):
        """Its program has begun, and somebody is to go on after it."""
        what = f"{self.place}/ready-{job}"
        self.slurm.wait_until((self.place / f"ready-{job}").exists, f"{what}; {self.said()}", 60)
        self.slurm.wait_until(lambda: len(self.slurm.jobs()) == 2, "the next job", 60)

    def until_over(self, job):
        self.slurm.wait_until(lambda: job not in self.slurm.jobs(), f"the end of {job}", 60)

    def go(self, job):
        (self.place / f"go-{job}").touch()

    def did(self, job):
        log = self.place / f"did-{job}"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def until_did(self, job, count):
        what = f"{count} iterations"
        self.slurm.wait_until(lambda: len(self.did(job)) >= count, what, 60)

    def said(self):
        return "".join(path.read_text() for path in sorted(self.place.glob("fmri-*.out")))


@pytest.fixture
def user(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("DASK_HPC__HISTORY", str(tmp_path / "runs.json"))
    with dask.config.set({"hpc.history": str(tmp_path / "runs.json")}):
        yield ChainUser(slurm, tmp_path)


def steps(told):
    """What became of each job, as the user sees it."""
    return [step["slurm"] or step["fate"] for step in told["steps"]]


def test_a_chain_gets_to_its_end_whatever_happens(slurm, user):
    first = user.submit(PROGRAM, N, PACE)
    assert user.status()["state"] in ("waiting", "running")

    # 1. Its walltime ends: it knows, and commits before that.
    user.until_ready(first)
    told = user.status()
    assert (told["state"], steps(told), told["saved"]) == ("running", ["RUNNING", "PENDING"], 0)
    second = told["steps"][1]["job"]
    assert slurm.ask(second, "Dependency").startswith(f"afternotok:{first}")
    assert slurm.ask(first, "Requeue") == "0"
    slurm.run("scontrol", "update", f"JobId={first}", f"EndTime=now+{FIRST}")
    user.go(first)
    user.until_over(first)

    # 2. It goes on where it was. Its node is lost.
    user.until_ready(second)
    told = user.status()
    assert steps(told) == ["cut", "RUNNING", "PENDING"] and told["saved"] > 0
    assert told["steps"][0]["code"] == 143 and told["resumable"]
    third = told["steps"][2]["job"]
    user.go(second)
    user.until_did(second, 3)
    node = slurm.ask(second, "NodeList")
    slurm.crash(node)
    slurm.set_down(node)

    # 3. The control daemon goes away as the third begins; then it is told that its time is nearly over.
    slurm.wait_until(lambda: slurm.jobs().get(third) == "RUNNING", f"the third job; {user.said()}", 60)
    slurm.restart_controller()
    user.until_ready(third)
    told = user.status()
    assert (told["state"], steps(told)) == ("running", ["cut", "lost", "RUNNING", "PENDING"])
    fourth = told["steps"][3]["job"]
    user.go(third)
    user.until_did(third, 3)
    slurm.run("scancel", "--batch", "--signal=TERM", third)
    user.until_over(third)

    # 4. The last one gets to the end.
    user.until_ready(fourth)
    user.go(fourth)
    slurm.wait_until_empty(60)
    told = user.status()
    assert (told["state"], steps(told)) == ("done", ["cut", "lost", "cut", "done", "dropped"]), user.said()

    parts = [user.did(job) for job in (first, second, third, fourth)]
    assert sorted({i for part in parts for i in part}) == list(range(N))
    for before, after in pairwise(parts):
        assert after[0] >= before[-1], "more than one iteration was done again"
    assert float((user.place / "result").read_text()) == 4 * sum(range(N))
    (run,) = RunHistory(user.place / "runs.json").read()[f"{getpass.getuser()}/fmri"]
    assert run.ended == "done" and N * PACE < run.seconds < 3 * N * PACE + 20
    assert run.commit is not None and run.restore is not None


def test_a_program_without_checkpoints_is_noticed(slurm, user):
    first = user.submit(PLAIN, 0)
    user.until_ready(first)
    slurm.run("scancel", "--batch", "--signal=TERM", first)
    user.until_over(first)
    told = user.status()
    second = told["steps"][1]["job"]
    assert told["resumable"] is False and any("opened no checkpoint" in words for _, words in told["story"])
    user.until_ready(second)
    assert user.status()["steps"][1]["commits"] is False
    user.go(second)
    slurm.wait_until_empty(60)
    assert user.status()["state"] == "done"


def test_a_program_that_fails_stops_the_chain_at_once(slurm, user):
    first = user.submit(PLAIN, 3)
    user.until_ready(first)
    user.go(first)
    slurm.wait_until_empty(60)
    told = user.status()
    assert (told["state"], steps(told)) == ("failed", ["failed", "dropped"])
    assert (
        slurm.ask(first, "ExitCode") == "3:0"
        and slurm.ask(told["steps"][1]["job"], "JobState") == "CANCELLED"
    )
    assert not (user.place / "runs.json").exists()


def test_somebody_has_had_enough(slurm, user):
    first = user.submit(PLAIN, 0)
    user.until_ready(first)
    slurm.run("scancel", first)  # a job of it, by hand
    slurm.wait_until_empty(60)
    assert user.status()["state"] == "cancelled"
    user.run("--resume", "fmri")
    told = user.status()
    assert steps(told)[:2] == ["cancelled", "cancelled"] and told["state"] in ("waiting", "running")
    user.until_ready(told["steps"][2]["job"])
    assert user.run("--cancel", "fmri") == "fmri: 2 jobs cancelled\n"
    slurm.wait_until_empty(60)
    assert ChainFile.of_name("fmri", None).read().state == "cancelled"
