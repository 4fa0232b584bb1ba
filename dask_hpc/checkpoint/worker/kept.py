"""The copies that a worker keeps for others, by content, in memory and on disk, each within a budget.

A copy that was added is there until it is dropped. What does not fit into memory goes to disk, the largest
first, as that takes the fewest files; if there is no room there either, nothing more is taken.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from threading import Lock, RLock
from typing import ClassVar

from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.worker.block import Block

_FORMAT = "dask-hpc copy 1"
_SUFFIX = ".copy"
_NAME = re.compile(r"([a-z0-9]+)-([0-9a-f]+)\.copy")
_STEP, _LONGEST = 2**16, 2**26  # bytes that are read to find the end of the first line


@dataclass(frozen=True, slots=True)
class Filed(Block):
    """A block whose bytes are in a file: nothing is in memory."""

    files: Files
    begin: int
    in_memory: ClassVar[bool] = False

    def part(self, begin: int, end: int) -> Iterator[memoryview]:
        """Bytes of all frames in a row, read now. Raises ``Trouble`` or ``Damaged``."""
        found = self.files.part(_name(self.content), self.begin + begin, end - begin)
        if len(found) != end - begin:
            raise Damaged(f"the file of {self.content} has lost its end")
        yield memoryview(found)


class Shelf:
    """The files of copies; without a folder there are none. ``budget`` is in bytes. May be used by several
    threads, of which one writes."""

    def __init__(self, folder: str = "", budget: float = 0.0) -> None:
        self.folder = folder
        self.budget = budget
        self._files = Files(folder, lasting=False)
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def __contains__(self, content: object) -> bool:
        return content in self._sizes

    def contents(self) -> list[str]:
        with self._lock:
            return list(self._sizes)

    def find(self) -> None:
        """Know the files that are in the folder already, if they look right: what they hold is not read."""
        for name in self._files.names():
            if (told := _NAME.fullmatch(name)) is not None:
                content = f"{told[1]}:{told[2]}"
                with suppress(Trouble, KeyError):
                    self._sizes[content] = self._files.size(name)
                    self.get(content)

    def add(self, block: Block) -> bool:
        """Write a file; whether there is room for it. Raises ``Trouble``."""
        said = {"format": _FORMAT, "content": block.content, "sizes": block.sizes, "head": block.head}
        line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
        size = len(line) + block.nbytes
        if block.content in self._sizes:
            return True
        if self.nbytes + size > self.budget:
            return False
        self._files.write(_name(block.content), [line, *block.pieces], "copy")
        with self._lock:
            self._sizes[block.content] = size
        return True

    def get(self, content: str) -> Filed:
        """A copy; ``KeyError`` if there is none, or none of the right size."""
        name = _name(content)
        if content not in self._sizes:
            raise KeyError(content)
        try:
            begin = self._files.part(name, 0, _STEP)
            if b"\n" not in begin:
                begin = self._files.part(name, 0, _LONGEST)
            at = begin.index(b"\n") + 1
            told = json.loads(begin[:at])
            sizes = tuple(map(int, told["sizes"]))
            is_it = (told["format"], told["content"]) == (_FORMAT, content) and min(sizes, default=0) >= 0
            if is_it and self._files.size(name) == at + sum(sizes):
                return Filed(content, told["head"], sizes, (), self._files, at)
        except (Trouble, ValueError, TypeError, LookupError):
            pass
        self.drop(content)
        raise KeyError(content)

    def drop(self, content: str) -> None:
        with self._lock:
            known = self._sizes.pop(content, None)
        if known is not None:
            with suppress(Trouble):
                self._files.delete(_name(content))


def _name(content: str) -> str:
    return content.replace(":", "-", 1) + _SUFFIX


class Full(MemoryError):
    """There is no room for another copy here."""


class KeptCopies:
    """``budget`` is for memory, in bytes; ``allowed`` is the part of it that may be used now. May be used by
    several threads: what writes files takes as long as that does."""

    def __init__(self, budget: float, shelf: Shelf | None = None) -> None:
        self.budget = self.allowed = budget
        self.shelf = shelf or Shelf()
        #: why the disk took no copy the last time, if so
        self.trouble = ""
        self.nbytes = 0
        self._blocks: dict[str, Block] = {}
        self._coming = [0, 0]  # bytes that have room in memory, and on disk
        self._lock = RLock()
        #: held while a file is written; which one, if it is still wanted
        self._pen = Lock()
        self._written = ""

    def __contains__(self, content: object) -> bool:
        return content in self._blocks or content in self.shelf

    def __len__(self) -> int:
        return len(self.contents())

    @property
    def on_disk(self) -> int:
        return self.shelf.nbytes

    def contents(self) -> list[str]:
        with self._lock:
            return list(dict.fromkeys([*self._blocks, *self.shelf.contents()]))

    @contextmanager
    def room(self, nbytes: int) -> Iterator[None]:
        """Room for a block that is on its way, in memory or on disk. Raises ``Full``."""
        with self._lock:
            place = int(self.nbytes + self._coming[0] + nbytes > self.allowed)
            if place and self.on_disk + self._coming[1] + nbytes > self.shelf.budget:
                taken = f"{self.nbytes} of {self.allowed:.0f} are taken"
                disk = f", {self.on_disk} of {self.shelf.budget:.0f} on disk" if self.shelf.folder else ""
                raise Full(f"{nbytes} bytes do not fit: {taken}{disk}")
            self._coming[place] += nbytes
        try:
            yield
        finally:
            with self._lock:
                self._coming[place] -= nbytes

    def add(self, block: Block) -> None:
        """Keep it. Raises ``Full``."""
        with self._lock:
            if block.content in self:
                return
            if self.nbytes + block.nbytes <= self.allowed:
                self._blocks[block.content] = block
                self.nbytes += block.nbytes
                return
        if not self._to_disk(block):
            why = f": {self.trouble}" if self.trouble else ""
            raise Full(f"{block.nbytes} bytes fit neither into memory nor on disk{why}")

    def get(self, content: str) -> Block:
        """A copy, or ``KeyError``."""
        with self._lock:
            if content in self._blocks:
                return self._blocks[content]
        return self.shelf.get(content)

    def intact(self, content: str) -> Block:
        """A copy, checked and in memory of its own. Raises ``KeyError``, ``Damaged`` or ``Trouble``."""
        block = self.get(content).apart()
        block.check()
        return block

    def to_disk(self, content: str) -> bool:
        """Have a copy on disk, too; whether it is there. ``KeyError`` if there is no such copy."""
        block = self.get(content)
        return isinstance(block, Filed) or self._to_disk(block)

    def shrink(self) -> bool:
        """Have no more in memory than is allowed now; whether that was possible."""
        while self.nbytes > self.allowed:
            with self._lock:
                on_disk = [one for one in self._blocks if one in self.shelf]
                among = on_disk or list(self._blocks)
                if not among:
                    break
                block = max((self._blocks[one] for one in among), key=lambda one: one.nbytes)
            if not self._to_disk(block):
                return False
            self._forget(block.content)
        return True

    def drop(self, *contents: str) -> None:
        for content in contents:
            with self._lock:
                self._forget(content)
                if self._written == content:
                    self._written = ""
            self.shelf.drop(content)

    def _forget(self, content: str) -> None:
        with self._lock:
            if (block := self._blocks.pop(content, None)) is not None:
                self.nbytes -= block.nbytes

    def _to_disk(self, block: Block) -> bool:
        """Write a file; whether it is there, or nobody wants it any longer."""
        if not self.shelf.folder:
            return False
        with self._pen:
            self._written = block.content
            try:
                there = self.shelf.add(block)
            except Trouble as error:
                self.trouble = str(error.strerror)
                return False
            with self._lock:
                if not self._written:
                    self.shelf.drop(block.content)
                self._written = ""
        self.trouble = "" if there else "the disk's budget is used up"
        return there


_LOCK = ".lock"
_OLD = 3600.0  # seconds since the last change of a folder that nobody holds
_TRIES = 20  # at making a folder, while others tidy up around it


class Scratch:
    """The folder of one agent. Raises ``OSError`` if there can be none."""

    def __init__(self, root: str, run: str) -> None:
        user = Path(root, f"dask-hpc-{os.geteuid()}")
        user.parent.mkdir(parents=True, exist_ok=True)
        self._run = user / (re.sub(r"[^A-Za-z0-9_.-]", "-", run).lstrip(".") or "run")
        for _ in range(_TRIES):
            # Agents of other clusters remove folders that are empty, and ours is until its lock is there.
            with suppress(FileNotFoundError, FileExistsError):
                own_folder(user)
                _remove_old(user, self._run.name)
                own_folder(self._run)
                self.path = self._run / f"agent-{token_hex(8)}"
                self.path.mkdir(mode=0o700)
                if (lock := hold_folder(self.path)) is not None:
                    self._held = lock
                    return
        raise BlockingIOError(11, "others remove every folder that is made", str(self._run))

    def take_over(self) -> None:
        """Have the files of agents that died here."""
        for folder in _in(self._run):
            if folder == self.path or (lock := hold_folder(folder, make=False)) is None:
                continue
            try:
                for file in _in(folder):
                    if file.name != _LOCK:
                        with suppress(OSError):
                            os.replace(file, self.path / file.name)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

    def leave(self, keep: bool) -> None:
        """To the next agent here, or to nobody."""
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)
            for folder in (self._run, self._run.parent):
                with suppress(OSError):  # others are in it
                    folder.rmdir()
        os.close(self._held)


def own_folder(folder: Path) -> None:
    """It is ours, and nobody else may look into it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(13, "it belongs to somebody else", str(folder))
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(13, "others may look into it", str(folder))


def hold_folder(folder: Path, make: bool = True) -> int | None:
    """Hold a folder, if nobody does."""
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if make else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _remove_old(user: Path, ours: str) -> None:
    for run in _in(user):
        if run.name == ours or not run.is_dir():
            continue
        for folder in _in(run):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > _OLD and (lock := hold_folder(folder)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)
        with suppress(OSError):
            run.rmdir()


def _in(folder: Path) -> list[Path]:
    """What is in it; nothing if others have just removed it."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
