"""Node stealing in both bodies: the same nodes fail in a simulation and live, and jobs go on."""

import pytest
from test_two_bodies import live, simulated

from dask_hpc import Policy

FIRST = [  # as in test_two_bodies; then a node that fails, and when
    ("A", 0.0, 2, 200.0, 900.0),
    ("B", 2.0, 1, 90.0, 900.0),
    ("C", 4.0, 1, 60.0, 900.0),
    ("D", 6.0, 1, 50.0, 900.0),
]
MALLEABLE = [
    ("A", 0.0, 2, 200.0, 900.0),
    ("B", 2.0, 2, 150.0, 900.0, 1, 2),
    ("C", 4.0, 1, 60.0, 900.0),
]
LARGE = [  # the victim has more than is lacking: it is first in line for what is left, and too large
    ("A", 0.0, 3, 200.0, 900.0),
    ("B", 2.0, 2, 90.0, 900.0),
    ("C", 4.0, 1, 60.0, 900.0),
]
ALONE = [("A", 0.0, 3, 200.0, 900.0), ("B", 2.0, 1, 90.0, 900.0), ("C", 4.0, 2, 60.0, 900.0)]


@pytest.mark.parametrize(
    ("rows", "failures", "deed"),
    [
        (FIRST, ((20.0, 0),), ("interrupt", "C", 0)),  # of equally small ones the latest
        (MALLEABLE, ((20.0, 1),), ("resize", "B", 1)),  # who can give a node is not stopped
        (MALLEABLE, ((20.0, 3), (40.0, 0)), ("resize", "A", 2)),  # C ends, and A takes its node
        (ALONE, ((20.0, 2), (30.0, 0)), ("interrupt", "B", 0)),
        (LARGE, ((20.0, 0),), ("interrupt", "B", 0)),
    ],
)
def test_same_victims(rows, failures, deed):
    size = 5 if rows is LARGE else 4
    policy = Policy.load("node-stealing").with_(**{"queue.strategy": "fcfs"})
    predicted, ends = simulated(policy, rows, failures, size)
    assert deed in [(what, job, nodes) for _, what, job, nodes, _ in predicted], predicted
    assert live(policy, rows, ends, failures, size) == predicted


def test_without_a_failure_strategy_idle_nodes_take_the_place_of_failed_ones():
    predicted, ends = simulated(Policy.load("fcfs"), FIRST, ((20.0, 0),))
    grown = [(time, job, nodes) for time, what, job, nodes, _ in predicted if what == "resize"]
    assert grown == [(64.0, "A", 2)]  # when C has ended, before D starts
    assert live(Policy.load("fcfs"), FIRST, ends, ((20.0, 0),)) == predicted
