"""Metrics, job table and trace of a run worked out by hand."""

import pickle

import pytest
import xarray as xr

from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, simulate
from dask_hpc.simulator.result import METRICS


@pytest.fixture
def result():
    jobs = [("a", 0, 2, 100, 120), ("b", 10, 4, 50, 60), ("c", 20, 1, 5, 100), ("d", 30, 1, 500, 90)]
    arrivals = [
        Arrival(Job(id=i, nodes=n, walltime=float(w), submitted=float(s)), float(r)) for i, s, n, r, w in jobs
    ]
    return simulate(arrivals, nodes=4, policy="easy-backfill")


def test_schedule(result):
    """b waits for a (ends 100); c ends before b's reservation at 120, d's walltime ends at it."""
    starts = dict(zip(result.jobs["id"], result.jobs["start"], strict=True))
    assert starts == {"a": 0.0, "b": 120.0, "c": 20.0, "d": 30.0}
    assert list(result.jobs["state"]) == ["completed", "completed", "completed", "killed"]


def test_metrics(result):
    m = result.metrics
    assert list(m) == list(METRICS)
    assert m["makespan"] == 170.0
    assert m["utilisation"] == pytest.approx((200 + 200 + 5 + 90) / (4 * 170))
    assert (m["mean_wait"], m["median_wait"], m["max_wait"]) == (27.5, 0.0, 110.0)
    assert m["mean_response"] == (100 + 160 + 5 + 90) / 4
    # c took 5 s, counted as 10: response 5 over 10 is below 1
    assert m["mean_bounded_slowdown"] == pytest.approx((1 + 160 / 50 + 1 + 1) / 4)
    assert (
        m["mean_slowdown_as_asked"] == m["mean_bounded_slowdown"]
    )  # d would take 500 s, but is killed after 90
    assert m["throughput"] == pytest.approx(4 / 170)
    assert (m["completed"], m["killed"], m["rejected"]) == (3, 1, 0)


def test_trace_steps(result):
    trace = result.trace
    busy = dict(zip(trace["time"].values, trace["busy_nodes"].values, strict=True))
    waiting = dict(zip(trace["time"].values, trace["waiting_jobs"].values, strict=True))
    assert busy == {0: 2, 10: 2, 20: 3, 25: 2, 30: 3, 100: 1, 120: 4, 170: 0}
    assert waiting == {0: 0, 10: 1, 20: 1, 25: 1, 30: 1, 100: 1, 120: 0, 170: 0}


def test_trace_survives_a_file(result, tmp_path):
    result.trace.to_netcdf(tmp_path / "t.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "t.nc") as read:
        xr.testing.assert_identical(read.load(), result.trace)


def test_result_can_be_pickled(result):
    twin = pickle.loads(pickle.dumps(result))
    assert repr(twin.metrics) == repr(result.metrics) and list(twin.story) == list(result.story)


def test_story_has_a_reason_for_every_start(result):
    decisions = [(start.job, start.reason) for plan in result.story for start in plan.starts]
    assert decisions == [
        ("a", "first in the queue, 4 nodes idle"),
        ("c", "overtakes job b: ends before that can start in 1.7 min"),
        ("d", "overtakes job b: ends before that can start in 90 s"),
        ("b", "first in the queue, 4 nodes idle"),
    ]


def test_slowdown_as_asked_is_over_the_same_time_whatever_a_job_held():
    """m takes 100 s on the 4 nodes that it asks for. After 30 s of waiting it runs on 8, in 50 s: no
    slowdown, though it waited for more than half of its run. Beside another job it runs on 2, in 200 s."""
    m = Job(id="m", nodes=4, walltime=500.0, kind="malleable", min_nodes=2, max_nodes=8)
    first, other = Job(id="first", nodes=8, walltime=30.0), Job(id="other", nodes=2, walltime=200.0)
    fast = simulate([Arrival(first, 30.0), Arrival(m, 100.0)], nodes=8, policy="egs-pwma").metrics
    assert fast["mean_response"] == (30 + 80) / 2
    assert fast["mean_bounded_slowdown"] == pytest.approx((1 + 80 / 50) / 2)
    assert fast["mean_slowdown_as_asked"] == 1.0
    slow = simulate([Arrival(m, 100.0), Arrival(other, 200.0)], nodes=4, policy="egs-pwma").metrics
    assert slow["mean_response"] == 200.0 and slow["mean_bounded_slowdown"] == 1.0
    assert slow["mean_slowdown_as_asked"] == pytest.approx((2 + 1) / 2)
    killed = Arrival(Job(id="killed", nodes=8, walltime=60.0), 500.0)  # which never takes 500 s
    late = simulate([Arrival(first, 30.0), killed], nodes=8, policy="fcfs").metrics
    assert late["mean_slowdown_as_asked"] == late["mean_bounded_slowdown"] == (1 + 90 / 60) / 2
