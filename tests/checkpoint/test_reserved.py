"""A program in a reservation: its clock of work, what it notes, and when it commits and ends."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from dask_hpc import Checkpoint
from dask_hpc.checkpoint.client.loop import Due
from dask_hpc.checkpoint.client.reserved import (
    VARIABLE,
    OwnReservation,
    Progress,
    Reserved,
    read_progress,
)
from dask_hpc.model.errors import InputError


def told(tmp_path, number=1, began=1000.0, **more):
    return OwnReservation(str(tmp_path / "progress.json"), number, began, **more)


def reserved(tmp_path, number=1, began=1000.0, warn=pytest.fail):
    return Reserved(told(tmp_path, number, began), warn)


def noted(tmp_path):
    return read_progress(tmp_path / "progress.json")


def test_the_clock_of_work_goes_on_from_what_was_committed(tmp_path):
    first = reserved(tmp_path)
    first.opened(has_store=True)
    first.loop_begins("u", 0, now=1020.0)  # what comes before the loop is work, too
    first.commits("u", 5, 1.5, now=1070.0)
    first.stored("u", 5, 3.0)
    assert noted(tmp_path).saved == 70.0 and noted(tmp_path).work_at(1100.0) == 100.0
    second = reserved(tmp_path, 2, began=2000.0)
    assert second.progress.saved == 70.0 and not second.progress.has_store
    second.opened(has_store=True)
    second.loop_begins("u", 5, now=2030.0)
    found = noted(tmp_path)
    assert (found.number, found.restore, found.work_at(2040.0)) == (2, 30.0, 80.0)
    second.commits("u", 7, 2.5, now=2050.0)
    second.stored("u", 7)
    found = noted(tmp_path)
    assert (found.saved, found.commit, found.slowest) == (90.0, None, 2.5)


def test_a_restore_of_an_older_version_and_of_one_between(tmp_path):
    first = reserved(tmp_path)
    for step in (2, 4):
        first.commits("u", step, 1.0, now=1000.0 + 10 * step)
    second = reserved(tmp_path, 2, began=2000.0)
    second.loop_begins("u", 2, now=2005.0)
    assert noted(tmp_path).work_at(2005.0) == 20.0
    third = reserved(tmp_path, 3, began=3000.0)
    third.loop_begins("u", 6, now=3005.0)  # nobody noted it: in proportion
    assert noted(tmp_path).work_at(3005.0) == 60.0 and not noted(tmp_path).is_partial


def test_two_loops_of_a_program(tmp_path):
    first = reserved(tmp_path)
    first.loop_begins("a", 0, now=1000.0)
    first.commits("a", 9, 1.0, now=1090.0)
    first.loop_begins("b", 0, now=1100.0)
    first.commits("b", 3, 1.0, now=1130.0)
    second = reserved(tmp_path, 2, began=2000.0)
    second.loop_begins("a", 9, now=2010.0)
    second.loop_begins("b", 3, now=2020.0)
    assert noted(tmp_path).work_at(2020.0) == 130.0 and noted(tmp_path).restore == 20.0


def test_what_is_saved_and_the_clock_do_not_go_back(tmp_path):
    first = reserved(tmp_path)
    first.commits("a", 9, 1.0, now=1090.0)
    first.commits("b", 3, 1.0, now=1130.0)
    first.stored("b", 3, 5.0)
    first.stored("a", 9, 2.0)
    assert (noted(tmp_path).saved, noted(tmp_path).commit) == (130.0, 5.0)
    second = reserved(tmp_path, 2, began=2000.0)
    second.loop_begins("b", 3, now=2010.0)
    second.loop_begins("a", 9, now=2020.0)
    assert noted(tmp_path).work_at(2020.0) == 140.0


def test_a_version_that_nobody_has_measured(tmp_path):
    reserved(tmp_path).loop_begins("u", 5, now=1010.0)
    assert noted(tmp_path).is_partial
    assert reserved(tmp_path, 2, 2000.0).progress.is_partial


def test_the_same_job_again(tmp_path):
    first = reserved(tmp_path)
    first.opened(has_store=True)
    first.commits_at_end(is_safe=False)
    first.commits_at_end(is_safe=True)
    first.commits_at_end(is_safe=False)
    assert noted(tmp_path).final == "safe"
    assert Reserved(told(tmp_path), pytest.fail).progress == first.progress  # another loop of the program
    again = Reserved(told(tmp_path, began=900.0, restarts=1), pytest.fail)  # on a node whose clock is late
    assert (again.progress.final, again.progress.has_store, again.progress.since) == ("", False, 900.0)


def test_what_is_told_and_what_makes_no_sense(tmp_path):
    one = told(tmp_path, commits=True, seconds=3.0)
    assert OwnReservation.read(one.as_text()) == one
    for text in ("", "{}", "[1]", json.dumps({"file": "x", "number": "1", "began": 1}), one.as_text()[:-1]):
        with pytest.raises(InputError, match=VARIABLE):
            OwnReservation.read(text)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "dask-hpc progress 1", "points": 1}'])
def test_damaged_progress_is_told_and_the_program_goes_on(tmp_path, text):
    (tmp_path / "progress.json").write_text(text)
    with pytest.raises(InputError, match=r"progress\.json: damaged"):
        noted(tmp_path)
    words = []
    found = Reserved(told(tmp_path), words.append)
    found.opened(has_store=True)
    assert len(words) == 1 and noted(tmp_path).has_store


def test_a_folder_that_is_gone_is_told(tmp_path):
    words = []
    Reserved(told(tmp_path / "none"), words.append).opened(has_store=True)
    assert len(words) == 1 and "cannot be noted" in words[0]


def test_no_reservation_and_one_that_makes_no_sense(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Reserved.of_environment(pytest.fail) is None
    words = []
    monkeypatch.setenv(VARIABLE, "x")
    assert Reserved.of_environment(words.append) is None and len(words) == 1


def test_when_the_last_chance_is(tmp_path):
    due = Due(1000)
    due.reserve(told(tmp_path, commits=True, seconds=10.0, care=3.0))
    due.iterated(2.0)
    assert due.is_last_chance(37.9) and not due.is_last_chance(38.1)
    assert due.is_over(11.9) and not due.is_over(12.1)
    due.reserve(told(tmp_path, commits=False))
    assert not due.is_last_chance(0.0) and not due.is_over(0.0)


def run(store, count=4, every=1, **more):
    with Checkpoint("run", str(store), every=every, **more) as ck:
        total = ck.add("total", 0)
        for i in ck.loop(range(count)):
            total += i
            ck.update(total=total)
    return total


def test_a_program_without_a_cluster_notes_its_progress(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, told(tmp_path, began=1.0).as_text())
    assert run(tmp_path / "store") == 6
    found = noted(tmp_path)
    assert found.has_store and found.saved > 0 and found.commit > 0 and not found.is_partial
    assert [step for step, _ in found.points["run"]] == [1, 2, 3, 4]
    monkeypatch.setenv(VARIABLE, told(tmp_path, 2, began=1.0).as_text())
    assert run(tmp_path / "store", 5) == 10
    assert noted(tmp_path).number == 2 and noted(tmp_path).restore > 0


def test_nothing_is_noted_where_there_is_no_reservation(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    run(tmp_path / "store")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store"]


PROGRAM = """
import sys, time
import dask_hpc
with dask_hpc.Checkpoint("run", sys.argv[1], every=1000, walltime=float(sys.argv[2])) as ck:
    ck.add("n", 0)
    for i in ck.loop(range(40)):
        time.sleep(0.05)
        ck.update(n=i)
