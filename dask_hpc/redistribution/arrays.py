"""The dask arrays in what a user hands over, and that again with other arrays in their place."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import isnan
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.array.utils import meta_from_array
from distributed import Future, futures_of

from dask_hpc.model.errors import InputError, shown
from dask_hpc.planning.moves.redistribution import Blocks, Index


@dataclass
class Chunks:
    """One array in memory of the cluster: its chunks are futures."""

    name: str
    dims: tuple[str, ...]
    chunks: tuple[tuple[int, ...], ...]
    meta: Any
    futures: dict[Index, Future]

    @classmethod
    def of(cls, array: da.Array, dims: tuple[str, ...], futures: Mapping[Hashable, Future]) -> "Chunks":
        """Of an array that was persisted."""
        indices = product(*(range(count) for count in array.numblocks))
        found = {index: futures[(array.name, *index)] for index in indices}
        return cls(array.name, dims, array.chunks, meta_from_array(array), found)

    @property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """Of each dimension, from 0 to its length."""
        return tuple(tuple(np.cumsum([0, *sizes]).tolist()) for sizes in self.chunks)

    def blocks(self, holders: Mapping[Hashable, Iterable[str]]) -> Blocks:
        """What a plan looks at; ``holders`` by key."""
        there = {index: tuple(holders[future.key]) for index, future in self.futures.items()}
        return Blocks(self.dims, self.edges, there, max(1, self.meta.dtype.itemsize))

    def key(self, index: Index) -> Hashable:
        return self.futures[index].key

    def array(self) -> da.Array:
        graph = {future.key: future for future in self.futures.values()}
        return da.Array(graph, self.name, chunks=self.chunks, meta=self.meta)


def sizes(edges: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The chunks of an array with these edges, as Dask writes them."""
    return tuple(tuple(end - begin for begin, end in pairwise(one)) for one in edges)


def check(obj: Any) -> None:
    """Whether there is anything to redistribute."""
    if not isinstance(obj, da.Array | xr.DataArray | xr.Dataset):
        allowed = "an xarray Dataset or DataArray, a dask array"
        raise InputError("redistribute", f"found {shown(obj)}", allowed)
    found = list(_arrays(obj))
    if not found:
        raise InputError("redistribute", f"nothing in this {type(obj).__name__} is a dask array", "chunks")
    for path, array, _ in found:
        if any(isnan(size) for sizes in array.chunks for size in sizes):
            where = f"redistribute: {path}" if path else "redistribute"
            unknown = "the sizes of its chunks are not known"
            raise InputError(where, unknown, "arrays after compute_chunk_sizes()")


def found_in(obj: Any) -> list[Chunks]:
    """The arrays of a persisted object, each once."""
    futures = {future.key: future for future in futures_of(obj)}
    arrays = {array.name: Chunks.of(array, dims, futures) for _, array, dims in _arrays(obj)}
    return list(arrays.values())


def is_persisted(obj: Any) -> bool:
    """Whether all chunks are futures."""
    known = {future.key for future in futures_of(obj)}
    return all(
        known.issuperset((array.name, *index) for index in product(*map(range, array.numblocks)))
        for _, array, _ in _arrays(obj)
    )


def replaced(obj: Any, arrays: Mapping[str, da.Array]) -> Any:
    """The object with other arrays in the place of those of that name; all else is as it was."""
    if isinstance(obj, da.Array):
        return arrays[obj.name]
    new = obj.copy(deep=False)
    for _, variable in _variables(new):
        variable.data = arrays[variable.data.name]
    return new


def _arrays(obj: Any) -> Iterable[tuple[str, da.Array, tuple[str, ...]]]:
    if isinstance(obj, da.Array):
        return [("", obj, tuple(f"dim_{i}" for i in range(obj.ndim)))]
    return [(name, variable.data, tuple(map(str, variable.dims))) for name, variable in _variables(obj)]


def _variables(obj: xr.DataArray | xr.Dataset) -> list[tuple[str, xr.Variable]]:
    """Those that are dask arrays."""
    if isinstance(obj, xr.Dataset):
        found = [(str(name), variable) for name, variable in obj.variables.items()]
    else:
        found = [(str(name), coordinate.variable) for name, coordinate in obj.coords.items()]
        found.insert(0, (str(obj.name or ""), obj.variable))
    return [
        (name, variable)
        for name, variable in found
        if variable.chunks is not None and isinstance(variable.data, da.Array)
    ]
