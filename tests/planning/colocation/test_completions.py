"""When tasks that slow each other end: work is conserved, less interference is never later, and the printed
algorithm errs as the digest says."""

from collections import Counter
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.colocation.completion import completions, printed_completions
from dask_hpc.planning.colocation.table import SlowdownTable, ends_by_table

works = st.lists(st.floats(0.01, 1000), min_size=1, max_size=5)
strengths = st.lists(st.floats(0, 3), min_size=5, max_size=5)


def by_others(strengths):
    """A task is slower by what the others weigh, and by what it weighs itself."""
    return lambda place, others: 1 + strengths[place] * sum(strengths[one] for one in others)


@given(works, strengths)
def test_the_work_that_is_done_is_the_work_there_was(work, strengths):
    slowdown = by_others(strengths)
    ends = completions(work, slowdown)
    times = [0.0, *sorted(ends)]
    done = [0.0] * len(work)
    for begin, end in pairwise(times):
        running = frozenset(place for place, time in enumerate(ends) if time > begin)
        for place in running:
            done[place] += (end - begin) / slowdown(place, running - {place})
    assert done == pytest.approx(work, rel=1e-6, abs=1e-9)


@given(works, strengths, st.floats(0, 1))
def test_less_interference_is_never_later(work, strengths, share):
    strong = completions(work, by_others(strengths))
    weak = completions(work, by_others([share * one for one in strengths]))
    assert all(one <= other * (1 + 1e-9) for one, other in zip(weak, strong, strict=True))
    assert all(end >= seconds * (1 - 1e-9) for end, seconds in zip(weak, work, strict=True))


@given(works, strengths)
def test_one_more_task_makes_nobody_earlier(work, strengths):
    slowdown = by_others(strengths)
    fewer = completions(work[:-1], slowdown)
    assert all(
        one <= other * (1 + 1e-9) for one, other in zip(fewer, completions(work, slowdown), strict=False)
    )


def test_a_pair_by_hand():
    """The first is done after 20 s, as it is half as fast; the second did 20 / 1.25 of its 40 then."""
    assert completions([10, 40], lambda place, others: (2.0, 1.25)[place] if others else 1.0) == [20, 20 + 24]
    assert completions([10, 10], lambda place, others: 1 + len(others)) == [20, 20]
    assert completions([], lambda place, others: 1.0) == []
    assert completions([0, 5], lambda place, others: 3.0 if others else 1.0) == [0, 5]
    assert completions([3, 5], lambda place, others: 0.5) == [3, 5], "nobody is faster than alone"


def test_who_stands_still_and_who_has_no_end():
    assert completions([10, 5], lambda place, others: inf if others and not place else 1.0) == [15, 5]
    assert completions([10, 5], lambda place, others: inf if not place else 1.0) == [inf, 5]
    assert completions([inf, 5], lambda place, others: 2.0 if others else 1.0) == [inf, 10]


@pytest.mark.parametrize("pui", [0.0, 0.25, 0.5, 0.9, 1.0, 2.0])
def test_the_printed_algorithm_overestimates(pui):
    """A task beside one that lasts: w (1 + p), where the printed one comes to w / (1 - p), or to none."""

    def slowdown(place, others):
        return 1 + pui if place == 0 and others else 1.0

    w = 100.0
    assert completions([w, inf], slowdown)[0] == pytest.approx(w * (1 + pui))
    printed = printed_completions([w, inf], slowdown, tolerance=1e-9)[0]
    assert printed == (pytest.approx(w / (1 - pui), rel=1e-6) if pui < 1 else inf)


def test_the_printed_tolerance():
    """Who ends within a second of the end of an interval ends with it."""
    ends = printed_completions([10, 10.5, 30], lambda place, others: 1.0)
    assert ends == [10, 10.5, 30]
    slower = printed_completions([10, 100], lambda place, others: 1.05 if others else 1.0)
    assert slower[0] == pytest.approx(10.5) and slower[1] > 100


@pytest.mark.parametrize(
    "work, slowdown, words",
    [
        ([-1.0], lambda *_: 1.0, "work: 0: found -1"),
        ([1.0, nan], lambda *_: 1.0, "work: 1"),
        ([1.0], lambda *_: nan, "nan for task 0"),
    ],
)
def test_no_end_of_that(work, slowdown, words):
    with pytest.raises(InputError, match=words):
        completions(work, slowdown)


KINDS = ("a", "b", "c")


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), min_size=4, max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 10**6),
)
@settings(deadline=None)
def test_many_nodes_at_once(nodes, seed):
    """As one by one, with any table, also one in which fewer others are worse."""
    rng = np.random.default_rng(seed)
    table = SlowdownTable.of(KINDS, 4, lambda kind, others: 1 + rng.uniform(0, 3))
    kinds = np.array([[kind for kind, _ in node] for node in nodes])
    work = np.array([[seconds if kind < 3 else inf for kind, seconds in node] for node in nodes])
    found = ends_by_table(table, kinds, work)
    for row, node in enumerate(nodes):
        tasks = [(kind, seconds) for kind, seconds in node if kind < 3]

        def slowdown(place, others, tasks=tasks):
            names = Counter(KINDS[tasks[one][0]] for one in others)
            return table.slowdown(KINDS[tasks[place][0]], names)

        ends = iter(completions([seconds for _, seconds in tasks], slowdown))
        theirs = [next(ends) if kind < 3 else inf for kind, _ in node]
        assert found[row].tolist() == pytest.approx(theirs, rel=1e-9)
    assert (kinds == [[kind for kind, _ in node] for node in nodes]).all(), "nothing is changed"


def test_a_table_of_slowdowns():
    asked = []

    def slowdown(kind, others):
        asked.append((kind, dict(others)))
        return 0.5 if kind == "b" else 1 + 0.1 * sum(others.values()) + others.get("b", 0)

    table = SlowdownTable.of(["a", "b"], 3, slowdown)
    assert table.slowdown("a", {"a": 1, "b": 1}) == pytest.approx(2.2) and table.slowdown("a", {}) == 1
    assert table.slowdown("b", {"a": 2}) == 1, "nobody is faster than alone"
    assert table.slowdown("a", {"a": 2}) == pytest.approx(1.2) == table.slowdown("a", {"a": 2, "b": 0})
    assert len(asked) == 2 * (1 + 2 + 3) and all(0 not in others.values() for _, others in asked)
    drawn = table.disturbed(0.03, np.random.default_rng(0))
    assert drawn.slowdown("a", {}) == 1 != drawn.slowdown("a", {"a": 1}) >= 1
    big = SlowdownTable.of("abcd", 6, lambda kind, others: 2.0)
    is_there = np.isfinite(big.values)
    ratios = big.disturbed(0.03, np.random.default_rng(1)).values[is_there] / big.values[is_there]
    assert (
        ratios.std() == pytest.approx(0.03, rel=0.15)
        and ratios.mean() == pytest.approx(1, abs=0.01)
        and ratios.max() > 1.05
    )
    for wrong in (
        lambda: table.slowdown("c", {}),
        lambda: table.slowdown("a", {"a": 3}),
        lambda: table.slowdown("a", {"a": -1}),
        lambda: SlowdownTable.of([], 4, slowdown),
        lambda: SlowdownTable.of("ab", 0, slowdown),
        lambda: SlowdownTable.of("ab", 4, lambda kind, others: nan),
        lambda: SlowdownTable.of("ab", 4, lambda kind, others: inf),
        lambda: SlowdownTable.of("abcdefgh", 12, slowdown),
    ):
        with pytest.raises(InputError):
            wrong()
