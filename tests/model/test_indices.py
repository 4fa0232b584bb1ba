"""The indices: whatever happens, no node is held twice and none is lost."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Cap, Hold, Plan, Release
from dask_hpc.model.power import PowerView
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.strategies.queue.fcfs import Fcfs
from dask_hpc.strategies.queue.order import Priority


def machine(nodes):
    return Indices(Node(f"n{i}") for i in range(nodes))


def check_sound(indices):
    held = [name for running in indices.running.values() for name in running.nodes]
    every = [*indices.idle, *held]
    assert len(every) == len(set(every)), "a node is held twice"
    assert set(every) == set(indices.nodes), "a node is lost"
    assert all(running.nodes for running in indices.running.values())
    assert [running for _, _, running in indices.by_end] == sorted(
        indices.running.values(), key=lambda running: (running.expected_end, running.order)
    )
    assert not set(indices.running) & {job.id for job in indices.waiting}


@settings(max_examples=60, deadline=None)
@given(st.integers(), st.integers(1, 40), st.integers(10, 250))
def test_random_days(seed, nodes, events):
    rng = random.Random(seed)
    indices = machine(nodes)
    for number in range(events):
        indices.now += rng.choice((0.0, 1.0, 7.5))
        before = indices.revision
        event = rng.choice(
            ("submit", "submit", "start", "start", "end", "withdraw", "join", "leave", "expect")
        )
        running, waiting = list(indices.running), [job.id for job in indices.waiting]
        changed = True
        if event == "submit":
            indices.waiting.add(
                Job(id=f"j{number}", nodes=rng.randint(1, 8), walltime=rng.choice((10.0, 99.0)))
            )
            changed = False
        elif event == "start" and waiting and indices.idle:
            size = rng.randint(1, len(indices.idle))
            started = indices.start(rng.choice(waiting), size)
            assert len(started.nodes) == size
        elif event == "end" and running:
            indices.end(rng.choice(running))
        elif event == "withdraw" and waiting:
            indices.withdraw(rng.choice(waiting))
        elif event == "join":
            indices.add_node(Node(f"extra{number}"))
        elif event == "leave" and indices.nodes:
            name = rng.choice(list(indices.nodes))
            smaller = indices.remove_node(name)
            assert smaller is None or name not in smaller.nodes
        elif event == "expect" and running:
            indices.expect_end(rng.choice(running), indices.now + rng.randint(0, 50))
        else:
            changed = False
        assert (indices.revision > before) == changed
        check_sound(indices)


def test_first_nodes_first():
    indices = machine(4)
    indices.waiting.add(Job(id="a", nodes=2))
    assert indices.start("a", 2).nodes == ("n0", "n1")
    indices.end("a")
    indices.waiting.add(Job(id="b", nodes=3))
    assert indices.start("b", 3).nodes == ("n0", "n1", "n2")


@pytest.mark.parametrize("size", [0, -1, 4])
def test_a_start_that_cannot_be_changes_nothing(size):
    indices = machine(3)
    indices.waiting.add(Job(id="a", nodes=2))
    with pytest.raises(ValueError, match="3 are idle"):
        indices.start("a", size)
    with pytest.raises(KeyError):
        indices.start("nobody", 1)
    assert "a" in indices.waiting
    assert indices.revision == 0
    check_sound(indices)


def test_a_job_shrinks_with_its_nodes_and_ends_with_the_last():
    indices = machine(2)
    indices.waiting.add(Job(id="a", nodes=2, walltime=50.0))
    indices.start("a", 2)
    assert indices.remove_node("n0").nodes == ("n1",)
    assert indices.running["a"].nodes == ("n1",)
    assert indices.remove_node("n1").nodes == ()
    assert not indices.running
    assert not indices.by_end
    with pytest.raises(KeyError):
        indices.remove_node("n1")


def test_a_node_joins_once():
    indices = machine(1)
    with pytest.raises(ValueError, match="already here"):
        indices.add_node(Node("n0"))


def test_reorder_keeps_arrivals():
    indices = machine(1)
    for number, priority in enumerate((0.0, 1.0, 0.0, 1.0)):
        indices.waiting.add(Job(id=str(number), nodes=1, priority=priority))
    indices.waiting.rerank(Priority())
    assert [job.id for job in indices.waiting] == ["1", "3", "0", "2"]
    indices.waiting.rerank(Fcfs())
    assert [job.id for job in indices.waiting] == ["0", "1", "2", "3"]


def test_copies_are_independent():
    indices = machine(5)
    for name in "abc":
        indices.waiting.add(Job(id=name, nodes=2, walltime=9.0))
    indices.start("a", 2)
    twin = indices.copy()
    indices.start("b", 2)
    indices.end("a")
    indices.remove_node("n4")
    indices.now = 100.0
    assert list(twin.running) == ["a"]
    assert len(twin.idle) == 3
    assert twin.now == 0.0
    assert "b" in twin.waiting
    check_sound(twin)
    check_sound(indices)


def test_withheld_nodes_are_not_given_away_and_come_back():
    indices = Indices(Node(str(i)) for i in range(4))
    snapshot = Snapshot(indices)
    indices.waiting.add(Job(id="a", nodes=2))
    indices.start("a", 2)
    indices.withhold({"1", "3"})
    assert snapshot.idle == 1 and indices.idle == ["2"]
    assert indices.end("a").nodes == ("0", "1")
    assert sorted(indices.idle) == ["0", "2"]
    indices.withhold({"3"})
    assert sorted(indices.idle) == ["0", "1", "2"]
    assert indices.remove_node("3") is None and indices.withheld == set()
    indices.withhold({"2"})
    twin = indices.copy()
    indices.withhold(set())
    assert sorted(indices.idle) == ["0", "1", "2"] and sorted(twin.idle) == ["0", "1"]


def test_who_has_a_withheld_node_keeps_it():
    indices = Indices(Node(str(i)) for i in range(3))
    indices.waiting.add(Job(id="a", nodes=2, min_nodes=1, max_nodes=3, kind="malleable"))
    indices.start("a", 2)
    indices.withhold({"0", "1"})
    indices.begin_resize("a", 1)
    assert indices.finish_resize("a").nodes == ("0",)
    assert indices.idle == ["2"]
    indices.withhold(set())
    assert sorted(indices.idle) == ["1", "2"]
    indices.withhold({"0"})
    assert indices.remove_node("0").nodes == ()


def test_a_change_of_size_puts_the_end_off_by_what_it_takes():
    indices = machine(2)
    indices.waiting.add(Job(id="a", nodes=1, max_nodes=2, kind="malleable", walltime=100.0))
    indices.start("a", 1)
    indices.now = 40.0
    assert indices.begin_resize("a", 2, stall=5.0).expected_end == 40.0 + 5.0 + 30.0


def test_levers_stay_as_they_were_pulled_last():
    indices = machine(2)
    plan = Plan(1, 0.0, hold=Hold(1, "why"), cap=Cap(0.5, 200.0, "why"))
    indices.pull_levers(plan)
    assert indices.power is None and indices.revision == 0  # nobody looks at power
    indices.power = PowerView(1000.0)
    for one in (plan, Plan(2, 0.0, release=Release(2, "why")), Plan(3, 0.0)):
        indices.pull_levers(one)
    power = indices.power
    assert (power.held, power.threads, power.cap, power.released) == (1, 0.5, 200.0, 2)
    assert indices.revision == 2


def test_more_may_be_known_of_a_job():
    indices = Indices([Node("a"), Node("b")])
    for number in range(3):
        job = Job(id=f"j{number}", nodes=1, max_nodes=2, kind="malleable", walltime=10.0)
        indices.waiting.add(job)
    indices.start("j0", 1)
    for number in range(3):
        before = indices.revision
        indices.describe(replace(job, id=f"j{number}", recorded=5.0 + number))
        assert indices.revision == before + 1
    assert [job.recorded for job in indices.waiting] == [6.0, 7.0]
    assert indices.running["j0"].job.recorded == indices.resizable["j0"].job.recorded == 5.0
    assert indices.end("j0").job.recorded == 5.0 and indices.by_end == []
    revision = indices.revision
    indices.describe(job)
    indices.describe(replace(job, id="nobody"))
    assert indices.revision == revision + 1
    assert indices.waiting["j2"].recorded is None and len(indices.waiting) == 2


def test_a_job_goes_on_on_another_node():
    indices = Indices(Node(str(i)) for i in range(4))
    indices.waiting.add(Job(id="a", nodes=2, walltime=10.0))
    before = indices.start("a", 2)
    after = indices.exchange("a", "1", "3")
    assert after == before._replace(nodes=("0", "3")) == indices.running["a"]
    assert sorted(indices.idle) == ["1", "2"] and [one[2] for one in indices.by_end] == [after]
    indices.withhold({"0"})
    indices.exchange("a", "0", "2")
    assert indices.idle == ["1"], "who is withheld is not idle"
