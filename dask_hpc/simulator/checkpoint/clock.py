"""Time that passes from event to event, and processes that wait in it.

A process is a generator: it yields seconds to sleep, or a signal to wait for. What is due at one instant
happens in the order in which it was asked for, so that the same run is the same each time.
"""

from collections.abc import Callable, Generator, Iterable
from heapq import heappop, heappush
from math import inf
from typing import Union

Process = Generator[Union[float, "Signal"], None, None]


class Signal:
    """Something that happens once. ``is_broken``: what was waited for came to nothing."""

    __slots__ = ("_waiting", "has_fired", "is_broken")

    def __init__(self) -> None:
        self.has_fired = False
        self.is_broken = False
        self._waiting: list[Callable[[], None]] = []

    def fire(self, *, broken: bool = False) -> None:
        """It happens now; a second time nobody hears of."""
        if self.has_fired:
            return
        self.has_fired, self.is_broken = True, broken
        for call in self._waiting:
            call()
        self._waiting.clear()

    def then(self, call: Callable[[], None]) -> None:
        """Call when it happens, or now if it has."""
        if self.has_fired:
            call()
        else:
            self._waiting.append(call)


class Clock:
    """What is to come, in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call at that time; never, if it is infinite."""
        if time < inf:
            self._order += 1
            heappush(self._events, (max(time, self.now), self._order, call))

    def start(self, process: Process) -> Signal:
        """Let a process run, from this very moment on; answers what fires at its end."""
        over = Signal()

        def go_on() -> None:
            try:
                wish = next(process)
            except StopIteration:
                over.fire()
                return
            if isinstance(wish, Signal):
                # by way of the queue, so that no chain of processes is as deep as it is long
                wish.then(lambda: self.at(self.now, go_on))
            else:
                self.at(self.now + wish, go_on)

        go_on()
        return over

    def run(self, until: float = inf) -> None:
        """Until nothing is to come, or up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heappop(self._events)
            call()


def all_of(signals: Iterable[Signal]) -> Process:
    """Wait for every one of them."""
    yield from signals


class Slots:
    """So many at once; who comes later waits in line."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._line: list[Signal] = []

    def take(self) -> Signal:
        """Fires when it is our turn; ``give`` back afterwards."""
        turn = Signal()
        if self._free:
            self._free -= 1
            turn.fire()
        else:
            self._line.append(turn)
        return turn

    def give(self) -> None:
        """The next one's turn."""
        if self._line:
            self._line.pop(0).fire()
        else:
            self._free += 1
