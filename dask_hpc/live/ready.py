"""Tasks that are ready and wait for their turn, best first; any of them may be taken out at any time."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any


class Ready:
    """A heap of keys by priority, and by arrival among equals. About 200 bytes for each."""

    __slots__ = ("_arrivals", "_heap", "_latest")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Hashable]] = []
        #: each key that waits, with the number of its arrival; other entries of the heap are void
        self._latest: dict[Hashable, int] = {}
        self._arrivals = 0

    def add(self, priority: Any, key: Hashable) -> None:
        """One more. Adding it again replaces it."""
        self._arrivals += 1
        self._latest[key] = self._arrivals
        heappush(self._heap, (priority, self._arrivals, key))

    def discard(self, key: Hashable) -> None:
        """It waits no more."""
        if self._latest.pop(key, None) is not None and len(self._heap) > 2 * len(self._latest) + 100:
            self._heap = [entry for entry in self._heap if self._latest.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def first(self) -> tuple[Any, Hashable] | None:
        """The best, with its priority, or None."""
        while self._heap:
            priority, arrival, key = self._heap[0]
            if self._latest.get(key) == arrival:
                return priority, key
            heappop(self._heap)
        return None

    def pop(self) -> Hashable | None:
        """Take the best out, or None."""
        best = self.first()
        if best is None:
            return None
        heappop(self._heap)
        del self._latest[best[1]]
        return best[1]

    def clear(self) -> None:
        """Nothing waits any more."""
        self._heap.clear()
        self._latest.clear()

    def __len__(self) -> int:
        return len(self._latest)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._latest

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._latest)
