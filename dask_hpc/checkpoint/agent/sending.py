"""Blocks that a worker sends to an agent: as ``transfer``, but the one who has them has the say.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from secrets import token_hex
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.agent.block import Block
from dask_hpc.checkpoint.agent.pace import Window
from dask_hpc.checkpoint.agent.parcel import (
    CHUNK,
    SMALL,
    arrived,
    first_few,
    packed,
    spans,
    told,
    travelling,
    unpacked,
    views,
)
from dask_hpc.checkpoint.agent.transfer import WINDOW, an_answer, together
from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.seal import Damaged

_PATIENCE = 60.0  # seconds without an answer

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
            async with asyncio.timeout(_PATIENCE):
                said = await rpc.hpc_agent_put(offers=[told(block) for block in some], parts=parts)
            went(sum(block.nbytes for block in some))
        for place, answer in zip(places, an_answer(said), strict=True):
            found[place] = answer

    async def large(place: int) -> None:
        block = blocks[place]
        reach("send-begun")
        async with asyncio.timeout(_PATIENCE):
            said = await rpc.hpc_agent_expect(offer=told(block))
        if "coming" not in an_answer(said):
            found[place] = said
            return

        async def part(begin: int, end: int) -> None:
            async with window.room(end - begin):
                parts = await views(block, begin, end)
                reach("send-part")
                async with asyncio.timeout(_PATIENCE):
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
