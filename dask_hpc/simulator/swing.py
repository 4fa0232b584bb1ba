"""Power that varies while a job runs: a season, noise, and the phases of its work, in its power range."""

from dataclasses import dataclass
from functools import lru_cache
from math import pi, sin
from random import Random
from sys import float_info

from dask_hpc.model.errors import insist, is_number
from dask_hpc.model.power import PowerRange


@dataclass(frozen=True, slots=True)
class Swing:
    """How the watts of a job's nodes move within its power range, from its start on.

    Every ``step`` seconds they are others. Around the middle of the range, or with ``phases`` around where
    the job's efficiency is (a node that waits for others draws the least, one that computes the most), goes
    a sine of ``season`` seconds, as far as ``reach``, a share of half of the range; it begins ``offset``
    seasons after the middle. ``noise`` is the standard deviation of what is drawn at each step with ``seed``,
    as a share of half of the range as well. What would be outside of the range is at its edge.
    """

    season: float = 0.0
    reach: float = 1.0
    offset: float = 0.0
    noise: float = 0.0
    step: float = 10.0
    seed: int = 0
    phases: bool = False

    def __post_init__(self) -> None:
        insist(is_number(self.season, 0, float_info.max), "season", self.season, "0 s or more")
        for name in ("reach", "offset", "noise"):
            insist(is_number(getattr(self, name), 0, 1), name, getattr(self, name), "a share from 0 to 1")
        fine = is_number(self.step, 0, float_info.max) and self.step > 0
        insist(fine, "step", self.step, "more than 0 s")
        insist(type(self.seed) is int, "seed", self.seed, "a whole number")

    def watts(self, within: PowerRange, step: int, efficiency: float = 1.0) -> float:
        """Of one node at its step of this number."""
        where = 2.0 * efficiency - 1.0 if self.phases else 0.0
        if self.season:
            where += self.reach * sin(2.0 * pi * (step * self.step / self.season + self.offset))
        if self.noise:
            where += self.noise * _drawn(self.seed, step)
        share = (1.0 + max(-1.0, min(1.0, where))) / 2.0
        return within.least + (within.most - within.least) * share


@lru_cache(100_000)
def _drawn(seed: int, step: int) -> float:
    return Random(f"{seed} {step}").gauss(0.0, 1.0)
