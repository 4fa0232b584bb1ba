"""Going on from a snapshot: what would this policy do from here on?"""

from dataclasses import replace
from math import inf
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError, Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.simulator import Arrival, Machine, Record, synthetic_day
from dask_hpc.simulator.machine import machine_from


def indices(nodes=4, now=100.0):
    found = Indices(Node(str(i)) for i in range(nodes))
    found.now = now
    return found


def starts(result):
    return dict(zip(result.jobs["id"], result.jobs["start"], strict=True))


def test_running_jobs_end_by_their_walltime_or_their_progress():
    machine = indices(now=0.0)
    for name in ("slow", "fast"):
        machine.waiting.add(Job(id=name, nodes=2, walltime=300.0))
        machine.start(name, 2)
    machine.now = 100.0
    machine.progress["fast"] = 0.8  # 25 s left
    machine.waiting.add(Job(id="next", nodes=2, walltime=50.0, submitted=90.0))
    machine.waiting.add(Job(id="large", nodes=4, walltime=50.0, submitted=95.0))
    result = simulate(snapshot=Snapshot(machine), policy="fcfs")
    assert starts(result) == {"slow": 0.0, "fast": 0.0, "next": 125.0, "large": 300.0}
    assert result.metrics["max_wait"] == 205.0
    assert machine.now == 100.0 and len(machine.running) == 2  # the original is untouched


def test_malleable_jobs_go_on_at_their_present_size():
    machine = indices(now=0.0)
    machine.waiting.add(Job(id="m", nodes=2, kind="malleable", min_nodes=1, max_nodes=4, walltime=100.0))
    machine.start("m", 2)
    machine.begin_resize("m", 4)
    machine.finish_resize("m")
    machine.now = 20.0
    result = simulate(snapshot=Snapshot(machine), policy="fcfs")
    assert list(result.jobs["end"]) == [50.0]


def test_horizon_ends_the_look_ahead():
    machine = indices(now=0.0)
    machine.waiting.add(Job(id="a", nodes=4, walltime=100.0))
    machine.waiting.add(Job(id="b", nodes=4, walltime=100.0))
    result = simulate(snapshot=Snapshot(machine), policy="fcfs", horizon=150.0)
    assert list(result.jobs["state"]) == ["completed", "running"]
    assert result.metrics["unfinished"] == 1


def test_what_comes_next_is_what_would_have_come_anyway():
    """With exact walltimes the future from the middle of a run is the rest of that run."""
    jobs = [
        Arrival(Job(id=str(i), nodes=1 + i % 3, walltime=50.0 + 7 * i, submitted=0.0), 50.0 + 7 * i)
        for i in range(12)
    ]
    whole = simulate(jobs, nodes=4, policy="easy-backfill")
    machine = Machine(4, Policy.load("easy-backfill"), Record())
    machine.run(jobs, until=120.0)
    rest = simulate(snapshot=machine.snapshot.freeze(), policy="easy-backfill")
    expected = starts(whole)
    assert starts(rest) == {job: expected[job] for job in starts(rest)}


def test_nothing_known_about_lengths():
    machine = indices()
    machine.waiting.add(Job(id="a", nodes=4))
    assert list(simulate(snapshot=Snapshot(machine)).jobs["end"]) == [700.0]


@pytest.mark.slow
def test_two_hundred_jobs_on_five_hundred_nodes_in_a_blink():
    machine = Machine(500, Policy.load("easy-backfill"), Record())
    arrivals = list(synthetic_day(2_000, 500, load=4.0, seed=1))
    machine.run(arrivals, until=arrivals[700].job.submitted)
    snapshot = machine.snapshot.freeze()
    assert len(snapshot.running) + len(snapshot.waiting) >= 200
    began = perf_counter()
    simulate(snapshot=snapshot, policy="easy-backfill")
    print(f"{len(snapshot.running)} running, {len(snapshot.waiting)} waiting: {perf_counter() - began:.3f} s")


def loaded(now=100.0):
    """Two running and three waiting jobs on four nodes; of some the progress is known, of one no walltime."""
    machine = indices(now=0.0)
    for name, walltime in (("a", 400.0), ("b", inf)):
        machine.waiting.add(Job(id=name, nodes=2, walltime=walltime))
        machine.start(name, 2)
    machine.now = now
    machine.progress["a"] = 0.5
    for number, nodes in enumerate((4, 1, 2)):
        machine.waiting.add(Job(id=f"w{number}", nodes=nodes, walltime=200.0, submitted=50.0 + number))
    return Snapshot(machine)


def test_several_policies_from_a_snapshot_are_compared_on_the_same_draws():
    fcfs = Policy.load("fcfs")
    policies = [fcfs, replace(fcfs, name="twin"), "easy-backfill"]
    study = simulate(snapshot=loaded(), policy=policies, seeds=20)
    assert list(study.runs.columns[:2]) == ["policy", "seed"]
    assert study.runs.groupby("policy").size().to_dict() == {"easy-backfill": 20, "fcfs": 20, "twin": 20}
    waits = study.runs.pivot(index="seed", columns="policy", values="mean_wait")
    assert (waits["twin"] == waits["fcfs"]).all()
    assert waits["fcfs"].nunique() == 20
    summary = study.summary
    assert summary.loc["easy-backfill", "mean_wait"] < summary.loc["fcfs", "mean_wait"]
    assert summary.loc["fcfs", "mean_wait_ci"] > 0
    assert simulate(snapshot=loaded(), policy=policies, seeds=20).runs.equals(study.runs)
    more = replace(study, runs=study.runs.assign(twice=2 * study.runs["mean_wait"])).summary
    assert more["twice_ci"].tolist() == (2 * summary["mean_wait_ci"]).tolist()


@given(st.integers(0, 10_000))
def test_what_is_drawn_keeps_to_what_is_known(seed):
    """Nothing ends before now, or after its walltime; what a job has done stays done."""
    record = Record()
    snapshot = loaded()
    machine = machine_from(snapshot, Policy.load("fcfs"), None, record, seed=seed)
    machine.run(())
    ends = dict(zip(record.id, record.end, strict=True))
    assert min(ends.values()) >= 100.0
    assert 100 + 100 / 1.25 - 1e-6 <= ends["a"] <= 100 + 100 * 1.25 + 1e-6
    for name, start, end in zip(record.id, record.start, record.end, strict=True):
        if name.startswith("w"):
            assert 0.05 * 200 - 1e-6 <= end - start <= 200 + 1e-6


def test_what_was_before_the_snapshot_counts_for_nothing():
    """Nodes that draw 100 W, 300 W at work: whatever the policy, power from now on is between all of them."""
    snapshot = loaded()
    for name, node in list(snapshot.nodes.items()):
        snapshot.nodes[name] = replace(node, idle_power=100.0, active_power=300.0)
    corridor = Policy.load("power-corridor").with_(**{"power.upper": "900 W"})
    runs = simulate(snapshot=snapshot, policy=["fcfs", corridor], seeds=20).runs
    watts = runs["energy"] / runs["makespan"]
    assert watts.between(400, 1200).all()


def test_a_study_of_a_snapshot_has_no_store_and_no_overlay():
    for wrong in ({"store": "x"}, {"malleable": 0.5}):
        with pytest.raises(InputError, match="one of both"):
            simulate(snapshot=loaded(), policy=["fcfs"], **wrong)
    with pytest.raises(InputError, match="seeds"):
        simulate(snapshot=loaded(), policy=["fcfs"], seeds=0)
