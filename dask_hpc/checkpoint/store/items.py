"""Items of any kind as a description and blocks, and back.

``describe`` takes an item apart: its kind, what has to be known about it as plain data, and where the value
of each block is to be found. ``rebuild`` puts it together again from that description and the blocks, which
may be values, or stand for values that are elsewhere or come later (``Delayed``, ``Future``).

Places of blocks: ``""`` for an item in one piece, ``"u/0.3"`` for chunk (0, 3) of the variable u, ``"u"`` for
a variable in one piece, ``"7"`` for a partition.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.checkpoint.store.arrays import (
    Chunks,
    described_array,
    empty_chunk,
    folder_name,
    pack_mapping,
    place_of,
    places_of,
    specs_of,
    stored_chunks,
)
from dask_hpc.checkpoint.store.cells import VALUE
from dask_hpc.checkpoint.store.manifest import check_label
from dask_hpc.checkpoint.store.value import Opaque, Unknown, pack, unpack
from dask_hpc.model.errors import InputError, one_line, shown


@dataclass(frozen=True)
class BlockSource:
    """What items are put together from: by place the blocks, and the chunks of those variables whose blocks
    are others than those that were described."""

    by_place: Mapping[str, Any]
    grids: Mapping[str, Chunks]
    may_unpickle: bool

    def unpack(self, found: Any) -> Any:
        return unpack(found, may_unpickle=self.may_unpickle)

    def array(self, variable: Mapping[str, Any]) -> Any:
        """A variable: an array of Dask if it has chunks, else the block that it consists of."""
        own, place = stored_chunks(variable), variable["place"]
        if own is None:
            is_there = place in self.by_place
            return self.by_place[place] if is_there else empty_chunk(variable, variable["shape"])
        chunks = self.grids.get(place, own)
        found = self._chunked(variable, chunks)
        original = tuple(tuple(sizes) for sizes in variable["chunks"])
        return found if chunks != own or chunks == original else found.rechunk(original)

    def _chunked(self, variable: Mapping[str, Any], chunks: Chunks) -> Any:
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
            if place in self.by_place:
                block = self.by_place[place]
            elif 0 in shape:
                block = empty_chunk(variable, shape)
            else:
                raise LookupError(f"there is no block {place}")
            if isinstance(block, Delayed):
                needed.append(block)
                block = block.key
            layer[(name, *index)] = block
        graph = HighLevelGraph.from_collections(name, layer, dependencies=needed)
        if "meta" in variable:
            return da.Array(graph, name, known, meta=self.unpack(variable["meta"]))
        return da.Array(graph, name, known, dtype=variable["dtype"] or object)

    def partitions(self, kind: str, meta: Mapping[str, Any]) -> Any:
        """A dataframe, a series, an index or a bag."""
        from dask.delayed import Delayed, delayed
        from distributed import Future

        parts = [self.by_place[str(number)] for number in range(meta["partitions"])]
        parts = [one if isinstance(one, Delayed | Future) else delayed(one, traverse=False) for one in parts]
        if kind == "bag":
            import dask.bag as db

            return db.from_delayed(parts)
        import dask.dataframe as dd

        divisions = None
        if "divisions" in meta:
            divisions = tuple(self.unpack(meta["divisions"])["divisions"])
        empty = self.unpack(meta["empty"])
        return dd.from_delayed(parts, meta=empty, divisions=divisions, verify_meta=False)

    def dataset(self, kind: str, meta: Mapping[str, Any]) -> Any:
        coordinates: dict[Any, Any] = {}
        data: dict[Any, Any] = {}
        encodings: dict[Any, Any] = {}
        for record in meta["variables"]:
            name, values = self.unpack(record["name"]), self.array(record)
            if type(values).__module__.startswith("pandas"):
                values = pd.Index(values) if record["is coordinate"] else values.array
            encodings[name] = self._encoding(record)
            variable = xr.Variable(self.unpack(record["dims"]), values, self._attrs(record))
            (coordinates if record["is coordinate"] else data)[name] = variable
        found = xr.Dataset(data, coords=xr.Coordinates(coordinates, indexes={}))
        for index in meta["indexes"]:
            levels = self.unpack(index["levels"])
            is_multi = "dim" in index
            found = found.set_xindex(*((levels, xr.indexes.PandasMultiIndex) if is_multi else levels[:1]))
        for name, encoding in encodings.items():
            found.variables[name].encoding = encoding
        found.attrs, found.encoding = self._attrs(meta), self._encoding(meta)
        return found if kind == "dataset" else found[meta["only"]].rename(self.unpack(meta["name"]))

    def _attrs(self, record: Mapping[str, Any]) -> dict[Any, Any]:
        return {self.unpack(key): self.unpack(value) for key, value in record["attrs"]}

    def _encoding(self, record: Mapping[str, Any]) -> dict[Any, Any]:
        """Without what would have to be unpickled: nobody needs it."""
        found = {}
        for key, value in record["encoding"]:
            with suppress(Opaque):
                found[self.unpack(key)] = self.unpack(value)
        return found


def described(value: Any, kind: str) -> tuple[dict[str, Any], list[Any]]:
    """What there is to know, and the array of each variable that is stored."""
    meta: dict[str, Any] = {}
    if kind == "dataarray":
        taken = set(map(str, value.coords))
        chosen = value.name if isinstance(value.name, str) and value.name not in taken else "data"
        while chosen in taken:
            chosen += "_"
        meta["name"], meta["only"] = pack(value.name), chosen
        value = value.to_dataset(name=chosen)
        value.attrs = {}
    meta["attrs"], meta["encoding"] = pack_mapping(value.attrs), pack_mapping(value.encoding)
    meta["indexes"], made = _indexes(value)
    records: list[dict[str, Any]] = []
    arrays: list[Any] = []
    for name, variable in value.variables.items():
        if name in made:
            continue
        data = _data(variable)
        place = folder_name(name, [record["place"] for record in records])
        record = described_array(data, place, variable.dims)
        record["name"] = pack(name)
        record["is coordinate"] = name in value.coords
        record["attrs"] = pack_mapping(variable.attrs)
        record["encoding"] = pack_mapping(variable.encoding)
        records.append(record)
        arrays.append(data)
    meta["variables"] = records
    return meta, arrays


def _data(variable: Any) -> Any:
    if variable.chunks is not None:
        return variable.data
    if isinstance(variable.dtype, np.dtype):
        data = variable.data
        return data if not isinstance(data, np.ndarray | np.generic) else np.asarray(variable.values)
    # categories and other types of pandas
    return pd.Series(variable.to_index() if variable.ndim == 1 and variable.size else variable.values)


def _indexes(dataset: Any) -> tuple[list[Any], set[Any]]:
    """The indexes, and the coordinates that come with them."""
    found: list[Any] = []
    made = set()
    for index, members in dataset.xindexes.group_by_index():
        if isinstance(index, xr.indexes.PandasMultiIndex):
            levels = [name for name in members if name != index.dim]
            found.append({"levels": pack(levels), "dim": pack(index.dim)})
            made.add(index.dim)
        elif isinstance(index, xr.indexes.PandasIndex):
            found.extend({"levels": pack([name])} for name in members)
        else:
            raise InputError(
                f"the coordinates {', '.join(map(str, members))}",
                f"found an index of type {type(index).__name__}",
                "indexes of pandas (Dataset.drop_indexes takes others off)",
            )
    return found, made


#: of items that consist of arrays
ARRAYS = ("dataset", "dataarray", "array")
PARTS = ("dataframe", "series", "index", "bag")
SINGLE = ("delayed", "future", "value")
KINDS = (*ARRAYS, *PARTS, *SINGLE)
#: results by key, as ``protect`` stores them; of no kind that a person adds
RESULTS = "results"


@dataclass(frozen=True)
class HeldItem:
    """The result of this key, on the cluster."""

    key: Any


@dataclass(frozen=True)
class Plain:
    """A value that is here."""

    value: Any


Source = HeldItem | Plain


@dataclass(frozen=True)
class Described:
    """An item taken apart. As long as there is something in ``collection``, that has to be persisted
    (``client.persist(list(described.collection))``), and ``after`` tells where its blocks are then."""

    label: str
    kind: str
    meta: Mapping[str, Any]
    sources: Mapping[str, Source]
    collection: tuple[Any, ...] = ()
    #: for each of the collection the places of its blocks, in the order of its keys
    places: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    #: what becomes of it on a resize, as a manifest says it
    on_resize: str = "constant"

    def after(self, persisted: Sequence[Any]) -> "Described":
        """The same, with the keys of what was persisted."""
        sources = dict(self.sources)
        for one, places in zip(persisted, self.places, strict=True):
            sources |= zip(places, map(HeldItem, keys_of(one)), strict=True)
        return replace(self, sources=sources, collection=(), places=())


def describe(value: Any, label: str) -> Described:
    """Take an item apart. Arrays whose chunks differ in size are cut anew, or Zarr could not show them."""
    label = check_label(label)
    kind = _kind(value, label)
    if kind in ARRAYS:
        return _described_arrays(value, label, kind)
    if kind in PARTS:
        return _described_parts(value, label, kind)
    if kind == "delayed":
        return _settled(Described(label, kind, {}, {"": HeldItem(value.key)}, (value,), (("",),)))
    if kind == "future":
        return Described(label, kind, {}, {"": HeldItem(value.key)})
    return Described(label, kind, {}, {"": Plain(value)})


def rebuild(
    kind: str,
    meta: Mapping[str, Any],
    blocks: Mapping[str, Any],
    *,
    may_unpickle: bool = False,
    grids: Mapping[str, Chunks] | None = None,
) -> Any:
    """Put an item together again. ``grids`` has the chunks of those variables (by place) whose blocks are
    others than those that were described. Raises ``Unknown`` or ``Opaque``."""
    source = BlockSource(blocks, grids or {}, may_unpickle)
    try:
        if kind in ("dataset", "dataarray"):
            return source.dataset(kind, meta)
        if kind == "array":
            return source.array(meta["variables"][0])
        if kind in PARTS:
            return source.partitions(kind, meta)
        if kind == RESULTS:
            return {key: blocks[place] for place, key in meta["keys"].items()}
        if kind in SINGLE:
            from dask.delayed import Delayed, delayed

            block = blocks[""]
            return delayed(block) if kind == "delayed" and not isinstance(block, Delayed) else block
    except (Opaque, Unknown):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        raise Unknown(one_line(f"{type(error).__name__}: {error}")) from None
    raise Unknown(f"found the kind {shown(kind)}")


def block_specs(label: str, kind: str, meta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each block of an item is to be (see ``cells``), by place."""
    if kind in ARRAYS:
        return {place: spec for variable in meta["variables"] for place, spec in specs_of(label, variable)}
    if kind in PARTS:
        where = {str(number): f"{label}[{number}]" for number in range(meta["partitions"])}
    elif kind == RESULTS:
        where = meta["keys"]
    else:
        return {"": {"where": label, "form": VALUE, "file": f"{label}.value"}}
    return {
        place: {"where": one, "form": VALUE, "file": f"{label}.parts/{place}"} for place, one in where.items()
    }


