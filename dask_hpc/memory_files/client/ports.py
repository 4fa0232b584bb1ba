"""Which way this process has to scratch files: its worker, its Dask client, or the proxy of its host."""

import asyncio
import os
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.memory_files.client.direct import DirectFiles, Reach
from dask_hpc.memory_files.port import FilesPort
from dask_hpc.memory_files.socket import SocketFiles, find_socket

#: of this environment variable: the socket of a proxy
SOCKET = "DASK_HPC_FILES"

_DIRECT: WeakKeyDictionary[Any, DirectFiles] = WeakKeyDictionary()
_SOCKETS: dict[tuple[int, str], SocketFiles] = {}
#: by the name of a file system: the client by which it was made here
_MADE: WeakValueDictionary[str, Any] = WeakValueDictionary()


def remember(name: str, client: Any) -> None:
    """Paths of that file system go by this client."""
    _MADE[name] = client


def direct(server: Any) -> DirectFiles:
    """By this client or worker."""
    found = _DIRECT.get(server)
    if found is None:
        found = _DIRECT[server] = DirectFiles(Reach(server), config.checkpoint()["key"])
    return found


def port_here(name: str = "", socket: str = "") -> FilesPort:
    """For the files of that name."""
    if not socket:
        client = _MADE.get(name)
        if client is not None and client.status == "running":
            return by_proxy(direct(client), name)
        if (server := compat.server_here()) is not None:
            return by_proxy(direct(server), name)
    where = socket or os.environ.get(SOCKET) or find_socket(name)
    if not where:
        told = f"no Dask client or worker here, and no proxy: set {SOCKET} to the socket that status() names"
        raise FileNotFoundError(2, told, f"hpc-memory://{name}")
    found = _SOCKETS.get((os.getpid(), where))
    if found is None:
        found = _SOCKETS[os.getpid(), where] = SocketFiles(where)
    return found


def by_proxy(files: DirectFiles, name: str) -> FilesPort:
    """What is written stays a while with the proxy of the host, if that is set."""
    return files


def is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
