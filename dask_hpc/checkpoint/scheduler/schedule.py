"""What copies cost, how often workers die, and when the next copies are due: measured, not decided."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from time import monotonic

from dask_hpc.checkpoint.version import DISK, PARTNER, STORE
from dask_hpc.strategies.checkpoint.when import (
    Every,
    LevelCost,
    When,
    failure_rate,
    has_drifted,
    until_end,
    when,
)

#: seconds per byte and per commit, until one was measured: 10 GbE, an NVMe disk, a shared file system
_PER_BYTE: Mapping[str, float] = {PARTNER: 1e-9, DISK: 2e-9, STORE: 1e-8}
_PER_COMMIT: Mapping[str, float] = {PARTNER: 0.05, DISK: 0.05, STORE: 0.2}
#: weight of the newest measurement
_NEWEST = 0.3


class FailureCounts:
    """How many of which kind were seen, in how many seconds of how many nodes. ``mtbf`` are seconds between
    failures of one node that need a level (for the store: of the whole cluster), until some were seen."""

    def __init__(self, mtbf: Mapping[str, float]) -> None:
        self._mtbf = mtbf
        self._seen = dict.fromkeys(mtbf, 0)
        self._node_seconds = self._seconds = 0.0
        self._nodes = 0
        self._since = monotonic()

    def nodes(self, number: int) -> None:
        now = monotonic()
        self._node_seconds += self._nodes * (now - self._since)
        self._seconds += now - self._since
        self._nodes, self._since = number, now

    def seen(self, level: str) -> None:
        self._seen[level] += 1

    def rate(self, level: str) -> float:
        """Per second and node."""
        self.nodes(self._nodes)
        if level == STORE:
            of_all = failure_rate(self._mtbf[level], self._seen[level], self._seconds)
            return of_all / max(1, self._nodes)
        return failure_rate(self._mtbf[level], self._seen[level], self._node_seconds)


class Schedule:
    """Of one name. ``every`` is a rule, or seconds by level."""

    def __init__(self, levels: Sequence[str], every: Every, nbytes: float, failures: FailureCounts) -> None:
        self.levels = tuple(levels)
        self.every = every
        self.failures = failures
        self.planned: When | None = None
        #: seconds until the end of what is kept, as far as somebody knows it
        self.left = inf
        #: seconds of a commit to each level, a moving average
        self.costs = {level: _PER_COMMIT[level] + nbytes * _PER_BYTE[level] for level in levels}
        #: what the plan was made from, and how it would be if there were no end
        self._basis: tuple[tuple[LevelCost, ...], int] | None = None
        self._endless: When | None = None
        self._last: dict[str, float] = {}
        self._begun = monotonic()
        #: when the next commit to each level is due, by the process's clock
        self.due = dict.fromkeys(levels, monotonic())

    def measured(self, level: str, seconds: float) -> None:
        self.costs[level] += _NEWEST * (seconds - self.costs[level])

    async def plan(self, nodes: int) -> When | None:
        """A new plan if what the last one was made from has changed, or the end comes near."""
        rate = self.failures.rate
        costs = tuple(LevelCost(level, self.costs[level], rate(level)) for level in self.levels)
        if self._basis is None or has_drifted(*self._basis, costs, nodes):
            self._basis = (costs, nodes)
            self._endless = await asyncio.to_thread(when, self.every, costs, nodes)
        if self._endless is None:  # another one is about to know
            return None
        found = until_end(self._endless, *self._basis, self.left)
        if self.planned is not None and found.every == self.planned.every:
            return None
        self.planned = found
        for level, every in found.every.items():
            if level in self._last:
                self.due[level] = self._last[level] + every
            else:  # what is there is copied at once, unless that does not pay any more
                is_too_late = every > self._endless.every[level]
                self.due[level] = inf if is_too_late else self._begun
        return found

    def done(self, levels: Iterable[str] | None = None) -> None:
        """A commit is over, to all levels or to these."""
        now = monotonic()
        for level in self.levels if levels is None else levels:
            self._last[level] = now
            self.due[level] = now + (self.planned.every[level] if self.planned is not None else 0.0)

    def is_due(self, level: str) -> bool:
        """Whether a commit that is made now is to go there: the next one may be as far from when that is due
        as this one."""
        shortest = min(self.planned.every.values()) if self.planned is not None else 0.0
        return self.due[level] - monotonic() < (shortest / 2 if shortest < inf else inf)

    def due_in(self) -> dict[str, float | None]:
        """Seconds from now by level; None: never."""
        now = monotonic()
        return {level: max(0.0, at - now) if at < inf else None for level, at in self.due.items()}

    def copies_due(self) -> float:
        """By the process's clock; of any level but the store."""
        return min(due for level, due in self.due.items() if level != STORE)

    def store_due(self, is_whole: bool) -> float:
        """By the process's clock. What is there as a whole is written at once the first time."""
        if STORE in self._last or is_whole:
            return self.due[STORE]
        return self._begun + (self.planned.every[STORE] if self.planned is not None else inf)

    def next_due_in(self) -> float | None:
        """Seconds from now to any level; None: never."""
        return min((at for at in self.due_in().values() if at is not None), default=None)
