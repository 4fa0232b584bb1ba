"""``hpcmemory://NAME/PATH`` for fsspec, and so for everybody who reads and writes by it: zarr, parquet,
xarray, pandas, plain ``open``.

Work 002, 3.3.2 has a library that catches the system calls of a program. Deviation: what runs with Dask goes
through fsspec anyway, so nothing is caught.
"""

import asyncio
import errno
import io
import os
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile

from dask_hpc.memory_files.client.ports import is_here, port_here
from dask_hpc.memory_files.port import FilesPort, How, split

#: letters and digits: what has others is a local folder for xarray
PROTOCOL = "hpcmemory"
#: the same, for all that take it
ALIAS = "hpc-memory"
_AHEAD, _PIECES = 2**20, 8  # bytes of a piece that is fetched ahead, and how many of them
_TRIES = 5  # at reading a file that others write
_TOGETHER = 256  # parts of files that are asked for at once
_PIECE = 16 * 2**20  # bytes of a local file that are in memory at once
_MODES: dict[str, How] = {"wb": "new", "w+b": "new", "xb": "only-new", "x+b": "only-new", "ab": "append",
                          "a+b": "append", "r+b": "change"}  # fmt: skip


class MemoryFileSystem(AsyncFileSystem):
    """All file systems that the cluster has; the first part of a path says which. ``socket``: go by the proxy
    that listens there."""

    protocol = (PROTOCOL, ALIAS)
    root_marker = ""
    cachable = True

    def __init__(self, socket: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._socket = socket

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """That of Dask, so that nothing has to go from one to another."""
        return self._port().loop

    @property
    def fsid(self) -> str:
        """Who else has the same files."""
        return PROTOCOL

    def _port(self, path: str = "") -> FilesPort:
        return port_here(split(path)[0], self._socket)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        for start in (f"{name}{sign}" for name in cls.protocol for sign in ("://", "::", ":")):
            if path.startswith(start):
                path = path[len(start) :]
                break
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return "/".join(parts)

    async def _there(self, path: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Do it in the event loop that has the connections."""
        loop = self._port(path).loop
        if is_here(loop):
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def _step(self, path: str, what: str, **more: Any) -> Any:
        name, rest = split(path)
        step = {"do": what, "fs": name, "path": rest, **more}
        (found,) = await self._there(path, self._port(path).do([step]))
        return found

    # names

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "type": "directory", "size": 0}
        return _named(split(path)[0], await self._step(path, "info"))

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        if not path:
            (names,) = await self._there("", self._port().do([{"do": "systems"}]))
            found = [{"name": name, "type": "directory", "size": 0} for name in names]
        else:
            name = split(path)[0]
            found = [_named(name, one) for one in await self._step(path, "list")]
        return found if detail else [one["name"] for one in found]

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        try:
            await self._info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENAMETOOLONG):
                return False
            raise
        return True

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        await self._step(self._strip_protocol(path), "mkdir", parents=create_parents, may_exist=False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._step(self._strip_protocol(path), "mkdir", parents=True, may_exist=exist_ok)

    async def _rmdir(self, path: str) -> None:
        await self._step(self._strip_protocol(path), "rmdir")

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._step(self._strip_protocol(path), "remove", recursive=False)

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: Any = None, maxdepth: Any = None, **kwargs: Any
    ) -> None:
        given = [path] if isinstance(path, str) else list(path)
        for one in given:
            one = self._strip_protocol(one)
            if set(one) & set("*?["):
                for found in await self._expand_path(one, recursive=recursive, maxdepth=maxdepth):
                    if await self._exists(found):
                        await self._step(found, "remove", recursive=recursive)
            else:
                await self._step(one, "remove", recursive=recursive)

    async def _mv(self, path1: str, path2: str) -> None:
        one, two = self._strip_protocol(path1), self._strip_protocol(path2)
        if split(one)[0] == split(two)[0]:
            await self._step(one, "rename", to=split(two)[1])
        else:
            await self._copy(one, two, recursive=True)
            await self._rm(one, recursive=True)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Any = None, **kwargs: Any
    ) -> None:
        """At once: nobody sees half of it. Into a folder that is there, and what matches a pattern, one after
        the other."""
        plain = isinstance(path1, str) and isinstance(path2, str) and not set(path1) & set("*?[")
        if plain and not str(path2).endswith("/") and not self.isdir(path2) and maxdepth is None:
            self._sync(self._mv, path1, path2)
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def rmdir(self, path: str) -> None:
        """If it is empty."""
        self._sync(self._rmdir, path)

    def rm_file(self, path: str) -> None:
        """One file."""
        self._sync(self._rm_file, path)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make it empty; or leave what is there."""
        if truncate or not self.exists(path):
            self._sync(self._pipe_file, path, b"")

    def created(self, path: str) -> Any:
        """When it was made."""
        return _when(self.info(path)["created"])

    def modified(self, path: str) -> Any:
        """When it changed last."""
        return _when(self.info(path)["modified"])

    def checksum(self, path: str) -> int:
        """Another one for each version of a file."""
        return hash((path, *self.info(path).get("version", ())))

    def ukey(self, path: str) -> str:
        """The same for the same version of the same file."""
        found = self.info(path)
        return f"{found['name']} {found.get('version')} {found['size']}"

    # bytes

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        begin, stop = start or 0, end
        if begin < 0 or (stop is not None and stop < 0):
            size = (await self._info(path))["size"]
            begin = max(0, size + begin) if begin < 0 else begin
            stop = size + stop if stop is not None and stop < 0 else stop
        found: bytes = await self._there(path, self._port(path).read(path, begin, stop))
        return found

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        how: How = "only-new" if mode == "create" else "new"
        await self._there(path, self._port(path).write(path, value, how))

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(path, list) or recursive or kwargs:
            return await super()._cat(path, recursive, on_error, batch_size, **kwargs)
        paths = await self._expand_path(path)
        found = await self._cat_ranges(paths, [0] * len(paths), [None] * len(paths))
        if on_error == "raise" and (wrong := next((x for x in found if isinstance(x, Exception)), None)):
            raise wrong
        pairs = zip(paths, found, strict=True)
        return {one: what for one, what in pairs if on_error != "omit" or not isinstance(what, Exception)}

    async def _cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        batch_size: Any = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> Any:
        given = [starts if isinstance(starts, list) else [starts] * len(paths),
                 ends if isinstance(ends, list) else [ends] * len(paths)]  # fmt: skip
        plain = all(one is None or one >= 0 for some in given for one in some) and max_gap is None
        if not plain or not paths or not len(paths) == len(given[0]) == len(given[1]):
            return await super()._cat_ranges(paths, starts, ends, max_gap, batch_size, on_error, **kwargs)
        wanted = [(self._strip_protocol(p), s or 0, e) for p, s, e in zip(paths, *given, strict=True)]
        first = wanted[0][0]
        found: list[Any] = []
        for at in range(0, len(wanted), _TOGETHER):
            port = self._port(first)
            found += await self._there(first, port.read_many(wanted[at : at + _TOGETHER]))
        if on_error != "return" and (wrong := next((x for x in found if isinstance(x, Exception)), None)):
            raise wrong
        return found

    async def _pipe(
        self, path: Any, value: Any = None, batch_size: Any = None, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        given = {path: value} if isinstance(path, str) else path
        files = {self._strip_protocol(one): data for one, data in given.items()}
        how: How = "only-new" if mode == "create" else "new"
        if len(files) == 1:
            await self._pipe_file(*next(iter(files.items())), mode=mode)
        elif files:
            first = next(iter(files))
            await self._there(first, self._port(first).write_many(files, how))

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if (await self._info(path1))["type"] == "directory":
            await self._makedirs(path2, exist_ok=True)
        else:
            await self._pipe_file(path2, await self._cat_file(path1))

    async def _get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        found = await self._info(rpath)
        if found["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        is_file = not hasattr(lpath, "write")
        if is_file and (above := os.path.dirname(os.fspath(lpath))):
            os.makedirs(above, exist_ok=True)
        with open(lpath, "wb") if is_file else nullcontext(lpath) as file:
            start = file.tell() if file.seekable() else 0
            for _ in range(_TRIES):
                callback.set_size(found["size"])
                for begin in range(0, found["size"], _PIECE):
                    piece = await self._cat_file(rpath, begin, min(found["size"], begin + _PIECE))
                    await asyncio.to_thread(file.write, piece)
                    callback.relative_update(len(piece))
                before, found = found, await self._info(rpath)
                if found.get("version") == before.get("version"):
                    return
                file.seek(start)  # somebody wrote it meanwhile
                file.truncate()
            raise OSError(errno.EBUSY, "it changes all the time", f"{PROTOCOL}://{rpath}")

    async def _put_file(
        self, lpath: Any, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))
        port, how = self._port(rpath), "only-new" if mode == "create" else "new"
        handle, _, _ = await self._there(rpath, port.open(rpath, how))  # type: ignore[arg-type]
        at = 0
        try:
            with open(lpath, "rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE):
                    await self._there(rpath, port.write_at(handle, at, piece))
                    at += len(piece)
                    callback.relative_update(len(piece))
            await self._there(rpath, port.close(handle))
        except BaseException:
            await self._there(rpath, port.discard(handle))
            raise

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        kind = mode.replace("t", "").replace("+", "") + ("+" if "+" in mode else "")
        kind = kind.replace("b", "").replace("+", "+b") if "+" in kind else kind
        if kind == "rb":
            if self.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{PROTOCOL}://{path}")
            kwargs.pop("cache_type", None)
            return ReadFile(self, path, "rb", block_size, **kwargs)
        if kind not in _MODES:
            raise ValueError(f"mode {mode!r}; allowed: rb, {', '.join(_MODES)}")
        return WriteFile(self, path, kind, autocommit)

    def _sync(self, work: Any, *args: Any) -> Any:
        from fsspec.asyn import sync

        return sync(self.loop, work, *args)

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> "AsyncFile":
        """As ``open``, for asynchronous code."""
        path = self._strip_protocol(path)
        if mode == "rb":
            return AsyncFile(self, path, mode, 0, (await self._info(path))["size"])
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r}; allowed: rb, {', '.join(_MODES)}")
        handle, size, _ = await self._there(path, self._port(path).open(path, _MODES[mode]))
        return AsyncFile(self, path, mode, handle, size)


class ReadFile(AbstractBufferedFile):
    """A file that is read: what is read in order is fetched ahead of who reads it. It travels with what is
    known of it: who only passes it on, as a scheduler does, asks nobody."""

    def __init__(
        self, fs: MemoryFileSystem, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(fs, path, mode, block_size or _AHEAD, cache_type="none", **kwargs)
        #: by number, pieces that are here or on their way, and the one that was read last
        self._pieces: dict[int, Future[bytes]] = {}
        self._last = -1

    def read(self, length: int | None = -1) -> bytes:
        """So many bytes, or all that are left."""
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        left = self.size - self.loc
        count = left if length is None or length < 0 else min(length, left)
        found = []
        while count > 0:
            number, begin = divmod(self.loc, self.blocksize)
            piece = self._piece(number)[begin : begin + count]
            if not piece:
                break
            found.append(piece)
            self.loc += len(piece)
            count -= len(piece)
        return found[0] if len(found) == 1 else b"".join(found)

    def _piece(self, number: int) -> bytes:
        ahead = _PIECES if number in (self._last, self._last + 1) else 1
        for one in range(number, number + ahead):
            begin = one * self.blocksize
            if one not in self._pieces and begin < self.size:
                end = min(self.size, begin + self.blocksize)
                port = self.fs._port(self.path)
                number_then = self.details.get("version", [None])[0]  # another one is another file
                work = port.read(self.path, begin, end, number_then)
                self._pieces[one] = asyncio.run_coroutine_threadsafe(work, port.loop)
        for one in [one for one in self._pieces if not number <= one <= number + _PIECES]:
            self._pieces.pop(one).cancel()
        self._last = number
        try:
            return self._pieces[number].result()
        except BaseException:
            self._pieces.clear()
            raise

    def close(self) -> None:
        """Nothing is fetched any more."""
        for one in getattr(self, "_pieces", {}).values():
            one.cancel()
        super().close()

    def __reduce__(self) -> Any:
        return _again, (self.fs, self.path, self.blocksize, self.loc, self.details, self.kwargs)


class WriteFile(io.RawIOBase):
    """A file that is written, anywhere in it; with a ``+`` it can be read, too. What it has goes to the
    cluster as it comes, and is others' when it is flushed or closed."""

    def __init__(self, fs: MemoryFileSystem, path: str, mode: str, autocommit: bool = True) -> None:
        self.fs = fs
        self.path = path
        self.mode = mode
        self.autocommit = autocommit
        self._files = fs._port(path)
        self._handle, self.size, self._gather = self._do(self._files.open, path, _MODES[mode])
        #: what was written last, and where, and is not said yet
        self._last = bytearray()
        self._last_at = 0
        self.loc = self.size if mode.startswith("a") else 0
        self._is_over = False

    def _do(self, work: Any, *args: Any) -> Any:
        from fsspec.asyn import sync

        return sync(self._files.loop, work, *args)

    @property
    def name(self) -> str:
        return self.path

    @property
    def full_name(self) -> str:
        return f"{PROTOCOL}://{self.path}"

    def __repr__(self) -> str:
        return f"<WriteFile {self.full_name}, {self.mode}>"

    def readable(self) -> bool:
        return "+" in self.mode

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self.loc)

    def seek(self, offset: int, whence: int = 0) -> int:
        start = {0: 0, 1: self.loc, 2: self.size}.get(whence)
        if start is None or start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.full_name)
        self.loc = start + offset
        return int(self.loc)

    def write(self, data: Any) -> int:
        self._check_open()
        view = memoryview(data).cast("B")
        if self.mode.startswith("a"):
            self.loc = self.size
        if self._last and self.loc != self._last_at + len(self._last):
            self._say()
        if view.nbytes >= self._gather:
            self._say()
            given = data if isinstance(data, bytes) else bytes(view)
            self._do(self._files.write_at, self._handle, self.loc, given)
        else:
            self._last_at = self._last_at if self._last else self.loc
            self._last += view
            if len(self._last) >= self._gather:
                self._say()
        self.loc += view.nbytes
        if view.nbytes:
            self.size = max(self.size, self.loc)
        return view.nbytes

    def _say(self) -> None:
        if self._last:
            last, self._last = bytes(self._last), bytearray()
            self._do(self._files.write_at, self._handle, self._last_at, last)

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        if not self.readable():
            raise io.UnsupportedOperation("it was opened to be written")
        self._say()
        view = memoryview(buffer).cast("B")
        found = self._do(self._files.read_back, self._handle, self.loc, self.loc + view.nbytes)
        view[: len(found)] = found
        self.loc += len(found)
        return len(found)

    def truncate(self, size: int | None = None) -> int:
        self._check_open()
        self._say()
        size = self.loc if size is None else size
        self._do(self._files.cut, self._handle, size)
        self.size = size
        return int(size)

    def flush(self, force: bool = False) -> None:
        if not self.closed and not self._is_over and self.autocommit:
            self._say()
            self._do(self._files.flush, self._handle)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self.autocommit and not self._is_over:
                self._end()
        finally:
            self._is_over = self._is_over or self.autocommit
            io.IOBase.close(self)

    def commit(self) -> None:
        """The end of a transaction: it is others', too."""
        if not self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        try:
            self._say()
        except BaseException:
            self._do(self._files.discard, self._handle)
            raise
        self._do(self._files.close, self._handle)

    def discard(self) -> None:
        """The transaction came to nothing."""
        if not self._is_over:
            self._is_over = True
            self._do(self._files.discard, self._handle)

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Half of a new file is nobody's: who failed while writing it has written nothing."""
        if kind is not None and self.mode[0] in "wx" and not self._is_over:
            self.discard()
        self.close()

    def __del__(self) -> None:
        try:
            if not self.closed and not self._is_over:
                self.discard()
        except Exception:
            return

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


class AsyncFile:
    """What ``open_async`` gives."""

    def __init__(self, fs: MemoryFileSystem, path: str, mode: str, handle: int, size: int) -> None:
        self._fs = fs
        self.path = path
        self.mode = mode
        self._handle = handle
        self.size = size
        self.loc = size if mode.startswith("a") else 0
        self._files = fs._port(path)

    async def read(self, length: int = -1) -> bytes:
        end = self.size if length < 0 else min(self.size, self.loc + length)
        if self.mode == "rb":
            work = self._files.read(self.path, self.loc, end)
        else:
            work = self._files.read_back(self._handle, self.loc, end)
        found: bytes = await self._fs._there(self.path, work)
        self.loc += len(found)
        return found

    async def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        await self._fs._there(self.path, self._files.write_at(self._handle, self.loc, bytes(view)))
        self.loc += view.nbytes
        if view.nbytes:
            self.size = max(self.size, self.loc)
        return view.nbytes

    async def flush(self) -> None:
        if self.mode != "rb":
            await self._fs._there(self.path, self._files.flush(self._handle))

    async def close(self) -> None:
        if self.mode != "rb" and self._handle:
            handle, self._handle = self._handle, 0
            await self._fs._there(self.path, self._files.close(handle))

    async def __aenter__(self) -> "AsyncFile":
        return self

    async def __aexit__(self, kind: Any, *error: Any) -> None:
        if kind is not None and self.mode[0] in "wx" and self._handle:
            handle, self._handle = self._handle, 0
            await self._fs._there(self.path, self._files.discard(handle))
        await self.close()


def _again(fs: Any, path: str, block_size: int, loc: int, details: Any, kwargs: Any) -> ReadFile:
    file = ReadFile(fs, path, "rb", block_size, size=details["size"], **kwargs)
    file.details, file.loc = details, loc
    return file


def _named(name: str, info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "name": f"{name}/{info['name']}".rstrip("/")}


def _when(seconds: float) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)
