"""Blocks that a worker fetches from another: it asks for many at once and gets the small ones in one message;
of large ones it asks for one part after another, with a few on their way at a time.

So neither end needs more memory than the blocks themselves, and a slow receiver slows nobody but itself.
What arrived is checked by its sum before anybody uses it; what did not arrive, or damaged, is asked for
again, after a while.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from random import uniform
from secrets import token_hex
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.worker.block import (
    CHUNK,
    SMALL,
    Block,
    arrived,
    first_few,
    packed,
    spans,
    told,
    travelling,
    unpacked,
    views,
)
from dask_hpc.checkpoint.worker.traffic import Window

#: bytes on their way from one worker
WINDOW = 3 * CHUNK
_LANES = 2  # messages of offers on their way from one worker
_CREDITS = 6  # messages with parts of large blocks
_MANY = 512  # blocks that are asked for at once
#: times that we ask for a block before we give up
TRIES = 3
_PAUSE = 0.1  # seconds before the second try; four times as many before the next
_PATIENCE = 60.0  # seconds without an answer
_SOON = 2.0
_FAREWELL = 1.0

Found = Block | str | Exception


class Gone(LookupError):
    """Whoever was asked has no such block (any more)."""


class Stream:
    """Blocks from the worker behind ``rpc``. ``found(place, ...)`` is called with each, or with its content
    if that is one that we have, or with what was wrong; ``room(nbytes)`` holds room for a large one, or
    raises. ``window`` is shared by all that this worker fetches; ``chunk`` is the size of a message."""

    def __init__(
        self,
        rpc: Any,
        found: Callable[[int, Found], Awaitable[None]],
        room: Callable[[int], AbstractContextManager[None]] | None = None,
        window: Window | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self._rpc = rpc
        self._found = found
        self._room = room or nullcontext
        self._chunk = chunk
        self._all = window or Window(WINDOW)
        self._here = Window(WINDOW)
        self._credits = asyncio.Semaphore(_CREDITS)
        self._left: deque[tuple[int, dict[str, Any]]] = deque()
        self._tries: dict[int, int] = {}
        #: why the worker is not asked for anything more, if so
        self._dead: Exception | None = None
        self._died = asyncio.Event()

    async def run(self, wanted: Sequence[dict[str, Any]]) -> None:
        """Each is a ``key`` or a ``content``, and may say which contents we ``have``."""
        self._left.extend(enumerate(wanted))
        await together([self._lane() for _ in range(min(_LANES, len(wanted)))])

    async def _lane(self) -> None:
        while self._left:
            count = min(_MANY, max(1, len(self._left) // (2 * _LANES)))
            some = [self._left.popleft() for _ in range(count)]
            if self._dead is not None:
                await self._failed(some, self._dead)
                continue
            reach("take-begun")
            try:
                said = await self._ask(self._rpc.hpc_agent_offers(wanted=[what for _, what in some]))
            except Exception as error:  # theirs, or of the connection
                await self._failed(some, error)
                continue
            offers = said["offers"]
            self._left.extendleft(reversed(some[len(offers) :]))
            await self._deal(some[: len(offers)], offers, said["parts"])

    async def _ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The answer to a call; none is waited for any longer once the worker was found dead."""
        asking, dying = asyncio.ensure_future(call), asyncio.ensure_future(self._died.wait())
        try:
            await asyncio.wait({asking, dying}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise self._dead or TimeoutError("it does not answer")
            return an_answer(asking.result())
        finally:
            asking.cancel()
            dying.cancel()

    async def _deal(self, some: list[Any], offers: list[dict[str, Any]], parts: list[Any]) -> None:
        small = [place for place, offer in enumerate(offers) if "is" in offer]
        if small:
            blocks = await asyncio.to_thread(list, unpacked([offers[place] for place in small], parts))
            for place, block in zip(small, blocks, strict=True):
                await self._came(some[place], block)
        large = []
        for one, offer in zip(some, offers, strict=True):
            if "gone" in offer:
                await self._found(one[0], Gone(offer["gone"]))
            elif "reading" in offer:
                large.append(self._large(one, offer))
            elif "is" not in offer:
                await self._found(one[0], offer["content"])
        await together(large)

    async def _large(self, one: tuple[int, dict[str, Any]], offer: dict[str, Any]) -> None:
        nbytes = sum(offer["sizes"])
        try:
            with self._room(nbytes):
                try:
                    block = arrived(offer, await self._parts(offer["reading"], nbytes))
                except OSError:  # it cannot hear us
                    raise
                except BaseException:
                    await self._read_no_more(offer["reading"])
                    raise
                await block.check_aside()
                await self._came(one, block)
        except Gone as error:
            await self._found(one[0], error)
        except MemoryError as error:
            await self._read_no_more(offer["reading"])
            await self._found(one[0], error)
        except Exception as error:
            await self._failed([one], error)

    async def _read_no_more(self, reading: str) -> None:
        """The worker need not hold it any longer; if it does not hear this, it does for a while."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._rpc.hpc_agent_part(reading=reading, begin=0, end=0)

    async def _parts(self, reading: str, nbytes: int) -> list[Any]:
        pieces: dict[int, list[Any]] = {}

        async def part(begin: int, end: int) -> None:
            async with self._credits, self._here.room(end - begin), self._all.room(end - begin):
                said = await self._ask(self._rpc.hpc_agent_part(reading=reading, begin=begin, end=end))
                if "gone" in said:
                    raise Gone(said["gone"])
                reach("take-part")
                pieces[begin] = [memoryview(one) for one in said["parts"]]

        await together([part(*span) for span in spans(nbytes, self._chunk)])
        return [piece for begin in sorted(pieces) for piece in pieces[begin]]

    async def _came(self, one: tuple[int, dict[str, Any]], block: Block | Damaged) -> None:
        place, what = one
        if isinstance(block, Block) and what.get("content", block.content) != block.content:
            block = Damaged(f"asked for {what['content']}, got {block.content}")
        if isinstance(block, Block):
            reach("take-arrived")
            await self._found(place, block)
        else:
            await self._failed([one], block)

    async def _failed(self, some: list[tuple[int, dict[str, Any]]], error: Exception) -> None:
        """Ask again later, unless that was the last time."""
        again = []
        if self._dead is None and not isinstance(error, Damaged) and not await is_there(self._rpc):
            self._dead = error
            self._died.set()
        for place, what in some:
            tried = self._tries[place] = self._tries.get(place, 0) + 1
            if tried >= TRIES or self._dead is not None:
                await self._found(place, error)
            else:
                again.append((place, {**what, "again": True}))
        if again:
            tried = max(self._tries[place] for place, _ in again)
            await asyncio.sleep(pause(tried))
            self._left.extend(again)


async def fetch(rpc: Any, what: dict[str, Any]) -> Block:
    """One block from the worker behind ``rpc``: of a ``{"key": ...}``, or of a ``{"content": ...}``. Raises
    ``Gone``, ``Damaged``, or what connections raise."""
    answers: list[Found] = []

    async def found(_: int, answer: Found) -> None:
        answers.append(answer)

    await Stream(rpc, found).run([what])
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, str):
        raise Gone(f"only the content came: {answer}")
    return answer


async def is_there(rpc: Any) -> bool:
    """Whether a worker answers at all: Dask tries for long to reach one that is dead."""
    try:
        async with asyncio.timeout(_SOON):
            await rpc.identity()
    except (OSError, TimeoutError):
        return False
    return True


def pause(tried: int) -> float:
    """Seconds before we try again: not the same for all, who may have failed at the same time."""
    return _PAUSE * 4.0 ** (tried - 1) * uniform(0.5, 1.5)


def an_answer(said: Any) -> Any:
    """What a worker said. Dask answers nothing to calls that a worker does not know."""
    if said is None:
        raise ConnectionError("it has no agent")
    return said


async def together(work: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Do all of this at once. The first error ends it, and is raised as it is."""
    if len(work) == 1:
        await work[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


_PATIENCE_OF_SENDING = 60.0  # seconds without an answer

Answer = dict[str, Any]


async def send(
    rpc: Any, blocks: Sequence[Any], went: Callable[[int], None], chunk: int = CHUNK
) -> list[Answer]:
    """Send blocks to the agent behind ``rpc``, in messages of that size. What it says of each, as of those
    that it takes by itself. Raises what connections raise, ``Damaged`` or ``Trouble`` if a block cannot be
    read here."""
    found: list[Answer] = [{} for _ in blocks]
    window = Window(WINDOW)

    async def few(places: Sequence[int]) -> None:
        some = [blocks[place] for place in places]
        async with window.room(sum(block.nbytes for block in some)):
            reach("send-begun")
            parts = await asyncio.to_thread(packed, some)
            async with asyncio.timeout(_PATIENCE_OF_SENDING):
                said = await rpc.hpc_agent_put(offers=[told(block) for block in some], parts=parts)
            went(sum(block.nbytes for block in some))
        for place, answer in zip(places, an_answer(said), strict=True):
            found[place] = answer

    async def large(place: int) -> None:
        block = blocks[place]
        reach("send-begun")
        async with asyncio.timeout(_PATIENCE_OF_SENDING):
            said = await rpc.hpc_agent_expect(offer=told(block))
        if "coming" not in an_answer(said):
            found[place] = said
            return

        async def part(begin: int, end: int) -> None:
            async with window.room(end - begin):
                parts = await views(block, begin, end)
                reach("send-part")
                async with asyncio.timeout(_PATIENCE_OF_SENDING):
                    answer = await rpc.hpc_agent_put_part(
                        coming=said["coming"], begin=begin, parts=travelling(parts)
                    )
                went(end - begin)
                if an_answer(answer):
                    found[place] = answer

        await together([part(*span) for span in spans(block.nbytes, chunk)])

    work = [large(place) for place, block in enumerate(blocks) if block.nbytes > SMALL * chunk]
    left = [place for place, block in enumerate(blocks) if block.nbytes <= SMALL * chunk]
    while left:
        count = first_few((blocks[place].nbytes for place in left), chunk)
        work.append(few(left[:count]))
        left = left[count:]
    if work:
        await together(work)
    return found


@dataclass
class _Coming:
    offer: dict[str, Any]
    room: ExitStack
    heard: float
    pieces: dict[int, list[Any]] = field(default_factory=dict)
    left: int = 0


class Receiving:
    """What others send to an agent. ``keep`` takes a block and gives the answer; ``have`` tells whether a
    content is here; ``room(nbytes)`` holds room for a large one, or raises."""

    def __init__(
        self,
        keep: Callable[[Block | Exception], Awaitable[Answer]],
        have: Callable[[str], Answer | None],
        room: Callable[[int], AbstractContextManager[None]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._keep = keep
        self._have = have
        self._room = room
        self._clock = clock
        self._coming: dict[str, _Coming] = {}

    async def put(self, offers: list[dict[str, Any]], parts: list[Any]) -> list[Answer]:
        """Small blocks."""
        answers = []
        for block in await asyncio.to_thread(list, unpacked(offers, parts)):
            reach("put-arrived")
            answers.append(await self._keep(block))
        return answers

    async def expect(self, offer: dict[str, Any]) -> Answer:
        """A large block is to come in parts."""
        if (there := self._have(offer["content"])) is not None:
            return there
        room, nbytes = ExitStack(), sum(offer["sizes"])
        try:
            room.enter_context(self._room(nbytes))
        except MemoryError as error:
            return {"full": str(error)}
        name = token_hex(8)
        self._coming[name] = _Coming(offer, room, self._clock(), left=nbytes)
        return {"coming": name}

    async def part(self, coming: str, begin: int, parts: list[Any]) -> Answer:
        """A part of it. The last one to come is answered by what became of the block."""
        if (found := self._coming.get(coming)) is None:
            return {"error": "nobody has announced this block of late"}
        reach("put-part")
        found.heard = self._clock()
        if begin not in found.pieces:
            found.pieces[begin] = [memoryview(part) for part in parts]
            found.left -= sum(piece.nbytes for piece in found.pieces[begin])
        if found.left > 0:
            return {}
        del self._coming[coming]
        with found.room:
            block = arrived(found.offer, [one for at in sorted(found.pieces) for one in found.pieces[at]])
            try:
                await block.check_aside()
            except Damaged as error:
                return await self._keep(error)
            reach("put-arrived")
            return await self._keep(block)

    def forget(self, patience: float) -> None:
        """Wait no longer for those who were silent for so many seconds."""
        before = self._clock() - patience
        for name in [one for one, found in self._coming.items() if found.heard < before]:
            self._coming.pop(name).room.close()


Wanted = dict[str, Any]


@dataclass
class _Reading:
    block: Any
    left: int
    heard: float


class Giving:
    """``find`` gives the blocks of what is wanted (their contents alone if whoever asks has them, nothing if
    they are not here), ``size`` about how large each is, and ``went`` hears of bytes that went. ``chunk`` is
    the size of a message."""

    def __init__(
        self,
        find: Callable[[Sequence[Wanted]], Awaitable[list[Any]]],
        size: Callable[[Wanted], int],
        went: Callable[[int], None],
        chunk: int = CHUNK,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.chunk = chunk
        self._find = find
        self._size = size
        self._went = went
        self._clock = clock
        self._readings: dict[str, _Reading] = {}

    @property
    def held(self) -> int:
        """Bytes of blocks that are being read."""
        return sum(one.block.nbytes for one in self._readings.values())

    async def offers(self, wanted: Sequence[Wanted]) -> dict[str, Any]:
        """What goes into one message: an offer for each of the first few, and the bytes of the small ones."""
        some = wanted[: first_few(map(self._size, wanted), self.chunk)]
        blocks = await self._find(some)
        reach("give")
        offers, small = [], []
        for what, block in zip(some, blocks, strict=True):
            if block is None:
                offers.append({"gone": f"{what.get('key', what.get('content'))!r} is not here"})
            elif isinstance(block, Exception):
                offers.append({"gone": f"{type(block).__name__}: {block}"})
            elif isinstance(block, str):
                offers.append({"content": block})
            elif block.nbytes <= SMALL * self.chunk:
                offers.append({**told(block), "is": "small"})
                small.append(block)
            else:
                offers.append({**told(block), "reading": self._begin(block)})
        try:
            parts = await asyncio.to_thread(packed, small) if small else []
        except (Damaged, Trouble) as error:
            return {"offers": [{"gone": str(error)} for _ in some], "parts": []}
        self._went(sum(block.nbytes for block in small))
        return {"offers": offers, "parts": parts}

    async def part(self, reading: str, begin: int, end: int) -> dict[str, Any]:
        """Bytes of a large block; an empty range ends the reading."""
        if (found := self._readings.get(reading)) is None:
            return {"gone": "nobody has asked for this block of late"}
        if begin == end:
            del self._readings[reading]
            return {"parts": []}
        found.heard = self._clock()
        reach("give-part")
        try:
            parts = await views(found.block, begin, end)
        except (Damaged, Trouble) as error:
            self._readings.pop(reading, None)
            return {"gone": str(error)}
        found.left -= end - begin
        if found.left <= 0:
            self._readings.pop(reading, None)
        self._went(end - begin)
        return {"parts": travelling(parts)}

    def forget(self, patience: float) -> None:
        """Hold nothing any longer for those who were silent for so many seconds."""
        before = self._clock() - patience
        for reading in [one for one, found in self._readings.items() if found.heard < before]:
            del self._readings[reading]

    def _begin(self, block: Any) -> str:
        reading = token_hex(8)
        self._readings[reading] = _Reading(block, block.nbytes, self._clock())
        return reading
