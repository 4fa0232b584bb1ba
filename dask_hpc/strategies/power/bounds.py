"""Which bounds count now: those of this moment, those that are coming, and how far inside decisions stay."""

from collections.abc import Iterator
from math import inf
from typing import Literal, NamedTuple

from dask_hpc.model.constraint import smallest_legal
from dask_hpc.model.corridor import Corridor
from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power.balance import TINY, Balance

Side = Literal["", "lower", "upper"]


class Bounds(NamedTuple):
    """A corridor at one time; decisions aim ``edge`` watts inside."""

    lower: float
    upper: float
    edge: float = 0.0

    @classmethod
    def around(cls, lower: float, upper: float, edge: float) -> "Bounds":
        """With as much of the edge as leaves half of the corridor."""
        return cls(lower, upper, min(edge, (upper - lower) / 4))

    @property
    def ceiling(self) -> float:
        """What decisions stay below."""
        return self.upper - self.edge if self.upper < inf else inf

    @property
    def floor(self) -> float:
        """What decisions stay above."""
        return self.lower + self.edge if self.lower > 0 else -inf

    @property
    def is_open(self) -> bool:
        """Whether there is no bound at all."""
        return self.lower <= 0 and self.upper == inf

    def side(self, power: PowerRange) -> Side:
        """Where power would be outside; too much is worse than too little."""
        if power.most > self.upper + TINY:
            return "upper"
        return "lower" if power.least < self.lower - TINY else ""


def common(corridor: Corridor, now: float, lookahead: float, edge: float) -> Bounds | None:
    """What is inside now and at every step to come within a time; None if there are none, or nothing is."""
    steps = corridor.coming(now, now + lookahead)
    if not steps:
        return None
    lower, upper = corridor.at(now)
    lower = max(lower, *(low for _, low, _ in steps))
    upper = min(upper, *(high for _, _, high in steps))
    return Bounds.around(lower, upper, edge) if lower < upper else None


class Coming:
    """The upper bounds to come, and the least that the machine can draw then.

    Jobs that can change their size count with their smallest, those that will have ended not at all.
    """

    def __init__(self, snapshot: Snapshot, balance: Balance, corridor: Corridor, until: float, edge: float):
        self._now, self._balance = snapshot.now, balance
        self._room: list[tuple[float, float]] = []
        for time, _, upper in corridor.coming(snapshot.now, until):
            if upper < inf:
                drawn = sum(self._above_idle(one) for one in _floor(snapshot, time))
                rest = balance.size * balance.view.idle + balance.bias + balance.extra.most
                self._room.append((time, upper - min(edge, upper / 4) - rest - drawn))

    def _above_idle(self, one: tuple[Job, int]) -> float:
        job, nodes = one
        return nodes * (self._balance.at_worst(job.id).most - self._balance.view.idle)

    def admits(self, job: Job, nodes: int) -> bool:
        """Whether a job that starts now on so many nodes leaves all of these bounds possible, or at least
        as possible as they are."""
        watts = self._above_idle((job, _least(job, nodes)))
        ends = self._now + job.walltime_on(nodes)
        return watts <= 0 or all(time >= ends or watts <= max(room, 0.0) + TINY for time, room in self._room)

    def book(self, job: Job, nodes: int) -> None:
        """It starts: from now on it counts."""
        watts = self._above_idle((job, _least(job, nodes)))
        ends = self._now + job.walltime_on(nodes)
        self._room = [(time, room - watts if time < ends else room) for time, room in self._room]


def _floor(snapshot: Snapshot, time: float) -> Iterator[tuple[Job, int]]:
    """Jobs that will run at that time, and their least nodes then."""
    for running in snapshot.running.values():
        if running.expected_end > time:
            nodes = len(running.nodes) if running.target is None else running.target
            yield running.job, _least(running.job, nodes)


def _least(job: Job, nodes: int) -> int:
    if job.kind != "malleable":
        return nodes
    return smallest_legal(job.constraint, job.min_nodes, nodes) or nodes
