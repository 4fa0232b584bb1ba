"""Arrays with names, dimensions and attributes as plain data, and the blocks that they consist of.

The cells of a Zarr array all have one size. An array of Dask whose chunks are like that is stored chunk by
chunk; another is cut anew, and gets its own chunks back when it is read.

What plain Zarr and xarray have to know to read them is a function of that description, and
for others only. We read by the manifest, which knows more: times and dates here are numbers with units,
encodings are left out as values are stored as they are in memory, and what no Zarr reader would understand
(structured elements, pickled ones, an array where one block is such) is not shown at all.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from math import isnan
from typing import Any
from urllib.parse import quote

import numpy as np

from dask_hpc.checkpoint.store.cells import CELL, EPOCH, OBJECTS, READABLE, TEXT, TIMES, VALUE
from dask_hpc.checkpoint.store.manifest import Item
from dask_hpc.checkpoint.store.value import Opaque, pack, unpack

_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}")
_TAKEN = ("zarr.json",)

#: numpy's units of time, as xarray spells them
_UNITS = {
    "W": "weeks", "D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
#: attributes by which a reader would change the values
_CHANGING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "dtype", "coordinates")
_NUMBERS = "biufc"

Chunks = tuple[tuple[int, ...], ...]


def folder_name(name: Any, taken: Iterable[str]) -> str:
    """For a variable of any name, one that a folder may have."""
    found = name if isinstance(name, str) else ""
    if not _FOLDER.fullmatch(found):
        found = quote(found, safe=" ", errors="backslashreplace")
    used = {*taken, *_TAKEN}
    if not found.startswith(".") and 0 < len(found) <= 150 and found not in used:
        return found
    return next(made for number in count() if (made := f"variable-{number}") not in used)


def described_array(data: Any, place: str, dims: Sequence[Any]) -> dict[str, Any]:
    """An array, with or without chunks, as plain data."""
    chunks: Any = getattr(data, "chunks", None)
    is_chunked = chunks is not None
    form = _form(data, is_chunked)
    known = not is_chunked or not any(isnan(size) for sizes in chunks for size in sizes)
    cells: list[int] | None = None
    if form != VALUE and known:
        if not is_chunked:
            cells = [max(1, length) for length in data.shape]
        elif 0 in data.shape or all(map(is_even, chunks)):
            cells = [max(1, sizes[0]) for sizes in chunks]
        else:
            cells = [sizes[0] if is_even(sizes) else max(sizes) for sizes in chunks]
    found = {
        "place": place,
        "dims": pack(list(dims)),
        "dtype": np.dtype(data.dtype).str if form == CELL else None,
        "shape": [_size(length) for length in data.shape],
        "chunks": [[_size(size) for size in sizes] for sizes in chunks] if is_chunked else None,
        "cells": cells,
        "form": form if cells is not None else VALUE,
    }
    if is_chunked and found["form"] == VALUE:
        found["meta"] = pack(_meta(data))
    return found


def _meta(data: Any) -> Any:
    import dask.array as da

    return da.utils.meta_from_array(data)


def _form(data: Any, is_chunked: bool) -> str:
    sample = _meta(data) if is_chunked else data
    dtype = getattr(data, "dtype", None)
    if type(sample) is not np.ndarray or not isinstance(dtype, np.dtype):
        return VALUE
    if dtype.kind == "O":
        return OBJECTS
    is_simple = dtype.kind in "biufcmMSU" and dtype.itemsize and dtype.metadata is None
    return CELL if is_simple and np.dtype(dtype.str) == dtype else VALUE


def is_even(sizes: Sequence[int]) -> bool:
    """Whether chunks can be cells of one size: all alike, but the last one may be smaller."""
    return all(size == sizes[0] for size in sizes[:-1]) and 0 < sizes[-1] <= sizes[0]


def _size(found: Any) -> int | None:
    return None if isnan(found) else int(found)


def stored_chunks(variable: Mapping[str, Any]) -> Chunks | None:
    """The chunks of an array as they lie in the store; None if it is in one piece."""
    if variable["chunks"] is None:
        return None
    chunks = tuple(tuple(sizes) for sizes in variable["chunks"])
    if variable["cells"] is None or 0 in variable["shape"]:
        return chunks
    return tuple(
        tuple(min(cell, length - begin) for begin in range(0, length, cell))
        for length, cell in zip(variable["shape"], variable["cells"], strict=True)
    )


def places_of(variable: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """The places of its blocks, with their numbers along each dimension. An array without any element has no
    blocks."""
    chunks = stored_chunks(variable)
    if variable["form"] != VALUE and 0 in variable["shape"]:
        return
    if chunks is None:
        yield variable["place"], None
        return
    for index in product(*(range(len(sizes)) for sizes in chunks)):
        yield place_of(variable, index), index


def place_of(variable: Mapping[str, Any], index: Sequence[int]) -> str:
    return f"{variable['place']}/{'.'.join(map(str, index)) or '0'}"


def specs_of(label: str, variable: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each block of an array is to be (see ``cells``), by place."""
    chunks = stored_chunks(variable)
    for place, index in places_of(variable):
        spec: dict[str, Any] = {"where": f"{label}[{place}]", "form": variable["form"]}
        if variable["form"] == VALUE:
            spec["file"] = f"{label}.parts/{place}"
        else:
            numbers = index if index is not None else (0,) * len(variable["cells"])
            spec["file"] = "/".join([f"{label}.zarr", variable["place"], "c", *map(str, numbers)])
            spec |= {"dtype": variable["dtype"], "shape": variable["shape"], "cell": variable["cells"]}
            if chunks:
                spec["shape"] = [sizes[at] for sizes, at in zip(chunks, numbers, strict=True)]
        yield place, spec


