"""A law as a list of times, each with its probability: what the programs work on (seed 004, 3.9)."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from dask_hpc.planning.reservation.law import Law, Times

#: of a law without an end: what lies beyond is left to the tail
BEYOND = 1e-7
#: with less left than this, all choices cost the same
_NOTHING = 1e-15


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Times at which a request may end, and the probability that the job takes longer than each. The first is
    where the job stands now: it takes longer than that for sure; the last is never exceeded."""

    times: np.ndarray
    longer: np.ndarray

    @classmethod
    def of(cls, start: float, times: np.ndarray, weights: np.ndarray) -> "Grid":
        """Rising times after ``start``, each with its probability; these are made to sum up to 1."""
        tail = np.concatenate([np.cumsum(np.asarray(weights, float)[::-1])[::-1], [0.0]])
        return cls(np.concatenate([[start], times]), tail / tail[0])._pruned()

    def _pruned(self) -> "Grid":
        """Without times at which nearly nothing is left; the last one stays."""
        keep = np.concatenate([[True], self.longer[1:-1] >= _NOTHING, [True]])
        return Grid(self.times[keep], self.longer[keep])

    @property
    def weights(self) -> np.ndarray:
        """The probability of each time but the first."""
        return -np.diff(self.longer)


def end_of(law: Law, beyond: float = BEYOND) -> float:
    """Where a grid for a law ends."""
    return law.high if isfinite(law.high) else float(law.isf(beyond))


def equal_time(law: Law, start: float, number: int, end: float, stops: Times = ()) -> Grid:
    """``number`` times at equal distances up to ``end``."""
    return grid_at(law, start, law.low + np.arange(1, number + 1) / number * (end - law.low), stops)


def equal_probability(law: Law, start: float, number: int, end: float, stops: Times = ()) -> Grid:
    """``number`` times up to ``end`` that are equally likely."""
    times = law.quantile(np.arange(1, number) / number * float(law.cdf(end)))
    return grid_at(law, start, np.append(times[times < end], end), stops)


def equal_hazard(law: Law, start: float, number: int, end: float, stops: Times = ()) -> Grid:
    """``number`` times up to ``end``, one half equally likely, between the others always the same share of
    the jobs ends that are still there: equal steps for an exponential law, steps that grow for a longer
    tail."""
    half = number // 2
    left = max(float(law.sf(end)), BEYOND)
    tail = law.isf(left ** (np.arange(1, number - half) / (number - half)))
    body = law.quantile(np.arange(1, half + 1) / (half + 1))
    times = np.concatenate([body, tail])
    return grid_at(law, start, np.append(times[times < end], end), stops)


def grid_at(law: Law, start: float, times: Times, stops: Times = ()) -> Grid:
    """At these times, the last of which counts as never exceeded, and at ``stops`` before it."""
    last = np.max(times)
    all_of = np.unique(np.concatenate([np.asarray(times, float), np.asarray(stops, float)]))
    all_of = all_of[(all_of > start) & (all_of <= last)]
    longer = np.asarray(law.sf(all_of), float)
    rest = longer[-1]
    longer = np.concatenate([[1.0], np.clip((longer - rest) / (1.0 - rest), 0.0, 1.0)])
    return Grid(np.concatenate([[start], all_of]), longer)._pruned()
