"""A slow node is found soon, and an equal one never."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from dask_hpc.planning.slow_node import slow_nodes

NODES = ["a", "b", "c", "d"]


def drawn(seed, own, each, times=1.0, spread=0.2):
    """Seconds of one kind: of "a" that take so many times as long, and of the others."""
    dice = random.Random(seed)
    return {
        node: [
            (times if node == "a" else 1.0) * dice.lognormvariate(0, spread)
            for _ in range(own if node == "a" else each)
        ]
        for node in NODES
    }


def test_five_tasks_are_enough_for_a_node_that_takes_three_times_as_long():
    for seed in range(20):
        (found,) = slow_nodes({"inc": drawn(seed, 5, 18, 3.0)}, 2.0).items()
        assert found[0] == "a" and found[1].tasks == 5 and 2.2 < found[1].ratio < 4
        assert found[1].sigmas > 3
    assert slow_nodes({"inc": drawn(1, 4, 18, 3.0)}, 2.0) == {}, "four may be chance"
    assert slow_nodes({"inc": drawn(1, 5, 2, 3.0)}, 2.0) == {}, "so may six of others"


def test_what_may_be_chance_is_not_said():
    assert slow_nodes({"inc": {"a": [3.0] * 5, "b": [1.0] * 8}}, 2.0) == {}
    (found,) = slow_nodes({"inc": {"a": [3.0] * 5, "b": [1.0] * 12}}, 2.0).values()
    assert found.ratio == approx(3) and found.sigmas == approx(30 / (5 * 12 * 18 / 12) ** 0.5)


def test_equal_nodes_are_equal():
    for seed in range(200):
        for spread in (0.2, 1.0, 2.0):
            assert slow_nodes({"inc": drawn(seed, 20, 20, 1.0, spread)}, 2.0) == {}


def test_a_node_that_is_a_little_slower_is_not_named():
    assert slow_nodes({"inc": drawn(1, 20, 20, 1.6)}, 2.0) == {}
    assert list(slow_nodes({"inc": drawn(1, 20, 20, 1.6)}, 1.4)) == ["a"]


def test_a_long_task_is_no_slow_node():
    times = {"inc": {node: [1.0] * 10 for node in NODES}}
    times["inc"]["a"] = [1.0] * 8 + [100.0] * 2
    assert slow_nodes(times, 2.0) == {}


def test_kinds_are_compared_with_themselves():
    """The one that has all the long tasks is not slow."""
    times = {"short": {"b": [1.0] * 10, "c": [1.1] * 10}, "long": {"a": [50.0] * 10}}
    assert slow_nodes(times, 2.0) == {}
    times["long"]["b"] = [25.0] * 10
    found = slow_nodes(times, 1.5)
    assert list(found) == ["a"] and found["a"].ratio == approx(2) and found["a"].tasks == 10


def test_few_tasks_of_each_of_many_kinds_are_enough():
    times = {f"kind-{i}": {"a": [3.0 * (i + 1)], "b": [i + 1.0] * 2, "c": [i + 1.0] * 2} for i in range(8)}
    assert list(slow_nodes(times, 2.0)) == ["a"]
    assert slow_nodes({kind: times[kind] for kind in list(times)[:4]}, 2.0) == {}


def test_nothing_is_known_of_nobody():
    assert (
        slow_nodes({}, 2.0)
        == slow_nodes({"inc": {}}, 2.0)
        == slow_nodes({"inc": {"a": [1.0] * 9}}, 2.0)
        == {}
    )
    assert slow_nodes({"inc": {"a": [0.0] * 9, "b": [0.0] * 9}}, 2.0) == {}


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("klm"),
        st.dictionaries(st.sampled_from(NODES), st.lists(st.floats(0.001, 100), min_size=1, max_size=9)),
    ),
    st.floats(0.01, 100),
)
def test_the_unit_of_time_does_not_matter(times, unit):
    other = {
        kind: {node: [unit * one for one in some] for node, some in by_node.items()}
        for kind, by_node in times.items()
    }
    found, again = slow_nodes(times, 2.0), slow_nodes(other, 2.0)
    assert {node: one.tasks for node, one in found.items() if one.ratio > 2.001} == {
        node: one.tasks for node, one in again.items() if one.ratio > 2.001 and node in found
    }
    assert len(found) < len(NODES), "not all are slower than the others"
