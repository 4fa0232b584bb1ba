"""How long units of a cluster are asked for, by a plan."""

import asyncio
import getpass
import os
import subprocess
import sys
from dataclasses import replace

import dask
import pytest
from distributed import LocalCluster

import dask_hpc
from dask_hpc.cluster.client.malleable import Malleable
from dask_hpc.history.runs import PastRun, RunHistory
from dask_hpc.model.errors import InputError
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.plan import Request
from dask_hpc.planning.run_times import why_this_long
from dask_hpc.reservations.units import ScriptRun, UnitWalltimes, unit_walltimes

USER = getpass.getuser()
SPEC = {"w-1": {"cls": object, "options": {"cores": 2, "walltime": "08:00:00"}, "group": ["-0", "-1"]}}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def plan():
    return plan_reservation("empirical 1h 2h 4h", 60.0, 60.0, "cloud")


def asked(times):
    (one,) = times.specified(SPEC).values()
    return one["options"]["walltime"]


def test_the_next_length_when_half_of_a_request_is_over(plan):
    lengths = [one.length for one in plan.requests]
    assert len(lengths) == 3 and plan.requests[0].work_until == 3600
    clock = Clock()
    times = UnitWalltimes(plan, "three runs", clock)
    assert asked(times) == "01:01:00"
    clock.now = 9000.0  # in the queue
    assert asked(times) == "01:01:00"
    times.works(1)
    clock.now += 1700.0
    times.works(1)
    assert asked(times) == "01:01:00"
    clock.now += 200.0
    assert asked(times) == show(lengths[1])
    clock.now += 3600.0
    assert asked(times) == show(lengths[2])
    clock.now += 1e5
    assert asked(times) == show(clock.now - 9000.0)  # as long again
    assert times.news[-1][1].endswith("it takes longer than all that was thought of")


def show(seconds):
    return f"{-(-seconds // 60) // 60:02.0f}:{-(-seconds // 60) % 60:02.0f}:00"


def test_units_are_specified_with_it_and_it_is_told_once(plan):
    times = UnitWalltimes(plan, "3 runs of a.py", Clock())
    found = times.specified(SPEC)["w-1"]
    assert found == {**SPEC["w-1"], "options": {"cores": 2, "walltime": "01:01:00"}}
    assert SPEC["w-1"]["options"]["walltime"] == "08:00:00"
    times.specified(SPEC)
    (told,) = times.news
    assert told[0] == "walltime"
    assert told[1].startswith("new batch jobs ask for p33 of 3 runs of a.py: 1 h 1 min; then ")
    assert asked(UnitWalltimes(plan_reservation("empirical 30h", cost="cloud"))) == "30:00:00"


def test_a_share_is_of_the_work_and_not_of_what_is_asked_for():
    plan = plan_reservation("empirical 600s 620s 640s", 60.0, 60.0, "cloud")
    plan = replace(plan, requests=(Request(660.0, 600.0, True), Request(1300.0, 640.0)))
    assert why_this_long(plan) == "p33 of the empirical law: 11 min; then 22 min"
    assert why_this_long(plan, "3 runs", 1) == "more than all of 3 runs: 22 min"


@pytest.fixture
def history(tmp_path):
    history = RunHistory(tmp_path / "runs.json")
    runs = [PastRun(nodes=1, seconds=3600.0, when=n) for n in range(8)]
    history.add({f"{USER}/fmri": runs, "script.py": runs[:5]})
    history.write()
    with dask.config.set({"hpc.history": str(tmp_path / "runs.json")}):
        yield history


def test_past_runs_of_a_name_and_of_the_script(history, monkeypatch):
    times = unit_walltimes("fmri")
    assert asked(times) == "01:06:00"
    assert times.news[0][1] == "new batch jobs ask for more than all of 8 runs of fmri: 1 h 6 min"
    monkeypatch.setattr(sys, "argv", ["/home/me/script.py", "1"])
    times = unit_walltimes("auto")
    assert asked(times) == "01:06:00" and " of 5 runs of script.py: 1 h " in times.news[0][1]


def test_the_first_run_of_a_script_asks_for_what_the_cluster_says(history, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["new.py"])
    times = unit_walltimes("auto")
    assert times.specified(SPEC) == SPEC
    times.specified(SPEC)
    assert [words for _, words in times.news] == [
        "no run of new.py that was done is known: batch jobs ask for what the cluster says"
    ]


def test_a_run_is_remembered_when_its_script_ends_well(history, monkeypatch):
    clock = Clock()
    run = ScriptRun("new.py", history, clock)
    run.remember()  # nobody has worked
    times = UnitWalltimes(None, "new.py", clock, run)
    clock.now = 500.0  # in the queue
    for nodes in (2, 4, 4):
        times.works(nodes)
        clock.now += 100.0
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    run.remember()
    assert f"{USER}/new.py" not in RunHistory(history.path).read()
    monkeypatch.setattr(sys, "last_value", None)
    run.remember()
    (found,) = RunHistory(history.path).read()[f"{USER}/new.py"]
    assert (found.seconds, found.nodes, found.ended) == (200.0, 3.0, "done")


def test_a_cluster_tells_it_how_many_nodes_work(history, monkeypatch):
    monkeypatch.setattr("dask_hpc.cluster.client.malleable._LOOK", 0.01)
    run = ScriptRun("new.py", history)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=False) as cluster:
        manager = dask_hpc.manage(cluster)
        Malleable(cluster, UnitWalltimes(None, "new.py", run=run)).until_closed(manager)
        for _ in range(2):
            cluster.sync(asyncio.sleep, 0.05)
        manager.close()
    run.remember()
    (found,) = RunHistory(history.path).read()[f"{USER}/new.py"]
    assert found.nodes == 1 and 0 < found.seconds < 60


def test_a_process_remembers_its_run_once(history, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "import time\nfrom dask_hpc.reservations.units import unit_walltimes\n"
        "for times in (unit_walltimes('auto'), unit_walltimes('auto')):\n"
        "    times.works(1)\n    time.sleep(0.01)\n"
    )
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "DASK_HPC__HISTORY": str(history.path), "PYTHONPATH": path}
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    (found,) = RunHistory(history.path).read()[f"{USER}/mine.py"]
    assert 0.01 <= found.seconds < 60


@pytest.mark.parametrize("name", ["", "-c", "/usr/lib/ipykernel_launcher.py"])
def test_where_no_script_runs(history, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(InputError, match="as in a notebook"):
        unit_walltimes("auto")


@pytest.mark.parametrize("wrong", ["none", "", " ", 5, None, ["fmri"]])
def test_what_makes_no_sense(history, wrong):
    with pytest.raises(InputError, match="reservation"):
        unit_walltimes(wrong)


def test_only_clusters_of_slurm(history):
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", processes=False) as cluster,
        pytest.raises(InputError, match="reservation: cluster: found 'LocalCluster'"),
    ):
        dask_hpc.malleable(cluster, reservation="fmri")
