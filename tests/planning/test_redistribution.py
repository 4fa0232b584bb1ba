"""Redistribution plans: everything arrives, once, where the layout says, and no plan moves less."""

from itertools import combinations, pairwise, permutations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import Blocks, joint_redistribution, redistribution

NODES = [f"n{number}" for number in range(9)]
SIZES = (1, 2, 3, 4, 6, 9)
LAYOUTS = ["block", "cyclic", "block-cyclic:1", "block-cyclic:3", "replicated"]


def edges_of(chunks):
    return tuple(np.cumsum([0, *chunks]).tolist())


def lying(shape, width, layout, nodes, dims=None):
    """An array in chunks of that width, laid out on these nodes by a plan of its own."""
    dims = dims or tuple("xyz"[: len(shape)])
    edges = tuple((*range(0, length, width), length) if length else (0, 0) for length in shape)
    plan = redistribution(Blocks(dims, edges, {}), Layout.read(layout), targets=nodes)
    return Blocks(dims, plan.edges, {chunk.index: chunk.targets for chunk in plan.chunks})


def carry_out(blocks, plan, array):
    """By numpy: each node's part of the array, as the pieces say. Sources must hold what they give."""
    parts = {}
    for chunk in plan.chunks:
        at = tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(plan.edges, chunk.index, strict=True))
        new = np.full(array[at].shape, -1)
        for piece in chunk.pieces:
            assert piece.source in blocks.holders[piece.old]
            begin = [edges[i] for edges, i in zip(blocks.edges, piece.old, strict=True)]
            spans = [(b + low, b + high) for b, (low, high) in zip(begin, piece.spans, strict=True)]
            inside = tuple(
                slice(low - a.start, high - a.start) for (low, high), a in zip(spans, at, strict=True)
            )
            assert (new[inside] == -1).all()  # nothing comes twice
            new[inside] = array[tuple(slice(*span) for span in spans)]
        assert np.array_equal(new, array[at])
        for node in chunk.targets:
            parts.setdefault(node, []).append((at, new))
    return parts


@pytest.mark.parametrize("shape", [(13,), (1,), (0,), (7, 5), (4, 0), (3, 1, 2), ()])
@pytest.mark.parametrize("before, after", list(product(LAYOUTS, LAYOUTS)))
def test_any_number_to_any_number(shape, before, after):
    array = np.arange(prod(shape)).reshape(shape)
    for old, new in product(SIZES, SIZES):
        blocks = lying(shape, 2, before, NODES[:old])
        plan = redistribution(blocks, Layout.read(after), nodes=new, candidates=NODES)
        assert len(plan.nodes) == len(set(plan.nodes)) == new
        assert set(plan.leaving) == {n for there in blocks.holders.values() for n in there} - set(plan.nodes)
        parts = carry_out(blocks, plan, array)
        copies = new if after == "replicated" else 1
        assert sum(chunk.size for one in parts.values() for _, chunk in one) == copies * array.size
        assert plan.bytes_moved == plan.lower_bound


@given(st.data())
def test_no_assignment_moves_less(data):
    length = data.draw(st.integers(1, 12))
    cuts = data.draw(st.sets(st.integers(1, length)))
    edges = tuple(sorted({0, length, *cuts}))
    held = st.lists(st.sampled_from(NODES[:4]), min_size=1, max_size=2, unique=True)
    holders = {(place,): data.draw(held) for place in range(len(edges) - 1)}
    wanted = data.draw(st.integers(1, 4))
    blocks = Blocks(("x",), (edges,), holders, 1)
    plan = redistribution(
        blocks, Layout.read(data.draw(st.sampled_from(LAYOUTS[:4]))), nodes=wanted, candidates=NODES[:4]
    )
    owner = np.empty(length, int)  # which part each element belongs to
    for chunk in plan.chunks:
        begin, end = plan.edges[0][chunk.index[0]], plan.edges[0][chunk.index[0] + 1]
        owner[begin:end] = plan.nodes.index(chunk.targets[0])
    there = np.zeros((4, length), bool)
    for (place,), nodes in holders.items():
        for node in nodes:
            there[NODES.index(node), edges[place] : edges[place + 1]] = True
    least = min(
        sum(not there[choice[owner[g]], g] for g in range(length))
        for some in combinations(range(4), wanted)
        for choice in permutations(some)
    )
    assert plan.bytes_moved == plan.lower_bound == least


