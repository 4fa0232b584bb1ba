"""Scratch files by the Unix socket of a host's proxy: for programs that are no part of Dask, and for what is
to stay with the proxy for a while.

A message is its length, a head in msgpack, and bytes. Several may be on their way, each with a number.
"""

import asyncio
import errno
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
from fsspec.asyn import get_loop

from dask_hpc.memory_files.port import FilesPort, How, unpack
from dask_hpc.model.errors import InputError

_LENGTHS = struct.Struct("<IQ")  # of the head, and of the bytes
_LARGEST_HEAD, _LARGEST = 2**28, 2**33
_BUFFER = 4 * 2**20
#: by its socket, what this process serves
SERVED: dict[str, FilesPort] = {}
#: calls of a port that have bytes as their last argument, and those whose answer is bytes
_GIVES, _TAKES = ("write_at", "write"), ("read", "read_back")
CALLS = ("do", "read", "write", "open", "write_at", "cut", "read_back", "flush", "close", "discard")


def socket_folder() -> Path:
    """Where proxies of this user have their sockets."""
    return Path(tempfile.gettempdir(), f"dask-hpc-{os.geteuid()}", "files")


def socket_of(run: str) -> str:
    """That of the cluster with this id, if it has a proxy here. Paths of sockets have to be short."""
    return str(socket_folder() / f"{blake2b(run.encode(), digest_size=8).hexdigest()}.sock")


def find_socket(name: str = "") -> str:
    """The only one that there is on this host; nothing if there is none, or several."""
    try:
        found = [str(one) for one in socket_folder().iterdir() if one.suffix == ".sock"]
    except OSError:
        return ""
    alive = [one for one in found if _answers(one)]
    return alive[0] if len(alive) == 1 else ""


