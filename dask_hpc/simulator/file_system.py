"""A shared parallel file system: all nodes that read or write get the same share of it.

A node's rate is ``min(link, total / nodes busy with it)``, the same for every node (seed 002, 4.2.3), so one
virtual clock of bytes per node serves all transfers: a transfer of b bytes per node ends when the clock
has advanced by b. Joining and leaving change only the clock's pace: O(log n) per event.
"""

from heapq import heappop, heappush
from math import inf, nan
from typing import Any


class FileSystem:
    """Transfers in progress. Times must not go backwards."""

    __slots__ = ("_clock", "_link", "_nodes", "_order", "_since", "_total", "transfers",
                 "waited")  # fmt: skip

    def __init__(self, link: float, total: float) -> None:
        self._link, self._total = link, total
        self._clock = 0.0  # bytes per node so far
        self._since = 0.0
        self._nodes = 0
        self._order = 0
        #: those in progress, the next to end in front
        self.transfers: list[tuple[float, int, int, int, Any]] = []
        #: the lengths of all transfers together
        self.waited = 0.0

    def begin(self, now: float, owner: Any, nodes: int, bytes_per_node: float, version: int = 0) -> None:
        """``nodes`` nodes of ``owner`` start to read or write."""
        self._advance(now)
        self._order += 1
        heappush(self.transfers, (self._clock + bytes_per_node, self._order, nodes, version, owner))
        self._nodes += nodes

    def abandon(self, now: float, owner: Any) -> None:
        """The owner's transfers stop unfinished."""
        self._advance(now)
        kept = [entry for entry in self.transfers if entry[4] is not owner]
        if len(kept) < len(self.transfers):
            self._nodes = sum(entry[2] for entry in kept)
            self.transfers[:] = sorted(kept, key=lambda entry: entry[:2])

    @property
    def mean_transfer(self) -> float:
        """Seconds of a transfer, on average; nan if there was none."""
        return self.waited / self._order if self._order else nan

    @property
    def next_end(self) -> float:
        """When the next transfer ends, as things are."""
        if not self.transfers:
            return inf
        left = self.transfers[0][0] - self._clock
        return self._since + (left / self._rate if left > 0 else 0.0)

    def ended(self, now: float) -> list[tuple[Any, int]]:
        """``(owner, version)`` of the transfers that end now."""
        done = []
        while self.transfers and self.next_end <= now:
            self._advance(now)
            clock, _, nodes, version, owner = heappop(self.transfers)
            self._clock = max(self._clock, clock)  # exactly there, whatever rounding did
            self._nodes -= nodes
            done.append((owner, version))
        return done

    @property
    def _rate(self) -> float:
        return min(self._link, self._total / self._nodes) if self._nodes else self._link

    def _advance(self, now: float) -> None:
        if self._nodes and now > self._since:
            self._clock += self._rate * (now - self._since)
            self.waited += len(self.transfers) * (now - self._since)
        self._since = now
