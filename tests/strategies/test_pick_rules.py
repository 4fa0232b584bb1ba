"""Who is picked from a queue in some order, and which of the two queues goes first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_machine import decided, machine, wait

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.queue.fcfs import Fcfs
from dask_hpc.strategies.queue.order import Area, Ljf, Priority, Sjf

ORDERS = [Fcfs, Sjf, Ljf, Area, Priority]
JOBS = (("a", 5, 20), ("b", 1, 40), ("c", 3, 10), ("d", 2, 30), ("e", 1, 50))


def picked(strategy, *jobs, nodes=4):
    indices = machine(nodes, now=0.0)
    indices.waiting.rerank(strategy)
    wait(indices, *jobs)
    return decided(indices, strategy)[0]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Fcfs("front"), []),
        (Fcfs("first-fit"), ["b", "c"]),
        (Fcfs("best-fit"), ["c", "b"]),
        (Sjf("first-fit"), ["c", "b"]),
        (Ljf("first-fit"), ["e", "b", "d"]),
        (Ljf("best-fit"), ["c", "e"]),
        (Area("first-fit"), ["c", "b"]),
        (Area("front"), ["c", "b"]),
    ],
)
def test_pick(strategy, expected):
    assert picked(strategy, *JOBS) == expected


@pytest.mark.parametrize("order", ORDERS)
@given(st.lists(st.integers(1, 6), max_size=8), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_whoever_is_picked_fits_best_and_nobody_who_fits_is_left(order, sizes, nodes):
    strategy = order("best-fit")
    jobs = [(str(i), size, 10) for i, size in enumerate(sizes)]
    found = picked(strategy, *jobs, nodes=nodes)
    left, idle = list(sizes), nodes
    for name in found:
        size = sizes[int(name)]
        assert size == max(one for one in left if one <= idle), "another would leave fewer nodes idle"
        left.remove(size)
        idle -= size
    assert all(size > idle for size in left)
    assert sum(sizes[int(name)] for name in picked(order("first-fit"), *jobs, nodes=nodes)) <= nodes


def test_it_says_what_it_leaves():
    for strategy, words in ((Fcfs("best-fit"), "fits best"), (Fcfs("first-fit"), "the first that fits")):
        indices = machine(4)
        wait(indices, ("a", 3, 10))
        (start,) = strategy.decide(Snapshot(indices), None)[0]
        assert start.reason == f"{words}, leaves 1 node idle"


def test_whoever_was_put_ahead_goes_before_one_that_fits_better():
    indices = machine(4)
    wait(indices, ("large", 3, 10))
    indices.waiting.add(Job(id="stopped", nodes=2), ahead=2)
    assert decided(indices, Fcfs("best-fit"))[0] == ["stopped"]


KINDS = ("rigid", "malleable", "moldable", "rigid", "evolving")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("favour", "expected"), [("both", "01234"), ("rigid", "03124"), ("malleable", "12403")]
)
def test_which_queue_goes_first(order, favour, expected):
    """Within each the order is what it was; it blocks the other queue, too."""
    strategy = order(favour=favour)
    indices = machine(5)
    indices.waiting.rerank(strategy)
    for i, kind in enumerate(KINDS):
        wide = {} if kind == "rigid" else {"max_nodes": 4}
        indices.waiting.add(Job(id=str(i), nodes=1, walltime=10.0, kind=kind, **wide))
    assert [job.id for job in indices.waiting] == list(expected)
    assert decided(indices, strategy)[0] == list(expected)


def test_who_is_favoured_and_does_not_fit_lets_nobody_by():
    strategy = Fcfs(favour="malleable")
    indices = machine(4)
    indices.waiting.rerank(strategy)
    wait(indices, ("rigid", 1, 10))
    indices.waiting.add(Job(id="wide", nodes=5, kind="malleable", max_nodes=8))
    assert decided(indices, strategy)[0] == []