def _answers(path: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(1.0)
        try:
            one.connect(path)
        except OSError:
            return False
    return True


async def _receive(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if head > _LARGEST_HEAD or body > _LARGEST:
        raise ConnectionError("no message of ours")
    said = msgpack.unpackb(await reader.readexactly(head), strict_map_key=False)
    return said, await reader.readexactly(body) if body else b""


def _send(writer: asyncio.StreamWriter, head: Mapping[str, Any], body: Any = b"") -> None:
    packed = msgpack.packb(head)
    view = memoryview(body).cast("B")
    writer.write(_LENGTHS.pack(len(packed), view.nbytes) + packed)
    if view.nbytes:
        writer.write(view)


class SocketFiles:
    """See ``FilesPort``. It connects when it is first needed, and again when the proxy is another one."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.path = path
        self.loop: asyncio.AbstractEventLoop = loop or get_loop()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._connecting = asyncio.Lock()

    async def do(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the scheduler says of names."""
        return [unpack(one) for one in await self._call("do", list(steps))]

    async def read(self, path: str, begin: int = 0, end: int | None = None) -> bytes:
        """Bytes of a file."""
        return bytes(await self._call("read", path, begin, end))

    async def write(self, path: str, data: Any, how: How = "new") -> None:
        """A whole file at once."""
        await self._call("write", path, how, body=data)

    async def open(self, path: str, how: How) -> tuple[int, int, int]:
        """Begin to write."""
        handle, size, _ = await self._call("open", path, how)
        return handle, size, 0

    async def write_at(self, handle: int, at: int, data: Any) -> None:
        """Bytes to a place."""
        await self._call("write_at", handle, at, body=data)

    async def cut(self, handle: int, size: int) -> None:
        """The file has this size from now on."""
        await self._call("cut", handle, size)

    async def read_back(self, handle: int, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""
        return bytes(await self._call("read_back", handle, begin, end))

    async def flush(self, handle: int) -> None:
        """Others see what was written so far."""
        await self._call("flush", handle)

    async def close(self, handle: int) -> None:
        """The same, and nothing more comes."""
        await self._call("close", handle)

    async def discard(self, handle: int) -> None:
        """What was not flushed is nobody's."""
        await self._call("discard", handle)

    async def leave(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
        self._over(ConnectionError("closed"))

    async def _call(self, call: str, *args: Any, body: Any = b"") -> Any:
        try:
            async with self._connecting:
                if self._writer is None:
                    reader, self._writer = await asyncio.open_unix_connection(self.path, limit=_BUFFER)
                    self._reading = asyncio.ensure_future(self._read(reader))
            number = next(self._numbers)
            answer = self._waiting[number] = asyncio.get_running_loop().create_future()
            _send(self._writer, {"number": number, "call": call, "args": list(args)}, body)
            await self._writer.drain()
            said, found = await answer
        except (ConnectionError, asyncio.IncompleteReadError, FileNotFoundError) as error:
            text = f"the proxy does not answer: {error}"
            raise OSError(errno.EIO, text, f"hpc-memory: {self.path}") from None
        if "is" in said:
            return found if call in _TAKES else said["is"]
        return unpack(said)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                said, body = await _receive(reader)
                if (answer := self._waiting.pop(said["number"], None)) is not None and not answer.done():
                    answer.set_result((said, body))
        except (OSError, asyncio.IncompleteReadError) as error:
            self._over(ConnectionError(str(error)))

    def _over(self, error: ConnectionError) -> None:
        writer, self._writer = self._writer, None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)
        if writer is not None:
            with suppress(OSError):
                writer.close()


class SocketServer:
    """The other end: whoever connects uses ``files``, and what it has opened ends with the connection."""

    def __init__(self, files: FilesPort, ask: Callable[[Sequence[Mapping[str, Any]]], Any]) -> None:
        self._files = files
        self._ask = ask
        self._server: asyncio.Server | None = None
        self._path = ""
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen there. What is left of one that died is removed."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_BUFFER)
        os.chmod(path, 0o600)
        self._path = path
        SERVED[path] = self._files

    async def stop(self) -> None:
        """Nobody is listened to any longer."""
        SERVED.pop(self._path, None)
        if self._server is not None:
            self._server.close()
        for task in list(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=1.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._clients.add(me)
        handles: set[int] = set()
        working: set[asyncio.Task[None]] = set()
        try:
            while True:
                said, body = await _receive(reader)
                task = asyncio.ensure_future(self._answer(said, body, handles, writer))
                working.add(task)
                task.add_done_callback(working.discard)
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            pass
        finally:
            for task in working:
                task.cancel()
            for handle in handles:
                with suppress(OSError):
                    await self._files.discard(handle)
            self._clients.discard(me)
            writer.close()

    async def _answer(
        self, said: Mapping[str, Any], body: bytes, handles: set[int], writer: asyncio.StreamWriter
    ) -> None:
        answer: dict[str, Any] = {"number": said["number"]}
        found: Any = b""
        try:
            call, args = said["call"], said["args"]
            if call not in CALLS:
                raise OSError(errno.EINVAL, f"no such call: {call}", "hpc-memory://")
            if call == "do":
                answer["is"] = await self._ask(*args)
            elif call == "write":
                path, how = args
                await self._files.write(path, body, how)
                answer["is"] = None
            elif call in _TAKES:
                found = await getattr(self._files, call)(*args)
                answer["is"] = True
            else:
                more = (body,) if call in _GIVES else ()
                answer["is"] = await getattr(self._files, call)(*args, *more)
            if call == "open":
                handles.add(answer["is"][0])
            elif call in ("close", "discard"):
                handles.discard(args[0])
        except InputError as error:
            answer["wrong"] = str(error)
        except OSError as error:
            answer["error"] = [error.errno, error.strerror or str(error), error.filename]
        except Exception as error:
            answer["error"] = [errno.EIO, f"{type(error).__name__}: {error}", "hpc-memory://"]
        with suppress(OSError):
            _send(writer, answer, found)
            await writer.drain()
