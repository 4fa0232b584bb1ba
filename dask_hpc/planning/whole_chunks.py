"""Which blocks move where when a job that has declared a layout changes its size: whole chunks, none is cut.

A scheduler knows the blocks of a collection by their indices and bytes, not the names or lengths of
dimensions. A layout divides the dimension with the most chunks; how long chunks are along it is told by their
bytes. A chunk that the layout would cut goes whole to where most of it belongs.

All collections have the same workers for the same parts, so that what is at the same place in two arrays of
one shape is on the same worker. Which worker has which part is chosen so that as many bytes as possible stay.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from dask_hpc.model.layout import DimLayout
from dask_hpc.planning.assignment import heaviest
from dask_hpc.planning.moves import Block, Move, MovePlan, in_rows
from dask_hpc.planning.overlaps import Span, overlaps


def lay_out(blocks: Iterable[Block], layout: str, rooms: Mapping[str, int]) -> MovePlan:
    """Moves that leave each collection in this layout on these workers. ``rooms`` are their free bytes; what
    has no room stays where it is. Blocks without neighbours are left alone."""
    room = dict(rooms)
    workers = list(room)
    if not workers:
        return MovePlan()
    parts = [
        (block, part)
        for name, row in in_rows(blocks)
        if name
        for block, part in _parts(row, DimLayout.read(layout, "layout"), len(workers))
    ]
    stays: Counter[tuple[str, int]] = Counter()
    for block, part in parts:
        for worker in block.holders:
            stays[worker, part] += block.nbytes
    weights = np.array([[stays[worker, part] for part in range(len(workers))] for worker in workers])
    rows, columns = heaviest(weights)
    worker_of = {int(part): workers[number] for number, part in zip(rows, columns, strict=True)}
    moves: list[Move] = []
    unplaced: list[Block] = []
    for block, part in parts:
        target = worker_of[part]
        if target in block.holders or not block.holders:
            continue
        if block.nbytes > room[target]:
            unplaced.append(block)
            continue
        room[target] -= block.nbytes
        moves.append(Move(block.key, block.nbytes, min(block.holders), target))
    least = sum(block.nbytes for block, _ in parts) - int(weights[rows, columns].sum())
    reason = f"{layout} on {len(workers)} workers"
    if unplaced:
        reason += f"; {len(unplaced)} blocks have no room there"
    return MovePlan(tuple(moves), tuple(unplaced), reason, max(0, least))


def _parts(row: list[Block], layout: DimLayout, parts: int) -> Iterable[tuple[Block, int]]:
    """The part of each block of one collection."""
    indices = [block.key[1:] for block in row]  # type: ignore[index]
    axis = max(range(len(indices[0])), key=lambda axis: (len({index[axis] for index in indices}), -axis))
    along: Counter[int] = Counter()
    for block, index in zip(row, indices, strict=True):
        along[index[axis]] += max(1, block.nbytes)
    places = sorted(along)
    edges = [0, *accumulate(along[place] for place in places)]
    new, owners = layout.parts_of(edges, parts)
    part_of = {
        place: _most(pieces, owners) for place, pieces in zip(places, overlaps(new, edges), strict=True)
    }
    return [(block, part_of[index[axis]]) for block, index in zip(row, indices, strict=True)]


def _most(pieces: Iterable[tuple[int, Span]], owners: Sequence[int]) -> int:
    """To whom most of a chunk belongs, of which these are pieces."""
    shares: Counter[int] = Counter()
    for piece, (begin, end) in pieces:
        shares[owners[piece]] += end - begin
    return max(shares, key=lambda owner: (shares[owner], -owner))
