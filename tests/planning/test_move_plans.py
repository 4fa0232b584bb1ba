"""Plans of an evacuation: nothing lost, rooms kept, neighbours together."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.leaving import MovableBlock, Move, collection_of, evacuate

WORKERS = "ABCDE"
AMPLE = dict.fromkeys(WORKERS, 10**9)


def layout(text, nbytes=4, name="x"):
    """Blocks of one collection, a letter for the holder of each."""
    return [MovableBlock((name, i), nbytes, (worker,)) for i, worker in enumerate(text)]


def after(blocks, plan):
    """The same as text, when the plan is done."""
    targets = {move.key: move.target for move in plan.moves}
    return "".join(targets.get(block.key, block.holders[0]) for block in blocks)


def cuts(text):
    """How many pairs of neighbours are apart."""
    return sum(a != b for a, b in pairwise(text))


@pytest.mark.parametrize(
    ("before", "leaving", "expected"),
    [
        ("AAABBBCCCDDD", "BD", "AAAAAACCCCCC"),  # each run goes to its neighbour
        ("AAABBBCCCDDD", "CD", "AAABBBBBBAAA"),  # as much as an even share, the rest where there is less
        ("AAABBBCCCDDD", "AB", "DDDCCCCCCDDD"),
        ("AAABBBCCCDDD", "ABC", "DDDDDDDDDDDD"),
        ("AAAABBBB", "A", "BBBBBBBB"),
        ("AAAA", "A", "BBCC"),  # nobody has any: even pieces
        ("ABAB", "", "ABAB"),
    ],
)
def test_neighbours_stay_together(before, leaving, expected):
    blocks = layout(before)
    rooms = dict.fromkeys(sorted(set(before) | {"B", "C"}), 1000)
    if before == "AAAABBBB":
        del rooms["C"]
    assert after(blocks, evacuate(blocks, leaving, rooms)) == expected


@pytest.mark.parametrize("leaving", [a + b for a in "ABCD" for b in "ABCD" if a < b])
def test_from_four_workers_to_two(leaving):
    """The planning half of S17, whichever two leave: even, and still in few pieces."""
    blocks = layout("".join(worker * 10 for worker in "ABCD"))
    plan = evacuate(blocks, leaving, dict.fromkeys("ABCD", 100))
    result = after(blocks, plan)
    assert len(plan.moves) == 20 and not plan.unplaced
    assert all(result.count(worker) == 20 for worker in set("ABCD") - set(leaving))
    assert cuts(result) <= 3


@pytest.mark.parametrize(
    ("before", "target"),
    [
        ("BBBABBBBCCCCCDDDDDD", "B"),  # 7.5 are not much more than a share of 6.3
        ("BBBABBBBBBCCCDDDDDDD", "D"),  # 9.5 are, and D has its share as well
    ],
)
def test_neighbours_stay_together_a_little_beyond_the_share(before, target):
    blocks = layout(before, 10)
    (move,) = evacuate(blocks, "A", {"B": 100, "C": 0, "D": 100}).moves
    assert move.target == target


def test_plain_keys_go_where_room_is():
    blocks = [MovableBlock(f"k{i}", 10, ("A",)) for i in range(6)]
    plan = evacuate(blocks, "A", {"B": 100, "C": 60})
    assert sorted(move.target for move in plan.moves) == ["B"] * 5 + ["C"]


def grains(*sizes):
    """Plain keys on A, whose order is not that of their texts, and one that B has, too."""
    kept = MovableBlock("kept", 7, ("A", "B"))
    return [*(MovableBlock(f"x{-i}", size, ("A",)) for i, size in enumerate(sizes)), kept]


def taken(plan):
    return {worker: sum(m.nbytes for m in plan.moves if m.target == worker) for worker in "BC"}


def test_very_many_small_ones_go_as_they_come_where_most_room_is():
    blocks = grains(*(90 + i % 21 for i in range(1000)))
    plan = evacuate(blocks, "A", {"A": 10**9, "B": 10**6, "C": 10**6})
    assert [move.key for move in plan.moves] == [block.key for block in blocks[:-1]]
    assert {move.source for move in plan.moves} == {"A"} and not plan.unplaced and not plan.reason
    assert abs(taken(plan)["B"] - taken(plan)["C"]) <= 110
    assert plan.lower_bound == plan.bytes_moved == sum(block.nbytes for block in blocks[:-1])


@pytest.mark.parametrize(
    ("sizes", "room"),
    [
        ([100] * 999, 10**6),  # few
        ([100] * 999 + [503], 10**6),  # one is more than a hundredth of what a worker gets
        ([100 + i for i in range(1000)], 299_750),  # they do not all fit as they come
    ],
)
def test_else_the_largest_goes_first(sizes, room):
    plan = evacuate(grains(*sizes), "A", {"B": room, "C": room})
    moved = [move.nbytes for move in plan.moves]
    assert moved == sorted(sizes, reverse=True)[: len(moved)] and max(taken(plan).values()) <= room
    assert len(moved) + len(plan.unplaced) == len(sizes)


def test_many_with_neighbours_stay_together():
    blocks = layout("A" * 1000 + "BC", nbytes=1)
    plan = evacuate([*blocks, *grains(*[1] * 1000)], "A", {"B": 10**6, "C": 10**6})
    assert cuts(after(blocks, plan)) < 5


def test_a_copy_elsewhere_is_enough():
    blocks = [
        MovableBlock("two", 5, ("A", "B")),
        MovableBlock("lost", 5, ()),
        MovableBlock("both", 5, ("A", "D")),
    ]
    plan = evacuate(blocks, "AD", AMPLE)
    assert [move.key for move in plan.moves] == ["both"]
    assert plan.moves[0].source in "AD" and plan.moves[0].target in "BCE"


def test_what_fits_nowhere_is_said():
    blocks = [MovableBlock("huge", 10**9, ("A",)), MovableBlock("small", 10, ("A",))]
    plan = evacuate(blocks, "A", {"B": 1000, "C": 500})
    assert plan.moves == (Move("small", 10, "A", "B"),)
    assert plan.unplaced == (blocks[0],)
    assert plan.reason == (
        "1 of 2 blocks (1 GB) fit nowhere: the smallest has 1 GB, "
        "and the most room left on a worker that stays is 990 B"
    )
    full = evacuate(blocks, "A", {"B": 0, "C": -5})
    assert "the smallest has 10 B, " in full.reason
    assert full.unplaced == tuple(blocks) and full.reason.endswith("a worker that stays is 0 B")
    nobody = evacuate(blocks, "AB", {"A": 10**10, "B": 10**10})
    assert nobody.unplaced and "no worker stays" in nobody.reason
    assert not nobody.moves and not nobody


def test_sizes_decide_if_rooms_are_tight():
    """By neighbours alone the 6 would go beside the other, and one of them would fit nowhere."""
    blocks = [
        MovableBlock(("x", 0), 2, ("B",)),
        MovableBlock(("x", 1), 4, ("A",)),
        MovableBlock(("x", 2), 6, ("A",)),
    ]
    plan = evacuate(blocks, "A", {"B": 6, "C": 4})
    assert not plan.unplaced
    assert {(move.key[1], move.target) for move in plan.moves} == {(1, "C"), (2, "B")}


def test_the_largest_goes_where_it_fits_best_if_rooms_are_tight():
    """Where most room is only one of the others would fit beside it."""
    blocks = [MovableBlock(f"k{nbytes}", nbytes, ("A",)) for nbytes in (4, 5, 6)]
    plan = evacuate(blocks, "A", {"B": 9, "C": 6})
    assert {(move.nbytes, move.target) for move in plan.moves} == {(6, "C"), (5, "B"), (4, "B")}


def test_a_block_that_fits_nowhere_changes_nothing_for_small_ones():
    blocks = [MovableBlock(("x", 0), 8, ("A",)), MovableBlock(("x", 1), 2, ("A",))]
    plan = evacuate(blocks, "A", {"B": 6, "C": 2})
    assert plan.moves == (Move(("x", 1), 2, "A", "B"),) and plan.unplaced == (blocks[0],)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("x", 0), "x"),
        (("x", 3, 4), "x"),
        ("x", None),
        (("x",), None),
        (("x", "y"), None),
        (("x", True), None),
        ((1, 2), None),
        (b"x", None),
    ],
)
def test_collections(key, name):
    assert collection_of(key) == name


def test_keys_of_every_kind_together():
    keys = [("x", 0), ("x", 0, 1), ("x",), "x", b"x", 3, ("x", (1, 2)), ("y", 1, 1), ("x", 1)]
    plan = evacuate([MovableBlock(key, 1, ("A",)) for key in keys], "A", {"B": 100})
    assert {move.key for move in plan.moves} == set(keys)


@st.composite
def situations(draw):
    workers = WORKERS[: draw(st.integers(1, 5))]
    names = st.sampled_from([("x", 1), ("y", 2), (None, 0)])
    blocks = {}
    for n in range(draw(st.integers(0, 25))):
        name, indices = draw(names)
        key = f"k{n}" if name is None else (name, *([n] if indices == 1 else divmod(n, 4)))
        holders = draw(st.lists(st.sampled_from(workers), unique=True, max_size=3))
        blocks[key] = MovableBlock(key, draw(st.integers(0, 20)), tuple(holders))
    leaving = draw(st.sets(st.sampled_from(workers)))
    rooms = {worker: draw(st.integers(0, 80)) for worker in workers if draw(st.integers(0, 9))}
    return list(blocks.values()), leaving, rooms


@given(situations())
def test_evacuation(situation):
    blocks, leaving, rooms = situation
    plan = evacuate(blocks, leaving, rooms)
    homeless = [block for block in blocks if block.holders and leaving.issuperset(block.holders)]
    # Nothing is lost, and nothing moves twice or without need.
    handled = [move.key for move in plan.moves] + [block.key for block in plan.unplaced]
    assert sorted(map(str, handled)) == sorted(str(block.key) for block in homeless)
    by_key = {block.key: block for block in homeless}
    left = {worker: room for worker, room in rooms.items() if worker not in leaving}
    for move in plan.moves:
        assert move.source in by_key[move.key].holders and move.nbytes == by_key[move.key].nbytes
        left[move.target] -= move.nbytes  # fails for a worker that leaves
    assert all(room >= 0 for room in left.values())
    # What is left over fits nowhere indeed, and somebody says so.
    assert all(block.nbytes > room for block in plan.unplaced for room in left.values())
    assert bool(plan.reason) == bool(plan.unplaced)
    assert plan.bytes_moved == plan.lower_bound == sum(move.nbytes for move in plan.moves)
    # The same again, whatever the order.
    assert evacuate(blocks[::-1], leaving, dict(reversed(rooms.items()))) == plan


@given(st.text("AB", min_size=1, max_size=7), st.sampled_from(["A", "B"]))
def test_no_other_even_evacuation_has_fewer_cuts(text, leaving):
    """Against brute force: of all ways that leave survivors as even as ours, none keeps more together by
    more than one cut for each survivor."""
    blocks = layout(text)
    survivors = [worker for worker in "ABC" if worker != leaving]
    ours = after(blocks, evacuate(blocks, leaving, dict.fromkeys(survivors, 1000)))
    most = max(ours.count(worker) for worker in survivors)
    best = min(
        cuts(other)
        for choice in product(survivors, repeat=text.count(leaving))
        for other in [_filled(text, leaving, choice)]
        if max(other.count(worker) for worker in survivors) <= most
    )
    assert cuts(ours) <= best + len(survivors)


@given(
    st.lists(st.sampled_from("ABCD"), min_size=8, max_size=60), st.sets(st.sampled_from("ABCD"), max_size=3)
)
def test_survivors_are_even_if_they_were(text, leaving):
    """Nobody takes more than his share, a fifth and a block, unless he had it before."""
    blocks = layout("".join(text))
    survivors = [worker for worker in "ABCD" if worker not in leaving]
    ours = after(blocks, evacuate(blocks, leaving, dict.fromkeys("ABCD", 1000)))
    for worker in survivors:
        assert ours.count(worker) <= max(text.count(worker), 1.2 * len(text) / len(survivors) + 1)


def _filled(text, leaving, choice):
    rest = iter(choice)
    return "".join(next(rest) if letter == leaving else letter for letter in text)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("room", [10**6, 5000])
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_large_machine(room, interleaved, seconds_of):
    """10^5 blocks on 1,000 workers, half of which leave: 0.2 to 0.4 s on a small machine."""
    blocks = [
        MovableBlock(("x", i // 300, i % 300), 100, (f"w{i % 1000 if interleaved else i // 100:04d}",))
        for i in range(100_000)
    ]
    workers = [f"w{i:04d}" for i in range(1000)]
    plans, rooms = [], dict.fromkeys(workers, room)
    seconds = seconds_of(lambda: plans.append(evacuate(blocks, workers[:500], rooms)), 3)
    assert len(plans[0].moves) == (50_000 if room == 10**6 else 25_000)
    assert seconds < 1
