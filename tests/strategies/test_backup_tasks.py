"""Which tasks run twice, and where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import raises

from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy
from dask_hpc.strategies.tail.backup_tasks import BackupTasks
from dask_hpc.strategies.tail.tail_view import Spare, TailTask, TailView, Usual

KNOWN = Usual(10, 1.0)


def view(*tasks, spare=("b", "c"), threads=8, copies=0, usual=KNOWN, slow=None):
    free = tuple(Spare(node, node, 1) for node in spare)
    return TailView(threads, copies, free, tasks, {"k": usual}, slow or {})


def task(key, seconds, node="a", allowed=None):
    return TailTask(key, "k", node, seconds, allowed)


def copied(view, **parameters):
    found, memory = BackupTasks(**parameters).decide(view, None)
    assert memory is None
    return {one.key: one.address for one in found}


def test_who_runs_for_too_long_runs_twice():
    assert copied(view(task("x", 1.6))) == {"x": "b"}
    assert copied(view(task("x", 1.4))) == {}
    assert copied(view(task("x", 1.4)), factor=1.2) == {"x": "b"}


def test_the_slowest_come_first():
    tasks = [task("x", 2.0), task("y", 4.0), task("z", 3.0)]
    assert copied(view(*tasks)) == {"y": "b", "z": "c"}


def test_not_on_the_same_node_and_not_where_it_may_not_be():
    assert copied(view(task("x", 9.0, "b"), spare=("b",))) == {}
    assert copied(view(task("x", 9.0, allowed=frozenset("c")))) == {"x": "c"}
    assert copied(view(task("x", 9.0, allowed=frozenset()))) == {}


def test_where_most_is_free():
    free = (Spare("b", "n", 1), Spare("c", "n", 3))
    found = TailView(8, 0, free, (task("x", 9.0), task("y", 8.0), task("z", 7.0)), {"k": Usual(9, 1.0)}, {})
    assert copied(found) == {"x": "c", "y": "c", "z": "b"}


def test_no_more_than_a_share_of_all_threads():
    tasks = [task("x", 2.0), task("y", 4.0)]
    assert copied(view(*tasks, threads=2)) == {"y": "b"}
    assert copied(view(*tasks, threads=2, copies=1)) == {}
    assert copied(view(*tasks, threads=2, copies=1), share=1.0) == {"y": "b"}
    assert copied(view(*tasks), share=0.0) == {}


@pytest.mark.parametrize("usual", [Usual(2, 1.0), Usual(0, 0.0), Usual(9, 0.0)])
def test_nobody_knows_what_is_usual(usual):
    assert copied(view(task("x", 100.0), usual=usual)) == {}
    assert copied(view(task("x", 100.0), usual=usual, slow={"a": 5.0})) == {}


def test_what_is_short_is_left_alone():
    assert copied(view(task("x", 0.04), usual=Usual(9, 0.001))) == {}
    assert copied(view(task("x", 0.06), usual=Usual(9, 0.001))) == {"x": "b"}
    assert copied(view(task("x", 0.0), usual=Usual(9, 0.001), slow={"a": 9.0})) == {}


def test_on_a_slow_node_a_copy_that_ends_before_begins_at_once():
    assert copied(view(task("x", 0.5), slow={"a": 3.0})) == {"x": "b"}
    assert copied(view(task("x", 1.2), slow={"a": 2.1})) == {}, "it ends as soon"
    assert copied(view(task("x", 1.6), slow={"a": 2.1})) == {"x": "b"}, "it should have ended by now"


def test_a_slow_node_gets_no_second_runs_but_of_a_slower_one():
    assert copied(view(task("x", 9.0), slow={"b": 3.0})) == {"x": "c"}
    assert copied(view(task("x", 9.0), spare=("b",), slow={"b": 3.0})) == {}
    assert copied(view(task("x", 9.0), spare=("b",), slow={"b": 3.0, "a": 6.0})) == {"x": "b"}


def test_it_says_why():
    (one,) = BackupTasks().decide(view(task("x", 0.5), slow={"a": 3.0}), None)[0]
    assert one.reason == "runs for 0.5 s, others take 1 s, and its node takes 3.0 times as long"


@given(
    st.lists(st.tuples(st.floats(0, 10), st.sampled_from("abc")), max_size=12),
    st.lists(st.sampled_from("abcd"), unique=True),
    st.integers(0, 9),
    st.floats(0, 1),
)
def test_nobody_gets_more_than_is_free(tasks, spare, copies, share):
    tasks = [task(i, *one) for i, one in enumerate(tasks)]
    found, _ = BackupTasks(share=share).decide(view(*tasks, spare=spare, copies=copies), None)
    used = [one.address for one in found]
    assert len(set(used)) == len(used) and set(used) <= set(spare)
    assert len(used) <= max(0, int(8 * share) - copies)
    assert all(one.address != tasks[one.key].node and tasks[one.key].seconds >= 1.5 for one in found)


@pytest.mark.parametrize(
    "text, says",
    [
        ("factor: 1", "tail.factor: found 1"),
        ("share: 2", "tail.share: found 2"),
        ("known: 0", "tail.known: found 0"),
        ("hold: maybe", "tail.hold: found 'maybe'"),
        ("slow: 1", "tail.slow: found 1"),
        ("factro: 2", "tail.factro: unknown key (nearest: factor)"),
    ],
)
def test_bad_parameters(text, says):
    with raises(InputError) as caught:
        Policy.parse(f"queue: {{strategy: fcfs}}\ntail: {{strategy: backup-tasks, {text}}}")
    assert says in str(caught.value)
