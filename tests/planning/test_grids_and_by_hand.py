"""Grids for numbers of nodes (PREDEFINED), and chunks that somebody lays out by hand (MANUAL)."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import (
    Blocks,
    fullest,
    placed_by_hand,
    read_places,
    redistribution,
)

NODES = [f"n{number}" for number in range(16)]


def owners(plan):
    """The node of each element."""
    whole = np.full([edges[-1] for edges in plan.edges], "", object)
    for chunk in plan.chunks:
        (node,) = chunk.targets
        at = tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(plan.edges, chunk.index, strict=True))
        whole[at] = node
    return whole


def in_chunks(shape, width, node="n0", dims="xyz"):
    edges = tuple((*range(0, length, width), length) for length in shape)
    indices = product(*(range(len(one) - 1) for one in edges))
    return Blocks(tuple(dims[: len(shape)]), edges, dict.fromkeys(indices, (node,)))


@pytest.mark.parametrize("layout", [{8: (2, 4), 16: (4, 4)}, {16: {"y": 4, "x": 4}, 8: {"x": 2, "y": 4}}])
@pytest.mark.parametrize("nodes, grid", [(8, (2, 4)), (16, (4, 4))])
def test_the_grid_of_the_document(layout, nodes, grid):
    """1600 elements: 2 x 4 on 8 processes, 4 x 4 on 16 (000, 7.4.1)."""
    plan = redistribution(in_chunks((40, 40), 10), Layout.read(layout), nodes=nodes, candidates=NODES)
    whole = owners(plan)
    assert len(set(whole.ravel())) == nodes
    rows, columns = (length // parts for length, parts in zip((40, 40), grid, strict=True))
    for i, j in product(*map(range, grid)):
        assert len(set(whole[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].ravel())) == 1


def test_dimensions_that_no_grid_has_are_whole():
    plan = redistribution(in_chunks((8, 8, 4), 2), Layout.read({4: (4, 1)}), nodes=4, candidates=NODES)
    assert (owners(plan) == owners(plan)[:, :1, :1]).all() and len(set(owners(plan)[:, 0, 0])) == 4


@pytest.mark.parametrize(
    "layout, words",
    [
        ({8: (2, 3)}, "found the grid (2, 3) for 8 nodes; allowed: 2 whole numbers that make 8"),
        ({8: (-2, -4)}, "2 whole numbers that make 8"),
        ({8: (2.0, 4)}, "2 whole numbers that make 8"),
        ({8: (2, 4), 4: (4,)}, "found grids of (0, 1) and of (0,); allowed: the same dimensions"),
        ({8: {"x": 8}, 4: {"y": 4}}, "the same dimensions"),
        ({8: {"x": 8}, 4: (4,)}, "the same dimensions"),
        ({8: {1: 8}}, "by names"),
        ({8: ()}, "found () for 8 nodes; allowed: for a number of nodes the parts of each dimension"),
        ({8: 8}, "found 8 for 8 nodes"),
        ({8: "2x4"}, "found '2x4' for 8 nodes"),
        ({0: (0,)}, "found (0,) for 0 nodes"),
        ({8: (8,), "x": "block"}, "found 'block' for 'x' nodes"),
        ({True: (1,)}, "names of dimensions"),
    ],
)
def test_grids_that_cannot_be(layout, words):
    with pytest.raises(InputError) as told:
        Layout.read(layout)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_grids_that_do_not_fit_the_nodes_or_the_array():
    with pytest.raises(InputError, match="no grid was given for 3 nodes; allowed: nodes: 8, 2"):
        layout = Layout.read({8: (8,), 2: (2,)})
        redistribution(in_chunks((8,), 2), layout, nodes=3, candidates=NODES)
    with pytest.raises(InputError, match="found a grid of 2 dimensions; allowed: at most 1"):
        redistribution(in_chunks((8,), 2), Layout.read({4: (2, 2)}), nodes=4, candidates=NODES)
    with pytest.raises(InputError, match="found the dimension 'z'"):
        redistribution(in_chunks((8,), 2), Layout.read({4: {"z": 4}}), nodes=4, candidates=NODES)


@st.composite
def answers(draw):
    """An array as it lies, the chunks that are asked for, and where each of them is to go."""
    nodes = draw(st.integers(1, 5))
    shape = draw(st.lists(st.integers(0, 7), max_size=3))

    def cut(length):
        return (0, *sorted(draw(st.lists(st.integers(0, length), max_size=3))), length)

    before, after = [tuple(map(cut, shape)) for _ in range(2)]
    if draw(st.booleans()):
        after = before
    found = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0, nodes, [len(one) - 1 for one in after]
    )
    held = st.lists(st.sampled_from(NODES[: nodes + 1]), min_size=1, max_size=2, unique=True)
    holders = {index: tuple(draw(held)) for index in np.ndindex(*(len(one) - 1 for one in before))}
    return Blocks(tuple("xyz"[: len(shape)]), before, holders), after, found, NODES[:nodes]


@given(answers())
def test_every_element_goes_where_somebody_said(found):
    blocks, after, numbers, nodes = found
    (places,) = read_places(numbers.tolist(), {"u": numbers.shape}, len(nodes)).values()
    plan = placed_by_hand([blocks], [places], nodes, [after])
    (one,) = plan.arrays
    expected = np.full([edges[-1] for edges in after], "", object)
    for index in np.ndindex(*numbers.shape):
        at = tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(after, index, strict=True))
        expected[at] = nodes[numbers[index]]
    assert np.array_equal(owners(one), expected) and plan.nodes == tuple(nodes)
    sizes = sum(piece.nbytes for chunk in one.chunks for piece in chunk.pieces)
    assert sizes == blocks.total and one.bytes_moved == one.lower_bound
    away = 0.0
    for index, there in blocks.holders.items():
        at = tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(blocks.edges, index, strict=True))
        away += blocks.itemsize * sum(node not in there for node in np.ravel(expected[at]))
    assert one.bytes_moved == away


def test_chunks_that_stay_as_they_are_are_not_cut():
    blocks = in_chunks((6, 4), 2)
    places = read_places([[0, 1], [1, 0], [1, 1]], {"": (3, 2)}, 2)
    plan = placed_by_hand([blocks], list(places.values()), NODES[:2])
    assert plan.cuts == 0 and plan.bytes_moved == 4 * 4 * 8


@pytest.mark.parametrize(
    "answer, words",
    [
        (None, "layout of u: its function gave None; allowed: for chunks of (2, 2) numbers of nodes, 0 to 2"),
        ([0, 1], "gave [0, 1]"),
        ([[0, 1], [2]], "gave [[0, 1], [2]]"),
        ([[0, 1], [2, 3]], "gave 0 to 3"),
        ([[0, 1], [-1, 0]], "gave -1 to 1"),
        ([[0.0, 1.0], [1.0, 0.0]], "numbers of nodes, 0 to 2"),
        ([["n0", "n1"], ["n0", "n1"]], "numbers of nodes, 0 to 2"),
        ({"v": [[0, 0], [0, 0]]}, "nodes for u"),
        (lambda: 0, "numbers of nodes, 0 to 2"),
    ],
)
def test_answers_that_are_none(answer, words):
    with pytest.raises(InputError) as told:
        read_places(answer, {"u": (2, 2)}, 3)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_several_arrays_are_named():
    shapes = {"u": (2,), "v": ()}
    assert read_places({"u": [1, 0], "v": 1, "w": "anything"}, shapes, 2) == {
        "u": {(0,): 1, (1,): 0},
        "v": {(): 1},
    }
    with pytest.raises(InputError, match="nodes for u, v"):
        read_places([1, 0], shapes, 2)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 6))
def test_those_that_hold_most_are_taken(sizes, count):
    blocks = [Blocks(("x",), ((0, size),), {(0,): (node,)}) for node, size in zip(NODES, sizes, strict=False)]
    pool = NODES[: len(sizes)]
    if count > len(pool):
        with pytest.raises(InputError, match=f"from 1 to {len(pool)}"):
            fullest(blocks, pool, count)
        return
    chosen = fullest(blocks, pool, count)
    assert len(chosen) == count and list(chosen) == sorted(chosen)
    held = [size for node, size in zip(pool, sizes, strict=True) if node in chosen]
    assert sum(held) == sum(sorted(sizes)[-count:]) and prod(held) > 0
