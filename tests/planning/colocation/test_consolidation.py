"""The fast heuristics place every task where the algorithms as they are printed (with the flag reset) do."""

from collections import Counter
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.colocation.completion import completions
from dask_hpc.planning.colocation.consolidate import (
    NodeTable,
    WaitingTask,
    WaitingTasks,
    aware_slack,
    naive_slack,
)
from dask_hpc.planning.colocation.table import SlowdownTable

KINDS = ("cg", "sp", "ep")
ALONE = (250.0, 400.0, 180.0)
HEAVY = {"cg": 1.0, "sp": 0.5, "ep": 0.0}


def law(kind, others):
    return 1 + 0.4 * HEAVY[kind] * sum(HEAVY[one] * count for one, count in others.items())


TABLE = SlowdownTable.of(KINDS, 4, law)


def waiting_of(tasks):
    waiting = WaitingTasks(len(KINDS))
    for task in tasks:
        waiting.add(task)
    return waiting


def drawn_world(rng, nodes, count, table=TABLE):
    """Nodes with tasks that began at different times, and tasks that wait."""
    state, now = NodeTable(table, nodes), 0.0
    for _ in range(int(rng.integers(0, 3 * nodes + 1))):
        now += rng.exponential(20)
        node = int(rng.integers(nodes))
        if state.free[node]:
            kind = int(rng.integers(len(KINDS)))
            due = now + ALONE[kind] * rng.uniform(0.9, 2.5)
            state.start(node, kind, ALONE[kind] * rng.uniform(0.3, 1), due, now)
    tasks = []
    for number in range(count):
        kind = int(rng.integers(len(KINDS)))
        due = now + ALONE[kind] * rng.uniform(0.8, 2)
        tasks.append(WaitingTask(due - ALONE[kind], number, kind, due))
    return state, tasks, now + rng.uniform(0, 30)


def literal(tasks, state, now, is_ok):
    """Algorithms 4 and 5: tasks by slack, nodes by idle cores, the first node that passes its test."""
    idle = TABLE.idle
    nodes = [
        [(kind, seconds, due) for kind, seconds, due in zip(*row, strict=True) if kind != idle]
        for row in zip(
            state.kinds.tolist(),
            state.work(np.arange(len(state)), now).tolist(),
            state.deadlines.tolist(),
            strict=True,
        )
    ]
    found = []
    for task in sorted(tasks, key=lambda one: (one.deadline - (now + ALONE[one.kind]), one.number)):
        chosen = None
        free = [node for node in range(len(nodes)) if len(nodes[node]) < TABLE.cores]
        for node in sorted(free, key=lambda node: TABLE.cores - len(nodes[node])):
            if is_ok(task, nodes[node], now):
                chosen = node
                break
        if chosen is not None:
            nodes[chosen].append((task.kind, ALONE[task.kind], task.deadline))
            found.append((task.number, chosen))
    return found


def has_slack(task, node, now):
    return task.deadline - (now + ALONE[task.kind]) > 0


def all_in_time(table):
    def is_ok(task, node, now):
        together = [*node, (task.kind, ALONE[task.kind], task.deadline)]

        def slowdown(place, others):
            return table.slowdown(
                KINDS[together[place][0]], Counter(KINDS[together[one][0]] for one in others)
            )

        ends = completions([seconds for _, seconds, _ in together], slowdown)
        return all(due - (now + end) > 0 for end, (_, _, due) in zip(ends, together, strict=True))

    return is_ok


@given(st.integers(0, 10**9), st.integers(1, 9), st.integers(0, 25))
@settings(max_examples=80, deadline=None)
def test_naive_slack_is_algorithm_4(seed, nodes, count):
    state, tasks, now = drawn_world(np.random.default_rng(seed), nodes, count)
    found = naive_slack(waiting_of(tasks), state.free, now)
    assert [(task.number, node) for task, node in found] == literal(tasks, state, now, has_slack)


@given(st.integers(0, 10**9), st.integers(1, 9), st.integers(0, 25), st.booleans())
@settings(max_examples=120, deadline=None)
def test_aware_slack_is_algorithm_5(seed, nodes, count, is_perfect):
    rng = np.random.default_rng(seed)
    state, tasks, now = drawn_world(rng, nodes, count)
    table = None if is_perfect else TABLE.disturbed(0.1, rng)
    waiting, before = waiting_of(tasks), state.kinds.copy()
    found = aware_slack(waiting, state, now, ALONE, table)
    theirs = literal(tasks, state, now, all_in_time(table or TABLE))
    assert [(task.number, node) for task, node in found] == theirs
    assert len(waiting) == len(tasks) and (state.kinds == before).all(), "nothing is changed"


