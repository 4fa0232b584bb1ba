"""Simulated jobs that go on without a node that failed, and those that keep their state before they stop."""

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.platform import Failures
from dask_hpc.simulator.workload import DeclaredCheckpoint


def job(name, nodes, runtime, submitted=0.0, **more):
    extra = {one: more.pop(one) for one in ("checkpoint",) if one in more}
    return Arrival(Job(id=name, nodes=nodes, submitted=submitted, **more), runtime, **extra)


def run(jobs, nodes, *trace, policy="fcfs", checkpoint=0.0, survive=True, **more):
    failures = Failures(trace=trace, repair=1e6, checkpoint=checkpoint, survive=survive)
    return simulate(jobs, policy=policy, platform=Platform(nodes, failures=failures, **more))


def ends(result):
    frame = result.jobs
    return dict(zip(frame["id"], frame["end"], strict=True))


def test_it_goes_on_with_fewer_nodes_and_does_again_what_the_lost_one_did():
    # half of it is done, an eighth of all by the node that fails: 0.625 of 400 node-seconds on three
    assert ends(run([job("a", 4, 100.0)], 4, (50.0, 0))) == {"a": pytest.approx(50 + 250 / 3)}
    # commits every 20 s: only what it did from 40 s on is lost
    assert ends(run([job("a", 4, 100.0)], 4, (50.0, 0), checkpoint=20.0)) == {
        "a": pytest.approx(50 + (0.5 + 0.025) * 400 / 3)
    }


def test_an_idle_node_takes_its_place_at_once():
    result = run([job("a", 4, 100.0)], 5, (50.0, 0))
    assert ends(result) == {"a": pytest.approx(50 + 62.5)}
    assert [one.reason for plan in result.story for one in plan.resizes] == [
        "takes 1 idle node for as many that failed"
    ]


def test_a_walltime_still_holds():
    result = run([job("a", 4, 100.0, walltime=110.0)], 4, (50.0, 0))
    assert list(result.jobs["state"]) == ["killed"] and ends(result) == {"a": 110.0}


def test_one_that_commits_and_one_on_its_last_node_stop():
    commits = DeclaredCheckpoint(1.0, 10.0)
    jobs = [job("a", 2, 100.0, checkpoint=commits), job("b", 1, 100.0)]
    result = run(jobs, 5, (50.0, 0), (50.0, 2))
    assert result.metrics["restarts"] == 2
    assert ends(result)["b"] == 150.0


def steal(when):
    return Policy.load("node-stealing").with_(**{"failure.when": when, "queue.strategy": "fcfs"})


@pytest.mark.parametrize(
    ("when", "stops", "lost"), [("now", 50, 10), ("next-commit", 60, 0), ("forced-commit", 50, 0)]
)
def test_the_three_moments_with_commits_that_cost_nothing(when, stops, lost):
    jobs = [job("big", 3, 100.0), job("small", 1, 100.0)]
    result = run(jobs, 4, (50.0, 0), policy=steal(when), checkpoint=20.0)
    assert result.metrics["restarts"] == 1
    big = ends(result)["big"]
    # a third of the ten seconds since its commit is lost; on two nodes until the victim stops
    left = 0.5 + 0.1 / 3 - (stops - 50) * 2 / 300
    assert big == pytest.approx(stops + left * 100)
    assert ends(result)["small"] == pytest.approx(big + 100 - stops + lost)


@pytest.mark.parametrize(("when", "saved"), [("now", 40.0), ("next-commit", 60.0), ("forced-commit", 50.0)])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_three_moments_with_commits_of_its_own(when, saved, asynchronous):
    commits = DeclaredCheckpoint(1e6, 20.0, ("partner",), asynchronous)
    jobs = [job("big", 3, 100.0), job("small", 1, 100.0, checkpoint=commits)]
    result = run(jobs, 4, (50.0, 0), policy=steal(when), link=1e9)
    assert result.metrics["restarts"] == 1
    # 1 ms for each commit
    assert ends(result)["small"] == pytest.approx(ends(result)["big"] + 100 - saved, abs=0.02)


def test_a_commit_that_is_on_its_way_is_as_good_as_one_made_for_this():
    commits = DeclaredCheckpoint(10e9, 45.0, ("partner",))  # from 45 to 55 s
    jobs = [job("big", 3, 100.0), job("small", 1, 100.0, checkpoint=commits)]
    result = run(jobs, 4, (50.0, 0), policy=steal("forced-commit"), link=1e9)
    grown = [plan.time for plan in result.story if plan.resizes]
    assert grown == [55.0]


def test_who_waits_starts_in_the_same_instant_on_what_is_left():
    """Two nodes come back at once: one in place of the other that failed, and one for who waits."""
    jobs = [job("a", 3, 300.0), job("x", 2, 60.0), job("b", 1, 10.0, submitted=1.0)]
    result = run(jobs, 5, (50.0, 0))
    starts = dict(zip(result.jobs["id"], result.jobs["start"], strict=True))
    assert starts["b"] == 60.0


def test_one_that_ends_before_its_commit_is_not_stopped():
    commits = DeclaredCheckpoint(1e6, 70.0, ("partner",))
    jobs = [job("big", 3, 100.0), job("small", 1, 60.0, checkpoint=commits)]
    result = run(jobs, 4, (50.0, 0), policy=steal("next-commit"))
    assert result.metrics["restarts"] == 0 and ends(result)["small"] == 60.0
    assert len([plan for plan in result.story if plan.interrupts]) == 1


def test_one_that_keeps_nothing_stops_at_once():
    result = run([job("big", 3, 100.0), job("small", 1, 100.0)], 4, (50.0, 0), policy=steal("next-commit"))
    assert ends(result)["small"] == pytest.approx(ends(result)["big"] + 100.0)


def test_a_platform_file_says_it(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        "platform: {nodes: 4, failures: {trace: [[50 s, 0]], repair: 1 h, survive: true}}\n"
        "jobs: [{id: a, nodes: 4, runtime: 100 s}]\n"
    )
    assert simulate(path, policy="fcfs").jobs["end"][0] == pytest.approx(50 + 250 / 3)
