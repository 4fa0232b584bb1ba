"""The order in which results are saved."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.planning.moves import leaving as worth
from dask_hpc.planning.moves.leaving import (
    MovableBlock,
    RecomputeCost,
    dearest_first,
    dearest_that_fit,
    worth_first,
)


def test_seconds_per_byte_decide():
    recipes = {"cheap": RecomputeCost(1, 100), "dear": RecomputeCost(10, 100), "small": RecomputeCost(1, 1)}
    assert worth_first(recipes, recipes) == ["small", "dear", "cheap"]
    recipes = {"two": RecomputeCost(3, 2), "one": RecomputeCost(2, 1), "none": RecomputeCost(2, 0)}
    assert worth_first(recipes, recipes) == ["one", "none", "two"]  # nothing is less than a byte


def test_lost_ancestors_count_and_saved_ones_do_not():
    recipes = {
        "source": RecomputeCost(100, 10**9),  # not held any more
        "a": RecomputeCost(1, 10, ("source", "elsewhere")),
        "b": RecomputeCost(5, 10, ("a",)),
        "c": RecomputeCost(2, 10, ("b",)),
    }
    # c first: it stands for 108 s; then b (106 s); a is worth 101 s even when c and b are saved.
    assert worth_first(["a", "b", "c"], recipes) == ["c", "b", "a"]
    # b needs nothing of the source once a is saved, and then lone is worth more.
    recipes |= {"a": RecomputeCost(1, 1, ("source",)), "lone": RecomputeCost(50, 10)}
    assert worth_first(["b", "lone", "a"], recipes) == ["a", "lone", "b"]


def test_equal_worth_keeps_the_order():
    recipes = {key: RecomputeCost(0, 0) for key in ("b", ("a", 1), 3)}
    assert worth_first(recipes, recipes) == ["b", ("a", 1), 3]
    assert worth_first([], {}) == []


graphs = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(0, 10**9), st.sets(st.integers(0, 30), max_size=4)), max_size=30
).map(
    lambda rows: {
        key: RecomputeCost(seconds, nbytes, tuple(need for need in needs if need < key))
        for key, (seconds, nbytes, needs) in enumerate(rows)
    }
)


@settings(deadline=None)
@given(graphs, st.sets(st.integers(0, 29)))
def test_every_held_result_once_and_the_worth_never_rises(recipes, held):
    held = sorted(held & set(recipes))
    order = worth_first(held, recipes)
    assert sorted(order) == held

    def closure(key, saved):
        found = {key}
        for need in recipes[key].needs:
            if need not in saved:
                found |= closure(need, saved)
        return found

    for place, _ in enumerate(order):
        saved = set(order[:place])
        worths = [
            sum(recipes[k].seconds for k in sorted(closure(other, saved))) / max(recipes[other].nbytes, 1)
            for other in order[place:]
        ]
        assert worths[0] >= max(worths) * (1 - 1e-9)


def test_a_huge_tangle_is_ordered_in_bounded_time(monkeypatch):
    monkeypatch.setattr(worth, "_STEPS", 1000)
    recipes = {k: RecomputeCost(1, 1, tuple(range(max(0, k - 50), k))) for k in range(2000)}
    assert sorted(worth_first(recipes, recipes)) == list(range(2000))


def test_the_first_go_where_most_room_is():
    blocks = [
        MovableBlock(key, nbytes, ("gone",)) for key, nbytes in (("a", 5), ("b", 9), ("c", 4), ("d", 1))
    ]
    plan = dearest_that_fit(blocks, {"x": 6, "y": 5})
    assert [(move.key, move.target) for move in plan.moves] == [("a", "x"), ("c", "y"), ("d", "x")]
    assert [block.key for block in plan.unplaced] == ["b"] and plan.reason
    assert dearest_that_fit(blocks, {}).moves == ()


@settings(deadline=None)
@given(st.lists(st.integers(0, 100)), st.dictionaries(st.text(max_size=3), st.integers(0, 300), max_size=4))
def test_no_room_is_overfilled_and_the_first_is_not_left_out_for_a_later_one(sizes, rooms):
    blocks = [MovableBlock(place, nbytes, ("gone",)) for place, nbytes in enumerate(sizes)]
    plan = dearest_that_fit(blocks, rooms)
    left = dict(rooms)
    for move in plan.moves:
        left[move.target] -= move.nbytes
    assert all(room >= 0 for room in left.values())
    assert sorted([m.key for m in plan.moves] + [b.key for b in plan.unplaced]) == list(range(len(sizes)))
    for block in plan.unplaced:  # even with only what comes before it, it would have had no room
        earlier = dearest_that_fit(blocks[: block.key + 1], rooms)
        assert block in earlier.unplaced


def test_what_leaves_goes_in_the_order_of_its_worth():
    held = {
        key: MovableBlock(key, nbytes, ("gone",)) for key, nbytes in (("x", 9), ("a", 1), ("b", 2), ("c", 3))
    }
    recipes = {"a": RecomputeCost(1, 1), "b": RecomputeCost(20, 2), "c": RecomputeCost(90, 3)}
    order, plan = dearest_first(held, recipes, {"gone"}, {"stays": 100, "gone": 100})
    assert order == ["c", "b", "a", "x"] == [move.key for move in plan.moves]  # of x nothing is known
    order, plan = dearest_first(held, recipes, {"gone"}, {"stays": 5})
    assert [move.key for move in plan.moves] == ["c", "b"] and "fit nowhere" in plan.reason
    assert [block.key for block in plan.unplaced] == ["a", "x"]
    assert dearest_first({}, {}, {"gone"}, {"stays": 5}) == ([], plan.__class__())


def test_who_leaves_takes_nothing_however_much_room_it_has():
    held = {"a": MovableBlock("a", 1, ("gone",)), ("x", 0): MovableBlock(("x", 0), 1, ("gone",))}
    for some in ({"a": held["a"]}, held):
        _, plan = dearest_first(some, {}, {"gone"}, {"stays": 10, "gone": 100})
        assert [(move.key, move.target) for move in plan.moves] == [(key, "stays") for key in some]


def test_neighbours_stay_together_where_all_fits():
    held = {("x", i): MovableBlock(("x", i), 1, ("gone",)) for i in range(8)}
    _, plan = dearest_first(held, {}, {"gone"}, {"one": 100, "two": 100})
    targets = [move.target for move in plan.moves]
    assert sum(before != after for before, after in pairwise(targets)) == 1
