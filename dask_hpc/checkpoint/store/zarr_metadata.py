"""What plain Zarr and xarray have to know to read the blocks of an item: a function of its description.

It is for others only. We read by the manifest, which knows more: times and dates here are numbers with units,
encodings are left out as values are stored as they are in memory, and what no Zarr reader would understand
(structured elements, pickled ones, an array where one block is such) is not shown at all.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dask_hpc.checkpoint.store.cells import CELL, EPOCH, READABLE, TEXT, TIMES
from dask_hpc.checkpoint.store.items import ARRAYS
from dask_hpc.checkpoint.store.manifest import Item
from dask_hpc.checkpoint.store.value import Opaque, unpack
from dask_hpc.checkpoint.store.variables import places_of

#: numpy's units of time, as xarray spells them
_UNITS = {
    "W": "weeks", "D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
#: attributes by which a reader would change the values
_CHANGING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "dtype", "coordinates")
_NUMBERS = "biufc"


def metadata_files(label: str, item: Item) -> dict[str, bytes]:
    """The files that make an item readable, by path in the folder of its version; none without arrays."""
    if item.kind not in ARRAYS:
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
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    whole = group | {
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": arrays}
    }
    files = {f"{label}.zarr/{name}/zarr.json": _as_json(found) for name, found in arrays.items()}
    return files | {f"{label}.zarr/zarr.json": _as_json(whole)}


def _as_json(found: Any) -> bytes:
    return json.dumps(found, indent=1).encode()


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
    if form == TIMES or dtype is None:
        return "int64", 0, _in_bytes("<")
    order = "<" if dtype.newbyteorder("=").str[0] == "<" and dtype.isnative else dtype.str[0]
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
    return dict(_sayable(found))


def _sayable(found: Any) -> Iterator[tuple[str, Any]]:
    for key, value in found:
        try:
            name, plain = unpack(key), _plain(unpack(value))
            json.dumps(plain, allow_nan=False)
        except (Opaque, TypeError, ValueError):
            continue
        if isinstance(name, str) and name not in _CHANGING:
            yield name, plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
