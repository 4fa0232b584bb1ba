"""A Dataset as blocks in rows, and back: which cells a block has, and who its neighbours are."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True)
class BlockGrid:
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
        return {
            dim: ranges[at]
            for dim, ranges, at in zip(self.dims, self._ranges, self.indices[block], strict=True)
        }

    def sizes(self, block: int) -> dict[Hashable, int]:
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


def make_grid(state: Any, chunks: Any = None, whole: Sequence[Hashable] = ()) -> tuple[xr.Dataset, BlockGrid]:
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
    return state, BlockGrid(dims, tuple(tuple(cut[dim]) for dim in dims))


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


def cut(state: xr.Dataset, grid: BlockGrid, block: int) -> xr.Dataset:
    return state.isel(grid.cells(block))


def join(blocks: Mapping[int, xr.Dataset], grid: BlockGrid) -> xr.Dataset:
    """The Dataset that these blocks make up. What has no dimension that is cut is taken from the first."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    lengths = {dim: sum(sizes) for dim, sizes in zip(grid.dims, grid.chunks, strict=True)}
    many = {dim for dim, sizes in zip(grid.dims, grid.chunks, strict=True) if len(sizes) > 1}
    found = {}
    for name, variable in first.variables.items():
        if many.isdisjoint(variable.dims):
            found[name] = variable
            continue
        shape = [lengths.get(dim, variable.sizes[dim]) for dim in variable.dims]
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


Boundary = Literal["periodic", "nearest", "none"]
BOUNDARIES: tuple[str, ...] = ("periodic", "nearest", "none")

#: for each dimension with ghost cells: the neighbour before (-1), behind (1), or neither (0)
Offset = tuple[int, ...]


@dataclass(frozen=True)
class Halo:
    """How many ghost cells a block has on either side of some dimensions, and what is at the rim."""

    widths: Mapping[Hashable, int] = field(default_factory=dict)
    boundary: Mapping[Hashable, str] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[Hashable, ...]:
        return tuple(self.widths)

    def offsets(self) -> Iterator[Offset]:
        """All directions in which there may be a neighbour."""
        return (offset for offset in product((-1, 0, 1), repeat=len(self.widths)) if any(offset))

    def neighbours(self, grid: BlockGrid, block: int) -> dict[Offset, int]:
        """The blocks whose edges a block needs, by where they lie; a block can be its own neighbour."""
        wraps = {dim: rim == "periodic" for dim, rim in self.boundary.items()}
        found = {
            offset: grid.neighbour(block, dict(zip(self.dims, offset, strict=True)), wraps)
            for offset in self.offsets()
        }
        return {offset: there for offset, there in found.items() if there is not None}

    def margins(self, grid: BlockGrid, block: int) -> dict[Hashable, tuple[int, int]]:
        """Ghost cells that a block has before and behind itself, by dimension."""
        found = {}
        for dim, width in self.widths.items():
            at = grid.indices[block][grid.dims.index(dim)]
            last = len(grid.chunks[grid.dims.index(dim)]) - 1
            is_open = self.boundary[dim] != "none"
            found[dim] = (width if at > 0 or is_open else 0, width if at < last or is_open else 0)
        return found


def make_halo(grid: BlockGrid, widths: Any, boundary: Any) -> Halo:
    """A halo from what the user gave. Raises ``InputError``."""
    if not isinstance(widths, Mapping):
        raise InputError("halo", f"found {shown(widths)}", 'cells by dimension, such as {"x": 1}')
    found: dict[Hashable, int] = {}
    for dim, width in widths.items():
        if isinstance(width, bool) or not isinstance(width, int) or width < 0:
            raise InputError(f"halo: {dim}", f"found {shown(width)}", "a whole number of cells")
        shortest = min(grid.chunks[grid.dims.index(dim)])
        if width > shortest:
            raise InputError(
                f"halo: {dim}", f"found {width}", f"at most the shortest block's {shortest} cells"
            )
        if width:
            found[dim] = width
    rims = boundary if isinstance(boundary, Mapping) else dict.fromkeys(found, boundary)
    for dim, rim in rims.items():
        if rim not in BOUNDARIES or (dim not in widths):
            raise InputError(
                f"boundary: {dim}", f"found {shown(rim)}", f"{', '.join(BOUNDARIES)}, where there is a halo"
            )
    return Halo(found, {dim: rims.get(dim, "none") for dim in found})


