"""The copies that a worker keeps for others, by content, in memory and on disk, each within a budget.

A copy that was added is there until it is dropped. What does not fit into memory goes to disk, the largest
first, as that takes the fewest files; if there is no room there either, nothing more is taken.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock

from dask_hpc.checkpoint.agent.block import Block
from dask_hpc.checkpoint.agent.shelf import Filed, Shelf
from dask_hpc.checkpoint.store.files import Trouble


class Full(MemoryError):
    """There is no room for another copy here."""


class Kept:
    """``budget`` is for memory, in bytes; ``allowed`` is the part of it that may be used now. May be used by
    several threads: what writes files takes as long as that does."""

    def __init__(self, budget: float, shelf: Shelf | None = None) -> None:
        self.budget = self.allowed = budget
        self.shelf = shelf
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
        return content in self._blocks or (self.shelf is not None and content in self.shelf)

    def __len__(self) -> int:
        return len(self.contents())

    @property
    def on_disk(self) -> int:
        """Bytes of files."""
        return self.shelf.nbytes if self.shelf is not None else 0

    def contents(self) -> list[str]:
        """Of all copies that are kept."""
        with self._lock:
            return list(dict.fromkeys([*self._blocks, *(self.shelf.contents() if self.shelf else ())]))

    @contextmanager
    def room(self, nbytes: int) -> Iterator[None]:
        """Room for a block that is on its way. Raises ``Full``."""
        with self._lock:
            place = self._place(nbytes)
            self._coming[place] += nbytes
        try:
            yield
        finally:
            with self._lock:
                self._coming[place] -= nbytes

    def _place(self, nbytes: int) -> int:
        if self.nbytes + self._coming[0] + nbytes <= self.allowed:
            return 0
        if self.shelf is not None and self.on_disk + self._coming[1] + nbytes <= self.shelf.budget:
            return 1
        disk = f", {self.on_disk} of {self.shelf.budget:.0f} on disk" if self.shelf is not None else ""
        raise Full(f"{nbytes} bytes do not fit: {self.nbytes} of {self.allowed:.0f} are taken{disk}")

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

    def get(self, content: str) -> Block | Filed:
        """A copy, or ``KeyError``."""
        with self._lock:
            if content in self._blocks:
                return self._blocks[content]
        if self.shelf is None:
            raise KeyError(content)
        return self.shelf.get(content)

    def to_disk(self, content: str) -> bool:
        """Have a copy on disk, too; whether it is there. ``KeyError`` if there is no such copy."""
        block = self.get(content)
        return isinstance(block, Filed) or self._to_disk(block)

    def shrink(self) -> bool:
        """Have no more in memory than is allowed now; whether that was possible."""
        while self.nbytes > self.allowed:
            with self._lock:
                on_disk = [one for one in self._blocks if self.shelf is not None and one in self.shelf]
                among = on_disk or list(self._blocks)
                if not among:
                    break
                block = max((self._blocks[one] for one in among), key=lambda one: one.nbytes)
            if not self._to_disk(block):
                return False
            self._forget(block.content)
        return True

    def drop(self, content: str) -> None:
        """Keep it no longer."""
        with self._lock:
            self._forget(content)
            if self._written == content:
                self._written = ""
        if self.shelf is not None:
            self.shelf.drop(content)

    def drop_all(self, contents: Iterable[str]) -> None:
        """Keep none of these any longer."""
        for content in contents:
            self.drop(content)

    def _forget(self, content: str) -> None:
        with self._lock:
            if (block := self._blocks.pop(content, None)) is not None:
                self.nbytes -= block.nbytes

    def _to_disk(self, block: Block) -> bool:
        """Write a file; whether it is there, or nobody wants it any longer."""
        if self.shelf is None:
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
