"""A job that is moldable and commits changes its size by being stopped and started again: 000, 7.4.4."""

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.simulator import Arrival, DeclaredCheckpoint, Failures, Platform, Record
from dask_hpc.simulator.machine import Machine

#: a commit of 80 GB takes 80 s, and so does reading it back; a launch takes 10 s
MACHINE = {"nodes": 8, "link": 1e10, "file_system": 1e9, "launch": 10.0}


def moldable(every=1e6, runtime=14_400.0, kind="moldable", **more):
    given = {"nodes": 8, "min_nodes": 2, "max_nodes": 8, "walltime": 50_000.0} | more
    if kind == "rigid":
        given |= {"min_nodes": 8}
    job = Job(id="M", kind=kind, **given)
    return Arrival(job, runtime, checkpoint=DeclaredCheckpoint(80e9, every, ("store",), asynchronous=False))


def rigid(submitted, runtime=3600.0, nodes=4):
    return Arrival(Job(id="H", submitted=submitted, nodes=nodes, walltime=2 * runtime), runtime)


def played(*arrivals, platform=None, **changes):
    policy = Policy.load("restart-malleable").with_(**{f"malleability.{k}": v for k, v in changes.items()})
    record = Record()
    machine = Machine(platform or Platform(**MACHINE), policy, record)
    machine.run(sorted(arrivals, key=lambda one: one.job.submitted))
    times = {name: (record.start[row], record.end[row]) for row, name in enumerate(record.id)}
    resizes = [(plan.time, one.job, one.nodes) for plan in machine.story for one in plan.resizes]
    return times, resizes, record, machine.story


def test_it_commits_stops_and_goes_on_with_fewer_nodes():
    """At 2,000 s it has worked for 1,990 s; a commit and a launch later H starts, and when it has read its
    commit back it goes on, twice as slowly, until H ends and it is restarted on all nodes again."""
    times, resizes, record, story = played(moldable(), rigid(2000.0))
    assert resizes == [(2000.0, "M", 4), (5700.0, "M", 8)]
    assert times["H"] == (2090.0, 5700.0)
    # 5,700 - 2,090 - 80 s on half of the nodes; the second restart takes 90 s and 80 s of reading, too
    left = 14_400 - 1990 - (5700 - 2090 - 80) / 2
    assert times["M"] == (0.0, pytest.approx(5700 + 90 + 80 + left))
    detail = record.detail(0)
    assert (detail.restarts, detail.resizes, detail.lost) == (2, 2, 0.0)
    reasons = [one.reason for plan in story for one in plan.resizes]
    assert reasons[0].startswith("restarted after a commit: gives 4 nodes so that job H can start, ")
    assert reasons[1].startswith("restarted after a commit: grows into 4 idle nodes, to end ")


def test_it_is_left_alone_for_no_longer_than_is_said():
    """Nothing happens when it has run for half an hour."""
    times, resizes, _, _ = played(moldable(), rigid(100.0))
    assert resizes[0] == (1800.0, "M", 4) and times["H"][0] == 1890.0


def test_without_a_commit_first_it_does_its_work_since_the_last_one_again():
    """It commits every 600 s of work, for 80 s each; the last one before 2,400 s has 1,800 s."""
    times, resizes, record, _ = played(moldable(600.0), rigid(2400.0, 1e5), commit="last")
    assert resizes == [(2400.0, "M", 4)]
    assert times["H"][0] == 2410.0
    done = 2400 - 10 - 3 * 80
    assert record.detail(0).lost == pytest.approx((done - 1800) * 8)
    _, _, careful, _ = played(moldable(600.0), rigid(2400.0, 1e5))
    assert careful.detail(0).lost == 0


@pytest.mark.parametrize(
    ("job", "head", "changes"),
    [
        (moldable(kind="rigid"), rigid(2000.0), {}),  # it can start on one size only
        (moldable(), rigid(1000.0, runtime=1.0), {"priority": "running"}),  # nobody gives
        (moldable(runtime=1500.0, walltime=1600.0), rigid(1400.0), {"pause": 0.0, "cost": 300.0}),  # it ends
        (moldable(), rigid(2000.0, nodes=7), {}),  # it cannot give so many
        (moldable(), rigid(1000.0), {"pause": 20_000.0}),
    ],
)
def test_nobody_is_restarted_for_nothing(job, head, changes):
    times, resizes, *_ = played(job, head, **changes)
    assert [one for one in resizes if one[0] < times["H"][0]] == []
    assert times["H"][0] >= times["M"][1]


def test_a_job_without_commits_is_left_alone():
    plain = Arrival(Job(id="M", kind="moldable", nodes=8, min_nodes=2, max_nodes=8, walltime=2e4), 14_400.0)
    times, resizes, _, _ = played(plain, rigid(2000.0))
    assert not resizes and times["H"][0] == times["M"][1]


def test_a_node_that_fails_meanwhile_costs_what_was_not_committed():
    """It is stopped while it commits for its restart: that commit is not there, and it begins anew."""
    failures = Failures(trace=((2050.0, 0),), repair=10.0)
    times, _, record, _ = played(moldable(), rigid(2000.0), platform=Platform(**MACHINE, failures=failures))
    assert record.detail(0).lost == pytest.approx(1990 * 8)
    assert all(end > 0 for _, end in times.values())


def test_what_would_have_ended_meanwhile_stands_still_like_the_others():
    times, resizes, record, _ = played(moldable(runtime=2040.0), rigid(2000.0))
    assert record.detail(0).lost == 0
    assert resizes == [(2000.0, "M", 4)]
    assert times["M"][1] == pytest.approx(2090 + 80 + 2 * 50)


def test_it_is_no_malleable_job_afterwards():
    indices = Indices([Node(str(i)) for i in range(8)])
    indices.waiting.add(moldable().job)
    indices.start("M", 8)
    assert moldable().job.commits and not Job(id="x", nodes=1).commits
    assert [one.job.id for one in Snapshot(indices).restartable] == ["M"]
    indices.now = 1.0
    indices.begin_resize("M", 4)
    assert not Snapshot(indices).restartable
    indices.finish_resize("M")
    assert not indices.resizable and not Snapshot(indices).restartable, "not twice at one instant"


def test_the_head_starts_earlier_than_under_any_policy_that_cannot():
    arrivals = [moldable(), rigid(2000.0)]
    ends = {}
    for name in ("fcfs", "performance-aware", "restart-malleable"):
        jobs = simulate(arrivals, platform=Platform(**MACHINE), policy=name).jobs.set_index("id")
        ends[name] = jobs["end"].max(), jobs["start"]["H"]
    assert ends["fcfs"] == ends["performance-aware"]
    assert ends["restart-malleable"][0] < ends["fcfs"][0]
    assert ends["restart-malleable"][1] < ends["fcfs"][1]
