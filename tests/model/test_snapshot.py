"""Snapshots: a view that is free, and a frozen one that lasts."""

import pickle
from time import perf_counter

import pytest

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.power import Corridor
from dask_hpc.model.snapshot import Indices, Snapshot


def picture(snapshot):
    """Everything a decision may look at."""
    return (
        snapshot.now,
        snapshot.idle,
        snapshot.size,
        dict(snapshot.nodes),
        list(snapshot.waiting),
        dict(snapshot.running),
        snapshot.revision,
        list(snapshot.by_expected_end()),
        snapshot.corridor,
    )


def busy(nodes, jobs):
    indices = Indices(Node(f"n{i}") for i in range(nodes))
    for number in range(jobs):
        indices.waiting.add(Job(id=str(number), nodes=1 + number % 4, walltime=60.0 + number))
    for number in range(0, jobs, 2):
        job_id = str(number)
        if len(indices.idle) >= 4:
            indices.start(job_id, 1 + number % 4)
    return indices


def test_a_view_follows_and_a_frozen_one_does_not():
    indices = busy(10, 6)
    view = Snapshot(indices, Corridor.constant(0, 500))
    frozen = view.freeze()
    before = picture(frozen)
    assert picture(view) == before
    indices.now = 5.0
    indices.end("0")
    indices.waiting.add(Job(id="new", nodes=1))
    indices.add_node(Node("n99"))
    assert picture(frozen) == before
    assert picture(view) != before
    assert view.idle == len(indices.idle)


def test_a_frozen_one_can_be_pickled_and_replayed():
    frozen = Snapshot(busy(30, 20), Corridor(((0, 0, 100), (60, 10, 200)))).freeze()
    again = pickle.loads(pickle.dumps(frozen))
    assert picture(again) == picture(frozen)
    assert len(list(again.waiting)) > 1


def test_a_strategy_cannot_put_things_into_a_snapshot():
    with pytest.raises(AttributeError):
        Snapshot(busy(1, 1)).idle = 5


def test_freezing_a_large_machine():
    """1,000 jobs on 10,000 nodes. The time is printed, and judged by a benchmark."""
    indices = busy(10_000, 1_000)
    view = Snapshot(indices)
    started = perf_counter()
    frozen = view.freeze()
    print(f"freeze of 1,000 jobs on 10,000 nodes: {(perf_counter() - started) * 1e3:.2f} ms")
    assert picture(frozen) == picture(view)
    indices.end("0")
    assert "0" in frozen.running
