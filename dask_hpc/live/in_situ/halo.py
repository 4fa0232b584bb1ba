"""Ghost cells: what a block gets to see of its neighbours for one step, and what is trimmed afterwards.

At the rim of the state a dimension is ``periodic`` (the other end is the neighbour), ``nearest`` (the last
cell is repeated), or ``none`` (there are no ghost cells, the block is narrower). Corners are filled, too.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import numpy as np
import xarray as xr

from dask_hpc.live.in_situ.blocks import Grid, rebuilt
from dask_hpc.model.errors import InputError, shown

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
        """Dimensions with ghost cells, in order."""
        return tuple(self.widths)

    def offsets(self) -> Iterator[Offset]:
        """All directions in which there may be a neighbour."""
        return (offset for offset in product((-1, 0, 1), repeat=len(self.widths)) if any(offset))

    def neighbours(self, grid: Grid, block: int) -> dict[Offset, int]:
        """The blocks whose edges a block needs, by where they lie; a block can be its own neighbour."""
        wraps = {dim: rim == "periodic" for dim, rim in self.boundary.items()}
        found = {
            offset: grid.neighbour(block, dict(zip(self.dims, offset, strict=True)), wraps)
            for offset in self.offsets()
        }
        return {offset: there for offset, there in found.items() if there is not None}

    def margins(self, grid: Grid, block: int) -> dict[Hashable, tuple[int, int]]:
        """Ghost cells that a block has before and behind itself, by dimension."""
        found = {}
        for dim, width in self.widths.items():
            at = grid.indices[block][grid.dims.index(dim)]
            last = len(grid.chunks[grid.dims.index(dim)]) - 1
            is_open = self.boundary[dim] != "none"
            found[dim] = (width if at > 0 or is_open else 0, width if at < last or is_open else 0)
        return found


def make_halo(grid: Grid, widths: Any, boundary: Any) -> Halo:
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
