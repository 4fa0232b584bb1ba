"""What comes of a protocol: how long a calculation takes with it, on what, and with how much energy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from math import inf, pi
from typing import Any, Literal

import numpy as np

from dask_hpc.planning.interval import Pattern
from dask_hpc.planning.resilience.hardware import Case

Objective = Literal["time", "energy", "steady"]
#: "steady": deviations that are added to the mean
CAUTION = 1.0


@dataclass(frozen=True, slots=True)
class Spending:
    """Mean seconds by what they go into; while a protocol is optimised, arrays of them."""

    #: each part of the work once; the burden of messages that are logged or sent twice is in it
    computing: Any = 0.0
    commits: Any = 0.0
    failed_commits: Any = 0.0
    restarts: Any = 0.0
    failed_restarts: Any = 0.0
    #: all nodes compute what they had computed before
    recomputation: Any = 0.0
    #: some nodes compute what was lost, and the others wait
    recovery: Any = 0.0

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field.name) for field in fields(self))

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(*(one + more for one, more in zip(self, other, strict=True)))

    def __mul__(self, times: Any) -> "Spending":
        return Spending(*(part * times for part in self))

    @property
    def time(self) -> Any:
        return sum(self)

    def energy(self, case: Case, nodes: float) -> Any:
        """Joules of so many nodes."""
        powers, machine = case.hardware.powers, case.hardware
        helping = min(machine.helpers / nodes, 1.0)
        recovering = helping * powers.computing + (1 - helping) * powers.idle
        saving = self.commits + self.failed_commits + self.restarts + self.failed_restarts
        working = self.computing + self.recomputation
        return nodes * (powers.computing * working + powers.committing * saving + recovering * self.recovery)

    def at(self, place: tuple[int, ...]) -> "Spending":
        """Of arrays, one element."""
        full = np.broadcast_arrays(*self)
        return Spending(*(float(part[place]) for part in full))

    def as_plain(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


NEVER = Spending(inf)
_ENDLESS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A protocol at its optimum for a case."""

    protocol: str
    case: Case
    #: that are in use, replicas among them
    nodes: float
    #: to which it commits, the cheapest first
    places: tuple[str, ...] = ()
    #: how; None: never
    pattern: Pattern | None = None
    parts: Spending = NEVER
    #: standard deviation of the time, seconds
    deviation: float = inf
    #: why it cannot be used at all
    trouble: str = ""

    @property
    def time(self) -> float:
        return float(self.parts.time)

    @property
    def efficiency(self) -> float:
        return self.case.calculation.work / self.time

    @property
    def energy(self) -> float:
        """Joules."""
        return float(self.parts.energy(self.case, self.nodes)) if self.time < inf else inf

    @property
    def every(self) -> dict[str, float]:
        """Seconds of computing between two commits to each place or a safer one; inf: never."""
        found = dict.fromkeys(self.places, inf)
        if self.pattern is not None:
            whole = self.parts.computing * (1 - 1e-9)
            found |= {
                place: seconds
                for place, seconds in zip(self.places, self.pattern.every(), strict=True)
                if seconds < whole
            }
        return found

    def settled(self) -> "Prospect":
        """What takes so many times its work does not end, nor do numbers that are none."""
        return (
            self
            if self.time < _ENDLESS * self.case.calculation.work
            else replace(self, parts=NEVER, deviation=inf, pattern=None)
        )

    def cost(self, objective: Objective) -> float:
        """What is to be as small as possible."""
        return float(price(objective, self.case, self.nodes, self.parts, self.deviation))


def price(objective: Objective, case: Case, nodes: float, parts: Spending, spread: Any) -> Any:
    """What is to be as small as possible, of a time that is spread by so much."""
    if objective == "energy":
        return parts.energy(case, nodes)
    return parts.time + CAUTION * spread if objective == "steady" else parts.time


_POINTS = 24  # of each axis of a grid
_ROUNDS = 12


def least(cost: Callable[..., Any], *most: int) -> tuple[int, ...]:
    """The whole numbers from 1 to each ``most`` at which ``cost``, which takes arrays, is least: by grids
    that close in on the best point, and go along with it."""
    axes = [np.unique(np.geomspace(1, end, _POINTS).round()) for end in most]
    best: tuple[int, ...] = (1,) * len(axes)
    for _ in range(_ROUNDS):
        grid = np.meshgrid(*axes, indexing="ij", sparse=True)
        with np.errstate(all="ignore"):
            costs = np.asarray(cost(*grid))
        costs = np.broadcast_to(np.where(np.isnan(costs), inf, costs), tuple(len(axis) for axis in axes))
        place = np.unravel_index(int(np.argmin(costs)), costs.shape)
        best = tuple(int(axis[at]) for axis, at in zip(axes, place, strict=True))
        closer = [_around(axis, int(at), end) for axis, at, end in zip(axes, place, most, strict=True)]
        if all(np.array_equal(one, other) for one, other in zip(axes, closer, strict=True)):
            break
        axes = closer
    return best


def _around(axis: Any, at: int, most: int) -> Any:
    """Whole numbers from the neighbour before to that after; where there is none, as far again."""
    here = axis[at]
    before = axis[at - 1] if at else max(1, 2 * here - axis[min(1, len(axis) - 1)])
    after = axis[at + 1] if at + 1 < len(axis) else min(most, 2 * here - axis[max(len(axis) - 2, 0)])
    low, high = max(1, min(before, here - 3)), min(most, max(after, here + 3))
    return np.unique(np.linspace(low, high, _POINTS).round())


_CIRCLE = np.exp(2j * pi * np.arange(8) / 8)


def deviation(log_transform: Callable[[Any], Any], mean: Any) -> Any:
    """The standard deviation of times with these means, whose Laplace transforms' logarithms are these: from
    their second derivative at 0, which is a mean over a small circle (Cauchy), the last axis."""
    radius = 0.1 / np.asarray(mean)[..., None]
    around = log_transform(radius * _CIRCLE) * _CIRCLE**-2 / radius**2
    return np.sqrt(np.maximum(2 * np.mean(around.real, -1), 0.0))
