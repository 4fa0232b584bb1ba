"""Scratch files by the Unix socket of a host's proxy: for programs that are no part of Dask, and for what is
to stay with the proxy for a while.

A message is its length, a head in msgpack, and bytes. Several may be on their way, each with a number. Bytes
of some size do not go through the socket, which would take them in many small parts: both ends have some
memory in common, in which the one puts them and the other finds them.
"""

import asyncio
import errno
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from fsspec.asyn import get_loop

from dask_hpc.memory_files.port import FilesPort, How, unpack
from dask_hpc.model.errors import InputError

_LENGTHS = struct.Struct("<IQ")  # of the head, and of the bytes
_LARGEST_HEAD, _LARGEST = 2**28, 2**33
_BUFFER = 4 * 2**20
_SLOTS, _SLOT = 8, 4 * 2**20  # memory that both ends have in common
_LEAST = 2**15  # bytes that go there
_BEHIND = 4  # writes to a file that are not waited for
_MANY = 100  # connections that wait to be accepted
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(1.0)
        try:
            one.connect(path)
        except OSError:
            return False
    return True


class ProxyGone(OSError):
    """It does not answer."""


class _Shared:
    """Memory that both ends have in common, in slots of one size."""

    def __init__(self, file: int) -> None:
        self.view = memoryview(mmap.mmap(file, _SLOTS * _SLOT))
        #: where those begin that may be used
        self.free = list(range(0, _SLOTS * _SLOT, _SLOT))

    @classmethod
    def offer(cls, sock: socket.socket) -> "_Shared | None":
        """Make some, and say so to the other end; nothing where that cannot be had."""
        if not hasattr(os, "memfd_create"):
            sock.send(b"-")
            return None
        file = os.memfd_create("dask-hpc-files")
        try:
            os.ftruncate(file, _SLOTS * _SLOT)
            socket.send_fds(sock, [b"+"], [file])
            return cls(file)
        finally:
            os.close(file)

    @classmethod
    async def accept(cls, sock: socket.socket) -> "_Shared | None":
        """What the other end has said of it."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(sock, ready.set_result, None)
        try:
            await ready
        finally:
            loop.remove_reader(sock)
        said, files, *_ = socket.recv_fds(sock, 1, 1)
        if not said:
            raise ConnectionError("the other end is gone")
        if not files:
            return None
        try:
            return cls(files[0])
        finally:
            os.close(files[0])


class _Wire:
    """One connection, from either end: what is sent is not copied, and what comes is put where it stays."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, kind, _BUFFER)
        self._sock = sock
        self._sending = asyncio.Lock()

    async def send(self, head: Mapping[str, Any], body: Any = b"") -> None:
        packed, loop = msgpack.packb(head), asyncio.get_running_loop()
        view = memoryview(body).cast("B")
        async with self._sending:
            await loop.sock_sendall(self._sock, _LENGTHS.pack(len(packed), view.nbytes) + packed)
            if view.nbytes:
                await loop.sock_sendall(self._sock, view)

    async def receive(self) -> tuple[dict[str, Any], memoryview]:
        head, body = _LENGTHS.unpack(await self._exactly(_LENGTHS.size))
        if head > _LARGEST_HEAD or body > _LARGEST:
            raise ConnectionError("no message of ours")
        said = msgpack.unpackb(await self._exactly(head), strict_map_key=False)
        return said, await self._exactly(body)

    async def _exactly(self, nbytes: int) -> memoryview:
        view, at, loop = np.empty(nbytes, np.uint8).data, 0, asyncio.get_running_loop()
        while at < nbytes:
            count = await loop.sock_recv_into(self._sock, view[at:])
            if not count:
                raise ConnectionError("the other end is gone")
            at += count
        return view

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class SocketFiles:
    """See ``FilesPort``. It connects when it is first needed, and again when the proxy is another one."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.path = path
        self.loop: asyncio.AbstractEventLoop = loop or get_loop()
        self._wire: _Wire | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], Any]]] = {}
        self._shared: _Shared | None = None
        #: by call, the slot that is its
        self._slots: dict[int, int] = {}
        self._connecting = asyncio.Lock()
        #: by handle, what was written and is not answered yet
        self._behind: dict[int, list[asyncio.Future[Any]]] = {}

    async def do(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the scheduler says of names."""
        return [unpack(one) for one in await self._call("do", list(steps))]

    async def read(
        self, path: str, begin: int = 0, end: int | None = None, number: int | None = None
    ) -> bytes:
        """Bytes of a file."""
        return bytes(await self._call("read", path, begin, end, number))

    async def write(self, path: str, data: Any, how: How = "new") -> None:
        """A whole file at once."""
        await self._call("write", path, how, body=data)

    async def read_many(self, wanted: Sequence[tuple[str, int, int | None]]) -> list[bytes | BaseException]:
        """Of many files, or parts of them; where something is wrong, that."""
        return await asyncio.gather(*(self.read(*one) for one in wanted), return_exceptions=True)

    async def write_many(self, files: Mapping[str, Any], how: How = "new") -> None:
        """Many whole files."""
        await asyncio.gather(*(self.write(path, data, how) for path, data in files.items()))

    async def open(self, path: str, how: How) -> tuple[int, int, int]:
        """Begin to write."""
        handle, size, _ = await self._call("open", path, how)
        return handle, size, 0

    async def write_at(self, handle: int, at: int, data: Any) -> None:
        """Bytes to a place. Some may be on their way when this is over; what goes wrong is raised later."""
        behind = self._behind.setdefault(handle, [])
        behind.append(asyncio.ensure_future(self._call("write_at", handle, at, body=data)))
        while len(behind) > _BEHIND:
            await behind.pop(0)

    async def _catch_up(self, handle: int) -> None:
        for one in self._behind.pop(handle, ()):
            await one

    async def cut(self, handle: int, size: int) -> None:
        """The file has this size from now on."""
        await self._catch_up(handle)
        await self._call("cut", handle, size)

    async def read_back(self, handle: int, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""
        await self._catch_up(handle)
        return bytes(await self._call("read_back", handle, begin, end))

    async def flush(self, handle: int) -> None:
        """Others see what was written so far."""
        await self._catch_up(handle)
        await self._call("flush", handle)

    async def close(self, handle: int) -> None:
        """The same, and nothing more comes."""
        try:
            await self._catch_up(handle)
        except BaseException:
            await self.discard(handle)
            raise
        await self._call("close", handle)

    async def discard(self, handle: int) -> None:
        """What was not flushed is nobody's."""
        await asyncio.gather(*self._behind.pop(handle, ()), return_exceptions=True)
        await self._call("discard", handle)

    async def leave(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
        self._over(ConnectionError("closed"))

    async def _call(self, call: str, *args: Any, body: Any = b"") -> Any:
        try:
            async with self._connecting:
                if self._wire is None:
                    self._wire = await self._connect()
                    self._reading = asyncio.ensure_future(self._read(self._wire))
                wire = self._wire
            number = next(self._numbers)
            answer = self._waiting[number] = asyncio.get_running_loop().create_future()
            head = {"number": number, "call": call, "args": list(args)}
            body = self._put(number, head, body)
            await wire.send(head, body)
            said, found = await answer
        except (ConnectionError, FileNotFoundError) as error:
            text = f"the proxy does not answer: {error}"
            raise ProxyGone(errno.EIO, text, f"hpcmemory:// by {self.path}") from None
        if "is" in said:
            return found if call in _TAKES else said["is"]
        return unpack(said)

    def _put(self, number: int, head: dict[str, Any], body: Any) -> Any:
        """The bytes of a call, or those of its answer, go by a slot if they are many and not too many. What
        has to go through the socket."""
        view = memoryview(body).cast("B")
        nbytes, shared = view.nbytes, self._shared
        if head["call"] in _TAKES:
            begin, end = head["args"][1:3]
            nbytes = 0 if end is None else end - begin
        if shared is None or not _LEAST <= nbytes <= _SLOT or not shared.free:
            return view
        at = self._slots[number] = shared.free.pop()
        head["at"], head["size"] = at, nbytes
        shared.view[at : at + view.nbytes] = view
        return b""

    async def _connect(self) -> _Wire:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire = _Wire(sock)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.path)
            self._shared = _Shared.offer(sock)
            self._slots.clear()
        except BaseException:
            wire.close()
            raise
        return wire

    async def _read(self, wire: _Wire) -> None:
        try:
            while True:
                said, got = await wire.receive()
                body: Any = got
                at, shared = self._slots.pop(said["number"], None), self._shared
                if at is not None and shared is not None:
                    if "size" in said:
                        body = bytes(shared.view[at : at + said["size"]])
                    shared.free.append(at)
                if (answer := self._waiting.pop(said["number"], None)) is not None and not answer.done():
                    answer.set_result((said, body))
        except OSError as error:
            self._over(ConnectionError(str(error)))

    def _over(self, error: ConnectionError) -> None:
        wire, self._wire = self._wire, None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)
        if wire is not None:
            wire.close()


