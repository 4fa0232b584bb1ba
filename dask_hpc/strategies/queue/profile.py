"""The free nodes over time that reservations are made in."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from dask_hpc.model.snapshot import Snapshot


class Profile:
    """A step function of time: ``free[i]`` nodes from ``times[i]`` on. The last step lasts for ever."""

    __slots__ = ("free", "times")

    def __init__(self, now: float, idle: int, ends: Iterable[tuple[float, int]] = ()) -> None:
        """``ends`` says when how many nodes come free, in order of time, all later than ``now``."""
        self.times = [now]
        self.free = [idle]
        for end, nodes in ends:
            if end == self.times[-1]:
                self.free[-1] += nodes
            elif end < inf:
                self.times.append(end)
                self.free.append(self.free[-1] + nodes)

    def copy(self) -> "Profile":
        """An independent copy."""
        twin = Profile.__new__(Profile)
        twin.times, twin.free = list(self.times), list(self.free)
        return twin

    def forget_before(self, now: float) -> None:
        """Drop the past."""
        at = bisect_right(self.times, now) - 1
        if at > 0:
            del self.times[:at], self.free[:at]
        self.times[0] = max(self.times[0], now)

    def at(self, time: float) -> int:
        """How many nodes are free then."""
        return self.free[bisect_right(self.times, time) - 1]

    def earliest(self, nodes: int, duration: float) -> float:
        """The first time from which ``nodes`` stay free for ``duration``; infinity if never."""
        times, free = self.times, self.free
        start = -1
        for at, available in enumerate(free):
            if start >= 0 and times[at] >= times[start] + duration:
                return times[start]
            if available < nodes:
                start = -1
            elif start < 0:
                start = at
        return times[start] if start >= 0 else inf

    def fits(self, start: float, nodes: int, duration: float) -> bool:
        """Whether ``nodes`` are free during the whole of ``duration`` from ``start`` on."""
        if start < self.times[0]:
            return False
        at = bisect_right(self.times, start) - 1
        end = start + duration
        while at < len(self.times) and self.times[at] < end:
            if self.free[at] < nodes:
                return False
            at += 1
        return True

    def take(self, start: float, nodes: int, duration: float) -> None:
        """Make ``nodes`` unavailable from ``start`` for ``duration`` (negative gives them back)."""
        first = self._step_at(start)
        last = self._step_at(start + duration) if duration < inf else len(self.times)
        for at in range(first, last):
            self.free[at] -= nodes

    def _step_at(self, time: float) -> int:
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at


def shadow_time(
    snapshot: Snapshot, starting: Sequence[tuple[float, int]], nodes: int, idle: int
) -> tuple[float, int]:
    """When ``nodes`` nodes can be had at the earliest, and how many will then be over.

    ``starting`` are the (end, nodes) of jobs decided but not yet started; ``idle`` is what they leave. More
    nodes than there are can never be had: infinity.
    """
    missing, now = nodes - idle, snapshot.now
    shadow = now
    for end, freed in _ends(snapshot, starting):
        if missing <= 0 and end > shadow:
            break
        shadow = max(end, now)
        missing -= freed
    return (inf, idle) if missing > 0 else (shadow, -missing)


def _ends(snapshot: Snapshot, starting: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """When how many nodes come free, in order of time."""
    others = sorted(starting, reverse=True)
    for end, _, running in snapshot.ends:
        while others and others[-1][0] <= end:
            yield others.pop()
        yield end, len(running.nodes)
    yield from reversed(others)
