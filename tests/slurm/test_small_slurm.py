"""The rig itself: it starts, obeys, breaks where told, and leaves nothing behind."""

import socket
import tempfile
from pathlib import Path

import pytest
import small_slurm
from small_slurm import NODES, SmallSlurm

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SLEEP = ("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exec sleep 600")


def test_four_nodes_run_one_command(slurm):
    assert slurm.node_states() == dict.fromkeys(NODES, "idle")
    assert sorted(slurm.run("srun", "-N4", "printenv", "SLURMD_NODENAME").split()) == list(NODES)


def test_a_job_is_cancelled_while_it_runs_and_while_it_waits(slurm):
    running = slurm.run(*SLEEP, "-N4", "--exclusive").strip()
    slurm.wait_until(lambda: slurm.jobs().get(running) == "RUNNING", "a running job")
    waiting = slurm.run(*SLEEP, "-N1").strip()
    assert slurm.jobs() == {running: "RUNNING", waiting: "PENDING"}
    slurm.run("scancel", waiting)
    assert slurm.ask(waiting, "JobState") == "CANCELLED"
    slurm.run("scancel", running)
    slurm.wait_until_empty()
    assert slurm.ask(running, "JobState") == "CANCELLED"


def test_jobs_of_a_node_that_is_set_down_wait_again(slurm):
    job = slurm.run(*SLEEP, "-w", "n2").strip()
    slurm.wait_until(lambda: slurm.jobs(nodelist="n2").get(job) == "RUNNING", "a job on n2")
    slurm.set_down("n2")
    assert slurm.node_states()["n2"].startswith("down")
    slurm.wait_until(lambda: slurm.jobs().get(job) == "PENDING", "the job in the queue again")
    slurm.set_up("n2")
    slurm.wait_until(lambda: slurm.node_states()["n2"] in ("idle", "mixed"), "n2 in service")


def test_a_crash_kills_what_runs_on_the_node_and_nothing_else(slurm):
    here, there = (slurm.run(*SLEEP, "-w", node).strip() for node in ("n1", "n3"))
    slurm.wait_until(lambda: slurm.jobs() == {here: "RUNNING", there: "RUNNING"}, "two running jobs")
    for job in (here, there):
        slurm.wait_until(lambda job=job: slurm.processes(f"SLURM_JOB_ID={job}"), "a process of the job")
    slurm.crash("n1")
    assert not slurm.processes("SLURMD_NODENAME=n1")
    assert slurm.processes(f"SLURM_JOB_ID={there}")
    slurm.set_down("n1")
    slurm.boot("n1")
    slurm.set_up("n1")
    slurm.wait_until(lambda: slurm.node_states()["n1"].startswith(("idle", "mixed")), "n1 in service")


def test_a_second_one_runs_beside_the_first_and_leaves_nothing(slurm):
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory:
        with pytest.raises(ZeroDivisionError), SmallSlurm(Path(directory)) as second:
            job = second.run(*SLEEP, "-N4", "--exclusive").strip()
            second.wait_until(lambda: second.jobs().get(job) == "RUNNING", "a running job")
            assert not slurm.jobs()
            assert second.processes("SLURMD_NODENAME=n1")
            raise ZeroDivisionError  # a test fails
        assert not second.processes(f"SLURM_CONF={second.conf}")
        ports = [word[5:] for word in second.conf.read_text().split() if word.startswith("Port=")]
        assert len(ports) == len(NODES)
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", int(port)))
    assert slurm.node_states() == dict.fromkeys(NODES, "idle")


def test_a_daemon_that_does_not_start_is_reported_and_none_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(small_slurm, "_CONF", small_slurm._CONF + "Nonsense=1\n")
    broken = SmallSlurm(tmp_path)
    with pytest.raises(RuntimeError, match="Nonsense"), broken:
        raise AssertionError("should not start")
    assert not broken.processes(f"SLURM_CONF={broken.conf}")


def test_without_the_packages_tests_are_skipped_but_fail_where_ci_is_set(tmp_path, monkeypatch):
    monkeypatch.setattr(small_slurm, "_PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no munged.*apt-get install munge"):
        small_slurm.require_slurm()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no munged.*apt-get install munge"):
        small_slurm.require_slurm()
