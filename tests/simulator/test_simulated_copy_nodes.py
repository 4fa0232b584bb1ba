"""Nodes of a simulated machine that only keep copies come and go with the copies."""

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import PowerLaw
from dask_hpc.simulator import Arrival, DeclaredCheckpoint, Metering, Platform, Record
from dask_hpc.simulator.copy_nodes import CopiesKept
from dask_hpc.simulator.machine import Machine

COMMITS = DeclaredCheckpoint(60e9, every=300.0, levels=("partner",))
#: name, submitted, nodes, most, runtime, exponent
ROWS = [("A", 0.0, 3, 4, 4000.0, 0.9), ("B", 1.0, 4, 4, 6000.0, 0.5), ("C", 2000.0, 8, 8, 100.0, 0.5)]


def jobs():
    for name, submitted, nodes, most, runtime, exponent in ROWS:
        job = Job(id=name, submitted=submitted, nodes=nodes, kind="malleable", min_nodes=1, max_nodes=most)
        yield Arrival(job, runtime, speedup=PowerLaw(exponent), checkpoint=COMMITS)


def played(name, room=100e9, **more):
    record = Record()
    machine = Machine(Platform(8, copies=room, link=1e9, **more), Policy.load(name), record)
    machine.run(jobs())
    assert all(end == end for end in record.end)
    return record.find(CopiesKept), [
        (h.decision, h.nodes) for h in machine.story.happenings if h.decision != "agents"
    ]


def test_they_come_as_copies_grow_and_go_when_nothing_runs():
    kept, told = played("favor-checkpoints")
    words = [word for word, _ in told]
    assert words[:4] == ["node-request", "lend", "node-request", "lend"]
    assert words[-1] == "returned" and len(told[-1][1]) == 2
    assert kept.node_seconds > 10_000
    assert kept.short < 60 * 60e9 * 5, "for a look or two there was no room for the second job's"


def test_power_may_be_followed_meanwhile():
    watched = {"idle_power": 70.0, "active_power": 250.0, "metering": Metering()}
    assert played("favor-checkpoints", **watched)[1] == played("favor-checkpoints")[1]


def test_a_picture_shows_them():
    platform = Platform(8, copies=100e9, link=1e9)
    result = simulate(list(jobs()), platform=platform, policy="favor-checkpoints", allotments=True)
    held = [one for one in result.held if one.job == "checkpoint"]
    assert [one.nodes for one in held] == [("7",), ("6",)] and held[0].start < held[0].end
    words = [row[3] for row in result.course()["story"] if row[2] == "lend"]
    assert len(words) == 2 and set(words) == {"checkpoint"}


def test_where_jobs_come_first_copies_wait():
    kept, told = played("favor-jobs")
    first, _ = played("favor-checkpoints")
    assert kept.short > 10 * first.short and kept.node_seconds < first.node_seconds
    assert [word for word, _ in told].count("node-request") == 1, "and it is said once"


def test_other_policies_and_machines_have_none():
    assert played("performance-aware") == (None, [])
    assert played("favor-checkpoints", room=0.0) == (None, [])
    workload = list(jobs())
    result = simulate(workload, nodes=8, policy="favor-jobs")
    assert result.jobs["state"].eq("completed").all()


def test_no_more_comes_back_than_copies_can_do_without():
    machine = Machine(Platform(8, copies=100e9, link=1e9), Policy.load("favor-checkpoints"), Record())
    machine.run(jobs(), until=1500.0)
    assert len(machine.indices.lent) == 2
    machine.desk.order_back("checkpoint", 1, "a test wants it")
    known = machine.indices.borrowers["checkpoint"]
    assert len(known.lent) == 2 and known.owed == 0 and known.short_at == machine.indices.now
    assert "2 are needed" in machine.story.happenings[-1].reason


def test_a_job_that_needs_all_nodes_starts_when_nothing_runs():
    """It waits behind the nodes for copies as long as anything could be lost."""
    record = Record()
    whole = Arrival(Job(id="all", submitted=500.0, nodes=8), 50.0, checkpoint=COMMITS)
    one = Arrival(Job(id="one", nodes=2), 1000.0, checkpoint=COMMITS)
    Machine(Platform(8, copies=100e9, link=1e9), Policy.load("favor-checkpoints"), record).run([one, whole])
    assert record.end[1] == pytest.approx(record.end[0] + 50.0, abs=1.0)
