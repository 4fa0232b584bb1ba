"""Collections of Dask from their blocks: values, ``Delayed`` or ``Future``."""

from collections.abc import Mapping
from itertools import product
from typing import Any
from uuid import uuid4

import numpy as np

from dask_hpc.checkpoint.store.value import unpack
from dask_hpc.checkpoint.store.variables import Chunks, empty_chunk, place_of, stored_chunks


def array(
    variable: Mapping[str, Any], blocks: Mapping[str, Any], grids: Mapping[str, Chunks], may_unpickle: bool
) -> Any:
    """A variable: an array of Dask if it has chunks, else the block that it consists of."""
    if variable["chunks"] is None:
        if variable["place"] in blocks:
            return blocks[variable["place"]]
        return empty_chunk(variable, variable["shape"])
    own = stored_chunks(variable)
    chunks = grids.get(variable["place"], own)
    assert chunks is not None
    found = _chunked(variable, chunks, blocks, may_unpickle)
    original = tuple(tuple(sizes) for sizes in variable["chunks"])
    return found if chunks != own or chunks == original else found.rechunk(original)


def _chunked(
    variable: Mapping[str, Any], chunks: Chunks, blocks: Mapping[str, Any], may_unpickle: bool
) -> Any:
    import dask.array as da
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph

    known = tuple(tuple(np.nan if size is None else size for size in sizes) for sizes in chunks)
    name = f"restored-{uuid4().hex}"
    layer: dict[Any, Any] = {}
    needed = []
    for index in product(*(range(len(sizes)) for sizes in chunks)):
        shape = [sizes[at] for sizes, at in zip(chunks, index, strict=True)]
        place = place_of(variable, index)
        if place not in blocks and 0 not in shape:
            raise LookupError(f"there is no block {place}")
        block = blocks.get(place)
        if place not in blocks:
            block = empty_chunk(variable, shape)
        elif isinstance(block, Delayed):
            needed.append(block)
            block = block.key
        layer[(name, *index)] = block
    graph = HighLevelGraph.from_collections(name, layer, dependencies=needed)
    if "meta" in variable:
        return da.Array(graph, name, known, meta=unpack(variable["meta"], may_unpickle=may_unpickle))
    return da.Array(graph, name, known, dtype=variable["dtype"] or object)


def partitions(kind: str, meta: Mapping[str, Any], blocks: Mapping[str, Any], may_unpickle: bool) -> Any:
    """A dataframe, a series, an index or a bag."""
    from dask.delayed import Delayed, delayed
    from distributed import Future

    parts = [blocks[str(number)] for number in range(meta["partitions"])]
    parts = [one if isinstance(one, Delayed | Future) else delayed(one, traverse=False) for one in parts]
    if kind == "bag":
        import dask.bag as db

        return db.from_delayed(parts)
    import dask.dataframe as dd

    divisions = None
    if "divisions" in meta:
        divisions = tuple(unpack(meta["divisions"], may_unpickle=may_unpickle)["divisions"])
    empty = unpack(meta["empty"], may_unpickle=may_unpickle)
    return dd.from_delayed(parts, meta=empty, divisions=divisions, verify_meta=False)
