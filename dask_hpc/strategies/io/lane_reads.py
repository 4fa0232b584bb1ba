"""How the reads of one file system are counted and measured, which both bodies do alike."""

from collections.abc import Hashable
from operator import add
from typing import NamedTuple

from dask_hpc.model.story import Explanation
from dask_hpc.strategies.io.lane_view import IoView, LaneLimit, LaneView


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


class LaneReads:
    """The reads of one file system. A read is measured if others waited all the time, and as many were in
    flight as may be; if there is no limit, as many as there are when some have ended."""

    def __init__(self, name: str, limit: int | None, is_fixed: bool) -> None:
        self.name = name
        self.limit = limit
        #: whether a person set the limit
        self.is_fixed = is_fixed
        self.reason = "set by configuration" if is_fixed else "no limit yet"
        self.in_flight: dict[Hashable, Flight] = {}
        #: reads that ended
        self.done = 0
        self._period = 0
        self._has_ended = False
        self._measured = ReadSums()
        #: reads per second and seconds of a read, when they were last known
        self.rate: float | None = None
        self.seconds: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether no other may be in flight."""
        return self.limit is not None and len(self.in_flight) >= self.limit

    def count_waiting(self) -> int:
        """How many would be in flight if it were not full, or had workers for them."""
        raise NotImplementedError

    def change(self, limit: int | None, reason: str) -> None:
        """Another limit from now on; what is measured begins again."""
        self.limit, self.reason = limit, reason
        self._period += 1
        self._has_ended = False
        self._measured = ReadSums()

    def departs(self, key: Hashable, address: str | None, now: float) -> None:
        """A read is in flight."""
        company = len(self.in_flight) + 1
        is_typical = self._has_ended if self.limit is None else company >= self.limit
        self.in_flight[key] = Flight(address, now, company, self._period if is_typical else None)

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
        """As strategies see it."""
        waiting, flying = self.count_waiting(), len(self.in_flight)
        return LaneView(self.name, self.limit, self.is_fixed, flying, waiting, self.done, *self._measured)


def explained(view: IoView, change: LaneLimit, rule: str) -> Explanation:
    """Why a limit is another, and what was looked at."""
    lane = next(lane for lane in view.lanes if lane.name == change.lane)
    looked_at = ("limit", "in_flight", "waiting", "done", "tasks", "company", "seconds")
    inputs = {"threads": view.threads} | {name: getattr(lane, name) for name in looked_at}
    return Explanation(rule, inputs, change.rejected)
