"""Who is to read which blocks, and which parts of them, when a layout or a number of nodes is asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from dask_hpc.checkpoint.store.cells import Spec
from dask_hpc.checkpoint.store.items import ARRAYS
from dask_hpc.checkpoint.store.manifest import Item
from dask_hpc.checkpoint.store.value import unpack
from dask_hpc.checkpoint.store.variables import Chunks, place_of, stored_chunks
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.layout import Layout
from dask_hpc.planning.redistribution import Blocks, redistribution


@dataclass(frozen=True)
class Wanted:
    """A chunk that somebody is to have: a block as it is stored, or made of pieces of several."""

    spec: Spec | None = None
    block: Mapping[str, Any] | None = None
    #: the nodes that are to have it; none: any
    targets: tuple[str, ...] = ()
    made_of: Mapping[str, Any] | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """As a ``Reader`` takes it."""
        if self.made_of is not None:
            return dict(self.made_of)
        return {"spec": self.spec, "block": self.block}


def check_dims(items: Iterable[Item], layout: Layout | None) -> None:
    """Each dimension that a layout names must be one of some item."""
    if layout is None:
        return
    records = [one for item in items if item.kind in ARRAYS for one in item.meta["variables"]]
    known = dict.fromkeys(str(dim) for one in records for dim in unpack(one["dims"]))
    for dim, _ in layout.dims:
        if dim and dim not in known:
            raise InputError(
                "layout", f"found the dimension {shown(dim)}", ", ".join(known) or "none is there"
            )


def laid_out(
    item: Item, wanted: Mapping[str, Wanted], layout: Layout | None, nodes: Sequence[str]
) -> tuple[dict[str, Wanted], dict[str, Chunks]]:
    """The chunks as they are to be, each with its nodes, and the new chunks of each variable that the layout
    means. The others stay in one piece and in their order."""
    records = [one for one in item.meta["variables"] if one["chunks"]] if item.kind in ARRAYS else []
    made = _in_order(wanted, nodes)
    grids: dict[str, Chunks] = {}
    for record in records if layout is not None else []:
        chunks = stored_chunks(record)
        own = _part_of(layout, [str(dim) for dim in unpack(record["dims"])])
        if own is None or chunks is None or any(size is None for sizes in chunks for size in sizes):
            continue
        found, grids[record["place"]] = _variable(record, chunks, wanted, own, nodes)
        for place in [one for one in made if one.startswith(f"{record['place']}/")]:
            del made[place]
        made |= found
    return made, grids


def _part_of(layout: Layout | None, dims: Sequence[str]) -> Layout | None:
    """What a layout says about an array with these dimensions, if anything."""
    if layout is None or layout.is_replicated:
        return layout
    meant = tuple((dim, one) for dim, one in layout.dims if dim in ("", *dims))
    return Layout(meant, grids=layout.grids) if meant else None


def _variable(
    record: Mapping[str, Any],
    chunks: Chunks,
    wanted: Mapping[str, Wanted],
    layout: Layout,
    nodes: Sequence[str],
) -> tuple[dict[str, Wanted], Chunks]:
    dims = tuple(str(dim) for dim in unpack(record["dims"]))
    edges = tuple((0, *accumulate(sizes)) for sizes in chunks)
    plan = redistribution(Blocks(dims, edges, {}), layout, nodes=len(nodes), candidates=nodes)
    new = tuple(tuple(int(size) for size in np.diff(one)) for one in plan.edges)
    if 0 in record["shape"]:
        return {}, new
    return {
        place_of(record, chunk.index): _chunk(record, chunk, wanted) for chunk in plan.chunks if chunk.pieces
    }, new


def _chunk(record: Mapping[str, Any], chunk: Any, wanted: Mapping[str, Wanted]) -> Wanted:
    olds = [wanted[place_of(record, piece.old)] for piece in chunk.pieces]
    if chunk.is_old:
        return Wanted(olds[0].spec, olds[0].block, chunk.targets)
    axes = range(len(chunk.index))
    # Where the pieces of each old row, column and so on begin in the new chunk.
    begins: list[dict[int, int]] = []
    for axis in axes:
        lengths = {piece.old[axis]: piece.spans[axis][1] - piece.spans[axis][0] for piece in chunk.pieces}
        starts = [0, *accumulate(lengths[at] for at in sorted(lengths))]
        begins.append(dict(zip(sorted(lengths), starts, strict=False)))
    pieces, ends = [], [0] * len(chunk.index)
    for piece, old in zip(chunk.pieces, olds, strict=True):
        target = []
        for axis, (begin, end) in enumerate(piece.spans):
            at = begins[axis][piece.old[axis]]
            target.append((at, at + end - begin))
            ends[axis] = max(ends[axis], at + end - begin)
        pieces.append((old.plain, piece.spans, target))
    return Wanted(targets=chunk.targets, made_of={"shape": ends, "pieces": pieces})


def _in_order(wanted: Mapping[str, Wanted], nodes: Sequence[str]) -> dict[str, Wanted]:
    """Blocks as they are, as many on each node, neighbours together."""
    per_node = max(1, -(-len(wanted) // len(nodes)))
    return {
        place: Wanted(one.spec, one.block, (nodes[number // per_node],))
        for number, (place, one) in enumerate(wanted.items())
    }