def test_the_survivors_of_a_shrink_are_those_that_move_least():
    """From 16 to 8 nodes half moves, where the document's first eight ranks would move 15/16 (000, 2.34)."""
    nodes = [f"n{number:02}" for number in range(16)]
    blocks = lying((1600,), 100, "block", nodes)
    plan = redistribution(blocks, Layout.read("block"), nodes=8, candidates=nodes)
    assert plan.bytes_moved == 8 * 1600 / 2 and len(plan.leaving) == 8
    first = redistribution(blocks, Layout.read("block"), targets=nodes[:8])
    assert first.bytes_moved > plan.bytes_moved
    grown = redistribution(lying((1600,), 100, "block", nodes[:1]), Layout.read("block"), targets=nodes)
    assert grown.bytes_moved == 8 * 1600 * 15 / 16


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 9))
def test_blocks_are_even_and_cut_only_where_that_needs_it(chunks, parts):
    edges = edges_of(chunks)
    new, owners = Layout.read("block").dims[0][1].parts_of(edges, parts)
    assert set(edges) <= set(new) and len(set(new) - set(edges)) < parts
    sizes = [0] * parts
    for (begin, end), owner in zip(pairwise(new), owners, strict=True):
        sizes[owner] += end - begin
    even = edges[-1] / parts
    assert max(sizes) <= 1.2 * even + 1 and list(owners) == sorted(owners)


def test_widths_and_sizes_are_exact():
    def read(found):
        return Layout.read(found).dims[0][1]

    assert read("block:4").parts_of((0, 10), 3) == ((0, 4, 8, 10), (0, 1, 2))
    assert read("block-cyclic:3").parts_of((0, 5, 10), 2) == ((0, 3, 6, 9, 10), (0, 1, 0, 1))
    assert read("cyclic").parts_of((0, 5, 10, 11), 2) == ((0, 5, 10, 11), (0, 1, 0))
    assert read([3, 0, 7]).parts_of((0, 5, 10), 3) == ((0, 3, 5, 10), (0, 2, 2))
    assert read("block").parts_of((0, 10), 20)[0] == tuple(range(11))


def test_dimensions_by_name_and_grids():
    blocks = lying((8, 8), 1, "block", NODES[:1])
    plan = redistribution(blocks, Layout.read({"y": "block", "x": "block"}, {4: (2, 2)}), targets=NODES[:4])
    owners = {chunk.index: chunk.targets[0] for chunk in plan.chunks}
    assert {owners[i, j] for i in range(4) for j in range(4)} == {owners[0, 0]}
    assert len(set(owners.values())) == 4
    plan = redistribution(blocks, Layout.read({"y": "cyclic", "x": "replicated"}), targets=NODES[:2])
    assert {chunk.targets[0] == plan.nodes[chunk.index[1] % 2] for chunk in plan.chunks} == {True}
    assert Layout.read({"x": "replicated"}).is_replicated
    six = redistribution(blocks, Layout.read({"x": "block", "y": "block"}), targets=NODES[:6])
    assert len({chunk.targets for chunk in six.chunks}) == 6


@pytest.mark.parametrize(
    "layout, nodes, words",
    [
        ("blocks", 2, "block, block:WIDTH"),
        ("block:0", 2, "width"),
        ("block:-1", 2, "width"),
        ("block-cyclic:", 2, "width"),
        ("cyclic:3", 2, "cyclic"),
        ({"x": 3}, 2, "layout of 'x'"),
        ({"z": "block"}, 2, "'z'"),
        ({1: "block"}, 2, "names"),
        ([3, 4], 2, "8 elements"),
        ([3, 4, 1], 2, "2 nodes"),
        ([3, -4], 2, "sizes"),
        ("block:3", 2, "at least 4"),
        ("block", 0, "from 1 to 9"),
        ("block", 10, "from 1 to 9"),
        (None, 2, "layout"),
    ],
)
def test_what_cannot_be(layout, nodes, words):
    with pytest.raises(InputError) as told:
        redistribution(lying((8,), 2, "block", NODES[:2]), Layout.read(layout), nodes=nodes, candidates=NODES)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_grids_that_do_not_fit():
    with pytest.raises(InputError, match="that make 4"):
        Layout.read({"x": "block", "y": "block"}, {4: (2, 3)})
    with pytest.raises(InputError, match="no grid was given for 3 nodes"):
        layout = Layout.read({"x": "block", "y": "block"}, {4: (2, 2)})
        redistribution(lying((8, 8), 2, "block", NODES[:2]), layout, nodes=3, candidates=NODES)


