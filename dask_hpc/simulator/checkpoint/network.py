"""Transfers that come and go on shared links while others are under way, at max-min fair rates."""

from collections.abc import Hashable, Mapping

from dask_hpc.simulator.checkpoint.clock import Clock, Signal
from dask_hpc.simulator.transfers import Transfer, fair_rates

_SMALL = 1e-9  # of a transfer, that rounding may leave


class Network:
    """Links, and what is on them. A link that nobody named never fills."""

    def __init__(self, clock: Clock, links: Mapping[Hashable, float]) -> None:
        self._clock = clock
        self.links = dict(links)
        #: bytes that each link has carried
        self.carried: dict[Hashable, float] = {}
        self._flowing: dict[int, tuple[Transfer, Signal]] = {}
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
        self._flowing[self._number] = (Transfer(self._number, nbytes, links, rate), arrived)
        self._left[self._number] = nbytes
        self._look_soon()
        return arrived

    def cut(self, link: Hashable) -> None:
        """What is on this link breaks off."""
        self._move_on()
        for number in [n for n, (one, _) in self._flowing.items() if link in one.links]:
            _, arrived = self._flowing.pop(number)
            del self._left[number]
            arrived.fire(broken=True)
        self._look_soon()

    def _move_on(self) -> None:
        passed = self._clock.now - self._since
        self._since = self._clock.now
        if passed <= 0:
            return
        for number, (one, _) in self._flowing.items():
            rate = self._rates.get(number, 0.0)
            step = min(self._left[number], rate * passed)
            self._left[number] -= step
            for link in one.links:
                self.carried[link] = self.carried.get(link, 0.0) + step

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
        self._version += 1
        version = self._version
        times = []
        for number in list(self._flowing):
            rate = self._rates[number]
            if rate == float("inf"):
                self._end(number)
            elif rate > 0:
                times.append(self._left[number] / rate)
        if times:
            # a step that is too small for the clock to show must still be one
            time = max(self._clock.now + min(times), self._clock.now * (1 + 1e-15))
            self._clock.at(time, lambda: self._look() if version == self._version else None)

    def _end(self, number: int) -> None:
        one, arrived = self._flowing.pop(number)
        left = self._left.pop(number)
        for link in one.links:
            self.carried[link] = self.carried.get(link, 0.0) + left
        arrived.fire()