class SocketServer:
    """The other end: whoever connects uses ``files``, and what it has opened ends with the connection."""

    def __init__(self, files: FilesPort, ask: Callable[[Sequence[Mapping[str, Any]]], Any]) -> None:
        self._files = files
        self._ask = ask
        self._listening: asyncio.Task[None] | None = None
        self._path = ""
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, path: str) -> None:
        """Listen there. What is left of one that died is removed."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.bind(path)
        os.chmod(path, 0o600)
        sock.listen(_MANY)
        self._path = path
        SERVED[path] = self._files
        self._listening = asyncio.ensure_future(self._listen(sock))

    async def stop(self) -> None:
        """Nobody is listened to any longer."""
        SERVED.pop(self._path, None)
        tasks = [*self._clients, *([self._listening] if self._listening is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _listen(self, sock: socket.socket) -> None:
        with sock:
            while True:
                client, _ = await asyncio.get_running_loop().sock_accept(sock)
                task = asyncio.ensure_future(self._serve(client))
                self._clients.add(task)
                task.add_done_callback(self._clients.discard)

    async def _serve(self, sock: socket.socket) -> None:
        handles: set[int] = set()
        working: set[asyncio.Task[None]] = set()
        wire = _Wire(sock)
        try:
            shared = await _Shared.accept(sock)
            while True:
                said, body = await wire.receive()
                task = asyncio.ensure_future(self._answer(said, body, handles, wire, shared))
                working.add(task)
                task.add_done_callback(working.discard)
        except (OSError, ValueError):
            pass
        finally:
            for task in working:
                task.cancel()
            wire.close()
            for handle in handles:
                with suppress(OSError):
                    await self._files.discard(handle)

    async def _answer(
        self,
        said: Mapping[str, Any],
        body: memoryview,
        handles: set[int],
        wire: _Wire,
        shared: _Shared | None,
    ) -> None:
        answer: dict[str, Any] = {"number": said["number"]}
        found: Any = b""
        try:
            call, args = said["call"], said["args"]
            if call not in CALLS:
                raise OSError(errno.EINVAL, f"no such call: {call}", "hpcmemory://")
            slot = shared.view[said["at"] : said["at"] + said["size"]] if shared and "at" in said else None
            if slot is not None and call == "write":
                body = slot
            elif slot is not None and call in _GIVES:
                body = memoryview(bytes(slot))  # it stays here for longer
            if call == "do":
                answer["is"] = await self._ask(*args)
            elif call == "write":
                path, how = args
                await self._files.write(path, body, how)
                answer["is"] = None
            elif call in _TAKES:
                found = await getattr(self._files, call)(*args)
                answer["is"] = True
                if slot is not None and len(found) <= len(slot):
                    slot[: len(found)] = found
                    answer["size"], found = len(found), b""
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
            answer["error"] = [errno.EIO, f"{type(error).__name__}: {error}", "hpcmemory://"]
        with suppress(OSError):
            await wire.send(answer, found)
