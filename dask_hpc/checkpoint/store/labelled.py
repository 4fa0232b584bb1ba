"""Datasets and DataArrays of xarray as plain data and arrays, and back: with all that is said about them.

An index is not stored: it is made again of its coordinates, if xarray can do that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.checkpoint.store.assemble import array
from dask_hpc.checkpoint.store.value import pack, unpack
from dask_hpc.checkpoint.store.variables import (
    Chunks,
    described_array,
    folder_name,
    pack_mapping,
    unpack_mapping,
)
from dask_hpc.model.errors import InputError


def described(value: Any, kind: str, regular: bool) -> tuple[dict[str, Any], list[Any]]:
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
        record = described_array(data, place, variable.dims, is_regular=regular)
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


def rebuilt(
    kind: str,
    meta: Mapping[str, Any],
    blocks: Mapping[str, Any],
    grids: Mapping[str, Chunks],
    may_unpickle: bool,
) -> Any:
    """The Dataset or DataArray."""
    coordinates: dict[Any, Any] = {}
    data: dict[Any, Any] = {}
    encodings: dict[Any, Any] = {}
    for record in meta["variables"]:
        name = unpack(record["name"], may_unpickle=may_unpickle)
        values = array(record, blocks, grids, may_unpickle)
        if type(values).__module__.startswith("pandas"):
            is_index = record["is coordinate"] and values.dtype.name == "category"
            values = pd.Index(values) if is_index else values.array
        attrs = unpack_mapping(record["attrs"], may_unpickle=may_unpickle, is_needed=True)
        encodings[name] = unpack_mapping(record["encoding"], may_unpickle=may_unpickle, is_needed=False)
        dims = unpack(record["dims"], may_unpickle=may_unpickle)
        (coordinates if record["is coordinate"] else data)[name] = xr.Variable(dims, values, attrs)
    found = xr.Dataset(data, coords=xr.Coordinates(coordinates, indexes={}))
    for index in meta["indexes"]:
        levels = unpack(index["levels"], may_unpickle=may_unpickle)
        if "dim" in index:
            found = found.set_xindex(levels, xr.indexes.PandasMultiIndex)
        else:
            found = found.set_xindex(levels[0])
    for name, encoding in encodings.items():
        found.variables[name].encoding = encoding
    found.attrs = unpack_mapping(meta["attrs"], may_unpickle=may_unpickle, is_needed=True)
    found.encoding = unpack_mapping(meta["encoding"], may_unpickle=may_unpickle, is_needed=False)
    if kind == "dataset":
        return found
    return found[meta["only"]].rename(unpack(meta["name"], may_unpickle=may_unpickle))
