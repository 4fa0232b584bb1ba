"""How many bytes on their way at a time, and how many per second.

Workers get this module by value: it imports nothing of ours.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from time import monotonic


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


class Rate:
    """So many bytes per second; after a pause, what one second allows goes at once."""

    def __init__(self, rate: float = inf, clock: Callable[[], float] = monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._free = 0.0 if rate == inf else rate
        self._since = clock()

    def set(self, rate: float) -> None:
        """From now on."""
        self.rate = rate
        self._free = 0.0 if rate == inf else min(self._free, rate)
        self._since = self._clock()

    def due(self, nbytes: int) -> float:
        """Seconds to wait until these bytes may go; they count as gone."""
        if self.rate == inf:
            return 0.0
        now = self._clock()
        # a clock that goes back gives nothing and takes nothing
        self._free = min(self.rate, self._free + max(0.0, now - self._since) * self.rate) - nbytes
        self._since = now
        return max(0.0, -self._free / self.rate)

    async def wait(self, nbytes: int) -> None:
        """Until these bytes may go."""
        if (seconds := self.due(nbytes)) > 0:
            await asyncio.sleep(seconds)
