"""Queues in other orders, shortest-first backfilling and moldable starts, by hand."""

import pytest
from small_machine import decided, machine, wait

from dask_hpc.model.job import Job
from dask_hpc.strategies.queue.conservative_backfill import ConservativeBackfill
from dask_hpc.strategies.queue.easy_backfill import EasySjbf
from dask_hpc.strategies.queue.moldable import Moldable
from dask_hpc.strategies.queue.order import Area, Ljf, Priority, Sjf


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [(Sjf(), ["b", "a"]), (Ljf(), ["c"]), (Area(), ["b", "a"]), (Priority(), ["a", "b"])],
)
def test_order(strategy, expected):
    indices = machine(4, now=0.0)
    indices.waiting.rerank(strategy)
    wait(indices, ("a", 2, 20), ("b", 1, 10), ("c", 4, 30))
    assert decided(indices, strategy)[0] == expected


def test_higher_priority_first():
    indices = machine(1, now=0.0)
    indices.waiting.rerank(Priority())
    for name, priority in (("a", 0), ("b", 2), ("c", 2)):
        indices.waiting.add(Job(id=name, nodes=1, priority=priority))
    assert decided(indices, Priority())[0] == ["b"]


def test_shortest_overtakes_first():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("long", 2, 80), ("short", 1, 20), ("middle", 1, 40))
    assert decided(indices, EasySjbf())[0] == ["short", "middle"]


def test_spare_nodes_are_shared_in_that_order():
    indices = machine(6, (4, 100.0))
    wait(indices, ("head", 4, 50), ("longer", 2, 1000), ("long", 1, 900))
    assert decided(indices, EasySjbf())[0] == ["long"]


def test_newcomers_only():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50))
    _, memory = decided(indices, EasySjbf())
    wait(indices, ("b", 2, 60), ("a", 1, 50))
    assert decided(indices, EasySjbf(), memory)[0] == ["a"]


def moldable(name, nodes, least, walltime=100.0, **more):
    return Job(
        id=name, nodes=nodes, min_nodes=least, max_nodes=nodes, kind="moldable", walltime=walltime, **more
    )


def test_starts_on_what_is_idle():
    indices = machine(8, (3, 100.0), now=0.0)
    indices.waiting.add(moldable("a", 6, 2, constraint="even"))
    assert decided(indices, Moldable())[0] == ["a"]
    assert len(indices.running["a"].nodes) == 4
    assert indices.running["a"].expected_end == 150.0


def test_blocked_by_a_rigid_job_unless_overtaking_does_no_harm():
    def case():
        indices = machine(8, (4, 100.0), now=0.0)
        wait(indices, ("head", 8, 50))
        indices.waiting.add(moldable("quick", 4, 1, 90.0))
        return indices

    assert decided(case(), Moldable())[0] == []
    assert decided(case(), Moldable(overtake=True))[0] == ["quick"]
    late = case()
    late.waiting.add(moldable("slow", 2, 1, 200.0))
    assert decided(late, Moldable(overtake=True))[0] == ["quick"]


def test_who_starts_now_is_counted_on_when_it_ends():
    for walltime, started in ((50.0, ["first", "next"]), (51.0, ["first"])):
        indices = machine(4, now=0.0)
        indices.waiting.add(moldable("first", 2, 2, 50.0))
        wait(indices, ("head", 4, 50))
        indices.waiting.add(moldable("next", 2, 2, walltime))
        assert decided(indices, Moldable(overtake=True))[0] == started


def test_promises_are_made_anew_behind_a_job_put_ahead():
    """Seed 002, section 2.2 of the digest, step 4."""
    indices = machine(4, (2, 100.0), (2, 50.0), now=0.0)
    wait(indices, ("a", 2, 100))
    _, memory = decided(indices, ConservativeBackfill())
    assert memory.times == {"a": 50.0}
    indices.now = 10.0
    indices.requeue("r0", 0, ahead=2)
    indices.remove_node("0")
    _, memory = decided(indices, ConservativeBackfill(), memory)
    # one idle node is left: "r0" has what comes free first, and "a" the rest when that ends
    assert memory.times == {"r0": 50.0, "a": 150.0}
