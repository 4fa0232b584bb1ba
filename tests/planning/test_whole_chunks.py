"""Collections are laid out in whole chunks: all on the right workers, and nothing moves that need not."""

from itertools import pairwise, permutations

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.leaving import MovableBlock
from dask_hpc.planning.moves.spread import lay_out

WORKERS = ["a", "b", "c", "d"]


def after(blocks, plan):
    where = {block.key: block.holders[0] for block in blocks}
    for move in plan.moves:
        assert where[move.key] == move.source != move.target
        where[move.key] = move.target
    return where


def rows(count, nbytes=10, name="x", holder=lambda i: "a"):
    return [MovableBlock((name, i), nbytes, (holder(i),)) for i in range(count)]


@given(st.lists(st.sampled_from(WORKERS), min_size=1, max_size=20), st.integers(1, 4), st.booleans())
def test_the_layout_is_as_asked_and_moves_least(holders, count, is_cyclic):
    blocks = [MovableBlock(("x", i), 10, (holder,)) for i, holder in enumerate(holders)]
    workers = WORKERS[:count]
    plan = lay_out(blocks, "cyclic" if is_cyclic else "block", dict.fromkeys(workers, 10**6))
    where = [after(blocks, plan)["x", i] for i in range(len(blocks))]
    assert set(where) <= set(workers)
    parts = [i % count for i in range(len(blocks))]
    if is_cyclic:
        pairs = [(i, j) for i in range(len(where)) for j in range(i)]
        assert all((where[i] == where[j]) == (parts[i] == parts[j]) for i, j in pairs)
        least = min(
            sum(holders[i] != order[part] for i, part in enumerate(parts)) for order in permutations(workers)
        )
        assert plan.bytes_moved == plan.lower_bound == 10 * least
    else:
        changes = sum(one != other for one, other in pairwise(where))
        assert changes == len(set(where)) - 1  # runs of neighbours
        sizes = [where.count(worker) for worker in workers]
        assert max(sizes) <= 1.1 * len(where) / count + 1


def test_a_chunk_that_would_be_cut_goes_where_most_of_it_belongs():
    blocks = [MovableBlock(("x", i), nbytes, ("a",)) for i, nbytes in enumerate([50, 30, 20])]
    plan = lay_out(blocks, "block", {"a": 1000, "b": 1000})
    assert plan.bytes_moved == 50
    blocks = [MovableBlock(("x", i), nbytes, ("a",)) for i, nbytes in enumerate([30, 60, 10])]
    plan = lay_out(blocks, "block", {"a": 1000, "b": 1000})
    assert plan.bytes_moved in (30, 40)


def test_arrays_of_one_shape_lie_together_and_in_the_longer_dimension():
    blocks = [
        MovableBlock((name, j, i), 10, (holder,))
        for name, holder in (("u", "a"), ("v", "b"))
        for i in range(8)
        for j in range(2)
    ]
    plan = lay_out(blocks, "block", dict.fromkeys("ab", 10**6))
    where = after(blocks, plan)
    for j, i in [(j, i) for j in range(2) for i in range(8)]:
        assert where["u", j, i] == where["v", j, i] == where["u", 0, i]
    assert [where["u", 0, i] == where["u", 0, 0] for i in range(8)] == [True] * 4 + [False] * 4


def test_no_room_and_nothing_to_do():
    blocks = rows(8)
    plan = lay_out(blocks, "block", {"a": 0, "b": 25})
    assert len(plan.moves) == 2 and len(plan.unplaced) == 2 and "no room" in plan.reason
    assert not lay_out([], "block", {"a": 0}) and not lay_out(blocks, "block", {})
    assert not lay_out([MovableBlock("alone", 10, ("a",))], "cyclic", {"b": 100})
