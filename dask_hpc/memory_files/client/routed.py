"""Scratch files for a process that is part of Dask: what needs the proxy of its host goes there."""

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from dask_hpc.memory_files.client.direct import DirectFiles
from dask_hpc.memory_files.port import FilesPort, How, split
from dask_hpc.memory_files.socket import SERVED, ProxyGone, SocketFiles, socket_of

#: what may be asked twice
_AGAIN = {"info", "list", "below", "places", "settings", "systems"}


class RoutedFiles:
    """See ``FilesPort``. What needs the proxy of the host goes there, all else directly."""

    def __init__(self, direct: DirectFiles) -> None:
        self.direct = direct
        self.loop = direct.loop
        self._proxies: dict[str, SocketFiles] = {}
        self._numbers = count(1)
        self._handles: dict[int, tuple[FilesPort, int]] = {}

    async def do(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the scheduler says of names. Raises the first error, when all is done."""
        way = await self._way(steps[0].get("fs", "")) if steps else self.direct
        try:
            return await way.do(steps)
        except ProxyGone:
            if {step["do"] for step in steps} <= _AGAIN:
                return await self.direct.do(steps)
            raise

    async def read(
        self, path: str, begin: int = 0, end: int | None = None, number: int | None = None
    ) -> bytes:
        """Bytes of a file, all of the same version of it."""
        try:
            return await (await self._way(split(path)[0])).read(path, begin, end, number)
        except ProxyGone:
            return await self.direct.read(path, begin, end, number)

    async def write(self, path: str, data: Any, how: How = "new") -> None:
        """A whole file at once."""
        try:
            await (await self._way(split(path)[0])).write(path, data, how)
        except ProxyGone:
            await self.direct.write(path, data, how)

    async def read_many(self, wanted: Sequence[tuple[str, int, int | None]]) -> list[bytes | BaseException]:
        """Of many files, or parts of them; where something is wrong, that."""
        ways = {name: await self._way(name) for name in {split(path)[0] for path, *_ in wanted}}
        if set(ways.values()) == {self.direct}:
            return await self.direct.read_many(wanted)
        return await asyncio.gather(*(self.read(*one) for one in wanted), return_exceptions=True)

    async def write_many(self, files: Mapping[str, Any], how: How = "new") -> None:
        """Many whole files."""
        for name in {split(path)[0]: None for path in files}:
            theirs = {path: data for path, data in files.items() if split(path)[0] == name}
            try:
                await (await self._way(name)).write_many(theirs, how)
            except ProxyGone:
                await self.direct.write_many(theirs, how)

    async def open(self, path: str, how: How) -> tuple[int, int, int]:
        """Begin to write: see ``FilesPort``."""
        way = await self._way(split(path)[0])
        try:
            theirs, size, gather = await way.open(path, how)
        except ProxyGone:
            way = self.direct
            theirs, size, gather = await way.open(path, how)
        handle = next(self._numbers)
        self._handles[handle] = way, theirs
        return handle, size, gather

    async def write_at(self, handle: int, at: int, data: Any) -> None:
        """Bytes to a place."""
        way, theirs = self._known(handle)
        await way.write_at(theirs, at, data)

    async def cut(self, handle: int, size: int) -> None:
        """The file has this size from now on."""
        way, theirs = self._known(handle)
        await way.cut(theirs, size)

    async def read_back(self, handle: int, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""
        way, theirs = self._known(handle)
        return await way.read_back(theirs, begin, end)

    async def flush(self, handle: int) -> None:
        """Others see what was written so far."""
        way, theirs = self._known(handle)
        await way.flush(theirs)

    async def close(self, handle: int) -> None:
        """The same, and nothing more comes."""
        way, theirs = self._known(handle)
        del self._handles[handle]
        await way.close(theirs)

    async def discard(self, handle: int) -> None:
        """What was not flushed is nobody's."""
        if (found := self._handles.pop(handle, None)) is not None:
            way, theirs = found
            await way.discard(theirs)

    def _known(self, handle: int) -> tuple[FilesPort, int]:
        if (found := self._handles.get(handle)) is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "hpcmemory://")
        return found

    async def _way(self, name: str) -> FilesPort:
        if not name:
            return self.direct
        try:
            settings = await self.direct.known(name)
        except OSError:  # whatever is asked will say so
            return self.direct
        wanted = settings.write_back > 0 if settings.proxy is None else settings.proxy
        if not wanted:
            return self.direct
        where = socket_of(self.direct.run)
        if SERVED.get(where) is self.direct or not os.path.exists(where):
            return self.direct
        if (found := self._proxies.get(where)) is None:
            found = self._proxies[where] = SocketFiles(where, self.loop)
        return found
