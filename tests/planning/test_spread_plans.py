"""Plans after growth: even, contiguous, cheap, and made once."""

import random
from functools import cache
from itertools import accumulate, pairwise, permutations
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.leaving import MovableBlock
from dask_hpc.planning.moves.redistribution import heaviest
from dask_hpc.planning.moves.spread import LEAST_BLOCKS, spread

AMPLE = 10**12


def layout(text, nbytes=4, name="x"):
    return [MovableBlock((name, i), nbytes, (worker,)) for i, worker in enumerate(text)]


def after(blocks, plan):
    """The blocks when the plan is done."""
    targets = {move.key: (move.target,) for move in plan.moves}
    return [MovableBlock(block.key, block.nbytes, targets.get(block.key, block.holders)) for block in blocks]


def as_text(blocks):
    return "".join(block.holders[0] for block in blocks)


def rooms(workers, room=AMPLE):
    return dict.fromkeys(workers, room)


@pytest.mark.parametrize(
    ("before", "workers", "expected", "moved"),
    [
        # Growth from a contiguous layout: the newcomers get the ends that the others give away.
        ("A" * 20 + "B" * 20, "ABCD", "A" * 11 + "C" * 9 + "B" * 11 + "D" * 9, 18),
        ("AAAABBBB", "ABCD", "AACCBBDD", 4),
        # An interleaved one: to sort it costs more, and pays as long as it is not much more.
        ("AB" * 20, "ABCD", "A" * 11 + "B" * 11 + "C" * 9 + "D" * 9, 28),
        ("ABC" * 8, "ABCD", "DDDDDD" + "ABC" * 6, 6),  # here it does not pay
        # One of many joins: only what it gets moves, not a bit of everybody's.
        ("A" * 20 + "B" * 20 + "C" * 20 + "D" * 20, "ABCDE", None, 21),
    ],
)
def test_growth(before, workers, expected, moved):
    blocks = layout(before)
    plan = spread(blocks, rooms(workers))
    result = as_text(after(blocks, plan))
    assert expected is None or result == expected
    assert len(plan.moves) == moved and plan.bytes_moved == 4 * moved
    assert plan.lower_bound <= plan.bytes_moved
    share = len(before) / len(workers)
    assert all(abs(result.count(worker) - share) <= 0.1 * share for worker in workers)
    assert "times an even share of x" in plan.reason


def test_where_sorting_does_not_pay_those_give_who_have_more_than_a_share():
    """B and C have just theirs, and could spare a block."""
    plan = spread(layout("BACA" * 6), rooms("ABCD"))
    assert [(move.source, move.target) for move in plan.moves] == [("A", "D")] * 6


def test_the_order_of_the_workers_is_the_best():
    """Nothing else of so few moves is even and contiguous. To let the largest overlaps choose first, of which
    there is one at a time here, would move more."""
    blocks = layout("ACCAAAABBBBBBBB")
    plan = spread(blocks, rooms("ABC"))
    assert as_text(after(blocks, plan)) == "CCCCCAAAAABBBBB" and len(plan.moves) == 6


@pytest.mark.parametrize(
    ("before", "workers"),
    [
        ("A" * 11 + "B" * 9, "AB"),  # even enough
        ("AB" * 10, "AB"),  # even, though not contiguous
        ("AABB", "AB"),
        ("AAA", "AB"),  # too few blocks
        ("A" * 20, "A"),
        ("", "AB"),
        ("CCCCCCCC", "AB"),  # held by others
    ],
)
def test_left_alone(before, workers):
    plan = spread(layout(before), rooms(workers))
    assert not plan and not plan.unplaced and plan.reason == "" and plan.lower_bound == 0


def test_plain_keys_are_left_alone():
    assert not spread([MovableBlock(f"k{i}", 4, ("A",)) for i in range(40)], rooms("AB"))


def test_each_collection_by_itself():
    blocks = layout("A" * 8, name="x") + layout("A" * 8 + "B" * 8, name="y") + layout("A" * 8, 0, "nothing")
    plan = spread(blocks, rooms("AB"))
    assert [move.key for move in plan.moves] == [("x", i) for i in range(4, 8)]
    plan = spread(layout("A" * 8, name="x") + layout("B" * 8, name="y"), rooms("AB"))
    assert {(move.key[0], move.target) for move in plan.moves} == {("x", "B"), ("y", "A")}
    assert plan.reason.endswith("of x, and 1 more collections are uneven")


