"""How power was: the newest samples, and figures over all of them."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from dask_hpc.model.power import PowerRange, PowerView, Source


class Sample(NamedTuple):
    """Power and its corridor at one time."""

    time: float
    watts: float
    lower: float = 0.0
    upper: float = inf
    forecast: PowerRange | None = None
    source: Source = "modelled"
    uncertainty: float = 0.0
    doubt: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether power is not where it is to be."""
        return not self.lower <= self.watts <= self.upper


class LiveTrace:
    """The newest samples, and figures over all of them.

    An excursion is from a sample outside the corridor to the next one inside. It counts as a violation
    once it has lasted longer than ``tick``, as simulated ones do.
    """

    def __init__(self, length: int = 7_200, tick: float = 1.0) -> None:
        self.samples: deque[Sample] = deque(maxlen=length)
        self.tick = tick
        #: how many samples there ever were
        self.count = 0
        #: seconds outside, joules beyond the edges, and how many violations there were
        self.outside_seconds = self.outside_energy = 0.0
        self.violation_count = 0
        #: since when power is outside, and whether that counts already
        self._since: float | None = None
        self._counts = False

    def add(self, time: float, view: PowerView, lower: float = 0.0, upper: float = inf) -> None:
        """What is known now, and the corridor that holds now."""
        sample = Sample(
            time, view.watts, lower, upper, view.forecast, view.source, view.uncertainty, view.doubt
        )
        last = self.last
        if last is not None and last.is_outside:
            took = max(0.0, time - last.time)
            self.outside_seconds += took
            self.outside_energy += took * max(last.watts - last.upper, last.lower - last.watts)
        if self._since is not None:
            if time - self._since > self.tick and not self._counts:
                self._counts = True
                self.violation_count += 1
            if not sample.is_outside:
                self._since, self._counts = None, False
        elif sample.is_outside:
            self._since = time
        self.samples.append(sample)
        self.count += 1

    @property
    def last(self) -> Sample | None:
        """The newest sample, if there is any."""
        return self.samples[-1] if self.samples else None

    def since(self, number: int) -> Iterator[Sample]:
        """The samples from that number on (numbered from 0), as far as they are remembered."""
        return islice(self.samples, max(0, len(self.samples) - (self.count - number)), None)