def edge(block: xr.Dataset, offset: Offset, halo: Halo) -> xr.Dataset:
    """What somebody sees of this block who has it at that offset from itself."""
    cells = {
        dim: slice(-width, None) if side < 0 else slice(0, width)
        for (dim, width), side in zip(halo.widths.items(), offset, strict=True)
        if side
    }
    keep = [name for name, variable in block.variables.items() if cells.keys() <= set(variable.dims)]
    return block.drop_vars([name for name in block.variables if name not in keep]).isel(cells)


def padded(
    block: xr.Dataset,
    edges: Mapping[Offset, xr.Dataset],
    margins: Mapping[Hashable, tuple[int, int]],
    halo: Halo,
) -> xr.Dataset:
    """A block with its ghost cells, all copied."""
    found = {}
    for name, variable in block.variables.items():
        dims = [dim for dim in halo.dims if dim in variable.dims]
        found[name] = variable if not dims else _padded(name, variable, dims, edges, margins, halo)
    return rebuilt(block, found)


def _padded(
    name: Hashable,
    variable: xr.Variable,
    dims: list[Hashable],
    edges: Mapping[Offset, xr.Dataset],
    margins: Mapping[Hashable, tuple[int, int]],
    halo: Halo,
) -> xr.Variable:
    around = {dim: margins[dim] if dim in dims else (0, 0) for dim in variable.dims}
    sizes = variable.sizes
    whole = np.empty([sizes[dim] + sum(around[dim]) for dim in variable.dims], variable.dtype)

    def region(sides: Mapping[Hashable, int]) -> tuple[slice, ...]:
        cells = []
        for dim in variable.dims:
            before, side = around[dim][0], sides.get(dim, 0)
            core = slice(before, before + sizes[dim])
            cells.append((slice(0, before), core, slice(core.stop, None))[side + 1])
        return tuple(cells)

    whole[region({})] = variable.values
    for offset, other in edges.items():
        sides = {dim: side for dim, side in zip(halo.dims, offset, strict=True) if side}
        if sides.keys() <= set(dims):
            whole[region(sides)] = other.variables[name].values
    _repeat_rim(whole, variable, dims, edges, around, halo)
    return xr.Variable(variable.dims, whole, variable.attrs, variable.encoding)


def _repeat_rim(
    whole: np.ndarray,
    variable: xr.Variable,
    dims: list[Hashable],
    edges: Mapping[Offset, xr.Dataset],
    around: Mapping[Hashable, tuple[int, int]],
    halo: Halo,
) -> None:
    """Where nobody is beyond the rim, its cells are repeated: one dimension after the other, ghost cells of
    the ones before included, so that corners are right."""
    for dim in dims:
        place, axis = halo.dims.index(dim), variable.dims.index(dim)
        cells = np.moveaxis(whole, axis, 0)
        before, behind = around[dim]
        alone = tuple(0 for _ in halo.dims)
        if before and (*alone[:place], -1, *alone[place + 1 :]) not in edges:
            cells[:before] = cells[before]
        if behind and (*alone[:place], 1, *alone[place + 1 :]) not in edges:
            cells[-behind:] = cells[-behind - 1]


def trimmed(
    found: xr.Dataset, sizes: Mapping[Hashable, int], margins: Mapping[Hashable, tuple[int, int]]
) -> xr.Dataset:
    """What a step made, without ghost cells; it may have cut them off itself. Raises ``ValueError``."""
    cells = {}
    for dim, size in sizes.items():
        before, behind = margins.get(dim, (0, 0))
        here = found.sizes.get(dim)
        if here == size + before + behind:
            cells[dim] = slice(before, before + size)
        elif here != size:
            wide = f" or {size + before + behind} with ghost cells" if before + behind else ""
            raise ValueError(f"the step made {here} cells along {dim} of a block of {size}{wide}")
    return found.isel(cells) if any(map(sum, margins.values())) else found
