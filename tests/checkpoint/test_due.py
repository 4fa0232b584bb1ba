"""When an iterating program commits, and what it knows of its end."""

import os
import signal
import threading
import time
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

import dask_hpc
from dask_hpc.checkpoint.client.loop import Due, Ending, end_of_job
from dask_hpc.cluster.worker import farewell
from dask_hpc.model.errors import InputError
from dask_hpc.strategies.checkpoint.when import LevelCost, when


def test_iterations_are_counted_from_the_last_commit():
    due = Due(3)
    due.begin(4, 0.0)
    assert [step for step in range(4, 11) if due.is_due(step, 0.0)] == [7, 8, 9, 10]
    due.committed(7, 0.0, 0.1)
    assert not due.is_due(9, 1e6) and due.is_due(10, 0.0)
    assert due.next(0.0) == "at 10"


def test_seconds_are_counted_from_the_last_commit():
    due = Due("1 min")
    due.begin(0, 100.0)
    assert not due.is_due(5, 159.0) and due.is_due(5, 160.0)
    assert not due.is_due(0, 1000.0), "nothing new"
    assert due.next(130.0) == "in 30.0 s"


def test_auto_commits_once_to_learn_what_it_costs():
    due = Due("auto", rate=1e-3)
    due.begin(0, 0.0)
    assert due.is_due(1, 0.0)
    due.committed(1, 0.0, 2.0)
    assert due.seconds == when("auto", [LevelCost("store", 2.0, 1e-3)], 1).every["store"] and due.why
    assert not due.is_due(2, due.seconds - 1) and due.is_due(2, due.seconds)


def test_the_last_chance_is_when_neither_an_iteration_nor_its_commit_would_fit():
    due = Due()
    due.iterated(4.0)
    due.took(2.0)
    assert not due.is_last_chance(None) and not due.is_last_chance(12.0) and due.is_last_chance(10.9)


def test_walltime_is_asked_for(monkeypatch):
    for name in ("SLURM_JOB_END_TIME", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert end_of_job(None) is None and end_of_job("auto") is None
    assert abs(end_of_job("2 min") - time.time() - 120) < 5
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    said = "JobId=7 TimeLimit=00:10:00 EndTime=2030-01-02T03:04:05 NodeList=n1"
    monkeypatch.setattr(farewell.subprocess, "run", lambda *args, **rest: SimpleNamespace(stdout=said))
    assert end_of_job("auto") == time.mktime((2030, 1, 2, 3, 4, 5, 0, 0, -1))
    said = "EndTime=Unknown"
    assert end_of_job("auto") is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1234")
    assert end_of_job("auto") == 1234.0
    with pytest.raises(InputError, match="walltime"):
        end_of_job(-3)


@pytest.fixture
def told():
    """How often this process got a SIGTERM that nobody kept from it."""
    found = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


def test_sigterm_is_noted_and_happens_at_the_end(told):
    with Ending(None) as ending:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ending.is_told and not told
    assert told == [signal.SIGTERM]
    with Ending(None) as ending:
        assert not ending.is_told
    assert len(told) == 1


def test_a_second_sigterm_is_not_waited_with(told):
    with Ending(None):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert told == [signal.SIGTERM]


def test_signals_are_left_alone_in_threads(told):
    def in_thread():
        with Ending(None) as ending:
            os.kill(os.getpid(), signal.SIGTERM)
            seen.append(ending.is_told)

    seen = []
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert seen == [False] and told == [signal.SIGTERM]


def test_a_program_that_is_told_to_end_commits_first(told, tmp_path):
    with dask_hpc.Checkpoint("run", str(tmp_path), every=1000) as ck:
        u = ck.add("u", np.zeros(2))
        for i in ck.loop(range(10)):
            if told:  # a program that does as it is told
                break
            if i == 6:
                os.kill(os.getpid(), signal.SIGTERM)
            u = u + i
            ck.update(u=u)
    assert told and i == 7
    with dask_hpc.Checkpoint("run", str(tmp_path), every=1000) as ck:
        u = ck.add("u", np.zeros(2))
        assert next(iter(ck.loop(range(10)))) == 7 and list(u) == [21, 21]


def test_a_program_near_its_walltime_commits_at_each_iteration(tmp_path):
    with dask_hpc.Checkpoint("run", str(tmp_path), every=1000, walltime="1 s") as ck:
        u = ck.add("u", 0)
        for i in ck.loop(range(10)):
            if i == 4:
                break
            u += i
            ck.update(u=u)
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        assert ck.step == 4 and ck.add("u", 0) == 6


def test_an_error_in_the_loop_leaves_no_handler_behind(told, tmp_path):
    ours = signal.getsignal(signal.SIGTERM)
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        u = ck.add("u", 0)
        loop = iter(ck.loop(range(3)))
        assert next(loop) == u == 0
        assert signal.getsignal(signal.SIGTERM) != ours
        # what goes wrong here does not reach the loop, which stays where it is as long as somebody has it
    assert signal.getsignal(signal.SIGTERM) == ours and not told


def test_a_loop_with_a_length_knows_what_is_left():
    due = Due(4)
    due.begin(0, 0.0)
    due.goes_over(range(50))
    assert due.commits_left(0) == 13 and due.seconds_left(0) == inf, "nobody knows how long one takes"
    due.iterated(2.0)
    assert (due.commits_left(38), due.seconds_left(38)) == (3, 24.0)
    assert (due.commits_left(50), due.seconds_left(50)) == (0, 0)
    due.iterated(4.0)
    assert due.seconds_left(40) == pytest.approx(26.0)
    due.iterated(2.6, walltime=15.6)
    assert due.seconds_left(0) == pytest.approx(130.0) and due.commits_left(0) == 2
    due.goes_over(zip("ab", "cd", strict=True))
    due.iterated(2.6)
    assert due.commits_left(0) == due.seconds_left(0) == inf


def test_commits_by_the_clock_come_between_iterations():
    due = Due("10 s")
    due.goes_over([0] * 50)
    due.begin(0, 0.0)
    assert due.commits_left(48) == 2, "nobody knows how long an iteration takes"
    due.iterated(4.0)
    assert [due.commits_left(step) for step in (0, 47, 48, 49, 50)] == [17, 1, 1, 1, 0]
    due.iterated(1e9)
    assert due.commits_left(48) == 2


def test_a_short_program_without_a_cluster_commits_at_its_end_alone():
    due = Due("auto", rate=1e-3)
    due.goes_over(range(20))
    due.begin(0, 0.0)
    due.iterated(1.0)
    due.committed(1, 0.0, 2.0)
    assert due.seconds == inf and "no more to the store" in due.why and due.next(0.0) == "at the end"
    assert due.commits_left(1) == 1 and not due.is_due(2, 1e6)
    for _ in range(40):
        due.iterated(60.0)
    assert due.is_due(2, 0.0), "far more is left than it seemed"
    due.committed(2, 0.0, 2.0)
    assert due.seconds < inf


def test_a_program_plans_alone_only_if_nobody_is_about_to_say_more():
    due = Due("auto")
    due.begin(0, 0.0)
    due.plan_alone()
    assert not due.planned  # it knows nothing of costs
    due.committed(1, 1.0, 2.0, is_to_hear=True)
    assert not due.planned
    due.plan_alone()
    assert due.planned and due.why
    due.plan({"store": 7.0}, "the cluster says so")
    due.plan_alone()
    due.committed(2, 2.0, 2.0)
    assert due.planned == {"store": 7.0}