def test_brute_force_tells_the_heuristics_apart():
    """Otherwise the two tests above would show little."""
    different = placed = refused = 0
    for seed in range(40):
        state, tasks, now = drawn_world(np.random.default_rng(seed), 5, 12)
        naive = literal(tasks, state, now, has_slack)
        aware = literal(tasks, state, now, all_in_time(TABLE))
        different += naive != aware
        placed += len(aware)
        refused += len(naive) - len(aware)
    assert different > 20 and placed > 100 and refused > 30


def test_the_fullest_node_and_of_equals_the_first():
    state = NodeTable(TABLE, 4)
    for node in (1, 1, 3, 3, 2):
        state.start(node, 2, 100.0, inf, 0.0)
    tasks = [WaitingTask(10.0 + number, number, 2, 190.0 + number) for number in range(6)]
    for found in (
        naive_slack(waiting_of(tasks), state.free, 0.0),
        aware_slack(waiting_of(tasks), state, 0.0, ALONE),
    ):
        assert [node for _, node in found] == [1, 1, 3, 3, 2, 2]


def test_no_slack_no_node():
    """Whose deadline is exactly when it would end has no slack, and who is late has less."""
    tasks = [WaitingTask(5.0, 0, 2, 185.0), WaitingTask(4.0, 1, 2, 184.0), WaitingTask(6.0, 2, 2, 186.0)]
    state = NodeTable(TABLE, 3)
    assert [task.number for task, _ in naive_slack(waiting_of(tasks), state.free, 5.0)] == [2]
    assert [task.number for task, _ in aware_slack(waiting_of(tasks), state, 5.0, ALONE)] == [2]
    state.start(0, 2, 180.0, 185.0, 5.0)  # it ends exactly at its deadline, and has no slack either
    late = WaitingTask(500.0, 3, 2, 680.0)
    assert [node for _, node in aware_slack(waiting_of([late]), state, 5.0, ALONE)] == [1]
    waiting = waiting_of(tasks)
    assert sorted(task.number for task in waiting.drop_late(5.0)) == [0, 1] and len(waiting) == 1


def test_an_idle_core_is_left_idle_where_somebody_would_miss_a_deadline():
    state = NodeTable(TABLE, 1)
    state.start(0, 0, 250.0, 260.0, 0.0)
    hurts = WaitingTask(100.0, 0, 0, 350.0)
    assert aware_slack(waiting_of([hurts]), state, 0.0, ALONE) == []
    assert [node for _, node in naive_slack(waiting_of([hurts]), state.free, 0.0)] == [0]
    harmless = WaitingTask(100.0, 1, 2, 280.0)
    assert [task.number for task, _ in aware_slack(waiting_of([hurts, harmless]), state, 0.0, ALONE)] == [1]


def test_tasks_that_wait():
    tasks = [WaitingTask(float(slack), number, number % 3, slack + ALONE[number % 3])
             for number, slack in enumerate([30, 10, 20, 10, 40])]  # fmt: skip
    waiting = waiting_of(tasks)
    assert [task.number for task in waiting] == [1, 3, 2, 0, 4] and waiting.waiting_kinds() == [0, 1, 2]
    assert waiting.first(0, 0.0, None).number == 3
    assert waiting.first(0, 260.0, None).number == 0, "due later than that"
    assert waiting.first(0, 0.0, tasks[3]).number == 0, "after that one"
    assert waiting.first(0, 280.0, None) is None
    waiting.remove(tasks[2])
    assert waiting.waiting_kinds() == [0, 1] and len(waiting) == 4
    with pytest.raises(InputError, match="one that waits"):
        waiting.remove(tasks[2])


def test_work_goes_on_as_the_table_has_it():
    state = NodeTable(TABLE, 2)
    one = state.start(0, 0, 100.0, inf, 0.0)
    assert state.next_end(0) == (100.0, one)
    other = state.start(0, 0, 100.0, 90.0, 20.0)
    # both are 1.4 times as slow from now on: 80 and 100 of work are left
    assert state.ends(0)[[one, other]].tolist() == pytest.approx([20 + 112, 20 + 140])
    assert state.next_end(0) == (90.0, other), "it reaches its deadline before it ends"
    state.end(0, other, 90.0)
    assert state.work(np.array([0]), 90.0)[0, one] == pytest.approx(80 - 70 / 1.4)
    assert state.ends(0)[one] == pytest.approx(90 + 30) and state.free.tolist() == [3, 4]
    assert state.work(np.array([0]), 500.0)[0, one] == 0
    for _ in range(3):
        state.start(0, 2, 1.0, inf, 90.0)
    with pytest.raises(InputError, match="node: found 0"):
        state.start(0, 2, 1.0, inf, 90.0)
    with pytest.raises(InputError, match="core: found"):
        state.end(1, 0, 90.0)
    assert state.next_end(1)[0] == inf
    with pytest.raises(InputError, match="nodes: found 0"):
        NodeTable(TABLE, 0)
