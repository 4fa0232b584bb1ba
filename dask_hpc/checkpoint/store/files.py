"""What a store needs of a file system: files that are there as a whole or not at all.

On a local or mounted file system a file is written under another name, flushed to disk and renamed, and then
its folder is flushed. Other stores (any fsspec URL: object stores, memory) put a file as a whole by
themselves. A file that is the same as one that is there already is a second name for it where file systems
have such (hard links), else a copy made by the store.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from dask_hpc.checkpoint.faults import reach

#: how names of files begin that are not there yet
UNFINISHED = ".new-"


class Trouble(OSError):
    """The store cannot do what is asked of it; ``strerror`` is one line for a person."""


class Missing(Trouble):
    """There is no such file."""


class Files:
    """The files below one folder, which may be a path or any URL that fsspec knows. Paths are relative,
    with slashes. Every method may raise ``Trouble``. ``lasting`` files outlive a crash of the machine, others
    that of the process only; ``is_private``: nobody else may read them."""

    def __init__(self, root: str, *, lasting: bool = True, is_private: bool = False) -> None:
        self._lasting = lasting
        self._modes = (0o700, 0o600) if is_private else (0o777, 0o666)
        self.root = os.path.abspath(root) if is_local(root) else root.rstrip("/")
        self.is_local = is_local(root)
        if root.startswith("file://"):
            self.root = root.removeprefix("file://")

    def __repr__(self) -> str:
        return f"Files({self.root!r})"

    def path(self, path: str) -> str:
        """The whole path. What would lead out of the root is refused."""
        parts = path.split("/") if path else []
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise Trouble(22, f"{path!r} is no path within {self.root}")
        return "/".join([self.root, *parts])

    def write(
        self, path: str, frames: Iterable[Any], point: str = "block", *, make_folder: bool = True
    ) -> int:
        """A new file, or another in the place of one. Gives its size in bytes."""
        target = self.path(path)
        with _told(target):
            if not self.is_local:
                body = b"".join(frames)
                reach(f"{point}-begun")
                reach(f"{point}-written")
                self._fs.pipe_file(target, body)
                reach(f"{point}-named")
                return len(body)
            folder, name = os.path.split(target)
            if make_folder:
                self._make_folder(folder)
            new = os.path.join(folder, f"{UNFINISHED}{name}-{token_hex(4)}")
            try:
                with self._new(new) as file:
                    reach(f"{point}-begun")
                    size = sum(file.write(memoryview(frame).cast("B")) for frame in frames)
                    file.flush()
                    reach(f"{point}-written")
                    if self._lasting:
                        os.fsync(file.fileno())
                os.replace(new, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new)
                raise
            reach(f"{point}-named")
            if self._lasting:
                _sync_folder(folder)
            return size

    def read(self, path: str) -> bytes:
        target = self.path(path)
        with _told(target):
            found: bytes = Path(target).read_bytes() if self.is_local else self._fs.cat_file(target)
            return found

    def load(self, path: str) -> Any:
        """A whole file, as bytes that may be written: numpy's, so that an array of them is no copy."""
        target = self.path(path)
        with _told(target):
            if not self.is_local:
                return np.frombuffer(bytearray(self._fs.cat_file(target)), np.uint8)
            with open(target, "rb") as file:
                found = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
                return found[: file.readinto(found.data)]

    def claim(self, path: str, body: bytes) -> bool:
        """Make a small file that is not there yet; whether it was us who did. Of several that try at once,
        one does (where a store knows no such thing, the last one, and the others see it in the file)."""
        target = self.path(path)
        with _told(target):
            try:
                if self.is_local:
                    self._make_folder(os.path.dirname(target))
                    with self._new(target) as file:
                        file.write(body)
                elif self._fs.exists(target):
                    return False
                else:
                    self._fs.pipe_file(target, body, mode="create")
            except FileExistsError:
                return False
            except (TypeError, ValueError, NotImplementedError):  # no such mode
                self._fs.pipe_file(target, body)
            return True

    def part(self, path: str, begin: int, size: int) -> bytes:
        """Some bytes of a file; fewer if it ends before."""
        target = self.path(path)
        with _told(target):
            if self.is_local:
                with open(target, "rb", buffering=0) as file:
                    return os.pread(file.fileno(), size, begin)
            found: bytes = self._fs.cat_file(target, start=begin, end=begin + size)
            return found

    def same(self, old: str, new: str) -> None:
        """Let a file be there under another name, too."""
        source, target = self.path(old), self.path(new)
        with _told(target):
            if not self.is_local:
                self._fs.cp_file(source, target)
                return
            self._make_folder(os.path.dirname(target))
            with suppress(FileNotFoundError):
                os.unlink(target)
            try:
                os.link(source, target)
            except OSError:  # no hard links here, or no such file, which is told
                self.write(new, [self.read(old)])

    def names(self, path: str = "") -> list[str]:
        """What is in a folder; nothing if there is none."""
        target = self.path(path)
        with _told(target):
            try:
                if self.is_local:
                    return sorted(name for name in os.listdir(target) if not name.startswith(UNFINISHED))
                self._fs.invalidate_cache(target)
                found = self._fs.ls(target, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def size(self, path: str) -> int:
        target = self.path(path)
        with _told(target):
            return os.path.getsize(target) if self.is_local else int(self._fs.size(target))

    def delete(self, path: str) -> None:
        """A file or a folder with all in it; it may be gone already."""
        target = self.path(path)
        with _told(target):
            if not self.is_local:
                with suppress(FileNotFoundError):
                    self._fs.rm(target, recursive=True)
            elif os.path.isdir(target) and not os.path.islink(target):
                # At once, so that nobody finishes something in a folder of which half is gone.
                folder, name = os.path.split(target)
                gone = os.path.join(folder, f"{UNFINISHED}{name}-{token_hex(4)}")
                os.rename(target, gone)
                shutil.rmtree(gone, onerror=_only_gone)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(target)

    def sweep(self, path: str) -> None:
        """Delete folders in this one that were deleted by halves."""
        target = self.path(path)
        with _told(target), suppress(FileNotFoundError):
            for name in os.listdir(target) if self.is_local else ():
                one = os.path.join(target, name)
                if name.startswith(UNFINISHED) and os.path.isdir(one):
                    shutil.rmtree(one, onerror=_only_gone)

    def _new(self, path: str) -> Any:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._modes[1])
        return open(opened, "wb")

    def _make_folder(self, folder: str) -> None:
        if not os.path.isdir(folder):
            self._make_folder(os.path.dirname(folder))
            with suppress(FileExistsError):
                os.mkdir(folder, self._modes[0])
            _sync_folder(os.path.dirname(folder))

    @property
    def _fs(self) -> Any:
        import fsspec  # it remembers its file systems

        fs, _ = fsspec.core.url_to_fs(self.root)
        return fs


def is_local(root: str) -> bool:
    """Whether it is a path of this machine, or of a file system that is mounted."""
    return "://" not in root or root.startswith("file://")


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except Trouble:
        raise
    except FileNotFoundError:
        raise Missing(2, f"{where} is not there", where) from None
    except OSError as error:
        raise Trouble(error.errno or 5, f"{where}: {error.strerror or error}", where) from error
    except Exception as error:  # fsspec's stores raise whatever their libraries do
        words = " ".join(str(error).split())
        raise Trouble(5, f"{where}: {type(error).__name__}: {words}", where) from error


def _sync_folder(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _only_gone(_: Any, __: Any, found: Any) -> None:
    if not issubclass(found[0], FileNotFoundError):
        raise found[1]
