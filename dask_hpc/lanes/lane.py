"""The reads of one file system: which wait, which are in flight, and how they were served."""

from collections.abc import Hashable
from operator import add
from typing import NamedTuple

from dask_hpc.cluster.scheduler.jobs import LiveJob, Ready
from dask_hpc.model.io import LaneView


class Flight(NamedTuple):
    """A read that was let pass."""

    #: the worker it was sent to, if not Dask chose
    address: str | None
    since: float
    #: how many were in flight with it at first
    company: int
    #: the limit's number it is measured for, if it is
    period: int | None


class ReadSums(NamedTuple):
    """Sums over reads, as ``LaneView`` has them."""

    tasks: int = 0
    company: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0


class Lane:
    """The reads of one file system. A read is measured if others waited all the time, and as many were in
    flight as may be; if there is no limit, as many as there are when some have ended."""

    def __init__(self, name: str, rule: str, limit: int | None, is_fixed: bool) -> None:
        self.name = name
        #: the key of the configuration that limits it
        self.rule = rule
        self.limit = limit
        #: whether a person set the limit
        self.is_fixed = is_fixed
        self.reason = "set by configuration" if is_fixed else "no limit yet"
        #: how many tasks are in it, whatever their state
        self.tasks = 0
        self.in_flight: dict[Hashable, Flight] = {}
        #: what waits, by job; None for what is outside of jobs
        self.ready: dict[LiveJob | None, Ready] = {}
        #: reads that ended
        self.done = 0
        #: how many reads each worker was given here, and who got the last one
        self.given: dict[str, int] = {}
        self.last: str | None = None
        self._period = 0
        self._has_ended = False
        self._measured = ReadSums()
        #: reads per second and seconds of a read, when they were last known
        self.rate: float | None = None
        self.seconds: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more may pass now."""
        return self.limit is not None and len(self.in_flight) >= self.limit

    def discard(self, key: Hashable) -> None:
        for ready in self.ready.values():
            ready.discard(key)

    def count_waiting(self) -> int:
        return sum(map(len, self.ready.values()))

    def change(self, limit: int | None, reason: str) -> None:
        """Another limit from now on; measuring starts anew."""
        self.limit, self.reason = limit, reason
        self._period += 1
        self._has_ended = False
        self._measured = ReadSums()

    def departs(self, key: Hashable, address: str | None, now: float) -> None:
        """A read is let pass."""
        company = len(self.in_flight) + 1
        is_typical = self._has_ended if self.limit is None else company >= self.limit
        self.in_flight[key] = Flight(address, now, company, self._period if is_typical else None)
        if address is not None:
            self.given[address] = self.given.get(address, 0) + 1
            self.last = address

    def arrives(self, key: Hashable, is_done: bool, now: float) -> Flight:
        """A read is not in flight any more. ``is_done``: it has a result."""
        company = len(self.in_flight)
        flight = self.in_flight.pop(key)
        if not is_done:
            return flight
        self.done += 1
        self._has_ended = True
        if flight.period == self._period and self.count_waiting():
            took = now - flight.since
            more = (1, (flight.company + company) / 2, took, took**2)
            found = self._measured = ReadSums(*map(add, self._measured, more))
            if found.seconds > 0:
                self.rate, self.seconds = found.company / found.seconds, found.seconds / found.tasks
        return flight

    def view(self) -> LaneView:
        waiting, flying = self.count_waiting(), len(self.in_flight)
        return LaneView(self.name, self.limit, self.is_fixed, flying, waiting, self.done, *self._measured)
