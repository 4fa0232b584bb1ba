"""Blocks go from one worker to another: whoever keeps a copy asks for many blocks at once and gets the small
ones in one message; of large ones it asks for one part after another, with a few on their way at a time.

So neither end needs more memory than the blocks themselves, and a slow receiver slows nobody but itself.
What arrived is checked by its sum before anybody uses it; what did not arrive, or damaged, is asked for
again, after a while.

Who sends blocks has the other end fetch them: there is this one way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from random import uniform
from secrets import token_hex
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.store.value import is_opaque
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
)
from dask_hpc.checkpoint.worker.kept import KeptCopies

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
_LATELY, _STEP = 10.0, 0.5  # seconds of which traffic is told, and that are counted together

Wanted = dict[str, Any]
Found = Block | str | Exception


class Gone(LookupError):
    """Whoever was asked has no such block (any more)."""


class Window:
    """So many bytes at a time. What is larger than the window goes alone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def room(self, nbytes: int) -> AsyncIterator[None]:
        """Wait for room, and have it for as long as the block runs."""
        wanted = min(nbytes, self.size)
        while self.taken + wanted > self.size:
            self._changed.clear()
            await self._changed.wait()
        self.taken += wanted
        try:
            yield
        finally:
            self.taken -= wanted
            self._changed.set()


class Stream:
    """Fetches blocks from the worker behind ``rpc``. ``found(place, ...)`` is called with each, or with its
    content if that is one that we have, or with what was wrong; ``room(nbytes)`` holds room for a large one,
    or raises. ``window`` is shared by all that this worker fetches; ``chunk`` is the size of a message. With
    ``small`` blocks of at most so many bytes come in one with others, and stay in its memory."""

    def __init__(
        self,
        rpc: Any,
        found: Callable[[int, Found], Awaitable[None]],
        room: Callable[[int], AbstractContextManager[None]] | None = None,
        window: Window | None = None,
        chunk: int = CHUNK,
        small: int | None = None,
    ) -> None:
        self._rpc = rpc
        self._small = {} if small is None else {"small": small}
        self._found = found
        self._room = room or nullcontext
        self._chunk = chunk
        self._all = window or Window(WINDOW)
        self._here = Window(WINDOW)
        self._credits = asyncio.Semaphore(_CREDITS)
        self._left: deque[tuple[int, Wanted]] = deque()
        self._tries: dict[int, int] = {}
        #: why the worker is not asked for anything more, if so
        self._dead: Exception | None = None
        self._died = asyncio.Event()

    async def run(self, wanted: Sequence[Wanted]) -> None:
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
                said = await self._ask(
                    self._rpc.hpc_agent_offers(wanted=[what for _, what in some], **self._small)
                )
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
            theirs = unpacked([offers[place] for place in small], parts, not self._small)
            blocks = await asyncio.to_thread(list, theirs)
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


def _block(value: Any, content: str) -> Block | Exception:
    try:
        return Block.of(value, content)
    except Exception as error:  # whatever objects of users do when they are pickled
        return error


