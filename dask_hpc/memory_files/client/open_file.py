"""A file that is being written: which of its blocks are on their way, and which still come.

What is written is gathered (``batch`` bytes of it; 0: nothing) and given to agents while more is written.
Others see it when it is flushed or closed, or has been here for ``write_back`` seconds.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from dask_hpc.checkpoint.worker.block import Block
from dask_hpc.memory_files.settings import FilesSettings

_BEHIND = 8 * 2**20  # bytes that may be on their way while more is written
_TOGETHER = 4 * 2**20  # bytes that go in one message while others are on their way
_LEASE = 64  # blocks that places are asked for at once


class BlockSender(Protocol):
    """Whoever gives blocks to agents: see ``DirectFiles``."""

    def made(self, data: Any, settings: FilesSettings) -> Block: ...

    async def announce(
        self, name: str, session: int, blocks: Mapping[int, Block], put: Sequence[Any]
    ) -> dict[int, Sequence[str]]: ...

    async def send(
        self, name: str, session: int, blocks: Mapping[int, Block], places: Mapping[int, Sequence[str]]
    ) -> list[Any]: ...

    async def commit(
        self, name: str, session: int, size: int, put: Sequence[Any], ends: bool, cuts: bool
    ) -> None: ...

    async def fetch(self, content: str, agents: Sequence[str]) -> bytes: ...

    async def read_of(self, path: str, session: int, begin: int, end: int, put: Sequence[Any]) -> bytes: ...


class OpenFile:
    """``size`` is what it has now; ``is_new``: nothing of what is there by this path belongs to it."""

    def __init__(
        self, sender: BlockSender, path: str, session: int, size: int, is_new: bool, settings: FilesSettings
    ) -> None:
        self._sender = sender
        self.path = path
        self.name = path.partition("/")[0]
        self.session = session
        self.size = size
        self._settings = settings
        self._block = settings.block
        #: bytes that others have of it
        self._base = 0 if is_new else size
        self._cuts = is_new
        #: blocks that were cut off, and are zeros if it grows again: the first one, and the end of them
        self._cut_off: tuple[int, int] | None = None
        #: by number: what is not sent, what is on its way, and where the rest went
        self._dirty: dict[int, Any] = {}
        self._sending: dict[int, Any] = {}
        self._sent: dict[int, tuple[str, list[str]]] = {}
        #: what the scheduler does not know yet of what was sent
        self._put: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._wrong: BaseException | None = None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def is_shown(self) -> bool:
        """Whether others who write by the same process see it before it is flushed."""
        return self._settings.write_back > 0

    def set(self, settings: FilesSettings) -> None:
        """Other settings from now on."""
        self._settings = settings
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._start_clock()

    async def write(self, at: int, data: Any) -> None:
        """Bytes to a place. What went wrong with earlier ones is raised here."""
        view = memoryview(data).cast("B")
        async with self._lock:
            self._raise()
            if not view.nbytes:  # it makes no file larger
                return
            for number, begin, piece in self._pieces(at, view):
                if len(piece) == self._block:  # whoever gives it does not change it
                    self._dirty[number] = piece
                    continue
                block = self._dirty.get(number)
                if block is not None and not isinstance(block, bytearray):
                    block = self._dirty[number] = bytearray(block)
                if block is None:
                    is_whole = begin == 0 and number * self._block + len(piece) >= min(
                        self.size, (number + 1) * self._block
                    )
                    block = self._dirty[number] = (
                        bytearray() if is_whole else bytearray(await self._load(number))
                    )
                if len(block) < begin:
                    block += bytes(begin - len(block))
                block[begin : begin + len(piece)] = piece
            self.size = max(self.size, at + view.nbytes)
            gathered = sum(map(len, self._dirty.values()))
            if gathered and not self._settings.batch:
                await self._send(is_all=True)
                await self._wait(0)
            elif gathered >= max(self._settings.batch, _TOGETHER if self._tasks else 0):
                await self._send(is_all=False)
            if self._dirty:
                self._start_clock()

    async def cut(self, size: int) -> None:
        """It has this size from now on."""
        async with self._lock:
            self._raise()
            await self._wait(0)
            number, rest = divmod(size, self._block)
            if size < self.size and rest:
                self._dirty[number] = bytearray((await self._load(number))[:rest])
            first = number + bool(rest)
            for known in (self._dirty, self._sent):
                for one in [one for one in known if one >= first]:
                    del known[one]
            begin, end = self._cut_off or (first, first)
            self._cut_off = min(begin, first), max(end, -(-self.size // self._block))
            self.size = size
            self._base = min(self._base, size)
            self._cuts = True

    async def read_back(self, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""
        async with self._lock:
            self._raise()
            end = self.size if end is None else min(end, self.size)
            found = bytearray(max(0, end - begin))
            for number in range(begin // self._block, -(-end // self._block)):
                block, at = await self._load(number), number * self._block
                first, last = max(begin, at), min(end, at + len(block))
                if first < last:
                    found[first - begin : last - begin] = block[first - at : last - at]
            return bytes(found)

    async def flush(self, ends: bool = False) -> None:
        """All that was written is the file's from now on."""
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._raise()
            self._fill()
            await self._send(is_all=True)
            await self._wait(0)
            put = list(self._put)
            await self._sender.commit(self.name, self.session, self.size, put, ends, self._cuts)
            self._is_told(put)
            self._base, self._cuts, self._cut_off = self.size, False, None

    def _fill(self) -> None:
        """What was cut off is not there again when it has grown since."""
        begin, end = self._cut_off or (0, 0)
        for number in range(begin, min(end, -(-self.size // self._block))):
            if not any(number in known for known in (self._dirty, self._sending, self._sent)):
                self._dirty[number] = bytearray(1)  # the rest of a block reads as zeros

    def _pieces(self, at: int, view: memoryview) -> list[tuple[int, int, memoryview]]:
        """Of each block its number, where in it, and what."""
        found, done = [], 0
        while done < view.nbytes:
            number, begin = divmod(at + done, self._block)
            count = min(self._block - begin, view.nbytes - done)
            found.append((number, begin, view[done : done + count]))
            done += count
        return found

    async def _load(self, number: int) -> Any:
        """A block as it is now."""
        for known in (self._dirty, self._sending):
            if number in known:
                return known[number]
        begin, end = number * self._block, self._base
        if number in self._sent:
            content, agents = self._sent[number]
            with suppress(OSError):  # it may have moved since
                return await self._sender.fetch(content, agents)
            end = self.size
        if begin >= end:
            return b""
        # By the path there may be another one by now.
        end = min(end, begin + self._block)
        return await self._sender.read_of(self.path, self.session, begin, end, list(self._put))

    async def _send(self, is_all: bool) -> None:
        """Give what was gathered to agents; without ``is_all`` full blocks alone, if there is one."""
        full = [number for number, block in self._dirty.items() if len(block) == self._block]
        numbers = list(self._dirty) if is_all or not full else full
        for begin in range(0, len(numbers), _LEASE):
            some = numbers[begin : begin + _LEASE]
            if not self._sending.keys().isdisjoint(some):
                await self._wait(0)
            data = {number: self._dirty.pop(number) for number in some}
            self._sending |= data
            task = asyncio.ensure_future(self._give(data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await self._wait(_BEHIND)

    async def _give(self, data: Mapping[int, Any]) -> None:
        try:
            if sum(map(len, data.values())) > self._block:
                blocks = await asyncio.to_thread(self._made, data)
            else:
                blocks = self._made(data)
            put = list(self._put)
            places = await self._sender.announce(self.name, self.session, blocks, put)
            self._is_told(put)
            there = await self._sender.send(self.name, self.session, blocks, places)
        except Exception as error:
            self._wrong = error
            return
        for number, _, agents in there:
            if self._sending.get(number) is data[number]:
                del self._sending[number]
                self._sent[number] = (blocks[number].content, agents)
        self._put += there
        if self._settings.copies:  # of what nobody knows no copy is made again
            with suppress(OSError):
                put = list(self._put)
                await self._sender.announce(self.name, self.session, {}, put)
                self._is_told(put)

    def _is_told(self, put: Sequence[Any]) -> None:
        told = set(map(id, put))
        self._put = [one for one in self._put if id(one) not in told]

    def _made(self, data: Mapping[int, Any]) -> dict[int, Block]:
        return {number: self._sender.made(one, self._settings) for number, one in data.items()}

    async def _wait(self, most: int) -> None:
        """Until no more bytes than these are on their way."""
        while self._tasks and sum(map(len, self._sending.values())) > most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        if not most:
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._raise()

    def _raise(self) -> None:
        if self._wrong is not None:
            raise self._wrong

    def _start_clock(self) -> None:
        if self._settings.write_back and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.write_back, self._flush_soon)

    def _flush_soon(self) -> None:
        async def flush() -> None:
            with suppress(OSError):  # the next one who writes hears of it
                await self.flush()

        self._timer = None
        self._flushing = asyncio.ensure_future(flush())
