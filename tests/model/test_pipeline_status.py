"""A pipeline's status is plain data that can be read back."""

import json

from dask_hpc.planning.in_situ.partition import (
    Partition,
    Phases,
    hear_partition,
    tell_iteration,
    tell_partition,
)

PARTITION = Partition("sync", 3, 2, ("front",), ("spectrum", "mean"), Phases(0.5, 0.25, 0.6), "too large")


def test_a_partition_that_was_told_is_heard():
    told = json.loads(json.dumps(tell_partition(PARTITION)))
    assert hear_partition(told) == PARTITION
    assert told["expected"] == 0.75  # the simulation waits for what runs in situ


def test_an_iteration_is_told_beside_its_plan():
    measured = Phases(0.6, 0.2, 0.7)
    told = tell_iteration(4, 0.9, measured, PARTITION)
    assert told == {
        "iteration": 4,
        "seconds": 0.9,
        "measured": {"simulation": 0.6, "in_situ": 0.2, "in_transit": 0.7},
        "planned": {"simulation": 0.5, "in_situ": 0.25, "in_transit": 0.6},
        "expected": 0.75,
    }
    before = tell_iteration(0, 0.9, measured, None)
    assert before["planned"] is None and before["expected"] is None
