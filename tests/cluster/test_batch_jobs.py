"""What the batch system says of units, and that not knowing is not death."""

import asyncio
import os
import sys
from math import inf

import pytest
from distributed.utils_test import gen_test
from tornado.process import Subprocess

from dask_hpc.cluster.client.batch_jobs import UNKNOWN, BatchJobs, JobState, of_process, read_squeue


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7|PENDING|0:00|5:00|N/A|Resources", JobState("queued", "pending: Resources")),
        ("7|PENDING|0:00|UNLIMITED|N/A|None", JobState("queued", "pending: None")),
        ("7|CONFIGURING|0:03|5:00|N/A|None", JobState("queued", "configuring: None")),
        ("7|RUNNING|1:05|3:55|1235|None", JobState("running", "", 65.0, 235.0)),
        ("7|RUNNING|1-02:00:00|UNLIMITED|NONE|None", JobState("running", "", 93600.0, inf)),
        ("7|RUNNING|0:05|INVALID|NONE|None", JobState("running", "", 5.0, inf)),
        ("7|RUNNING|1:05|3:55|1010|None", JobState("running", "", 65.0, 10.0)),  # it is preempted
        ("7|CANCELLED|0:00|5:00|1000|None", JobState("gone", "Slurm says CANCELLED")),
        ("7|NODE_FAIL|0:09|4:51|1000|NodeDown", JobState("gone", "Slurm says NODE_FAIL (NodeDown)")),
        ("7|TIMEOUT|5:01|0:00|1000|TimeLimit", JobState("gone", "Slurm says TIMEOUT (TimeLimit)")),
        ("7|COMPLETING|0:09|4:51|1000|None", JobState("gone", "Slurm says COMPLETING")),
        (
            "7|PENDING|0:00|5:00|N/A|launch failed requeued held",
            JobState("gone", "Slurm says PENDING (launch failed requeued held)"),
        ),
    ],
)
def test_an_answer_of_squeue(line, expected):
    assert read_squeue(f"\n{line}\nnonsense\n", 1000.0) == {"7": expected}


class SlurmUnit:
    submit_command = "/opt/slurm/bin/sbatch"

    def __init__(self, job_id):
        self.job_id = job_id


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Put a program of that name in front of everything; it counts its calls."""

    def put(program):
        path = tmp_path / "squeue"
        path.write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'calls')!r}, 'a').write('x')\n{program}")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    put.calls = lambda: len((tmp_path / "calls").read_text())
    return put


UNITS = {"a": SlurmUnit("7"), "b": SlurmUnit("8")}


@gen_test()
async def test_all_units_in_one_call_and_not_too_often(squeue):
    squeue("print('7|RUNNING|1:00|2:00|NONE|None')")
    jobs = BatchJobs(poll=3600.0)
    for _ in range(3):
        found = await jobs.look(UNITS, {})
        assert found["a"].state == "running"
        assert found["a"].running_for >= 60 and found["a"].left <= 120
        assert found["b"] == JobState("gone", "Slurm does not know it any more", None, found["b"].left)
    assert squeue.calls() == 1
    await jobs.look({**UNITS, "c": SlurmUnit("9")}, {})
    assert squeue.calls() == 2, "a new unit is asked for at once"


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import time; time.sleep(600)", "print('hello')"])
@gen_test()
async def test_a_batch_system_that_does_not_answer_kills_nobody(squeue, monkeypatch, program):
    monkeypatch.setattr("dask_hpc.cluster.client.batch_jobs._TIMEOUT", 0.5)
    squeue(program)
    found = await BatchJobs().look(UNITS, {})
    assert {one.state for one in found.values()} == {"unknown"}


@gen_test()
async def test_without_a_batch_system_nothing_is_known(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = await BatchJobs().look(UNITS, {})
    assert found == {"a": UNKNOWN, "b": UNKNOWN}


class LocalUnit:
    job_id = "1"

    def __init__(self, *command):
        self.process = Subprocess(command)


@gen_test()
async def test_a_process_of_this_machine_is_asked_itself():
    ended = LocalUnit(sys.executable, "-c", "raise SystemExit(3)")
    lives = LocalUnit(sys.executable, "-c", "import time; time.sleep(60)")
    await asyncio.to_thread(ended.process.proc.wait)
    found = await BatchJobs().look({"a": ended, "b": lives}, {"b": 4.0})
    assert found == {
        "a": JobState("gone", "its process ended with code 3"),
        "b": JobState("running", "", 4.0),
    }
    lives.process.proc.kill()
    await asyncio.to_thread(lives.process.proc.wait)
    assert of_process(lives, 4.0) == JobState("gone", "its process was killed by signal 9")