def test_a_copy_in_place_is_enough():
    blocks = [MovableBlock(("x", i), 4, ("A", "B") if i >= 4 else ("A",)) for i in range(8)]
    plan = spread(blocks, rooms("AB"))
    assert not plan and not plan.reason  # B holds the second half already
    blocks = [MovableBlock(("x", i), 4, ("A", "B") if i >= 6 else ("A",)) for i in range(8)]
    plan = spread(blocks, rooms("AB"))
    assert [move.key[1] for move in plan.moves] == [4, 5]


def test_what_has_no_room_stays():
    blocks = layout("A" * 20)
    plan = spread(blocks, {"A": 0, "B": 12})
    assert len(plan.moves) == 3 and len(plan.unplaced) == 6
    assert plan.reason.startswith("the fullest of 2 workers holds 2.0 times an even share of x")
    assert plan.reason.endswith("6 blocks stay where they are: there is no room for them")


def test_two_dimensions_are_cut_by_rows():
    blocks = [MovableBlock(("x", i, j), 4, ("A",)) for i in range(4) for j in range(5)]
    plan = spread(blocks, rooms("AB"))
    assert [move.key for move in plan.moves] == [block.key for block in blocks[11:]]


@st.composite
def situations(draw):
    workers = "ABCDEF"[: draw(st.integers(2, 6))]
    blocks = []
    for name in draw(st.sampled_from(["x", "xy"])):
        size = draw(st.sampled_from([st.just(4), st.integers(0, 20), st.sampled_from([1, 1, 1, 50])]))
        held_by = workers[: draw(st.integers(1, len(workers)))]
        holders = st.lists(st.sampled_from(held_by), min_size=1, max_size=2, unique=True).map(tuple)
        if draw(st.booleans()):
            holders = st.sampled_from(held_by).map(tuple)
        count = draw(st.integers(1, 40))
        blocks += [MovableBlock((name, i), draw(size), draw(holders)) for i in range(count)]
    return blocks, workers


def nearest(row, workers):
    """How far from a share the parts are that are as equal as whole blocks allow, in order."""
    ends = [0, *accumulate(block.nbytes for block in row)]
    share = ends[-1] / len(workers)
    cuts = [0]
    for i in range(1, len(workers)):
        cuts.append(max(cuts[-1], min(range(len(ends)), key=lambda j, i=i: abs(ends[j] - i * share))))
    cuts.append(len(row))
    return max(abs(ends[b] - ends[a] - share) for a, b in pairwise(cuts))


@given(situations(), st.randoms(use_true_random=False))
def test_spread(situation, dice):
    blocks, workers = situation
    plan = spread(blocks, rooms(workers))
    by_key = {block.key: block for block in blocks}
    assert len({move.key for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        block = by_key[move.key]
        assert move.source in block.holders and move.target not in block.holders
        assert move.target in workers and move.nbytes == block.nbytes
    assert plan.lower_bound <= plan.bytes_moved and not plan.unplaced
    # A second plan right after has nothing to do. (Surplus copies make several layouts of one.)
    done = after(blocks, plan)
    if all(len(block.holders) == 1 for block in done):
        assert not spread(done, rooms(workers))
    # Everybody has an even share, or as near as whole blocks allow.
    moved = {move.key[0] for move in plan.moves}
    for name in moved:
        row = [block for block in done if block.key[0] == name and len(block.holders) == 1]
        if len(row) == sum(block.key[0] == name for block in done):
            share = sum(block.nbytes for block in row) / len(workers)
            slack = max(0.2 * share, nearest(row, workers)) * (1 + 1e-6)
            for worker in workers:
                held = sum(block.nbytes for block in row if worker in block.holders)
                assert abs(held - share) <= slack
    # The order in which things are named does not matter.
    dice.shuffle(blocks)
    assert spread(blocks, rooms(reversed(workers))) == plan


@pytest.mark.slow
@given(situations(), st.lists(st.integers(0, 60), min_size=6, max_size=6))
def test_rooms_are_kept(situation, free):
    blocks, workers = situation
    room = dict(zip(workers, free, strict=False))
    plan = spread(blocks, room)
    for move in plan.moves:
        room[move.target] -= move.nbytes
    assert min(room.values()) >= 0


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), st.integers(0, 30), max_size=20
            ),
        )
    )
)
def test_the_best_assignment_is_the_best(case):
    count, overlap = case

    def total(order):
        return sum(overlap.get(pair, 0) for pair in enumerate(order))

    best = max(total(order) for order in permutations(range(count)))
    names = [str(name) for name in range(count)]
    weights = {(names[name], thing): weight for (thing, name), weight in overlap.items()}
    order = [int(name) for name in heaviest(weights, names, count)]
    assert sorted(order) == list(range(count))
    assert total(order) == best


