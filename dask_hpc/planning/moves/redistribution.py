"""Which pieces of an array go where when its layout changes: as few bytes as any plan could move.

A plan cuts chunks only where the new layout says so, and chooses which node has which part: the assignment
of parts to nodes under which most bytes stay where they are (a linear assignment, solved exactly). That also
says which nodes are left when there are fewer parts than nodes: the document takes the first ranks, and moves
15/16 of an array from 16 to 8 nodes where half would do (000, digest 2.34).

``lower_bound`` does not come from the moves: every node must get what its part has more than the node held,
whichever node has which part, and no less can be moved.

Several arrays that share dimensions are laid out together: the same index lies on the same node in all of
them. An array without one of the divided dimensions belongs to all parts that differ only there; it is not
copied to all of them (Dask fetches what is needed where it is needed), each chunk lies on one of them.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, shown
from dask_hpc.planning.moves.layout import DimLayout, Layout

#: from and to, in elements of one dimension
Span = tuple[int, int]


def heaviest(weights: Mapping[tuple[str, int], float], names: Sequence[str], count: int) -> list[str]:
    """Which name gets each of ``count`` things, such that the sum of weights is as large as it can be.
    There are at least as many names."""
    # Not above: it is two thirds of what a scheduler or a client would wait for when it loads us.
    from scipy.optimize import linear_sum_assignment

    rows = {name: number for number, name in enumerate(names)}
    table = np.zeros((len(names), count))
    for (name, thing), weight in weights.items():
        if name in rows:
            table[rows[name], thing] = weight
    chosen = sorted(zip(*reversed(linear_sum_assignment(table, maximize=True)), strict=True))
    return [names[row] for _, row in chosen]


def distinct(edges: Sequence[int]) -> tuple[int, ...]:
    """Without chunks that have no elements, unless there is nothing else."""
    return tuple(dict.fromkeys(edges)) if edges[-1] else (0, 0)


def overlaps(old: Sequence[int], new: Sequence[int]) -> list[list[tuple[int, Span]]]:
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


Index = tuple[int, ...]
#: by so much the largest part of a grid may be larger than that of another one
_UNEVEN = 0.2


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

    @property
    def total(self) -> float:
        """Bytes of the whole array."""
        return self.itemsize * prod(edges[-1] for edges in self.edges)

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
    def nbytes(self) -> float:
        """Of all its pieces."""
        return sum(piece.nbytes for piece in self.pieces)

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


@dataclass(frozen=True, slots=True)
class JointPlan:
    """Plans of several arrays, on the same nodes."""

    nodes: tuple[str, ...]
    #: nodes that held something and have no part
    leaving: tuple[str, ...]
    #: in the order of the arrays
    arrays: tuple[RedistributionPlan, ...]

    @property
    def bytes_moved(self) -> float:
        """Of all arrays."""
        return sum(plan.bytes_moved for plan in self.arrays)

    @property
    def lower_bound(self) -> float:
        """Of all arrays."""
        return sum(plan.lower_bound for plan in self.arrays)

    @property
    def cuts(self) -> int:
        """Of all arrays."""
        return sum(plan.cuts for plan in self.arrays)


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
    joint = joint_redistribution([blocks], layout, nodes=nodes, candidates=candidates, targets=targets)
    return joint.arrays[0]


def joint_redistribution(
    arrays: Sequence[Blocks],
    layout: Layout,
    *,
    nodes: int = 0,
    candidates: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> JointPlan:
    """The same for several arrays at once. A layout of one word means the dimension with the most chunks of
    the largest array."""
    exactly = tuple(dict.fromkeys(targets))
    pool = exactly or tuple(dict.fromkeys(candidates))
    wanted = len(exactly) or nodes
    if not 1 <= wanted <= len(pool):
        raise InputError("nodes", f"found {wanted}", f"from 1 to {len(pool)}, as there are so many")
    if layout.is_replicated:
        return _replicated(arrays, pool, wanted)
    divided = _divided(arrays, layout)
    grids = layout.grids_for(wanted, list(divided.values())) if divided else [()]
    if not grids:
        sizes = ", ".join(str(len(dim.sizes)) for dim in divided.values() if dim.sizes)
        raise InputError("layout", f"has sizes for {sizes} parts", f"as many as make {wanted} nodes")
    ways = [_way(arrays, divided, grid, pool, wanted) for grid in grids]
    # Few bytes move where everything stays on few nodes: only grids whose parts are about as even as possible
    # count. Of those that move equally much, the one whose parts are most alike in shape.
    even = min(way.largest for way in ways) * (1 + _UNEVEN)
    best = min(
        (way for way in ways if way.largest <= even),
        key=lambda way: (way.lower_bound, max(way.grid, default=1)),
    )
    return _plan(arrays, best)


def read_places(found: Any, shapes: Mapping[str, Index], nodes: int) -> dict[str, dict[Index, int]]:
    """What somebody answered who lays arrays out by hand: the number of the node of each chunk, as an array
    or nested lists of the shape of the chunks; by name of the array, unless there is only one. ``shapes``:
    how many chunks each array has along its dimensions."""
    if len(shapes) == 1 and not isinstance(found, Mapping):
        found = dict.fromkeys(shapes, found)
    if not isinstance(found, Mapping) or not set(shapes) <= set(found):
        raise InputError("layout", f"its function gave {shown(found)}", f"nodes for {', '.join(shapes)}")
    places = {}
    for name, shape in shapes.items():
        where = f"layout of {name}" if name else "layout"
        allowed = f"for chunks of {shown(shape)} numbers of nodes, 0 to {nodes - 1}"
        try:
            numbers = np.asarray(found[name])
        except ValueError:  # lists of different lengths
            raise InputError(where, f"its function gave {shown(found[name])}", allowed) from None
        if numbers.shape != shape or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InputError(where, f"its function gave {shown(found[name])}", allowed)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < nodes:
            raise InputError(where, f"its function gave {numbers.min()} to {numbers.max()}", allowed)
        places[name] = {index: int(number) for index, number in np.ndenumerate(numbers)}
    return places


def fullest(arrays: Sequence[Blocks], pool: Sequence[str], count: int) -> tuple[str, ...]:
    """So many of these nodes, those that hold most; where that does not decide, those that come first."""
    if not 1 <= count <= len(pool):
        raise InputError("nodes", f"found {count}", f"from 1 to {len(pool)}, as there are so many")
    held: Counter[str] = Counter()
    for blocks in arrays:
        for index, there in blocks.holders.items():
            for node in there:
                held[node] += blocks.nbytes(index)  # type: ignore[assignment]
    chosen = set(sorted(pool, key=lambda node: -held[node])[:count])
    return tuple(node for node in pool if node in chosen)


def placed_by_hand(
    arrays: Sequence[Blocks],
    places: Sequence[Mapping[Index, int]],
    nodes: Sequence[str],
    chunks: Sequence[Sequence[Sequence[int]]] = (),
) -> JointPlan:
    """The plan for arrays of which somebody said for each chunk the number of its node. ``chunks``: the edges
    of those chunks, by array and dimension, if they are others than the array has now."""
    plans = []
    for blocks, numbers, edges in zip(arrays, places, chunks or [one.edges for one in arrays], strict=True):
        new = tuple(map(distinct, edges))
        # Chunks without elements are none any more, so that others have their numbers.
        known = [[place for place, (a, b) in enumerate(pairwise(one)) if a < b] or [0] for one in edges]
        meets = [overlaps(before, after) for before, after in zip(blocks.edges, new, strict=True)]
        targets = []
        for index in product(*(range(len(one) - 1) for one in new)):
            asked = tuple(places[place] for places, place in zip(known, index, strict=True))
            cuts = product(*(meet[place] for meet, place in zip(meets, index, strict=True)))
            targets.append((index, (nodes[numbers[asked]],), [_piece(blocks, cut) for cut in cuts]))
        least = sum(
            nbytes
            for _, (node,), made_of in targets
            for old, _, nbytes in made_of
            if node not in blocks.holders.get(old, ())
        )
        plans.append(_sourced(blocks, new, tuple(nodes), targets, least))
    return _joint(tuple(nodes), plans)


#: of which elements of which old chunks a new chunk is made, and how many bytes these are
_MadeOf = list[tuple[Index, tuple[Span, ...], float]]


def _piece(blocks: Blocks, cut: Sequence[tuple[int, Span]]) -> tuple[Index, tuple[Span, ...], float]:
    """Of which old chunk which elements, and their bytes; ``cut`` says so by dimension."""
    old = tuple(place for place, _ in cut)
    spans = tuple(span for _, span in cut)
    return old, spans, blocks.itemsize * prod(end - begin for begin, end in spans)


@dataclass(frozen=True, slots=True)
class _Cut:
    """One array in the parts of a grid."""

    edges: tuple[tuple[int, ...], ...]
    #: new chunks and the parts they belong to
    chunks: list[tuple[Index, tuple[int, ...], _MadeOf]]
    nbytes: float
    #: what stays where it is, by node and part
    stays: Counter[tuple[str, int]]
    #: bytes of each part, without chunks that belong to several
    parts: Counter[int]


@dataclass(frozen=True, slots=True)
class _Way:
    """One grid of parts, and the nodes that have them."""

    grid: Index
    cuts: list[_Cut]
    nodes: tuple[str, ...]

    @property
    def largest(self) -> float:
        """Bytes of the largest part."""
        return max(sum(cut.parts[part] for cut in self.cuts) for part in range(len(self.nodes)))

    @property
    def lower_bound(self) -> float:
        return sum(_least_moved(cut, self.nodes) for cut in self.cuts)


def _least_moved(cut: _Cut, nodes: Sequence[str]) -> float:
    return max(0.0, cut.nbytes - sum(cut.stays[node, part] for part, node in enumerate(nodes)))


def _largest_first(arrays: Sequence[Blocks]) -> list[Blocks]:
    return sorted(arrays, key=lambda blocks: -blocks.total)


def _divided(arrays: Sequence[Blocks], layout: Layout) -> dict[str, DimLayout]:
    """The divided dimensions by name, each of them once."""
    largest, *others = _largest_first(arrays)
    dims = list(dict.fromkeys((*largest.dims, *(dim for blocks in others for dim in blocks.dims))))
    # A layout of one word looks at the largest array only.
    edges = [distinct(largest.edges[largest.dims.index(dim)]) if dim in largest.dims else () for dim in dims]
    return {dims[place]: dim for place, dim in layout.divided(dims, edges)}


def _units(
    arrays: Sequence[Blocks], name: str, dim: DimLayout, parts: int
) -> tuple[Sequence[int], list[int]]:
    """How a dimension is divided in all arrays: edges, and the part of each piece between two of them. Taken
    from edges that all arrays have, if these do, else from those of the largest."""
    edges = [distinct(one.edges[one.dims.index(name)]) for one in _largest_first(arrays) if name in one.dims]
    common = sorted(set(edges[0]).intersection(*edges)) if edges[0][-1] else edges[0]
    units, owners = dim.parts_of(common, parts)
    is_enough = len(common) > parts if dim.kind == "cyclic" else set(units) <= set(common)
    if not is_enough:
        units, owners = dim.parts_of(edges[0], parts)
    return units, list(owners)


def _way(
    arrays: Sequence[Blocks],
    divided: Mapping[str, DimLayout],
    grid: Index,
    pool: Sequence[str],
    wanted: int,
) -> _Way:
    units = {
        name: _units(arrays, name, dim, parts)
        for (name, dim), parts in zip(divided.items(), grid, strict=True)
    }
    cuts = [_cut(blocks, divided, grid, units) for blocks in arrays]
    stays: Counter[tuple[str, int]] = Counter()
    for cut in cuts:
        stays.update(cut.stays)
    return _Way(grid, cuts, tuple(heaviest(stays, pool, wanted)))


def _cut(
    blocks: Blocks,
    divided: Mapping[str, DimLayout],
    grid: Index,
    units: Mapping[str, tuple[Sequence[int], list[int]]],
) -> _Cut:
    edges = [distinct(one) for one in blocks.edges]
    part_of = [[0] * (len(one) - 1) for one in edges]  # by dimension and new chunk
    anywhere = [0]  # the parts that differ only in dimensions this array does not have
    stride = 1
    for (name, dim), parts in zip(divided.items(), grid, strict=True):
        if name in blocks.dims:
            place = blocks.dims.index(name)
            edges[place], owners = _cut_at(edges[place], dim, *units[name])
            part_of[place] = [owner * stride for owner in owners]
        else:
            anywhere = [one + stride * part for part in range(parts) for one in anywhere]
        stride *= parts
    meets = [overlaps(old, new) for old, new in zip(blocks.edges, edges, strict=True)]
    chunks = []
    stays: Counter[tuple[str, int]] = Counter()
    sizes: Counter[int] = Counter()
    total = 0.0
    for index in product(*(range(len(one) - 1) for one in edges)):
        part = sum(owners[place] for owners, place in zip(part_of, index, strict=True))
        parts_of_chunk = tuple(part + one for one in anywhere)
        pieces = []
        for cut in product(*(meet[place] for meet, place in zip(meets, index, strict=True))):
            old, _, nbytes = piece = _piece(blocks, cut)
            pieces.append(piece)
            total += nbytes
            for node in blocks.holders.get(old, ()):
                for one in parts_of_chunk:
                    stays[node, one] += nbytes  # type: ignore[assignment]
        chunks.append((index, parts_of_chunk, pieces))
        if len(parts_of_chunk) == 1:
            sizes[part] += sum(nbytes for *_, nbytes in pieces)  # type: ignore[assignment]
    return _Cut(tuple(edges), chunks, total, stays, sizes)


def _cut_at(
    edges: Sequence[int], dim: DimLayout, units: Sequence[int], owners: Sequence[int]
) -> tuple[tuple[int, ...], list[int]]:
    """New edges of one array, and the parts of its chunks: what lies in one part is not cut, but
    ``block-cyclic`` says how wide chunks are."""
    if not edges[-1]:
        return (0, 0), [0]
    if dim.kind == "block-cyclic":
        return tuple(units), list(owners)
    between = {units[i] for i in range(1, len(owners)) if owners[i - 1] != owners[i]}
    new = tuple(sorted(between.union(edges)))
    return new, [owners[bisect_right(units, begin) - 1] for begin in new[:-1]]


def _plan(arrays: Sequence[Blocks], way: _Way) -> JointPlan:
    load: Counter[str] = Counter()
    for cut in way.cuts:
        for _, parts, pieces in cut.chunks:
            if len(parts) == 1:
                load[way.nodes[parts[0]]] += sum(nbytes for *_, nbytes in pieces)  # type: ignore[assignment]
    plans = []
    for blocks, cut in zip(arrays, way.cuts, strict=True):
        targets = []
        for index, parts, pieces in cut.chunks:
            node = way.nodes[parts[0]] if len(parts) == 1 else _one_of(blocks, way, parts, pieces, load)
            targets.append((index, (node,), pieces))
        plans.append(_sourced(blocks, cut.edges, way.nodes, targets, _least_moved(cut, way.nodes)))
    return _joint(way.nodes, plans)


def _one_of(blocks: Blocks, way: _Way, parts: Sequence[int], pieces: _MadeOf, load: Counter[str]) -> str:
    """Of the nodes where a chunk may lie the one that has most of it, then the one that has least of all."""
    held: Counter[str] = Counter()
    for old, _, nbytes in pieces:
        for node in blocks.holders.get(old, ()):
            held[node] += nbytes  # type: ignore[assignment]
    found = min((way.nodes[part] for part in parts), key=lambda node: (-held[node], load[node]))
    load[found] += sum(nbytes for *_, nbytes in pieces)  # type: ignore[assignment]
    return found


def _joint(nodes: tuple[str, ...], plans: Sequence[RedistributionPlan]) -> JointPlan:
    leaving = tuple(dict.fromkeys(node for plan in plans for node in plan.leaving))
    return JointPlan(nodes, leaving, tuple(plans))


def _replicated(arrays: Sequence[Blocks], pool: Sequence[str], wanted: int) -> JointPlan:
    whole = [_cut(blocks, {}, (), {}) for blocks in arrays]
    held: Counter[str] = Counter()
    for cut in whole:
        for (node, _), nbytes in cut.stays.items():
            held[node] += nbytes
    nodes = tuple(sorted(pool, key=lambda node: -held[node])[:wanted])
    plans = []
    for blocks, cut in zip(arrays, whole, strict=True):
        targets = [(index, nodes, pieces) for index, _, pieces in cut.chunks]
        least = sum(cut.nbytes - cut.stays[node, 0] for node in nodes)
        plans.append(_sourced(blocks, cut.edges, nodes, targets, least))
    return _joint(nodes, plans)


def _sourced(
    blocks: Blocks,
    edges: tuple[tuple[int, ...], ...],
    nodes: tuple[str, ...],
    wanted: Sequence[tuple[Index, tuple[str, ...], _MadeOf]],
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
