"""How long units of a cluster are asked for, by a plan."""

import getpass
import sys

import dask
import pytest
from distributed import LocalCluster

import dask_hpc
from dask_hpc.history.runs import PastRun, RunHistory
from dask_hpc.model.errors import InputError
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.reservations.units import UnitWalltimes, unit_walltimes

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
    assert times.seconds() == lengths[0]
    clock.now = 9000.0  # in the queue
    assert times.seconds() == lengths[0]
    times.works()
    clock.now += 1700.0
    times.works()
    assert times.seconds() == lengths[0]
    clock.now += 200.0
    assert times.seconds() == lengths[1]
    clock.now += 3600.0
    assert times.seconds() == lengths[2]
    clock.now += 1e5
    assert times.seconds() == clock.now - 9000.0  # as long again


def test_units_are_specified_with_it_and_it_is_told_once(plan):
    times = UnitWalltimes(plan, "three runs", Clock())
    found = times.specified(SPEC)["w-1"]
    assert found == {**SPEC["w-1"], "options": {"cores": 2, "walltime": "01:01:00"}}
    assert SPEC["w-1"]["options"]["walltime"] == "08:00:00"
    times.specified(SPEC)
    assert times.news == [("walltime", "new batch jobs ask for 1 h 1 min: three runs")]
    assert asked(UnitWalltimes(plan_reservation("empirical 30h", cost="cloud"), "")) == "30:00:00"


@pytest.fixture
def history(tmp_path):
    history = RunHistory(tmp_path / "runs.json")
    runs = [PastRun(nodes=1, seconds=3600.0 + 60 * n, when=n) for n in range(8)]
    history.add({f"{getpass.getuser()}/fmri": runs, "script.py": runs[:5]})
    history.write()
    with dask.config.set({"hpc.history": str(tmp_path / "runs.json")}):
        yield history


def test_past_runs_of_a_name_and_of_the_script(history, monkeypatch):
    times = unit_walltimes("fmri")
    assert times.seconds() > 3600
    times.specified(SPEC)
    assert times.news[0][1].endswith(": 8 runs of fmri")
    monkeypatch.setattr(sys, "argv", ["/home/me/script.py", "1"])
    assert unit_walltimes("auto").seconds() > 3600


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