def pack_mapping(found: Mapping[Any, Any]) -> list[Any]:
    return [[pack(key), pack(value)] for key, value in found.items()]


def empty_chunk(variable: Mapping[str, Any], shape: Sequence[int]) -> np.ndarray:
    """Of an array that has no element there."""
    return np.empty(tuple(shape), variable["dtype"] or object)


def metadata_files(label: str, item: Item) -> dict[str, bytes]:
    """The files that make an item readable, by path in the folder of its version; none without arrays."""
    if "variables" not in item.meta:
        return {}
    arrays, names = {}, {}
    for variable in item.meta["variables"]:
        found = _array(item, variable)
        if found is not None:
            arrays[variable["place"]] = found
            if variable.get("is coordinate"):
                names[variable["place"]] = found["dimension_names"]
    others = [name for name, dims in names.items() if dims != [name] and " " not in name]
    attributes = _attributes(item.meta.get("attrs", []))
    if others:
        attributes["coordinates"] = " ".join(others)
    whole = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays},
    }
    found = {f"{label}.zarr/{name}/zarr.json": one for name, one in arrays.items()}
    found[f"{label}.zarr/zarr.json"] = whole
    return {path: json.dumps(one, indent=1).encode() for path, one in found.items()}


def _array(item: Item, variable: Mapping[str, Any]) -> dict[str, Any] | None:
    notes = [item.blocks[place].note for place, _ in places_of(variable) if place in item.blocks]
    forms = {note["form"] for note in notes} or {variable["form"]}
    form = forms.pop()
    if forms or form not in READABLE or len({note.get("calendar") for note in notes}) > 1:
        return None
    dtype = np.dtype(variable["dtype"]) if form == CELL else None
    attributes = _attributes(variable.get("attrs", []))
    kind, fill, first = _element(form, dtype)
    if kind is None:
        return None
    if form == TIMES:
        attributes |= {"units": EPOCH, "calendar": notes[0]["calendar"]}
    elif dtype is not None and dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        if count != 1 or unit not in _UNITS:
            return None
        if dtype.kind == "M":
            attributes |= {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
        else:
            attributes |= {"units": _UNITS[unit], "dtype": f"timedelta64[{unit}]"}
    codecs = [first]
    if any("codec" in note for note in notes):
        codecs.append({"name": "zstd", "configuration": {"level": 1, "checksum": False}})
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": variable["shape"],
        "data_type": kind,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": variable["cells"]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": attributes,
        "dimension_names": [str(dim) for dim in unpack(variable["dims"])],
    }


def _element(form: str, dtype: np.dtype[Any] | None) -> tuple[Any, Any, Any]:
    """Type of element, value of what is not there, and first codec."""
    if form == TEXT:
        return "string", "", {"name": "vlen-utf8", "configuration": {}}
    if dtype is None:
        return "int64", 0, _in_bytes("<")
    order = dtype.str[0]
    if dtype.kind in "mM":
        return "int64", 0, _in_bytes(order)
    if dtype.kind == "U":
        name = {"name": "fixed_length_utf32", "configuration": {"length_bytes": dtype.itemsize}}
        return name, "", _in_bytes(order)
    if dtype.kind == "S":
        name = {"name": "null_terminated_bytes", "configuration": {"length_bytes": dtype.itemsize}}
        return name, "", {"name": "bytes"}
    if dtype.kind not in _NUMBERS or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        return None, None, None  # long double is another thing on every machine
    fill: Any = {"b": False, "c": [0.0, 0.0], "f": 0.0}.get(dtype.kind, 0)
    return dtype.name, fill, _in_bytes(order) if dtype.itemsize > 1 else {"name": "bytes"}


def _in_bytes(order: str) -> dict[str, Any]:
    return {"name": "bytes", "configuration": {"endian": "big" if order == ">" else "little"}}


def _attributes(found: Any) -> dict[str, Any]:
    """Those that JSON can say and that do not change what is read."""
    said = {}
    for key, value in found:
        try:
            name, plain = unpack(key), unpack(value)
            plain = plain.tolist() if isinstance(plain, np.ndarray | np.generic) else plain
            json.dumps(plain, allow_nan=False)
        except (Opaque, TypeError, ValueError):
            continue
        if isinstance(name, str) and name not in _CHANGING:
            said[name] = plain
    return said
