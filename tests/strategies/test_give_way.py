"""Less urgent malleable jobs make room; more urgent ones keep what they have."""

from small_machine import machine, sizes, started

from dask_hpc.model.job import Job
from dask_hpc.strategies.malleability.give_way import GiveWay


def crowd(head_priority, nodes):
    """16 nodes: an urgent job on 6, an old and a young one that can wait on 5 each; another comes."""
    indices = machine(16, now=0.0)
    started(indices, "urgent", 6, 2, priority=5.0)
    started(indices, "old", 5, 2)
    started(indices, "young", 5, 2)
    indices.waiting.add(Job(id="head", nodes=nodes, priority=head_priority))
    return indices


def test_the_least_urgent_and_then_the_youngest_gives_first():
    assert sizes(crowd(1.0, 2), GiveWay()) == {"young": 3}
    assert sizes(crowd(1.0, 4), GiveWay()) == {"young": 2, "old": 4}
    assert sizes(crowd(9.0, 8), GiveWay()) == {"young": 2, "old": 2, "urgent": 4}


def test_the_more_urgent_never_gives():
    assert sizes(crowd(1.0, 7), GiveWay()) == {}
    assert sizes(crowd(0.0, 6), GiveWay()) == {"young": 2, "old": 2}
    assert sizes(crowd(-1.0, 1), GiveWay()) == {}


def test_idle_nodes_go_to_the_most_urgent():
    indices = machine(16, now=0.0)
    started(indices, "old", 4, 2, most=16)
    started(indices, "urgent", 4, 2, most=9, priority=5.0)
    assert sizes(indices, GiveWay()) == {"urgent": 9, "old": 7}
