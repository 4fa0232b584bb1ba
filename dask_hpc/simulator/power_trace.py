"""The power of one simulated run against its corridor: the curve, and how often, how long and by how much it
was outside.

A violation is a maximal interval outside the corridor, on either side, that is longer than one tick of the
platform: what the next tick's decision sets right does not count. Without a tick every interval counts.
The run begins with the first submission and ends with its last event. Lag is followed exactly, not
sampled: times of crossing and energies are closed forms.
"""

from array import array
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.model.power import Corridor


class PowerRecord:
    """24 bytes for each instant at which the work on the machine changes."""

    __slots__ = ("bounds", "end", "level", "ramp", "tick", "time", "watts")

    def __init__(self, ramp: float = 0.0, tick: float = 0.0) -> None:
        self.ramp = ramp
        #: an interval outside the corridor counts if it is longer than this
        self.tick = tick
        self.time = array("d")
        #: at that time, and where it goes from there
        self.watts = array("d")
        self.level = array("d")
        #: ``(from time, lower, upper)``; nothing if there is no corridor
        self.bounds: list[tuple[float, float, float]] = []
        self.end = -inf

    def step(self, time: float, watts: float, level: float) -> None:
        """From now on it goes to this level; the last word of an instant counts."""
        if self.time and self.time[-1] == time:
            self.watts[-1], self.level[-1] = watts, level
        elif not self.level or level != self.level[-1]:
            self.time.append(time)
            self.watts.append(watts)
            self.level.append(level)

    def bound(self, time: float, corridor: Corridor) -> None:
        """What the corridor is from now on."""
        lower, upper = corridor.at(time)
        if self.bounds and self.bounds[-1][0] == time:
            self.bounds[-1] = (time, lower, upper)
        elif not self.bounds or self.bounds[-1][1:] != (lower, upper):
            self.bounds.append((time, lower, upper))


#: points of the curve for each ramp time, and for how many ramp times after a step
_POINTS, _RAMPS = 4, 5
#: of the bound: a rounding error is no violation
_SLACK = 1e-9


@dataclass(frozen=True)
class PowerTrace:
    """Each value holds from its time to the next; without a corridor the bounds are 0 and infinite."""

    time: np.ndarray
    watts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    #: beginnings and ends
    violations: tuple[tuple[float, float], ...]
    #: seconds outside, joules outside and in all
    time_outside: float
    energy_outside: float
    energy: float
    has_corridor: bool


class _Spans(NamedTuple):
    """Spans in which neither level nor corridor changes: columns of begin, length, power at first, the level
    that it goes to, and the bounds."""

    time: Any
    length: Any
    watts: Any
    level: Any
    lower: Any
    upper: Any


def power_trace(record: PowerRecord, begin: float, end: float = inf) -> PowerTrace:
    """From the steps that were written down, until ``end`` if the run did not end before."""
    spans = _spans(record, begin, end)
    outside, excess = _outside(spans, record.ramp)
    violations = tuple(span for span in outside if span[1] - span[0] > record.tick * (1 + _SLACK))
    return PowerTrace(
        *_curve(spans, record.ramp),
        violations=violations,
        time_outside=float(sum(b - a for a, b in outside)),
        energy_outside=excess,
        energy=float(_energy(spans.length, spans.watts, spans.level, record.ramp).sum()),
        has_corridor=bool(record.bounds),
    )


def _spans(record: PowerRecord, begin: float, end: float) -> _Spans:
    end = max(min(record.end, end), begin)
    steps, first, level = (np.array(column) for column in (record.time, record.watts, record.level))
    bounds = np.array(record.bounds or [(begin, 0.0, np.inf)])
    cuts = np.unique(np.concatenate([[begin], steps, bounds[:, 0], [end]]))
    time = cuts[(cuts >= begin) & (cuts < end)]
    if not len(time):
        time = np.array([begin])
    step = np.maximum(np.searchsorted(steps, time, side="right") - 1, 0)
    bound = np.maximum(np.searchsorted(bounds[:, 0], time, side="right") - 1, 0)
    level = level[step]
    watts = level + (first[step] - level) * _fade(time - steps[step], record.ramp)
    length = np.diff(np.append(time, end))
    return _Spans(time, length, watts, level, bounds[bound, 1], bounds[bound, 2])


def _fade(elapsed: Any, ramp: float) -> Any:
    """The share of a step that is still to be made."""
    return np.exp(-np.maximum(elapsed, 0.0) / ramp) if ramp else np.zeros_like(elapsed)


def _energy(length: Any, watts: Any, level: Any, ramp: float) -> Any:
    return level * length + (watts - level) * ramp * (1.0 - _fade(length, ramp))


def _outside(spans: _Spans, ramp: float) -> tuple[list[tuple[float, float]], float]:
    """Maximal intervals outside, and the energy by which they miss the nearer bound."""
    time, length, watts, level, lower, upper = spans
    # where the curve crosses a bound; between those it is inside or outside as a whole
    cuts = np.sort(
        np.stack([0 * length, *(_crossing(spans, bound, ramp) for bound in (lower, upper)), length]), axis=0
    )
    found: list[tuple[float, float]] = []
    excess = 0.0
    pieces: list[Any] = []
    for a, b in pairwise(cuts):
        middle = level + (watts - level) * _fade((a + b) / 2, ramp)
        over = middle > upper + _SLACK * np.abs(np.where(np.isfinite(upper), upper, 0.0)) + _SLACK
        under = middle < lower - _SLACK * lower - _SLACK
        out = (over | under) & (b > a)
        if out.any():
            at = level + (watts - level) * _fade(a, ramp)
            joules = _energy(b - a, at, level, ramp)
            bound = np.where(over, upper, lower)
            excess += float(np.abs(joules - bound * (b - a))[out].sum())
            pieces.append(np.stack([time + a, time + b], axis=1)[out])
    for one in sorted(map(tuple, np.concatenate(pieces).tolist())) if pieces else ():
        if found and one[0] - found[-1][1] <= _SLACK * max(1.0, abs(one[0])):
            found[-1] = (found[-1][0], one[1])
        else:
            found.append((one[0], one[1]))
    return found, excess


def _crossing(spans: _Spans, bound: Any, ramp: float) -> Any:
    """Seconds into each span at which the curve crosses a bound; its end if it does not."""
    _, length, watts, level, _, _ = spans
    if not ramp:
        return length
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = ramp * np.log((watts - level) / (bound - level))
    return np.where((seconds > 0) & (seconds < length), seconds, length)


def _curve(spans: _Spans, ramp: float) -> tuple[Any, Any, Any, Any]:
    """Times, watts and bounds; a ramp is drawn with several points."""
    time, length, watts, level, lower, upper = spans
    end = float(time[-1] + length[-1])
    last = level[-1] + (watts[-1] - level[-1]) * _fade(length[-1:], ramp)[0]
    offsets = np.arange(_POINTS * _RAMPS + 1) * (ramp / _POINTS) if ramp else np.zeros(1)
    where, which = np.nonzero((offsets[None, :] < length[:, None]) | (offsets[None, :] == 0))
    moving = (which == 0) | (watts[where] != level[where])
    where, which = where[moving], which[moving]
    values = level[where] + (watts[where] - level[where]) * _fade(offsets[which], ramp)
    return (
        np.append(time[where] + offsets[which], end),
        np.append(values, last),
        np.append(lower[where], lower[-1]),
        np.append(upper[where], upper[-1]),
    )