def _kind(value: Any, label: str) -> str:
    from dask.base import is_dask_collection
    from distributed import Future

    if isinstance(value, xr.Dataset):
        return "dataset"
    if isinstance(value, xr.DataArray):
        return "dataarray"
    if isinstance(value, Future):
        return "future"
    if not is_dask_collection(value):
        if any(isinstance(one, Future) or is_dask_collection(one) for one in _inside(value)):
            found = f"found a {type(value).__name__} of Dask's objects"
            raise InputError(label, found, "one of them per label")
        return "value"
    module, name = type(value).__module__, type(value).__name__
    if module.startswith("dask.array"):
        return "array"
    is_frame = "dask.dataframe" in sys.modules and name in ("DataFrame", "Series", "Index")
    if is_frame and hasattr(value, "npartitions"):
        return name.lower()
    if module.startswith("dask.bag") and hasattr(value, "npartitions"):
        return "bag"
    if hasattr(value, "key"):
        return "delayed"
    raise InputError(label, f"found a {module}.{name}", ", ".join(KINDS))


def _inside(value: Any, deep: int = 3) -> Iterable[Any]:
    """What is in plain containers."""
    if deep and isinstance(value, (list, tuple, set, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield one
            yield from _inside(one, deep - 1)


def _described_arrays(value: Any, label: str, kind: str) -> Described:
    if kind == "array":
        dims = [f"dim_{number}" for number in range(value.ndim)]
        record = described_array(value, folder_name(label, ()), dims)
        meta, found = {"variables": [record]}, [value]
    else:
        meta, found = described(value, kind)
    sources: dict[str, Source] = {}
    collection, places = [], []
    for record, data in zip(meta["variables"], found, strict=True):
        there = [place for place, _ in places_of(record)]
        if record["chunks"] is None:
            sources |= {place: Plain(data) for place in there}
        elif there:
            chunks = stored_chunks(record)
            is_so = record["cells"] is None or chunks == data.chunks
            collection.append(data if is_so else data.rechunk(chunks))
            places.append(tuple(there))
            sources |= zip(there, map(HeldItem, _flat_keys(collection[-1])), strict=True)
    return _settled(Described(label, kind, meta, sources, tuple(collection), tuple(places)))


def _described_parts(value: Any, label: str, kind: str) -> Described:
    meta: dict[str, Any] = {"partitions": value.npartitions}
    if kind != "bag":
        from dask.dataframe.dispatch import make_meta

        meta["empty"] = pack(make_meta(value))
        if value.known_divisions:
            meta["divisions"] = pack(pd.DataFrame({"divisions": list(value.divisions)}))
    places = tuple(map(str, range(value.npartitions)))
    sources = dict(zip(places, map(HeldItem, _flat_keys(value)), strict=True))
    return _settled(Described(label, kind, meta, sources, (value,), (places,)))


def _settled(described: Described) -> Described:
    """Without what has been persisted already."""
    from distributed import Future

    found = [one for collection in described.collection for one in _results(collection)]
    if all(isinstance(one, Future) for one in found):
        return described.after(described.collection)
    return described


def _results(collection: Any) -> list[Any]:
    """What a graph has for each block: futures, once it was persisted."""
    graph = dict(collection.__dask_graph__())
    keys = _flat_keys(collection)
    if any(key not in graph for key in keys):
        # Dataframes have other keys in their graphs than they say; partitions have the same numbers.
        graph = {key[1]: one for key, one in graph.items() if isinstance(key, tuple) and len(key) == 2}
        return [graph.get(number) for number in range(len(keys))]
    found = []
    for key in keys:
        one = graph[key]
        while getattr(one, "target", None) in graph:  # be it by another name
            one = graph[one.target]
        found.append(one)
    return found


def _flat_keys(collection: Any) -> list[Any]:
    from dask.core import flatten

    return list(flatten(collection.__dask_keys__()))


def keys_of(collection: Any) -> list[Any]:
    """Of the results of something that was persisted."""
    found = zip(_results(collection), _flat_keys(collection), strict=True)
    return [getattr(one, "key", key) for one, key in found]
