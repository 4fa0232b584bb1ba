"""Which share of the walltime that they asked for batch jobs use: people ask for more than they need.

Nobody tells, but whoever looks at the queue now and then sees jobs come and go. Those that were seen when
they had run for a while already say nothing about shorter ones, and those that still run only that they are
longer: the estimate is the one of Kaplan and Meier with late entries.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, log2

from dask_hpc.planning.asks.queue import QueueView

#: a guess to begin with: few jobs use what they asked for, many little of it, some are cut off by it
_GUESS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
_MOST = 1000  # jobs remembered, the newest
_ENOUGH = 20  # jobs of about the same walltime that stand for themselves
_ALIKE = 2.0  # walltimes are, up to a factor of four
_FULL = 0.99  # who has used so much has used all


@dataclass(frozen=True, slots=True)
class UsedShare:
    """One job: its walltime, the share that it had used when it was first seen, and when it was last seen, or
    ended."""

    limit: float
    first: float
    last: float
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class UsedShares:
    """The law of used over requested time, from jobs seen and a guess that counts as a dozen of them."""

    seen: tuple[UsedShare, ...] = ()
    _laws: "dict[int | None, ShareLaw]" = field(default_factory=dict, compare=False, repr=False)

    def given(self, after: float, limit: float = inf) -> "ShareLaw":
        """Of jobs of about this walltime that have used more than that share already."""
        size = round(log2(limit)) if 0 < limit < inf else None
        if size not in self._laws:
            self._laws[size] = self._law(size)
        return self._laws[size].given(after)

    def _law(self, size: int | None) -> "ShareLaw":
        alike = [one for one in self.seen if size is not None and abs(log2(one.limit) - size) <= _ALIKE]
        if sum(one.is_over for one in alike) >= _ENOUGH:
            return ShareLaw.of(alike)
        return ShareLaw.of((*self.seen, *(UsedShare(1.0, 0.0, share) for share in _GUESS)))


@dataclass(frozen=True, slots=True)
class ShareLaw:
    """A law of shares: up to ``shares[i]`` with probability ``levels[i]``, in proportion between them; the
    rest use all that they asked for."""

    shares: tuple[float, ...]
    levels: tuple[float, ...]
    after: float = 0.0

    @classmethod
    def of(cls, seen: Iterable[UsedShare]) -> "ShareLaw":
        """Estimated from jobs."""
        found = list(seen)
        events: dict[float, int] = {}
        edges: list[tuple[float, int]] = []
        for one in found:
            edges += [(one.first, 1), (max(one.last, one.first), -1)]
            if one.is_over and one.last < _FULL:
                events[max(one.last, one.first)] = events.get(max(one.last, one.first), 0) + 1
        edges.sort(key=lambda edge: (edge[0], edge[1] < 0))
        shares, levels = [0.0], [0.0]
        at_risk, place, surviving = 0, 0, 1.0
        for share in sorted(events):
            # at risk is who was seen by then and has not ended before
            while place < len(edges) and (edges[place][0] < share or edges[place] == (share, 1)):
                at_risk += edges[place][1]
                place += 1
            surviving *= 1 - events[share] / max(at_risk, events[share])
            if share > shares[-1]:
                shares.append(share)
                levels.append(1 - surviving)
            else:
                levels[-1] = 1 - surviving
        return cls(tuple(shares), tuple(levels))

    def given(self, after: float) -> "ShareLaw":
        """Of those that have used more than that."""
        return ShareLaw(self.shares, self.levels, max(after, 0.0))

    def level(self, share: float) -> float:
        """The probability of using no more than that."""
        at = bisect_right(self.shares, share) - 1
        if at + 1 >= len(self.shares):
            return self.levels[-1] if share < 1.0 else 1.0
        left, right = self.shares[at], self.shares[at + 1]
        return self.levels[at] + (share - left) / (right - left) * (self.levels[at + 1] - self.levels[at])

    def quantile(self, level: float) -> float:
        """The share that so many of ten do not exceed."""
        begin = self.level(self.after)
        wanted = begin + min(max(level, 0.0), 1.0) * (1.0 - begin)
        if self.after >= 1.0 or wanted >= self.levels[-1]:
            return max(self.after, 1.0)
        at = bisect_right(self.levels, wanted)
        low, high = self.levels[at - 1], self.levels[at]
        share = self.shares[at - 1] + (wanted - low) / (high - low) * (self.shares[at] - self.shares[at - 1])
        return max(share, self.after)


@dataclass(slots=True)
class ShareWatch:
    """Looks at a queue now and then and learns which shares are used."""

    _alive: dict[str, UsedShare] = field(default_factory=dict)
    _over: deque[UsedShare] = field(default_factory=lambda: deque(maxlen=_MOST))
    _looked: float = -inf

    def look(self, view: QueueView) -> UsedShares:
        """What is known after this look."""
        before, self._alive = self._alive, {}
        for job in view.running:
            if 0 < job.limit < inf:
                share = min(1.0, max(0.0, view.now - job.started) / job.limit)
                seen = before.pop(job.id, None)
                first = share if seen is None else min(seen.first, share)
                self._alive[job.id] = UsedShare(job.limit, first, share, is_over=False)
        for ask in view.pending:
            before.pop(ask.id, None)
            if 0 < ask.limit < inf and not ask.is_held:
                self._alive[ask.id] = UsedShare(ask.limit, 0.0, 0.0, is_over=False)
        for gone in before.values():
            # it ended since the last look; who waited then has begun since
            most = min(1.0, gone.last + (view.now - self._looked) / gone.limit)
            self._over.append(UsedShare(gone.limit, gone.first, (gone.last + most) / 2))
        self._looked = view.now
        running = tuple(one for one in self._alive.values() if one.last > one.first)
        return UsedShares((*self._over, *running))
