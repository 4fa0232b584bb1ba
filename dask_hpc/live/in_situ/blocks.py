"""A Dataset as blocks in rows, and back: which cells a block has, and who its neighbours are."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True)
class Grid:
    """How a Dataset is cut: the dimensions, and the lengths of the blocks along each.

    Blocks have numbers; the last dimension runs fastest, so numbers in a row are neighbours.
    """

    dims: tuple[Hashable, ...]
    chunks: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return prod(len(lengths) for lengths in self.chunks)

    @cached_property
    def indices(self) -> list[tuple[int, ...]]:
        """Where each block lies, counted in blocks."""
        return list(product(*(range(len(lengths)) for lengths in self.chunks)))

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        return {index: number for number, index in enumerate(self.indices)}

    @cached_property
    def _ranges(self) -> list[list[slice]]:
        cuts = ([0, *accumulate(lengths)] for lengths in self.chunks)
        return [[slice(low, high) for low, high in pairwise(some)] for some in cuts]

    def cells(self, block: int) -> dict[Hashable, slice]:
        """The cells of a block, by dimension."""
        return {
            dim: ranges[at]
            for dim, ranges, at in zip(self.dims, self._ranges, self.indices[block], strict=True)
        }

    def sizes(self, block: int) -> dict[Hashable, int]:
        """How many cells a block has along each dimension."""
        return {dim: cells.stop - cells.start for dim, cells in self.cells(block).items()}

    def neighbour(self, block: int, steps: Mapping[Hashable, int], wraps: Mapping[Hashable, bool]) -> Any:
        """The block so many blocks further along some dimensions, or None beyond the rim of one that does
        not wrap."""
        index = []
        for dim, lengths, at in zip(self.dims, self.chunks, self.indices[block], strict=True):
            there = at + steps.get(dim, 0)
            if not 0 <= there < len(lengths) and not wraps.get(dim, False):
                return None
            index.append(there % len(lengths))
        return self._numbers[tuple(index)]

    def __str__(self) -> str:
        return ", ".join(
            f"{dim}: {len(lengths)}" for dim, lengths in zip(self.dims, self.chunks, strict=True)
        )


def make_grid(state: Any, chunks: Any = None, whole: Sequence[Hashable] = ()) -> tuple[xr.Dataset, Grid]:
    """A state with its chunks in order, and how it is cut. ``chunks`` is for a state in memory; dimensions of
    ``whole`` that are not chunked are one block long."""
    if not isinstance(state, xr.Dataset):
        raise InputError("state", f"found {type(state).__name__}", "an xarray Dataset")
    if chunks is not None and (not isinstance(chunks, Mapping) or not chunks):
        raise InputError("chunks", f"found {shown(chunks)}", 'lengths by dimension, such as {"x": 100}')
    for dim in (*(chunks or ()), *whole):
        if dim not in state.sizes:
            raise InputError("state", f"found no dimension {shown(dim)}", ", ".join(map(str, state.sizes)))
    if state.chunks:
        state = state.chunk(chunks or {}).unify_chunks()
        cut = dict(state.chunks)
    else:
        cut = {dim: _lengths(state, dim, length) for dim, length in (chunks or {}).items()}
    cut |= {dim: (state.sizes[dim],) for dim in whole if dim not in cut}
    dims = tuple(dim for dim in state.sizes if dim in cut)
    if not dims:
        raise InputError("state", "found a Dataset in one piece", 'chunks, such as chunks={"x": 100}')
    for dim in dims:
        if isinstance(state.indexes.get(dim), pd.MultiIndex):
            raise InputError("state", f"found a MultiIndex along {dim}", "plain coordinates where it is cut")
        if 0 in cut[dim]:
            raise InputError("state", f"found an empty block along {dim}", "blocks of one cell or more")
    return state, Grid(dims, tuple(tuple(cut[dim]) for dim in dims))


def _lengths(state: xr.Dataset, dim: Hashable, length: Any) -> tuple[int, ...]:
    """Block lengths along a dimension that is in memory, as xarray reads them."""
    size = state.sizes[dim]
    try:
        found = xr.Dataset(coords={"at": (dim, np.empty(size, np.int8))}).chunk({dim: length}).chunks[dim]
    except (TypeError, ValueError):
        raise InputError(
            "chunks", f"found {shown(length)} along {dim}", f"lengths of together {size}"
        ) from None
    return tuple(found)


def cut(state: xr.Dataset, grid: Grid, block: int) -> xr.Dataset:
    """One block of a state."""
    return state.isel(grid.cells(block))


def join(blocks: Mapping[int, xr.Dataset], grid: Grid) -> xr.Dataset:
    """The Dataset that these blocks make up. What has no dimension that is cut is taken from the first."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    many = {dim for dim, lengths in zip(grid.dims, grid.chunks, strict=True) if len(lengths) > 1}
    found = {}
    for name, variable in first.variables.items():
        if many.isdisjoint(variable.dims):
            found[name] = variable
            continue
        shape = [_length(grid, dim, variable.sizes[dim]) for dim in variable.dims]
        whole = np.empty(shape, variable.dtype)
        for number, block in blocks.items():
            cells = grid.cells(number)
            whole[tuple(cells.get(dim, slice(None)) for dim in variable.dims)] = block.variables[name].values
        found[name] = xr.Variable(variable.dims, whole, variable.attrs, variable.encoding)
    return rebuilt(first, found)


def rebuilt(like: xr.Dataset, variables: Mapping[Any, xr.Variable]) -> xr.Dataset:
    """A Dataset of these variables; what is a coordinate, and attributes, are as in another."""
    coords = {name: one for name, one in variables.items() if name in like.coords}
    data = {name: one for name, one in variables.items() if name not in coords}
    whole = xr.Dataset(data, coords, like.attrs)
    whole.encoding = like.encoding
    return whole


def _length(grid: Grid, dim: Hashable, here: int) -> int:
    return sum(grid.chunks[grid.dims.index(dim)]) if dim in grid.dims else here
