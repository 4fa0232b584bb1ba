"""The state of a pipeline, laid onto its workers and looked at again."""

from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from dask_hpc.live.in_situ import work as tasks
from dask_hpc.live.in_situ.blocks import Grid, cut, join, rebuilt
from dask_hpc.live.in_situ.iteration import Group, parts
from dask_hpc.live.in_situ.work import Held, Order, outline
from dask_hpc.planning.places import Places


async def lay(client: Client, pipeline: str, state: xr.Dataset, grid: Grid, places: Places) -> list[Group]:
    """Bring every block to its worker: what is in memory is sent there, what Dask is to compute is computed
    by the workers that simulate.

    Dask remembers how all that is in memory was made, so of every past iteration, unless it began with data
    that were scattered: when these are gone, it forgets whatever came of them as soon as that is released. So
    what Dask computes comes of something scattered here, too. (No use is lost: past steps cannot be repeated
    by Dask, as they are bound to workers; the pipeline itself begins again if it must.)
    """
    addresses = [place.address for place in places.simulation]
    root = None
    if state.chunks:
        state = client.persist(state, workers=addresses)
        (root,) = await client.scatter([None], workers=addresses[:1], hash=False)
    groups = []
    for place in places.simulation:
        for some in parts(place.blocks, place.step_cores):
            blocks = [cut(state, grid, block) for block in some]
            order = Order(pipeline, 0, "simulation", tuple(some))
            if state.chunks:
                future = client.compute(
                    dask.delayed(tasks.hold)(order, blocks, root), workers=[place.address]
                )
            else:
                held = tasks.hold(order, blocks)
                (future,) = await client.scatter([held], workers=[place.address], hash=False)
            groups.append(Group(future, place.address, tuple(some)))
    await client.gather([client.submit(_there, group.future, workers=[group.address]) for group in groups])
    return groups


async def lazy(client: Client, grid: Grid, groups: Sequence[Group]) -> xr.Dataset:
    """The state as it is now. Its data stay where they are, as Dask arrays; coordinates with an index are
    here."""
    holder = {block: group for group in groups for block in group.blocks}
    futures = [
        client.submit(outline, holder[block].future, block, workers=[holder[block].address], pure=False)
        for block in range(len(grid))
    ]
    outlines = await client.gather(futures)
    whole = join({block: indexed for block, (indexed, _) in enumerate(outlines)}, grid)
    found = dict(whole.variables)
    coords = {*whole.coords}
    for name, (dims, _, _, attrs, is_coord) in outlines[0][1].items():
        blocks = np.empty([len(lengths) for lengths in grid.chunks], dtype=object)
        for block, index in enumerate(grid.indices):
            _, shape, dtype, _, _ = outlines[block][1][name]
            array = dask.delayed(tasks.array_of)(holder[block].future, block, name)
            blocks[index] = da.from_delayed(array, shape, dtype)
        found[name] = xr.Variable(dims, _assembled(blocks, grid, dims), attrs)
        coords |= {name} if is_coord else set()
    like = whole.assign_coords({name: found[name] for name in coords})
    return rebuilt(like, found)


def _assembled(blocks: np.ndarray, grid: Grid, dims: Sequence[Any]) -> da.Array:
    """One Dask array of the blocks of a variable, along the dimensions that it has."""
    for axis, dim in reversed(list(enumerate(grid.dims))):
        if dim not in dims:
            blocks = blocks.take(0, axis=axis)
    there = [dim for dim in grid.dims if dim in dims]
    if not there:
        return blocks.item() if isinstance(blocks, np.ndarray) else blocks

    def along(some: np.ndarray, depth: int) -> da.Array:
        if depth == len(there):
            return some.item() if isinstance(some, np.ndarray) else some
        axis = list(dims).index(there[depth])
        return da.concatenate([along(one, depth + 1) for one in some], axis=axis)

    return along(blocks, 0)


def _there(held: Held) -> None:
    """Nothing: a task that needs what it is given to be there."""