class AgentTraffic:
    """Bytes in and out, and copies that were made."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.bytes_in = 0
        self.bytes_out = 0
        #: of each step: when it began, bytes in either direction, copies
        self._lately: deque[list[float]] = deque()

    def came(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        self._count(nbytes, 1)

    def went(self, nbytes: int) -> None:
        self.bytes_out += nbytes
        self._count(nbytes, 0)

    def facts(self) -> dict[str, Any]:
        self._forget()
        return {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "traffic": sum(step[1] for step in self._lately) / _LATELY,
            "commits": sum(step[2] for step in self._lately) / _LATELY,
        }

    def _count(self, nbytes: int, commits: int) -> None:
        now = self._clock()
        if not self._lately or now - self._lately[-1][0] > _STEP:
            self._lately.append([now, 0, 0])
            self._forget()
        self._lately[-1][1] += nbytes
        self._lately[-1][2] += commits

    def _forget(self) -> None:
        before = self._clock() - _LATELY
        while self._lately and self._lately[0][0] < before:
            self._lately.popleft()


@dataclass
class _Reading:
    block: Block
    left: int
    heard: float


class Giver:
    """Gives other workers the blocks of this one: of its results, of the copies that it keeps, and of what it
    gathered from its neighbours to be fetched here. ``chunk`` is the size of a message. Lives in the event
    loop; contents of results are found in threads."""

    def __init__(self, worker: Any, kept: KeptCopies, traffic: AgentTraffic) -> None:
        self.chunk = CHUNK
        #: by content, what neighbours have and somebody is to fetch here
        self.gathered: dict[str, Block] = {}
        self._worker = worker
        self._kept = kept
        self._traffic = traffic
        self._readings: dict[str, _Reading] = {}
        #: of results, by key
        self._content: dict[Hashable, str] = {}
        #: what changed while contents were found, for each that waits for some
        self._waiting: list[set[Hashable]] = []

    def changed(self, key: Hashable) -> None:
        """What was known of this result no longer holds."""
        self._content.pop(key, None)
        for changed in self._waiting:
            changed.add(key)

    @property
    def held(self) -> int:
        return sum(one.block.nbytes for one in self._readings.values())

    def size(self, what: Wanted) -> int:
        """About how many bytes that is, without a look at them."""
        if "key" in what:
            task = self._worker.state.tasks.get(what["key"])
            return int(task.nbytes or 0) if task is not None else 0
        block = self._copy(what["content"])
        return 0 if block is None else block.nbytes

    async def offers(self, wanted: Sequence[Wanted], small: float | None = None) -> dict[str, Any]:
        """What goes into one message: an offer for each of the first few, and the bytes of the small ones,
        which have at most so many bytes."""
        least = SMALL * self.chunk if small is None else small
        some = wanted[: first_few(map(self.size, wanted), self.chunk)]
        blocks = await self._find(some)
        reach("give")
        offers: list[dict[str, Any]] = []
        inside: list[Block] = []
        for what, block in zip(some, blocks, strict=True):
            match block:
                case None:
                    offers.append({"gone": f"{what.get('key', what.get('content'))!r} is not here"})
                case Exception():
                    offers.append({"gone": f"{type(block).__name__}: {block}"})
                case str():
                    offers.append({"content": block})
                case _ if block.nbytes <= least:
                    offers.append({**told(block), "is": "small"})
                    inside.append(block)
                case _:
                    reading = token_hex(8)
                    self._readings[reading] = _Reading(block, block.nbytes, monotonic())
                    offers.append({**told(block), "reading": reading})
        try:
            parts = await asyncio.to_thread(packed, inside) if inside else []
        except (Damaged, Trouble) as error:
            return {"offers": [{"gone": str(error)} for _ in some], "parts": []}
        self._traffic.went(sum(block.nbytes for block in inside))
        return {"offers": offers, "parts": parts}

    async def part(self, reading: str, begin: int, end: int) -> dict[str, Any]:
        """Bytes of a large block; an empty range ends the reading."""
        if (found := self._readings.get(reading)) is None:
            return {"gone": "nobody has asked for this block of late"}
        if begin == end:
            del self._readings[reading]
            return {"parts": []}
        found.heard = monotonic()
        reach("give-part")
        try:
            views = found.block.part(begin, end)
            parts = list(views) if found.block.in_memory else await asyncio.to_thread(list, views)
        except (Damaged, Trouble) as error:
            self._readings.pop(reading, None)
            return {"gone": str(error)}
        found.left -= end - begin
        if found.left <= 0:
            self._readings.pop(reading, None)
        self._traffic.went(end - begin)
        return {"parts": travelling(parts)}

    def forget(self, patience: float) -> None:
        """Hold nothing any longer for those who were silent for so many seconds."""
        before = monotonic() - patience
        for reading in [one for one, found in self._readings.items() if found.heard < before]:
            del self._readings[reading]

    async def _find(self, wanted: Sequence[Wanted]) -> list[Any]:
        """Each block: the content alone if it is one of those that whoever asks has, nothing if it is not
        here, and the error if it cannot be said in bytes."""
        found: list[Any] = []
        values: dict[int, tuple[Any, str]] = {}
        for place, what in enumerate(wanted):
            content, have = what.get("content"), what.get("have", ())
            if "key" not in what:
                found.append(content if content in have else self._copy(content))
                continue
            if "again" in what:  # what we knew of it may be wrong
                self.changed(what["key"])
            content = self._content.get(what["key"], "")
            is_here = what["key"] in self._worker.data
            found.append(content if is_here else None)
            if is_here and (not content or content not in have):
                values[place] = (self._worker.data[what["key"]], content)
        if not values:
            return found
        changed: set[Hashable] = set()
        self._waiting.append(changed)
        try:
            made = await asyncio.to_thread(
                lambda: {place: _block(value, content) for place, (value, content) in values.items()}
            )
        finally:
            self._waiting.remove(changed)
        for place, block in made.items():
            found[place] = block
            if isinstance(block, Block):
                # a pickle may be another one the next time
                if wanted[place]["key"] not in changed and not is_opaque(block.head):
                    self._content[wanted[place]["key"]] = block.content
                if block.content in wanted[place].get("have", ()):
                    found[place] = block.content
        return found

    def _copy(self, content: Any) -> Block | None:
        with suppress(KeyError):
            return self._kept.get(content)
        return self.gathered.get(content)
