"""Which pieces of an array go where when its layout changes: as few bytes as any plan could move.

A plan cuts chunks only where the new layout says so, and chooses which node has which part: the assignment
of parts to nodes under which most bytes stay where they are (a linear assignment, solved exactly). That also
says which nodes are left when there are fewer parts than nodes: the document takes the first ranks, and moves
15/16 of an array from 16 to 8 nodes where half would do (000, digest 2.34).

``lower_bound`` does not come from the moves: every node must get what its part has more than the node held,
whichever node has which part, and no less can be moved.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np
from scipy.optimize import linear_sum_assignment

from dask_hpc.model.errors import InputError
from dask_hpc.model.layout import DimLayout, Layout

Index = tuple[int, ...]
#: from and to, in elements of one dimension
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Blocks:
    """An array as it lies: its chunks, and the nodes that hold each of them. What nobody holds may be
    missing; a plan has no source for it, and whoever carries the plan out finds one."""

    dims: tuple[str, ...]
    #: of each dimension, from 0 to its length
    edges: tuple[tuple[int, ...], ...]
    holders: Mapping[Index, Sequence[str]]
    itemsize: float = 8

    @property
    def indices(self) -> Iterator[Index]:
        """All chunks."""
        return product(*(range(len(edges) - 1) for edges in self.edges))

    def nbytes(self, index: Index) -> float:
        """Of one chunk."""
        return self.itemsize * prod(
            edges[place + 1] - edges[place] for edges, place in zip(self.edges, index, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """What one new chunk takes from one old chunk."""

    old: Index
    #: of the old chunk, in elements from its beginning
    spans: tuple[Span, ...]
    source: str | None
    nbytes: float
    is_whole: bool


@dataclass(frozen=True, slots=True)
class NewChunk:
    """One chunk of the new layout, and what it is made of."""

    index: Index
    #: the nodes that are to have it
    targets: tuple[str, ...]
    #: in the order of the old chunks
    pieces: tuple[Piece, ...]

    @property
    def is_old(self) -> bool:
        """Whether it is an old chunk as it was."""
        return len(self.pieces) == 1 and self.pieces[0].is_whole


@dataclass(frozen=True, slots=True)
class RedistributionPlan:
    """The new chunks, who has them, and what that moves."""

    #: which node has which part; one may be there without any element
    nodes: tuple[str, ...]
    #: nodes that held something and have no part
    leaving: tuple[str, ...]
    #: of each dimension
    edges: tuple[tuple[int, ...], ...]
    chunks: tuple[NewChunk, ...]
    bytes_moved: float
    lower_bound: float

    @property
    def cuts(self) -> int:
        """New chunks that are not old ones."""
        return sum(not chunk.is_old for chunk in self.chunks)


def redistribution(
    blocks: Blocks,
    layout: Layout,
    *,
    nodes: int = 0,
    candidates: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> RedistributionPlan:
    """Lay the array out anew, on exactly the ``targets``, or on so many ``nodes`` of the ``candidates``.
    Where nothing else decides, those that come first are taken."""
    exactly = tuple(dict.fromkeys(targets))
    pool = exactly or tuple(dict.fromkeys(candidates))
    wanted = len(exactly) or nodes
    if not 1 <= wanted <= len(pool):
        raise InputError("nodes", f"found {wanted}", f"from 1 to {len(pool)}, as there are so many")
    if layout.is_replicated:
        return _replicated(blocks, pool, wanted)
    divided = layout.divided(blocks.dims, blocks.edges)
    grids = layout.grids_for(wanted, [dim for _, dim in divided]) if divided else [()]
    if not grids:
        sizes = ", ".join(str(len(dim.sizes)) for _, dim in divided if dim.sizes)
        raise InputError("layout", f"has sizes for {sizes} parts", f"as many as make {wanted} nodes")
    ways = [_way(blocks, divided, grid, pool, wanted) for grid in grids]
    # Of grids that move equally much, the one whose parts are most alike in shape.
    best = min(ways, key=lambda way: (way.lower_bound, max(way.grid, default=1)))
    return _plan(blocks, best, pool)


@dataclass(frozen=True, slots=True)
class _Way:
    """One grid of parts, and the nodes that have them."""

    grid: Index
    edges: tuple[tuple[int, ...], ...]
    #: new chunks, the number of their part, and of what they are made
    made_of: list[tuple[Index, int, list[tuple[Index, tuple[Span, ...], float]]]]
    nodes: tuple[str, ...]
    lower_bound: float


def _way(
    blocks: Blocks,
    divided: Sequence[tuple[int, DimLayout]],
    grid: Index,
    pool: Sequence[str],
    wanted: int,
) -> _Way:
    edges = [_distinct(one) for one in blocks.edges]
    part_of = [[0] * (len(one) - 1) for one in edges]  # by dimension and new chunk
    stride = 1
    for (place, dim), parts in zip(divided, grid, strict=True):
        edges[place], owners = dim.parts_of(edges[place], parts)
        part_of[place] = [owner * stride for owner in owners]
        stride *= parts
    overlaps = [_overlaps(old, new) for old, new in zip(blocks.edges, edges, strict=True)]
    made_of = []
    stays: Counter[tuple[str, int]] = Counter()
    total = 0.0
    for index in product(*(range(len(one) - 1) for one in edges)):
        part = sum(owners[place] for owners, place in zip(part_of, index, strict=True))
        pieces = []
        for cut in product(*(overlap[place] for overlap, place in zip(overlaps, index, strict=True))):
            old = tuple(place for place, _ in cut)
            spans = tuple(span for _, span in cut)
            nbytes = blocks.itemsize * prod(end - begin for begin, end in spans)
            pieces.append((old, spans, nbytes))
            total += nbytes
            for node in blocks.holders.get(old, ()):
                stays[node, part] += nbytes  # type: ignore[assignment]
        made_of.append((index, part, pieces))
    row = {node: number for number, node in enumerate(pool)}
    weights = np.zeros((len(pool), wanted))
    for (node, part), nbytes in stays.items():
        if node in row:
            weights[row[node], part] = nbytes
    rows, columns = linear_sum_assignment(weights, maximize=True)
    node_of = {int(part): pool[number] for number, part in zip(rows, columns, strict=True)}
    nodes = tuple(node_of[part] for part in range(wanted))
    return _Way(grid, tuple(edges), made_of, nodes, total - float(weights[rows, columns].sum()))


def _plan(blocks: Blocks, way: _Way, pool: Sequence[str]) -> RedistributionPlan:
    targets = [(index, (way.nodes[part],), pieces) for index, part, pieces in way.made_of]
    return _sourced(blocks, way.edges, way.nodes, targets, way.lower_bound)


def _replicated(blocks: Blocks, pool: Sequence[str], wanted: int) -> RedistributionPlan:
    held: Counter[str] = Counter()
    pieces = {}
    edges = tuple(_distinct(one) for one in blocks.edges)
    overlaps = [_overlaps(old, new) for old, new in zip(blocks.edges, edges, strict=True)]
    for index in product(*(range(len(one) - 1) for one in edges)):
        (cut,) = product(*(overlap[place] for overlap, place in zip(overlaps, index, strict=True)))
        old = tuple(place for place, _ in cut)
        pieces[index] = (old, tuple(span for _, span in cut), blocks.nbytes(old))
        for node in blocks.holders.get(old, ()):
            held[node] += blocks.nbytes(old)  # type: ignore[assignment]
    nodes = tuple(sorted(pool, key=lambda node: -held[node])[:wanted])
    total = sum(nbytes for _, _, nbytes in pieces.values())
    targets = [(index, nodes, [piece]) for index, piece in pieces.items()]
    return _sourced(blocks, edges, nodes, targets, sum(total - held[node] for node in nodes))


def _sourced(
    blocks: Blocks,
    edges: tuple[tuple[int, ...], ...],
    nodes: tuple[str, ...],
    wanted: Sequence[tuple[Index, tuple[str, ...], list[tuple[Index, tuple[Span, ...], float]]]],
    lower_bound: float,
) -> RedistributionPlan:
    """The plan, with a source for each piece: its target if that has it, else whoever sent least so far."""
    sent: Counter[str] = Counter()
    chunks, moved = [], 0.0
    for index, targets, made_of in wanted:
        pieces = []
        for old, spans, nbytes in made_of:
            there = blocks.holders.get(old, ())
            missing = [target for target in targets if target not in there]
            source = min(there, key=lambda node: sent[node], default=None)
            if not missing:
                source = targets[0]
            elif source is not None:
                sent[source] += nbytes * len(missing)  # type: ignore[assignment]
            moved += nbytes * len(missing)
            is_whole = all(
                span == (0, edges[place + 1] - edges[place])
                for span, edges, place in zip(spans, blocks.edges, old, strict=True)
            )
            pieces.append(Piece(old, spans, source, nbytes, is_whole))
        chunks.append(NewChunk(index, targets, tuple(pieces)))
    held = dict.fromkeys(node for there in blocks.holders.values() for node in there)
    leaving = tuple(node for node in held if node not in nodes)
    return RedistributionPlan(nodes, leaving, edges, tuple(chunks), moved, lower_bound)


def _distinct(edges: Sequence[int]) -> tuple[int, ...]:
    """Without chunks that have no elements, unless there is nothing else."""
    return tuple(dict.fromkeys(edges)) if edges[-1] else (0, 0)


def _overlaps(old: Sequence[int], new: Sequence[int]) -> list[list[tuple[int, Span]]]:
    """For each new chunk of one dimension the old chunks in it, and which of their elements."""
    if not old[-1]:
        return [[(0, (0, 0))]]
    found = []
    first = 0
    for begin, end in pairwise(new):
        while old[first + 1] <= begin:
            first += 1
        parts = []
        for place in range(first, len(old) - 1):
            if old[place] >= end:
                break
            span = (max(begin, old[place]) - old[place], min(end, old[place + 1]) - old[place])
            if span[0] < span[1]:
                parts.append((place, span))
        found.append(parts)
    return found
