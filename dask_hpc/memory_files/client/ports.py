"""Which way this process has to scratch files: its worker, its Dask client, or the proxy of its host."""

import asyncio
import os
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.memory_files.client.direct import DirectFiles
from dask_hpc.memory_files.client.messages import Reach
from dask_hpc.memory_files.client.routed import RoutedFiles
from dask_hpc.memory_files.port import FilesPort
from dask_hpc.memory_files.socket import SocketFiles, find_socket

#: of this environment variable: the socket of a proxy
SOCKET = "DASK_HPC_FILES"

_ROUTED: WeakKeyDictionary[Any, RoutedFiles] = WeakKeyDictionary()
_SOCKETS: dict[tuple[int, str], SocketFiles] = {}
#: by the name of a file system: the client by which it was made here
_MADE: WeakValueDictionary[str, Any] = WeakValueDictionary()


def remember(name: str, client: Any) -> None:
    """Paths of that file system go by this client."""
    _MADE[name] = client


def routed(server: Any) -> RoutedFiles:
    """By this client or worker."""
    found = _ROUTED.get(server)
    if found is None:
        files = DirectFiles(Reach(server), config.checkpoint()["key"])
        found = _ROUTED[server] = RoutedFiles(files)
    return found


def port_here(name: str = "", socket: str = "") -> FilesPort:
    """For the files of that name."""
    if not socket:
        client = _MADE.get(name)
        if client is not None and client.status == "running":
            return routed(client)
        if (server := compat.server_here()) is not None:
            return routed(server)
    where = socket or os.environ.get(SOCKET) or find_socket(name)
    if not where:
        told = f"no Dask client or worker here, and no proxy: set {SOCKET} to the socket that status() names"
        raise FileNotFoundError(2, told, f"hpcmemory://{name}")
    found = _SOCKETS.get((os.getpid(), where))
    if found is None:
        found = _SOCKETS[os.getpid(), where] = SocketFiles(where)
    return found


def is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
