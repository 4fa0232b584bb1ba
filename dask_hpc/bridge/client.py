"""The consumer's end of a bridge: arrays whose blocks come from producers, now or later."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.highlevelgraph import HighLevelGraph
from distributed import Client

from dask_hpc import dask as compat
from dask_hpc.bridge.grid import Asked, StreamGrid, check_name, check_step, key_of, layer_name, seconds
from dask_hpc.bridge.scheduler import BridgePlugin
from dask_hpc.bridge.worker import NAME, take
from dask_hpc.cluster.request import ask
from dask_hpc.model.errors import InputError, shown

_LOOK = 0.05  # seconds between two looks whether a producer has come


def open_reader(client: Any, name: str, timeout: float | str, declared: Mapping[str, Any]) -> Any:
    """What ``Bridge.open`` gives."""
    if not isinstance(client, Client):
        raise InputError("bridge: client", f"found {shown(client)}", "a Dask client")
    check_name("bridge: name", name)
    patience = seconds("timeout", timeout)
    grid = None
    if declared:
        try:
            grid = StreamGrid.declare(**declared)
        except TypeError:
            allowed = "shape and chunks, and perhaps dtype, dims, most_steps, ..."
            raise InputError("bridge: open", f"found {shown(list(declared))}", allowed) from None
    return client.sync(_opened, client, name, grid, patience)


async def _opened(client: Client, name: str, grid: StreamGrid | None, patience: float) -> "BridgeReader":
    clock = asyncio.get_running_loop().time
    limit = clock() + patience
    plain = None if grid is None else grid.as_plain()
    while True:
        await client.register_plugin(BridgePlugin(), name=NAME)  # does nothing if it is there
        found = await client.scheduler.hpc_bridge_open(name=name, grid=plain, client=client.id)
        if found:
            return BridgeReader(client, found["id"], StreamGrid.read(found["grid"]))
        if clock() > limit:
            await client.scheduler.hpc_bridge_leave(name=name, client=client.id)
            late = f"no producer came in {patience:g} s"
            raise InputError(f"bridge {shown(name)}", late, "the name of a bridge")
        await asyncio.sleep(_LOOK)


class BridgeReader:
    """What ``Bridge.open`` gives. With an asynchronous client its remote calls give awaitables."""

    def __init__(self, client: Client, stream: str, grid: StreamGrid) -> None:
        self._client = client
        self._stream = stream
        self.name = stream.rpartition(".")[0]
        self._grid = grid
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._grid.dtype} {self._grid.shape}"
        return f"<BridgeReader {self.name!r}: {state}>"

    def array(self, variable: str, step: int | Iterable[int]) -> xr.DataArray:
        """A variable at one step, or at several along a first axis "step". It is chunked as declared, and
        may be computed with at once: its blocks are taken from their workers as soon as they have come.

        Every block stays on its worker until its room is needed by a later step and everything that
        was submitted has used it: submit together what uses the same step, or persist it. Tasks that wait for
        a step that is dropped, or for a producer that does not return, fail and say why.
        """
        check_name("bridge: variable", variable)
        if not isinstance(step, Iterable):
            number = check_step(step)
            blocks = self._blocks(variable, number)
            return xr.DataArray(blocks, dims=self._grid.dims, coords={"step": number}, name=variable)
        steps = [check_step(one) for one in step]
        if not steps:
            raise InputError("bridge: step", "found none", "at least one step")
        blocks = da.stack([self._blocks(variable, one) for one in steps])
        return xr.DataArray(blocks, dims=("step", *self._grid.dims), coords={"step": steps}, name=variable)

    def skipped(self) -> Any:
        """The steps that were dropped so far, and why: a dict."""
        return self._client.sync(self._skipped)

    def status(self) -> Any:
        """The stream as plain data: its producers, the workers that blocks go to, the newest step, how many
        messages the scheduler has had about it, by kind."""
        return self._client.sync(self._status)

    def close(self) -> Any:
        """Need it no more. With the last producer and consumer, everything of bridges leaves the cluster."""
        if self._is_closed and not self._client.asynchronous:
            return None
        return self._client.sync(self._close)

    def __enter__(self) -> "BridgeReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> "BridgeReader":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._close()

    def _blocks(self, variable: str, step: int) -> da.Array:
        name = layer_name(self._stream, variable, step)
        tasks = {}
        for index in self._grid.indices():
            key = key_of(Asked(self._stream, variable, step, index))
            tasks[key] = compat.alone(key, take, self._stream, variable, step, index)
        graph = HighLevelGraph.from_collections(name, tasks)
        return da.Array(graph, name, self._grid.chunks, dtype=np.dtype(self._grid.dtype))

    async def _skipped(self) -> dict[int, str]:
        return dict((await self._status())["skipped"])

    async def _status(self) -> dict[str, Any]:
        found = await ask(self._client, "hpc_bridge_status")
        mine = [one for one in found.pop("streams") if one["id"] == self._stream]
        if not mine:
            raise RuntimeError(f"bridge {self.name} is closed")
        return found | mine[0]

    async def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._client.status == "running":
                await self._client.scheduler.hpc_bridge_leave(name=self.name, client=self._client.id)