@given(st.data())
def test_arrays_with_common_dimensions_lie_together(data):
    """The same index is on the same node in every array that has the divided dimensions."""
    lengths = {"x": data.draw(st.integers(0, 12)), "y": data.draw(st.integers(0, 6))}
    arrays = []
    for dims in data.draw(
        st.lists(st.sampled_from([("x", "y"), ("y", "x"), ("x",), ("y",), ()]), min_size=1)
    ):
        cuts = [data.draw(st.sets(st.integers(0, lengths[dim]))) for dim in dims]
        edges = tuple(
            tuple(sorted({0, lengths[dim], *cut})) if lengths[dim] else (0, 0)
            for dim, cut in zip(dims, cuts, strict=True)
        )
        indices = product(*(range(len(one) - 1) for one in edges))
        holders = {index: [data.draw(st.sampled_from(NODES[:4]))] for index in indices}
        arrays.append(Blocks(dims, edges, holders, data.draw(st.sampled_from([1, 4]))))
    names = [name for name in "xy" if any(name in blocks.dims for blocks in arrays)]
    words = st.sampled_from(LAYOUTS[:4])
    layout = data.draw(words | st.fixed_dictionaries(dict.fromkeys(names, words)))
    if layout == {}:
        layout = "block"
    wanted = data.draw(st.integers(1, 4))
    plan = joint_redistribution(arrays, Layout.read(layout), nodes=wanted, candidates=NODES[:4])
    assert len(set(plan.nodes)) == wanted and plan.lower_bound <= plan.bytes_moved
    held = {node for blocks in arrays for there in blocks.holders.values() for node in there}
    assert set(plan.leaving) == held - set(plan.nodes)
    divided = list(layout) if isinstance(layout, dict) else []
    if not divided:  # by one word: the dimension with the most chunks of the largest
        largest = max(arrays, key=lambda blocks: blocks.total)
        divided = [max(largest.dims, key=lambda dim: len(largest.edges[largest.dims.index(dim)]), default="")]
    whose = {}
    for blocks, one in zip(arrays, plan.arrays, strict=True):
        carry_out(
            blocks,
            one,
            np.arange(prod(lengths[d] for d in blocks.dims)).reshape([lengths[d] for d in blocks.dims]),
        )
        if not set(divided) <= set(blocks.dims):
            continue
        for chunk in one.chunks:
            spans = [
                range(
                    one.edges[blocks.dims.index(dim)][chunk.index[blocks.dims.index(dim)]],
                    one.edges[blocks.dims.index(dim)][chunk.index[blocks.dims.index(dim)] + 1],
                )
                for dim in divided
            ]
            for element in product(*spans):
                assert whose.setdefault(element, chunk.targets) == chunk.targets


def test_a_smaller_array_is_cut_where_the_larger_one_is():
    """Edges that both have are taken if they are near enough; else the larger one is left whole."""

    def edges(width, length=120):
        return (tuple(range(0, length + 1, width)),)

    def both(width, other, layout, nodes=2):
        arrays = [
            Blocks(("x",), edges(other), {}, 1),
            Blocks(("x",), edges(width), {}, 8),
        ]
        return joint_redistribution(arrays, Layout.read(layout), targets=NODES[:nodes])

    assert both(10, 20, "block").cuts == 0
    assert both(10, 20, "cyclic").cuts == 0
    small, large = both(10, 24, "block").arrays
    assert large.cuts == 0 and small.cuts == 2 and 60 in small.edges[0]
    small, large = both(40, 120, "cyclic").arrays
    assert large.cuts == 0 and small.edges == large.edges


def test_an_array_without_the_divided_dimension_is_not_copied_everywhere():
    arrays = [
        Blocks(("x",), (tuple(range(9)),), {(i,): [NODES[i // 4]] for i in range(8)}, 8),
        Blocks(("y",), ((0, 5),), {(0,): [NODES[2]]}, 8),
        Blocks(("y",), ((0, 5),), {(0,): [NODES[1]]}, 8),
    ]
    plan = joint_redistribution(arrays, Layout.read({"x": "block"}), nodes=2, candidates=NODES[:3])
    assert set(plan.nodes) == {NODES[1], NODES[2]}
    assert [len(chunk.targets) for one in plan.arrays for chunk in one.chunks] == [1] * 10
    assert plan.bytes_moved == plan.lower_bound == min(40, 32)


def test_a_grid_is_not_chosen_because_everything_stays_where_it_is():
    """All on one node, one chunk along y: in a grid of 1 x 4 nothing would move, and three nodes be idle."""
    edges = (tuple(range(13)), (0, 6))
    blocks = Blocks(("x", "y"), edges, {(i, 0): [NODES[0]] for i in range(12)}, 1)
    for layout in ({"x": "block", "y": "cyclic"}, {"y": "cyclic", "x": "block"}):
        plan = redistribution(blocks, Layout.read(layout), targets=NODES[:4])
        assert plan.bytes_moved == 54 and len({chunk.targets for chunk in plan.chunks}) == 4
