"""A result as a course: what a browser draws is what the result says."""

import json

import numpy as np
import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform, Workload
from dask_hpc.simulator.built_in.ours import synthetic_day


@pytest.fixture(scope="module")
def result():
    return simulate("builtin:esp?malleable=0.5", policy="elastic", allotments=True)


def held_at(changes, time):
    """Who holds which node then, read off the changes as a browser does."""
    holders = {}
    for at, job, nodes, _ in changes:
        if at <= time:
            for first, last in nodes:
                holders.update(dict.fromkeys(range(first, last + 1), job))
    return {node: job for node, job in holders.items() if job is not None}


def test_changes_are_the_allotments(result):
    course = result.course()
    names = course["nodes"]["names"]
    times = sorted({span.start for span in result.held} | {span.end for span in result.held})
    for time in times[:: max(1, len(times) // 60)]:
        expected = {
            node: span.job for span in result.held if span.start <= time < span.end for node in span.nodes
        }
        assert {names[n]: job for n, job in held_at(course["changes"], time).items()} == expected


def test_it_is_plain_data_with_every_job(result):
    course = result.course()
    assert json.loads(json.dumps(course, allow_nan=False)) == course
    assert [job["id"] for job in course["jobs"]] == list(result.jobs["id"].astype(str))
    assert course["head"]["time"] == np.nanmax(result.jobs["end"])
    assert {row[2] for row in course["story"]} <= {"start", "resize"}


def test_without_allotments_there_is_no_map_but_the_jobs_are_there():
    course = simulate(synthetic_day(jobs=5, nodes=8, seed=1), nodes=8).course()
    assert course["changes"] == [] and len(course["jobs"]) == 5


def test_power_is_sampled_where_it_was_followed():
    policy = Policy.load("power-corridor").with_(**{"power.upper": "30 kW"})
    course = simulate(synthetic_day(jobs=20, nodes=16, seed=2), policy=policy, nodes=16).course()
    assert course["samples"] and all(sample[3] == 30_000 for sample in course["samples"])


def test_a_machine_of_which_little_is_used_has_all_its_nodes():
    jobs = [
        Arrival(Job(id="one", nodes=3, walltime=50.0), 40.0),
        Arrival(Job(id="long", nodes=2, walltime=50.0), 90.0),
    ]
    platform = Platform(1000, idle_power=50.0, active_power=200.0)
    course = simulate(Workload("little", jobs), platform=platform, policy="fcfs", allotments=True).course()
    assert course["head"]["nodes"] == len(course["nodes"]["names"]) == 1000
    assert course["presence"] == [[0.0, "joined", [[0, 999]]]] and course["head"]["epoch"] is None
    assert [(job["state"], job["node_seconds"], job["energy"]) for job in course["jobs"]] == [
        ("done", 120.0, 24_000.0), ("killed", 100.0, 20_000.0),
    ]  # fmt: skip
    assert course["marked"] == course["alerts"] == []