def least(row, workers, slack):
    """The fewest bytes that bring each worker one segment of about a share: all cuts and orders tried."""
    ends = [0, *accumulate(block.nbytes for block in row)]
    share = ends[-1] / len(workers)

    @cache
    def rest(start, used):
        if len(used) == len(workers):
            return 0 if start == len(row) else float("inf")
        return min(
            (
                rest(end, used | {worker}) + sum(b.nbytes for b in row[start:end] if worker not in b.holders)
                for worker in workers
                if worker not in used
                for end in range(start, len(row) + 1)
                if abs(ends[end] - ends[start] - share) <= slack
            ),
            default=float("inf"),
        )

    return rest(0, frozenset())


def test_few_bytes_against_brute_force():
    """Of 150 small growths each: nearly all plans move the least there is, none much more."""
    dice = random.Random(1)
    for contiguous in (True, False):
        ratios = []
        for _ in range(150):
            count = dice.randint(2, 5)
            workers = "ABCDE"[:count]
            blocks_, held_by = dice.randint(2 * count, 24), dice.randint(1, count - 1)
            text = [dice.choice(workers[:held_by]) for _ in range(blocks_)]
            row = layout(sorted(text) if contiguous else text, 1)
            plan = spread(row, rooms(workers))
            done = as_text(after(row, plan))
            if sum(a != b for a, b in pairwise(done)) == count - 1:  # not where order does not pay
                slack = max(0.1 * blocks_ / count, nearest(row, workers)) * (1 + 1e-9)
                ratios.append(plan.bytes_moved / least(tuple(row), workers, slack))
        assert len(ratios) > 75 and min(ratios) >= 1
        assert mean(ratio == 1 for ratio in ratios) >= 0.9
        assert max(ratios) <= 1.4


@given(st.integers(2, 40), st.integers(1, 20), st.integers(2, 12), st.booleans())
def test_a_growth_costs_little_more_than_it_must(workers, newcomers, per_worker, interleaved):
    """However many join however many: at most three times the bytes of any even layout."""
    count = workers * per_worker * 2
    names = [f"w{i:02d}" for i in range(workers + newcomers)]
    row = layout([names[i % workers if interleaved else i * workers // count] for i in range(count)], 10)
    plan = spread(row, rooms(names))
    assert plan.bytes_moved <= 3 * plan.lower_bound + 10 * len(names)
    assert bool(plan) <= (count >= LEAST_BLOCKS * len(names))


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("joined", [1, 500])
@pytest.mark.parametrize("order", ["contiguous", "interleaved", "random"])
def test_a_large_machine(order, joined, seconds_of):
    """10^5 blocks on 1,000 workers: 0.3 to 0.6 s on a small machine."""
    dice = random.Random(3)
    before = 1000 - joined
    place = {
        "contiguous": lambda i: i * before // 100_000,
        "interleaved": lambda i: i % before,
        "random": lambda i: dice.randrange(before),
    }[order]
    row = [MovableBlock(("x", i // 300, i % 300), 100, (f"w{place(i):04d}",)) for i in range(100_000)]
    plans = []
    seconds = seconds_of(lambda: plans.append(spread(row, rooms(f"w{i:04d}" for i in range(1000)))), 3)
    assert plans[0] and seconds < 1.5
    print(f"{order}, {joined} join: {seconds:.2f} s, {len(plans[0].moves)} moves")
