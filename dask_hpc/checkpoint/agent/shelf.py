"""Copies in files of one folder of a node, within a budget of their own.

A file says in its first line what it holds, and has the size that follows from it; one that has not is
deleted as soon as it is looked at. Its bytes are checked by whoever reads them, by the content that they
asked for: a pickle runs only if it is the one that was put here.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

from dask_hpc.checkpoint.agent.block import Block
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.seal import Damaged

_FORMAT = "dask-hpc copy 1"
_SUFFIX = ".copy"
_NAME = re.compile(r"([a-z0-9]+)-([0-9a-f]+)\.copy")
_STEP = 2**16  # bytes that are read to find the end of the first line
_LONGEST = 2**26


@dataclass(frozen=True, slots=True)
class Filed:
    """A block whose bytes are in a file: as ``Block``, and nothing is in memory."""

    content: str
    head: Any
    sizes: tuple[int, ...]
    files: Files
    begin: int
    in_memory: ClassVar[bool] = False

    @property
    def nbytes(self) -> int:
        """Of all frames."""
        return sum(self.sizes)

    def part(self, begin: int, end: int) -> Iterator[memoryview]:
        """Bytes of all frames in a row, read now. Raises ``Trouble`` or ``Damaged``."""
        found = self.files.part(_name(self.content), self.begin + begin, end - begin)
        if len(found) != end - begin:
            raise Damaged(f"the file of {self.content} has lost its end")
        yield memoryview(found)

    def apart(self) -> Block:
        """In memory."""
        return Block(self.content, self.head, self.sizes, [*self.part(0, self.nbytes)])


class Shelf:
    """``budget`` is in bytes. May be used by several threads."""

    def __init__(self, folder: str, budget: float) -> None:
        self.folder = folder
        self.budget = budget
        self._files = Files(folder, lasting=False)
        self._sizes: dict[str, int] = {}
        self._coming = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Of all files."""
        with self._lock:
            return sum(self._sizes.values()) + self._coming

    def __contains__(self, content: object) -> bool:
        return content in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def contents(self) -> list[str]:
        """Of all files."""
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
        first = json.dumps(
            {"format": _FORMAT, "content": block.content, "sizes": block.sizes, "head": block.head},
            separators=(",", ":"),
        )
        line = first.encode() + b"\n"
        size = len(line) + block.nbytes
        with self._lock:
            if block.content in self._sizes:
                return True
            if sum(self._sizes.values()) + self._coming + size > self.budget:
                return False
            self._coming += size
        try:
            self._files.write(_name(block.content), [line, *block.pieces], "copy")
            with self._lock:
                self._sizes[block.content] = size
        finally:
            with self._lock:
                self._coming -= size
        return True

    def get(self, content: str) -> Filed:
        """A copy; ``KeyError`` if there is none, or none of the right size."""
        name = _name(content)
        if content not in self._sizes:
            raise KeyError(content)
        try:
            line = self._first_line(name)
            told = json.loads(line)
            if told["format"] != _FORMAT or told["content"] != content:
                raise ValueError(f"it holds {told['content']}")
            sizes = tuple(map(int, told["sizes"]))
            if min(sizes, default=0) < 0 or self._files.size(name) != len(line) + sum(sizes):
                raise ValueError("it has another size than it had")
            return Filed(content, told["head"], sizes, self._files, len(line))
        except (Trouble, ValueError, TypeError, LookupError):
            self.drop(content)
            raise KeyError(content) from None

    def drop(self, content: str) -> None:
        """Delete a file."""
        with self._lock:
            known = self._sizes.pop(content, None)
        if known is not None:
            with suppress(Trouble):
                self._files.delete(_name(content))

    def _first_line(self, name: str) -> bytes:
        found = b""
        while b"\n" not in found:
            more = self._files.part(name, len(found), max(_STEP, len(found)))
            if not more or len(found) > _LONGEST:
                raise ValueError("it has no first line")
            found += more
        return found[: found.index(b"\n") + 1]


def _name(content: str) -> str:
    return content.replace(":", "-", 1) + _SUFFIX
