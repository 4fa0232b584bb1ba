"""Ghost cells are those of the whole state, and are gone afterwards."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.in_situ.blocks import BOUNDARIES, cut, edge, join, make_grid, make_halo, padded, trimmed
from dask_hpc.model.errors import InputError

DIMS = ("z", "y", "x")
NUMPYS = {"periodic": "wrap", "nearest": "edge"}


@st.composite
def states(draw):
    """A state of one to three dimensions, how it is cut, and its halo."""
    dims = DIMS[: draw(st.integers(1, 3))]
    chunks = {dim: tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))) for dim in dims}
    widths = {dim: draw(st.integers(0, min(chunks[dim]))) for dim in dims}
    rims = {dim: draw(st.sampled_from(BOUNDARIES)) for dim in dims}
    shape = [sum(chunks[dim]) for dim in dims]
    cells = np.arange(np.prod(shape)).astype(draw(st.sampled_from(["f8", "f4", "i2", "c16", "M8[s]"])))
    state = xr.Dataset(
        {"a": (dims, cells.reshape(shape), {"units": "m"}), "b": (dims[:1], np.arange(shape[0]))},
        {dims[-1]: np.arange(shape[-1]) * 2.5},
    )
    return state, chunks, widths, rims


def around(state, number, grid, halo):
    """What a block gets to see."""
    edges = {
        offset: edge(cut(state, grid, other), offset, halo)
        for offset, other in halo.neighbours(grid, number).items()
    }
    return padded(cut(state, grid, number), edges, halo.margins(grid, number), halo)


@given(states())
def test_a_block_sees_what_surrounds_it(given):
    state, chunks, widths, rims = given
    _, grid = make_grid(state, chunks)
    halo = make_halo(grid, widths, rims)
    wide = state["a"].values
    for axis, dim in enumerate(state["a"].dims):
        width = [(0, 0)] * wide.ndim
        if rims[dim] != "none":
            width[axis] = (widths[dim], widths[dim])
            wide = np.pad(wide, width, mode=NUMPYS[rims[dim]])
    seen = {}
    for number in range(len(grid)):
        block = around(state, number, grid, halo)
        cells = []
        for dim, core in grid.cells(number).items():
            width = widths[dim]
            low, high = core.start, core.stop + 2 * width
            if rims[dim] == "none":
                low, high = max(core.start - width, 0), core.stop + width
            cells.append(slice(low, high))
        np.testing.assert_array_equal(block["a"].values, wide[tuple(cells)])
        assert block["a"].dtype == state["a"].dtype and block["a"].attrs == {"units": "m"}
        last = state["a"].dims[-1]
        assert block.sizes[last] == len(block[last])
        seen[number] = trimmed(block, grid.sizes(number), halo.margins(grid, number))
    xr.testing.assert_identical(join(seen, grid), state)


@given(states())
def test_blocks_in_a_row_are_neighbours_and_make_up_the_state(given):
    state, chunks, _, _ = given
    _, grid = make_grid(state.chunk(chunks))
    assert grid.indices == sorted(grid.indices) and len(grid.indices) == len(grid)
    blocks = {number: cut(state, grid, number) for number in range(len(grid))}
    xr.testing.assert_identical(join(blocks, grid), state)
    for number in range(1, len(grid)):
        if grid.indices[number][-1]:
            dim = grid.dims[-1]
            assert grid.neighbour(number, {dim: -1}, {}) == number - 1


def test_a_step_may_not_change_the_number_of_cells():
    state, grid = make_grid(xr.Dataset({"a": ("x", np.zeros(8))}), {"x": 4})
    halo = make_halo(grid, {"x": 1}, "periodic")
    margins = halo.margins(grid, 0)
    assert trimmed(cut(state, grid, 0), grid.sizes(0), margins).sizes["x"] == 4
    with pytest.raises(ValueError, match="5 cells along x of a block of 4 or 6 with ghost cells"):
        trimmed(state.isel(x=slice(5)), grid.sizes(0), margins)
    with pytest.raises(ValueError, match="None cells along x"):
        trimmed(state.mean("x"), grid.sizes(0), margins)


@pytest.mark.parametrize(
    ("widths", "boundary", "words"),
    [
        ({"x": 5}, "none", "halo: x: found 5; allowed: at most the shortest block's 3 cells"),
        ({"x": -1}, "none", "halo: x: found -1; allowed: a whole number"),
        ({"x": 1.5}, "none", "halo: x: found 1.5"),
        (3, "none", "halo: found 3"),
        ({"x": 1}, "reflect", "boundary: x: found 'reflect'; allowed: periodic, nearest, none"),
        ({"x": 1}, {"y": "none"}, "boundary: y"),
    ],
)
def test_what_a_halo_may_be(widths, boundary, words):
    _, grid = make_grid(xr.Dataset({"a": ("x", np.zeros(7))}), {"x": (4, 3)})
    with pytest.raises(InputError, match=words):
        make_halo(grid, widths, boundary)
