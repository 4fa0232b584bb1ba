"""Simulated time, and many flows at once over links that they share, each as fast as is fair.

Max-min fairness: the rates of all flows rise together until a link is full; those on it stay, the others rise
on. That is what many streams over one network come to, and it needs no rates but those of links. What happens
in time is written as processes: generators that yield seconds to wait, or a ``Signal`` to wait for.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Union

_SMALL = 1e-9  # of a flow, that rounding may leave

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


@dataclass(frozen=True, slots=True)
class NetworkFlow:
    """So many bytes over these links, ``rate`` at most. It begins at ``start``, and not before the flow
    ``after`` has ended."""

    name: Hashable
    nbytes: float
    links: tuple[Hashable, ...]
    rate: float = inf
    start: float = 0.0
    after: Hashable = None


def fair_rates(flows: Sequence[NetworkFlow], links: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """The max-min fair rate of each."""
    rates: dict[Hashable, float] = {}
    room = {link: links[link] for one in flows for link in one.links if link in links}
    rising = list(flows)
    while rising:
        users = Counter(link for one in rising for link in one.links if link in room)
        share, tightest = min(
            ((room[link] / count, link) for link, count in users.items()),
            key=lambda entry: entry[0],
            default=(inf, None),
        )
        slowest = min(one.rate for one in rising)
        level = min(slowest, share)
        if slowest <= share:
            settled = [one for one in rising if one.rate == slowest]
        else:
            settled = [one for one in rising if tightest in one.links]
        for one in settled:
            rates[one.name] = level
            for link in one.links:
                if link in room:
                    room[link] = max(0.0, room[link] - level)
        rising = [one for one in rising if one.name not in rates]
    return rates


class Network:
    """Links, and what is on them. A link that nobody named never fills."""

    def __init__(self, clock: Clock, links: Mapping[Hashable, float]) -> None:
        self._clock = clock
        self.links = dict(links)
        self._flowing: dict[int, tuple[NetworkFlow, Signal]] = {}
        self._left: dict[int, float] = {}
        self._rates: dict[Hashable, float] = {}
        self._since = 0.0
        self._number = 0
        self._version = 0
        self._is_due = False

    def send(self, nbytes: float, links: tuple[Hashable, ...], rate: float) -> Signal:
        """Fires when everything has arrived, or broken when one of the links is cut."""
        arrived = Signal()
        self._number += 1
        self._move_on()
        self._flowing[self._number] = (NetworkFlow(self._number, nbytes, links, rate), arrived)
        self._left[self._number] = nbytes
        self._look_soon()
        return arrived

    def cut(self, link: Hashable) -> None:
        """What is on this link breaks off."""
        self._move_on()
        for number in [n for n, (one, _) in self._flowing.items() if link in one.links]:
            self._end(number, broken=True)
        self._look_soon()

    def _move_on(self) -> None:
        passed = self._clock.now - self._since
        self._since = self._clock.now
        if passed <= 0:
            return
        for number, left in self._left.items():
            self._left[number] = left - min(left, self._rates.get(number, 0.0) * passed)

    def _look_soon(self) -> None:
        """Once in an instant, however many transfers begin and end in it."""
        if not self._is_due:
            self._is_due = True
            self._clock.at(self._clock.now, self._look)

    def _look(self) -> None:
        self._is_due = False
        self._move_on()
        for number, (one, _) in list(self._flowing.items()):
            if self._left[number] <= _SMALL * one.nbytes:
                self._end(number)
        self._rates = fair_rates([one for one, _ in self._flowing.values()], self.links)
        self._version = version = self._version + 1
        for number in [number for number in self._flowing if self._rates[number] == inf]:
            self._end(number)
        times = (self._left[number] / self._rates[number] for number in self._flowing if self._rates[number])
        soonest = min(times, default=inf)
        if soonest < inf:
            # a step that is too small for the clock to show must still be one
            time = max(self._clock.now + soonest, self._clock.now * (1 + 1e-15))
            self._clock.at(time, lambda: self._look() if version == self._version else None)

    def _end(self, number: int, *, broken: bool = False) -> None:
        del self._left[number]
        _, arrived = self._flowing.pop(number)
        arrived.fire(broken=broken)


def ends(flows: Sequence[NetworkFlow], links: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """When each of them ends; infinite for those that stand still for ever."""
    clock = Clock()
    network = Network(clock, links)
    over = {one.name: Signal() for one in flows}
    found = dict.fromkeys(over, inf)

    def run(one: NetworkFlow) -> Process:
        yield one.start
        if one.after in over:
            yield over[one.after]
        yield network.send(one.nbytes, one.links, one.rate)
        found[one.name] = clock.now
        over[one.name].fire()

    for one in flows:
        clock.start(run(one))
    clock.run()
    return found
