"""What came to an agent and went from it: in all, and per second of late; and what its link could take."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from typing import Any

import psutil

_LATELY = 10.0  # seconds
_STEP = 0.5  # seconds that are counted together


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


def link_of(host: str) -> float:
    """Bytes per second of the network interface that has this address; without end if nobody knows."""
    interfaces = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        if name in interfaces and any(one.address == host for one in addresses):
            return interfaces[name].speed * 125_000.0 or inf  # it says Mbit/s, and 0 of what is no hardware
    return inf


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
