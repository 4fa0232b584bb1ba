"""Finding out about this machine, and about programs that are missing, fail or hang."""

import json
import os
import sys
from time import monotonic

import pytest

from dask_hpc.doctor import probe
from dask_hpc.doctor.facts import CommandAnswer
from dask_hpc.doctor.gather import _clock, file_system, gather, run


def test_what_a_program_says_or_why_it_does_not():
    assert run(["echo", "hello"], 5.0) == CommandAnswer("hello\n")
    assert run(["no-such-program"], 5.0).problem == "no-such-program: No such file or directory"
    assert run(["sh", "-c", "echo x; echo why >&2; exit 3"], 5.0) == CommandAnswer(problem="sh: why")
    assert run(["false"], 5.0) == CommandAnswer(problem="false: exit code 1")
    assert run(["sh", "-c", "echo 1.2 >&2"], 5.0) == CommandAnswer("1.2\n"), "some tell their version there"


def test_what_hangs_is_not_waited_for(tmp_path):
    mark = tmp_path / "mark"
    began = monotonic()
    found = run(["sh", "-c", f"sleep 60; touch {mark}"], 0.2)
    assert found == CommandAnswer(problem="sh did not answer in 0.2 s") and monotonic() - began < 10


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs of these names, in front of everything."""

    def put(**texts):
        for name, text in texts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return put


def test_a_site_where_one_program_answers_and_another_hangs(programs):
    programs(sinfo='[ "$1" = --version ] && echo "slurm 99"', scontrol="sleep 60", sacctmgr="exit 1")
    programs(condor_version="echo '$CondorVersion: 23.0'")
    facts = gather(0.5)
    assert facts.systems["Slurm"].text == "slurm 99\n" and "HTCondor" in facts.systems
    assert facts.slurm_config.problem == "scontrol did not answer in 0.5 s"
    assert facts.own_limits.problem == "sacctmgr: exit code 1"
    assert facts.partitions.problem.startswith("sinfo: exit code")


def test_this_machine(programs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = gather(20.0)
    assert facts.packages["dask"] and facts.requirements["distributed"].startswith(">=")
    assert "3.11" in facts.pythons and facts.python.startswith("3.")
    here = next(one for one in facts.directories if one.name == "working directory")
    assert (here.path, here.lock, here.rename, here.problem) == (str(tmp_path), "", "", "")
    assert not list(tmp_path.glob(".dask-hpc*"))
    assert any(one.name == "lo" for one in facts.interfaces)
    assert facts.power is not None and facts.files is not None


def test_a_directory_where_nothing_can_be_written(tmp_path):
    assert probe.directory(str(tmp_path)) == {"lock": "", "rename": "", "problem": ""}
    assert probe.directory(str(tmp_path / "missing"))["problem"] == "No such file or directory"


def test_a_file_system_that_gives_a_lock_to_everybody(tmp_path, monkeypatch):
    monkeypatch.setattr(probe.fcntl, "flock", lambda *how: None)
    assert probe.directory(str(tmp_path))["lock"] == "two have the same one"


def test_a_node_asks_what_time_it_is(tmp_path):
    mark = tmp_path / "mark"
    mark.touch()
    with _clock("127.0.0.1") as port:
        command = [
            sys.executable,
            "-I",
            probe.__file__,
            "node",
            "127.0.0.1",
            str(port),
            str(mark),
            "/nowhere",
        ]
        found = json.loads(run(command, 20.0).text)
    assert abs(found["ahead"]) <= found["within"] + 0.01 and found["within"] < 1
    assert found["seen"] == [True, False] and found["problem"] == ""
    assert probe.node("127.0.0.1", str(port))["problem"] == "Connection refused"


MOUNTS = """24 27 0:6 / /home rw - nfs4 server:/home rw
22 27 0:21 / / rw,relatime - ext4 /dev/sda rw
25 24 0:23 / /home/a\\040b rw,relatime shared:1 - lustre x rw
"""


@pytest.mark.parametrize(
    "path, kind",
    [("/", "ext4"), ("/homes", "ext4"), ("/home", "nfs4"), ("/home/me", "nfs4"), ("/home/a b/c", "lustre")],
)
def test_the_file_system_of_a_path(path, kind):
    assert file_system(path, MOUNTS) == kind
    assert file_system(path, "") == ""
