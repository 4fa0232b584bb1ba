"""One worker of each host is the proxy of its neighbours: of programs there that are no part of Dask, and of
those who are to see what others of the host have written before it has left.

Work 002, 3.3.2 (GekkoFS): a proxy on each node keeps writes for a while (``write_back``), puts small ones
together (``batch``) and encrypts, all of which may be changed while it runs; with close-to-open, as in NFSv4,
data has left when ``close`` returns. Deviations: what needs nothing of that goes to the agents directly, a
hop less; and the proxy is the worker that came first, and when it goes another one of the host.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distributed import WorkerPlugin

from dask_hpc.checkpoint.worker.kept import hold_folder, own_folder
from dask_hpc.dask.scheduler import add_calls, remove_calls
from dask_hpc.memory_files.client.direct import DirectFiles, unstage
from dask_hpc.memory_files.client.ports import routed
from dask_hpc.memory_files.socket import SocketServer, socket_folder, socket_of

logger = logging.getLogger(__name__)

PROXY = "dask-hpc-files-proxy"
_LOOK = 0.5  # seconds between two looks whether the proxy of the host is gone


class FilesProxy(WorkerPlugin):
    """``run`` tells the cluster from others on the same host."""

    name = PROXY

    def __init__(self, run: str) -> None:
        self._run = run

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        self._files: DirectFiles = routed(worker).direct
        self._server: SocketServer | None = None
        self._held: int | None = None
        self._calls: dict[str, Any] = {
            "hpc_files_settings": self.settings,
            "hpc_files_stage": self.stage,
            "hpc_files_flush": self.flush,
        }
        add_calls(worker, self._calls)
        self._work = asyncio.ensure_future(self._stand_by())

    async def teardown(self, worker: Any) -> None:
        """The worker closes, or there are no files any more. What others have opened here is sent."""
        self._work.cancel()
        if self._server is not None:
            await self.flush()
            await self._server.stop()
            with suppress(OSError):
                os.unlink(socket_of(self._run))
        if self._held is not None:
            os.close(self._held)
        if worker.status.name == "running":  # else some may still ask, and Dask would complain
            remove_calls(worker, self._calls)

    async def settings(self, name: str, settings: Mapping[str, Any]) -> None:
        """Those of a file system are these from now on."""
        self._files.know(name, settings)

    async def flush(self) -> None:
        """What is kept back here is written."""
        for file in list(self._files.handles()):
            if file.is_shown:
                with suppress(OSError):
                    await file.flush()

    async def stage(self, path: str, to: str) -> dict[str, Any]:
        """Write a file to a store, or without a path remove it there; what went wrong, if so."""
        try:
            if not path:
                await asyncio.to_thread(unstage, to)
                return {}
            nbytes, version = await self._files.stage(path, to)
            return {"nbytes": nbytes, "version": version}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    async def _stand_by(self) -> None:
        """Be the proxy when there is none."""
        try:
            folder = socket_folder()
            own_folder(folder.parent)
            own_folder(folder)
            mine = folder / os.path.basename(socket_of(self._run)).replace(".sock", "")
            own_folder(mine)
            while (held := hold_folder(mine)) is None:
                await asyncio.sleep(_LOOK)
            self._held = held
            server = SocketServer(self._files, self._files.ask)
            await server.start(socket_of(self._run))
            self._server = server
        except OSError as error:
            logger.warning("dask-hpc: no proxy for scratch files here: %s", error)
