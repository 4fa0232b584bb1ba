"""Any layout from any other, with the tasks' own code and no cluster: bit-identical."""

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import Blocks, joint_redistribution
from dask_hpc.planning.moves.spread import within_nodes
from dask_hpc.redistribution.carrier import cut_out, join

NODES = [f"n{number}" for number in range(9)]
WORDS = ["block", "cyclic", "block-cyclic:1", "block-cyclic:5", "block:17", "replicated"]
lengths = st.sampled_from([0, 1, 2, 3, 5, 7, 12, 13])


@st.composite
def lying(draw):
    """An array in uneven chunks, somewhere on nine nodes."""
    shape = draw(st.lists(lengths, max_size=3))
    edges = tuple(tuple(sorted({0, n, *draw(st.sets(st.integers(0, n)))})) if n else (0, 0) for n in shape)
    blocks = Blocks(tuple("xyz"[: len(shape)]), edges, {}, 1)
    holders = {index: [draw(st.sampled_from(NODES))] for index in blocks.indices}
    return shape, Blocks(blocks.dims, edges, holders, 1)


@given(lying(), st.integers(1, 9), st.sampled_from(WORDS), st.data())
def test_what_tasks_make_is_what_was_there(there, nodes, word, data):
    shape, blocks = there
    layout = word
    if shape and word != "replicated":
        some = data.draw(st.sets(st.sampled_from(blocks.dims), min_size=1))
        layout = {name: word if name == min(some) else "cyclic" for name in sorted(some)}
    plan = joint_redistribution([blocks], Layout.read(layout), nodes=nodes, candidates=NODES).arrays[0]
    array = np.arange(prod(shape), dtype="i4").reshape(shape)
    chunks = {
        index: array[
            tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(blocks.edges, index, strict=True))
        ]
        for index in blocks.indices
    }
    for chunk in plan.chunks:
        parts, where = [], []
        for number, piece in enumerate(chunk.pieces):  # by turns cut out here, and cut out when it comes
            old = chunks[piece.old]
            parts.append(cut_out([array, old], [piece.spans, piece.spans]) if number % 2 else old)
            where.append(1 if number % 2 else None if piece.is_whole else piece.spans)
        grid = tuple(len(set(places)) for places in zip(*(p.old for p in chunk.pieces), strict=True))
        made = join(parts, where, grid, chunk.pieces[0].is_whole)
        at = tuple(slice(e[i], e[i + 1]) for e, i in zip(plan.edges, chunk.index, strict=True))
        assert made.dtype == array.dtype and np.array_equal(made, array[at])
        # What is cut out keeps nothing else in memory.
        assert chunk.is_old or not np.shares_memory(made, array)


@given(lying(), st.integers(1, 3), st.integers(1, 4))
def test_within_a_node_all_workers_get_some(there, nodes, workers_each):
    _, blocks = there
    names = {node: [f"{node}-{i}" for i in range(workers_each)] for node in NODES}
    by_worker = Blocks(
        blocks.dims, blocks.edges, {i: [f"{n}-0" for n in held] for i, held in blocks.holders.items()}, 1
    )
    plan = joint_redistribution([blocks], Layout.read("block"), nodes=nodes, candidates=NODES)
    [places] = within_nodes([by_worker], plan, names)
    load = dict.fromkeys((worker for node in plan.nodes for worker in names[node]), 0)
    largest = 0
    for chunk in plan.arrays[0].chunks:
        [worker] = places[chunk.index]
        assert worker in names[chunk.targets[0]]
        nbytes = sum(piece.nbytes for piece in chunk.pieces)
        load[worker] += nbytes
        largest = max(largest, nbytes)
    for node in plan.nodes:
        share = sum(load[worker] for worker in names[node]) / workers_each
        assert all(load[worker] <= 1.2 * share + largest for worker in names[node])
