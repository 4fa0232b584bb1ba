"""Blocks that others fetch from a worker: small ones with the answer, large ones part by part.

A large one is held until all of it was read, or until its reader was not heard of for a while.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.agent.parcel import CHUNK, SMALL, first_few, packed, told, travelling, views
from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.seal import Damaged

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