"""


@pytest.mark.parametrize("commits", [True, False])
def test_it_ends_by_itself_when_nothing_more_would_be_kept(tmp_path, commits):
    reservation = told(tmp_path, commits=commits, seconds=0.2)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), "1.2"],
        env={**os.environ, VARIABLE: reservation.as_text()},
    )
    found = noted(tmp_path)
    if commits:
        assert done.returncode == -signal.SIGTERM and found.final == "safe"
        assert 5 <= found.points["run"][-1][0] < 25
    else:
        assert done.returncode == 0 and [step for step, _ in found.points["run"]] == [40]


SLOW = """
import sys, time
import dask_hpc
with dask_hpc.Checkpoint("run", sys.argv[1], every=1000, walltime=None) as ck:
    ck.add("n", 0)
    for i in ck.loop(range(60)):
        print("here", flush=True)
        time.sleep(0.5)
        ck.update(n=i)
"""


def test_it_may_be_told_to_end_by_two(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "store")],
        env={**os.environ, VARIABLE: told(tmp_path, commits=True, seconds=0.2).as_text()},
        stdout=subprocess.PIPE,
    ) as program:
        program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        program.send_signal(signal.SIGTERM)
    assert program.returncode == -signal.SIGTERM and noted(tmp_path).final == "safe"


def test_a_warning_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "x")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(tmp_path / "store") == 6
    assert [VARIABLE in str(one.message) for one in caught] == [True]


def test_a_plain_progress_reads_back():
    assert Progress().work_at(5.0) == 0.0 and Progress(saved=3.0).work_at(5.0) == 3.0
    assert Progress(points={"u": ((0, 0.0),)}).work_of("u", 3) is None
